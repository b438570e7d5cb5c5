-- _change_queues: lets one transaction at a time change what queues there are and how they are set.
-- linking: the change makes or ends a way for dead letters.
--
-- Locks:  table queue, against other changes, until the transaction ends; not against readers.
-- Raises: 25001 if it is linking and the transaction is not READ COMMITTED.
-- Notes:  Every change takes it first, so that none waits for another with a lock in hand. An old
--         snapshot would not show that another queue has been linked to this one meanwhile: its
--         letters would have nowhere to go, or go round in a circle.
create or replace function _change_queues(linking boolean default false)
returns void
language plpgsql
volatile
set search_path from current
as $$
begin
  if linking then
    perform _need_read_committed('to drop a queue or to name a dead_letter_queue');
  end if;
  lock table queue in share row exclusive mode;
end
$$;

comment on function _change_queues is 'Locks table queue against other changes. Private.';
