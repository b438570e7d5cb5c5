-- _change_queues: lets one transaction at a time change what queues there are and how they are set.
--
-- Locks:  table queue, against other changes, until the transaction ends; not against readers.
-- Raises: nothing.
-- Notes:  Every change takes it first, so that none waits for another with a lock in hand.
create or replace function _change_queues()
returns void
language plpgsql
volatile
set search_path from current
as $$
begin
  lock table queue in share row exclusive mode;
end
$$;

comment on function _change_queues is 'Locks table queue against other changes. Private.';
