-- _reopen: announces this transaction in the lanes of jobs that it is about to make claimable
-- again, and answers a run_at for them.
--
-- Locks:  as _announce, for each lane.
-- Raises: nothing.
-- Notes:  job_claim has both lane_id and id, in no useful order: planned while the table was empty,
--         PostgreSQL 15 read all of that index. The token, which is not in it, and the subquery,
--         which needs no order, leave the primary key as the only way.
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
    select distinct x.lane_id
    from (select j.lane_id from job j where j.id = any (ids) and j.token > 0 offset 0) x
    order by 1
  loop
    perform _announce(lane);
  end loop;
  return _now();
end
$$;

comment on function _reopen is
  'Announces a producer in the lanes of the given jobs; answers a run_at for them. Private.';
