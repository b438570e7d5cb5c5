-- _settled: the instant before which no producer of a lane can still commit a job, looking at the
-- 100 ms slots from `since` on.
--
-- Locks:  exclusive advisory try-locks on the lane and on slots that are over, each let go at once.
-- Raises: nothing.
-- Notes:  A slot that is over and free is settled for good: whoever stamped a job in it has ended,
--         and _announce stamps none there any more. The caller reads the jobs in a later statement,
--         whose snapshot therefore has all that such producers committed. If nobody at all is open
--         in the lane, no slot need be tested.
--         At most 6,000 slots (ten minutes) a call; the next call goes on from there.
--         Using pg_snapshot_xmax instead lost 60 of 3,942 jobs, and with pg_snapshot_xmin any idle
--         transaction of the cluster stopped every mark.
create or replace function _settled(lane_id bigint, since timestamptz)
returns timestamptz
language plpgsql
volatile
set search_path from current
as $$
declare
  lane_key constant bigint := _lane_key(lane_id);
  over constant timestamptz := _slot(_now());
  slot timestamptz := _slot(greatest(since, timestamptz '1970-01-01'));
begin
  if pg_try_advisory_lock(lane_key) and pg_advisory_unlock(lane_key) then
    return greatest(since, over);
  end if;
  for i in 1..6000 loop
    exit when slot >= over;
    exit when not (pg_try_advisory_lock(_slot_key(lane_id, slot))
      and pg_advisory_unlock(_slot_key(lane_id, slot)));
    slot := slot + interval '100 ms';
  end loop;
  return greatest(since, slot);
end
$$;

comment on function _settled is
  'Instant before which no open producer of the lane can add a job, from `since` on. Private.';
