-- _lock_waiting: locks those of the given jobs that do not run, before a batch replaces them one by
-- one in its own order.
--
-- Locks:  the rows, in id order, as purge_queue and drop_queue do.
-- Raises: nothing.
create or replace function _lock_waiting(ids bigint[])
returns void
language plpgsql
volatile
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  perform from job j where j.id = any (ids) and j.lease_until is null order by j.id for update;
end
$$;

comment on function _lock_waiting is
  'Locks those of the given jobs that do not run, in id order. Private.';
