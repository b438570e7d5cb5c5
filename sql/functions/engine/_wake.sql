-- _wake: sends a notification if a consumer of the queue is idle, and none otherwise.
--
-- Locks:  an advisory try-lock on the queue's idle lock, let go at once.
-- Raises: nothing.
-- Notes:  Consumers hold the lock in shared mode while they wait (wait_begin). NOTIFY takes one
--         lock for the whole server at commit: with it, eight inserting clients fell from 26,000 to
--         12,000 commits a second. So a busy queue must send none. Exclusive got: nobody waits.
--         Exclusive and shared refused: another producer is testing, and it could only start if
--         nobody waits. Tested three times, because a producer whose shared test is under way looks
--         like a consumer. A job committed between this test and the consumer's last look is found
--         by its polling.
create or replace function _wake(queue_id bigint)
returns void
language plpgsql
volatile
set search_path from current
as $$
declare
  class_key constant integer := hashint8('queue'::regclass::bigint);
  queue_key constant integer := (queue_id & 2147483647)::integer;
begin
  for i in 1..3 loop
    if pg_try_advisory_lock(class_key, queue_key)
      and pg_advisory_unlock(class_key, queue_key)
    then
      return;
    end if;
    if not (pg_try_advisory_lock_shared(class_key, queue_key)
      and pg_advisory_unlock_shared(class_key, queue_key))
    then
      return;
    end if;
  end loop;
  perform pg_notify(_channel(queue_id), '');
end
$$;

comment on function _wake is 'Notifies the queue''s idle consumers, if there are any. Private.';
