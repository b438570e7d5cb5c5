-- _sweep_queue: housekeeping of one queue, bounded: its lanes, its dead jobs past keep_dead, and
-- expired jobs, which are found by an index of their own whatever their queue.
--
-- Locks:  as _sweep_lane; dead rows, skipping those that others hold.
-- Raises: nothing.
-- Notes:  Claims sweep the lanes that had work since their last sweep, or that have leases which
--         ran out above their head; at most n jobs in each, n expired ones and n to purge. `whole`
--         is sweep's form: every lane, from its bottom.
create or replace function _sweep_queue(
  queue_id bigint,
  n integer,
  whole boolean default false,
  out recovered bigint,
  out exhausted bigint,
  out late bigint,
  out expired bigint,
  out purged bigint
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
  lane bigint;
  swept record;
  ids bigint[];
  target queue;
begin
  recovered := 0::bigint;
  exhausted := 0::bigint;
  late := 0::bigint;
  for lane in
    select l.id
    from (
      select distinct i.id from lane i
      where i.id between _sweep_queue.queue_id << 16 and (_sweep_queue.queue_id << 16) + 65535
    ) l
    left join lateral (
      select k.head, k.head_id, k.tail, k.tail_id, k.sweep_at
      from mark k where k.lane_id = l.id order by k.seq desc limit 1
    ) m on true
    where whole
      or ((m.tail, m.tail_id) < (m.head, m.head_id)
        and not m.sweep_at between clock and clock + interval '1 hour')
      or cardinality(_lapsed(l.id, m.head, m.head_id, 100)) > 0
    order by l.id desc
  loop
    swept := _sweep_lane(lane, n, whole);
    recovered := recovered + swept.recovered;
    exhausted := exhausted + swept.exhausted;
    late := late + swept.late;
  end loop;

  select array_agg(x.id) into ids
  from (
    select j.id from job j
    where j.expires_at <= clock
    order by j.expires_at
    limit n
    for update skip locked
  ) x;
  expired := case when ids is null then 0 else _bury(ids, 'expired') end;

  select * into target
  from queue q where q.id = _sweep_queue.queue_id order by q.current desc, q.version desc limit 1;
  delete from dead_job d
  where d.id = any (array(
    select x.id from dead_job x
    where x.queue_id = _sweep_queue.queue_id
      and x.dead_at < case when target.keep_dead < interval '2000 years'
        then clock - target.keep_dead else '-infinity' end
    order by x.dead_at
    limit n
    for update skip locked
  ));
  get diagnostics purged = row_count;

  if target.current and target.keep_done is not null then
    perform _make_days(queue_id);
  end if;
  if recovered + late > 0 then
    perform _wake(queue_id);
  end if;
end
$$;

comment on function _sweep_queue is
  'Bounded housekeeping of one queue; answers counts per kind. Private.';
