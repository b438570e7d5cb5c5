-- _reopen: announces this transaction in the lanes of jobs that it is about to make claimable
-- again, and answers a run_at for them.
--
-- Locks:  as _announce, for each lane.
-- Raises: nothing.
create or replace function _reopen(ids bigint[])
returns timestamptz
language plpgsql
volatile
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  lane bigint;
begin
  for lane in
    select distinct j.lane_id from job j where j.id = any (ids) order by 1
  loop
    perform _announce(lane);
  end loop;
  return _now();
end
$$;

comment on function _reopen is
  'Announces a producer in the lanes of the given jobs; answers a run_at for them. Private.';
