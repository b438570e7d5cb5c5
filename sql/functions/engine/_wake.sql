-- _wake: sends a notification if a consumer of the queue is idle, and none otherwise.
--
-- Locks:  an advisory try-lock on the queue's idle lock, let go at once.
-- Raises: nothing.
-- Notes:  NOTIFY takes one lock for the whole server at commit: with it, eight inserting clients
--         fell from 26,000 to 12,000 commits a second. So a busy queue must send none.
--         If the idle lock can be had exclusively, nobody waits. If not even in shared mode,
--         another producer is testing, and it could only start if nobody waits. Tested three times,
--         because a producer whose shared test is under way looks like a consumer. A job committed
--         between this test and the consumer's last look is found by its polling.
create or replace function _wake(queue_id bigint)
returns void
language plpgsql
volatile
set search_path from current
as $$
begin
  for i in 1..3 loop
    if _nobody_waits(queue_id)
      or not (pg_try_advisory_lock_shared(_idle_key(queue_id))
        and pg_advisory_unlock_shared(_idle_key(queue_id)))
    then
      return;
    end if;
  end loop;
  if exists (select from queue q where q.id = _wake.queue_id and q.current and q.notify) then
    perform pg_notify(_channel(queue_id), '');
  end if;
end
$$;

comment on function _wake is
  'Notifies the queue''s idle consumers, if there are any and the queue notifies. Private.';
