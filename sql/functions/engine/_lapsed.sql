-- _lapsed: leases that have run out at or above the head of a lane (null: anywhere in it), among
-- the first n jobs there.
--
-- Locks:  none.
-- Raises: nothing.
-- Notes:  The head stops at the first job that is free, and claims go past it while an open
--         transaction holds that row: one that claims, suspends, cancels or replaces it. What they
--         have claimed lies right behind it, before the jobs that nobody has touched.
create or replace function _lapsed(lane_id bigint, head timestamptz, head_id bigint, n integer)
returns bigint[]
language plpgsql
stable
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  clock constant timestamptz := _now();
begin
  return array(
    select x.id
    from (
      select j.id, j.lease_until
      from job j
      where j.lane_id = _lapsed.lane_id
        and j.lane_id > 0
        and (j.run_at, j.id) >= (coalesce(head, '-infinity'), coalesce(_lapsed.head_id, 0))
        and j.run_at <= clock
      order by j.run_at, j.id
      limit n
    ) x
    where x.lease_until <= clock);
end
$$;

comment on function _lapsed is
  'Ids of jobs at or above the head of a lane whose lease ran out. Private.';
