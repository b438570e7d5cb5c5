-- _idle_key: the first key of the queues' idle locks (wait_begin); the second is the queue's id.
--
-- Locks:  none.
-- Raises: nothing.
create or replace function _idle_key()
returns integer
language sql
stable
return hashint8('queue'::regclass::bigint);

comment on function _idle_key is 'First key of the queues'' idle locks. Private.';
