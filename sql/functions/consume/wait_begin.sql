-- wait_begin: declares this session an idle consumer of a queue, so that producers notify it.
--
-- Locks:  a shared session-level advisory lock on the queue, until wait_end or the session's end.
-- Raises: JQ001 no such queue; 22023 for null.
-- Notes:  The order that loses no wake-up: wait_begin, LISTEN on the answered channel, claim once
--         more, sleep, wait_end. LISTEN once a session is enough. What is committed between a
--         producer's test and that last claim is found by polling, which is never left out: the
--         notification is what is fast, the poll what is correct.
--         The lock outlives a ROLLBACK, as LISTEN does not: call both outside a transaction block.
--         Not through a pooler in transaction mode: the lock would stay with the server session.
create or replace function wait_begin(queue text)
returns text
language plpgsql
volatile
security definer
set search_path from current
as $$
declare
  target constant queue := _find_queue(queue);
begin
  perform pg_advisory_lock_shared(_idle_key(target.id));
  return _channel(target.id);
end
$$;

comment on function wait_begin is
  'Declares this session an idle consumer: from now on producers of the queue notify. Answers the '
  'channel to LISTEN on; quote it as an identifier. Pair each call with one wait_end. Errors: '
  'JQ001, 22023.';
