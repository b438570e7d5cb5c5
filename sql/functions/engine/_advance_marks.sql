-- _advance_marks: appends new marks for those lanes of a queue where claims have passed jobs.
--
-- Locks:  as _settled; no row.
-- Raises: nothing.
-- Notes:  Only for READ COMMITTED: an old snapshot does not see the jobs that a mark would pass.
--         The head moves to the first job that is visible and unclaimed, in a snapshot taken after
--         the slots were tested, and never past `settled`. Others' uncommitted claims still look
--         unclaimed, so it stops there. Taking the first row that could be locked, instead of the
--         first visible one, would pass the jobs of claims that then roll back.
--         A producer that stays open longer than 2 s is passed: sweeps look below the head for
--         what it commits then. The tail never passes it.
--         A head in the future, by more than others' marks may be newer than this clock reading,
--         means that the clock was set back: then everything is looked at again.
--         Claims have passed jobs if the first one that is left runs, or is not the one at the head
--         any more: a lone consumer has nothing running whenever it claims. A last mark closes a
--         lane when that ends, and an idle lane writes nothing.
create or replace function _advance_marks(queue_id bigint)
returns void
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
  lane record;
  settled timestamptz;
  first_ready record;
begin
  for lane in
    select l.id, m.sweep_at, coalesce(first_job.passed, false) as passed,
      coalesce(m.head, '-infinity') as head,
      coalesce(m.head_id, 0) as head_id,
      coalesce(m.tail,
        (select case when min(v.created_at) <= clock then min(v.created_at) else '-infinity' end
         from queue v where v.id = _advance_marks.queue_id)) as tail,
      coalesce(m.tail_id, 0) as tail_id
    from (
      select distinct i.id from lane i
      where i.id between _advance_marks.queue_id << 16 and (_advance_marks.queue_id << 16) + 65535
    ) l
    left join lateral (
      select k.head, k.head_id, k.tail, k.tail_id, k.made_at, k.sweep_at, k.busy
      from mark k where k.lane_id = l.id order by k.seq desc limit 1
    ) m on m.head <= clock + interval '1 second'
    left join lateral (
      select j.lease_until is not null
        or (j.run_at, j.id) > (coalesce(m.head, '-infinity'), coalesce(m.head_id, 0)) as passed
      from job j
      where j.lane_id = l.id
        and j.lane_id > 0
        and (j.run_at, j.id) >= (coalesce(m.head, '-infinity'), coalesce(m.head_id, 0))
        and j.run_at <= clock
      order by j.run_at, j.id
      limit 1
    ) first_job on true
    where (m.made_at is null or not m.made_at between clock - interval '50 ms' and clock)
      and (first_job.passed or m.busy)
  loop
    settled := _settled(lane.id, greatest(lane.head, clock - interval '2 seconds'));
    select j.run_at, j.id into first_ready
    from job j
    where j.lane_id = lane.id
      and j.lane_id > 0
      and (j.run_at, j.id) >= (lane.head, lane.head_id)
      and j.run_at < settled
      and j.lease_until is null
    order by j.run_at, j.id
    limit 1;
    insert into mark (lane_id, head, head_id, tail, tail_id, made_at, sweep_at, busy)
    values (
      lane.id, coalesce(first_ready.run_at, settled), coalesce(first_ready.id, 0), lane.tail,
      lane.tail_id, clock,
      coalesce(lane.sweep_at, clock), lane.passed
    );
  end loop;
end
$$;

comment on function _advance_marks is
  'Appends marks for the lanes of a queue in which claims have passed jobs. Private.';
