-- _dead_ids: the dead jobs that redrive and discard_dead are about, locked.
--
-- Locks:  the dead rows, in id order; those of a whole queue only if nobody else holds them.
-- Raises: 22023 unless exactly one of dead_ids and queue is given, for nulls in dead_ids, for n < 0
--         and for n without a queue; JQ001 no such queue; JQ003 if one of dead_ids is not dead.
-- Notes:  A dropped queue can be named too, as long as no other has its name: its dead are still
--         there to be discarded.
--         Those that died in one instant come in no order: sorting them by id read all of them.
create or replace function _dead_ids(dead_ids bigint[], queue text, n integer)
returns bigint[]
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
  target bigint;
  missing bigint;
begin
  if num_nonnulls(dead_ids, queue) <> 1 then
    raise exception 'give either dead_ids or queue' using errcode = '22023';
  end if;
  if exists (select from unnest(dead_ids) u (id) where u.id is null) then
    raise exception 'dead_ids must not hold nulls' using errcode = '22023';
  end if;
  if n < 0 then
    raise exception 'n must not be negative' using errcode = '22023';
  end if;
  if n is not null and queue is null then
    raise exception 'n is for a whole queue' using errcode = '22023';
  end if;
  if queue is not null then
    select q.id into target
    from queue q
    where q.name = _dead_ids.queue collate "C"
    order by q.current desc, q.version desc
    limit 1;
    if not found then
      perform _find_queue(queue);
    end if;
    select coalesce(array_agg(x.id order by x.id), '{}') into ids
    from (
      select d.id
      from dead_job d
      where d.queue_id = target
      order by d.dead_at
      limit n
      for update skip locked
    ) x;
    return ids;
  end if;
  select coalesce(array_agg(x.id), '{}') into ids
  from (
    select d.id from dead_job d where d.id = any (dead_ids) order by d.id for update
  ) x;
  select u.id into missing from unnest(dead_ids) u (id) where u.id <> all (ids) limit 1;
  if found then
    raise exception 'no such dead job'
      using errcode = 'JQ003',
        detail = format('job %s', missing),
        hint = 'It never died, or was redriven, discarded or purged meanwhile. Nothing was done.';
  end if;
  return ids;
end
$$;

comment on function _dead_ids is
  'Ids of the named dead jobs, or of the first n of a queue, locked, ascending. Private.';
