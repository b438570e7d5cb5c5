-- queue_stats: the state of a queue in one row, at a cost that does not grow with it.
--
-- Locks:  none.
-- Raises: JQ001 no such queue; 22023 for nulls and bound < 1.
-- Notes:  Stable, so that all figures come from one snapshot. Each looks at no more than `bound`
--         rows of each lane; one that reaches it is a lower limit, and exact is false. Running jobs
--         lie between a lane's tail and the ready ones, so the first `bound` rows from there have
--         them all, unless more than that run.
create or replace function queue_stats(queue text, bound integer default 10000)
returns queue_state
language plpgsql
stable
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  target constant queue := _find_queue(queue_stats.queue);
  clock constant timestamptz := _now();
  lane bigint;
  tail timestamptz;
  seen record;
  oldest timestamptz;
  told queue_state;
begin
  if bound is null or bound < 1 then
    raise exception 'bound must be at least 1' using errcode = '22023';
  end if;
  told.queue := target.name;
  told.paused := target.paused;
  told.ready := 0;
  told.scheduled := 0;
  told.suspended := 0;
  told.running := 0;
  told.exact := true;
  for lane, tail in
    select l.id, m.tail
    from (
      select distinct i.id from lane i
      where i.id between target.id << 16 and (target.id << 16) + 65535
    ) l
    left join lateral (
      select k.tail from mark k where k.lane_id = l.id order by k.seq desc limit 1
    ) m on m.tail <= clock
  loop
    select count(*) as seen, count(x.since) filter (where x.free) as ready,
      min(x.since) filter (where x.free) as oldest
    into seen
    from (
      select coalesce(j.lease_until, j.run_at) as since,
        j.lease_until is null or j.lease_until <= clock as free
      from job j
      where j.lane_id = lane
        and j.lane_id > 0
        and j.run_at between coalesce(tail, '-infinity') and clock
      order by j.run_at, j.id
      limit bound
    ) x;
    told.ready := told.ready + seen.ready;
    told.running := told.running + seen.seen - seen.ready;
    oldest := least(oldest, seen.oldest);
    told.exact := told.exact and seen.seen < bound;

    select count(*) as seen into seen
    from (
      select from job j
      where j.lane_id = lane and j.lane_id > 0 and j.run_at > clock and j.run_at < 'infinity'
      limit bound
    ) x;
    told.scheduled := told.scheduled + seen.seen;
    told.exact := told.exact and seen.seen < bound;

    select count(*) as seen into seen
    from (
      select from job j
      where j.lane_id = lane and j.lane_id > 0 and j.run_at = 'infinity'
      limit bound
    ) x;
    told.suspended := told.suspended + seen.seen;
    told.exact := told.exact and seen.seen < bound;
  end loop;

  select count(*), count(*) filter (where x.dead_at > clock - interval '1 minute')
  into told.dead, told.dead_last_minute
  from (
    select d.dead_at from dead_job d
    where d.queue_id = target.id order by d.dead_at desc limit bound
  ) x;
  if target.keep_done is not null then
    select count(*) into told.done_last_minute
    from (
      select from done_job d
      where d.queue_id = target.id and d.done_at > clock - interval '1 minute'
      limit bound
    ) x;
  end if;
  told.exact := told.exact and told.dead < bound and coalesce(told.done_last_minute, 0) < bound;
  told.oldest_ready := clock - oldest;
  return told;
end
$$;

comment on function queue_stats is
  'One row of queue_state. No figure looks at more than `bound` rows of a priority; where that '
  'does not suffice it is a lower limit, and exact is false. Errors: JQ001, 22023.';
