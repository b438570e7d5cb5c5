-- _bury_orphans: ends jobs whose queue was dropped while their producer was still open.
--
-- Locks:  rows of at most n jobs, skipping those that others hold; as _bury.
-- Raises: nothing.
create or replace function _bury_orphans(queue_id bigint, n integer)
returns bigint
language plpgsql
volatile
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  ids bigint[];
begin
  select array_agg(x.id) into ids
  from (
    select j.id
    from job j
    where j.lane_id between _bury_orphans.queue_id << 16
        and (_bury_orphans.queue_id << 16) + 65535
      and j.lane_id > 0
    limit n
    for update skip locked
  ) x;
  return case when ids is null then 0 else _bury(ids, 'queue dropped') end;
end
$$;

comment on function _bury_orphans is
  'Ends jobs of a dropped queue as dead; answers how many. Private.';
