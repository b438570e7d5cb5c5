-- discard_dead: removes dead jobs for good.
--
-- Locks:  the dead rows, in id order; those of a whole queue only if nobody else holds them.
-- Raises: 22023 unless exactly one of dead_ids and queue is given, for nulls in dead_ids, n < 0
--         and n without a queue; JQ001 no such queue; JQ003 if one of dead_ids is not dead.
-- Notes:  All or none.
create or replace function discard_dead(
  dead_ids bigint[] default null,
  queue text default null,
  n integer default null
)
returns bigint
language plpgsql
volatile
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  ids constant bigint[] := _dead_ids(dead_ids, queue, n);
begin
  delete from dead_job d where d.id = any (ids);
  return cardinality(ids)::bigint;
end
$$;

comment on function discard_dead is
  'Removes dead jobs for good: those named, or the n (null: all) of a queue that died first. All '
  'or none. Answers how many. Errors: JQ001, JQ003, 22023.';
