-- _sweep_lane: what claims leave behind in one lane: leases that ran out, and jobs that were
-- committed after the mark had passed them.
--
-- Locks:  rows of at most n jobs, skipping those that others hold; a producer's locks (_announce).
-- Raises: nothing.
-- Notes:  All of them lie between tail and head, so no index on lease_until is needed; above the
--         head only while somebody holds the job that it stands at (_lapsed). `whole` looks from
--         the bottom of the lane instead, for a clock that was set back. A lease that
--         ran out costs its attempt; the last one makes the job dead. The rest come back with a
--         fresh run_at, since claims do not look below the head. One guarded statement locks and
--         judges a row: a job that was acked, claimed or extended meanwhile is left alone.
--         Afterwards the tail moves up to the oldest live job or the oldest open producer.
--         The next sweep is due after a second, or after twenty times what this one took: a walk
--         grows with what was finished while a producer, or a long job and a snapshot, are held. If
--         there was more to do than n, it is due at once.
--         Old marks that another transaction is deleting are left to it: nobody waits here.
create or replace function _sweep_lane(
  lane_id bigint,
  n integer,
  whole boolean,
  out recovered bigint,
  out exhausted bigint,
  out late bigint
)
language plpgsql
volatile
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  clock constant timestamptz := _now();
  last record;
  spent bigint[];
  lost bigint[];
  unseen bigint[];
  settled timestamptz;
  oldest timestamptz;
  oldest_id bigint;
begin
  select m.busy, coalesce(m.head, q.created_at) as head, coalesce(m.head_id, 0) as head_id,
    coalesce(m.tail, q.created_at) as tail, coalesce(m.tail_id, 0) as tail_id
  into last
  from (
    select case when min(v.created_at) <= clock then min(v.created_at) else '-infinity' end
      as created_at
    from queue v where v.id = _sweep_lane.lane_id >> 16
  ) q
  left join lateral (
    select k.head, k.head_id, k.tail, k.tail_id, k.busy
    from mark k where k.lane_id = _sweep_lane.lane_id order by k.seq desc limit 1
  ) m on m.head <= clock + interval '1 second';
  settled := _settled(lane_id, last.tail);
  if whole then
    last.tail := '-infinity';
  end if;

  select
    array_agg(x.id order by x.id) filter (where x.spent),
    array_agg(x.id) filter (where x.claimed and not x.spent),
    array_agg(x.id) filter (where not x.claimed)
  into spent, lost, unseen
  from (
    select l.id, l.lease_until is not null as claimed,
      l.lease_until is not null and l.attempt >= coalesce(
        l.max_attempts,
        (select q.max_attempts from queue q where q.version = l.settings)) as spent
    from (
      select * from (
        select j.id, j.lease_until, j.attempt, j.max_attempts, j.settings
        from job j
        where j.lane_id = _sweep_lane.lane_id
          and j.lane_id > 0
          and (j.run_at, j.id) >= (last.tail, last.tail_id)
          and (j.run_at, j.id) < (last.head, last.head_id)
          and (j.lease_until is null or j.lease_until <= clock)
        order by j.run_at, j.id
        limit n
        for update of j skip locked
      ) below
      union all
      select * from (
        select j.id, j.lease_until, j.attempt, j.max_attempts, j.settings
        from job j
        where j.id = any (_lapsed(
            _sweep_lane.lane_id, last.head, last.head_id, case when whole then n else 100 end))
          and j.lease_until <= clock
        for update of j skip locked
      ) above
    ) l
  ) x;

  exhausted := case when spent is null then 0 else _bury(
    spent, 'max attempts exceeded', array_fill('lease expired'::text, array[cardinality(spent)])
  ) end;
  recovered := coalesce(cardinality(lost), 0)::bigint;
  late := coalesce(cardinality(unseen), 0)::bigint;
  if recovered + late > 0 then
    perform _announce(lane_id);
    update job j
    set run_at = _now(), lease_until = null, worker = null,
      last_error = case when j.lease_until is null then j.last_error else 'lease expired' end
    where j.id = any (lost || unseen);
  end if;

  select j.run_at, j.id into oldest, oldest_id
  from job j
  where j.lane_id = _sweep_lane.lane_id
    and j.lane_id > 0
    and (j.run_at, j.id) >= (last.tail, last.tail_id)
    and (j.run_at, j.id) < (last.head, last.head_id)
  order by j.run_at, j.id
  limit 1;
  if not found then
    oldest := last.head;
    oldest_id := last.head_id;
  end if;
  insert into mark (lane_id, head, head_id, tail, tail_id, made_at, sweep_at, busy)
  values (
    lane_id, last.head, last.head_id, least(oldest, settled),
    case when oldest <= settled then oldest_id else 0 end, clock,
    case when exhausted + recovered + late >= n then '-infinity'
      else _now() + greatest(interval '1 second', 20 * (_now() - clock)) end,
    coalesce(last.busy, false)
  );
  delete from mark k
  where k.ctid = any (array(
    select m.ctid
    from mark m
    where m.lane_id = _sweep_lane.lane_id
      and m.made_at < clock - interval '10 seconds'
    order by m.seq
    limit 1000
    for update skip locked
  ));
end
$$;

comment on function _sweep_lane is
  'Brings back or buries jobs of one lane whose lease ran out, and jobs committed late; moves the '
  'tail. Private.';
