-- _nobody_waits: whether no consumer of the queue is idle, as far as can be seen from here.
--
-- Locks:  the queue's idle lock, exclusively, let go at once.
-- Raises: nothing.
-- Notes:  Consumers hold the lock in shared mode while they wait (wait_begin). True is certain;
--         false may also mean that another producer is just testing, which _wake tells apart.
create or replace function _nobody_waits(queue_id bigint)
returns boolean
language sql
volatile
return pg_try_advisory_lock(_idle_key(queue_id)) and pg_advisory_unlock(_idle_key(queue_id));

comment on function _nobody_waits is 'Whether certainly no consumer of the queue is idle. Private.';
