-- wait_end: the session is no longer an idle consumer of the queue.
--
-- Locks:  lets go one wait_begin's lock.
-- Raises: JQ001 no such queue; JQ004 without a wait_begin; 22023 for null.
create or replace function wait_end(queue text)
returns void
language plpgsql
volatile
security definer
set search_path from current
set client_min_messages = error
as $$
declare
  target constant queue := _find_queue(queue);
begin
  if not pg_advisory_unlock_shared(_idle_key(target.id)) then
    raise exception 'this session does not wait on the queue'
      using errcode = 'JQ004',
        detail = format('queue "%s"', queue),
        hint = 'Call wait_begin first, once for each wait_end, in the same session.';
  end if;
end
$$;

comment on function wait_end is
  'Ends one wait_begin of this session: producers need not notify it any more. Errors: JQ001, '
  'JQ004, 22023.';
