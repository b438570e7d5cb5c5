-- _lock_in_order: locks the jobs of a batch that names some of them twice, before its items are
-- settled one by one in input order.
--
-- Locks:  the rows, in id order.
-- Raises: nothing.
create or replace function _lock_in_order(ids bigint[])
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
  perform from job j where j.id = any (ids) order by j.id for update;
end
$$;

comment on function _lock_in_order is 'Locks the given jobs in id order. Private.';
