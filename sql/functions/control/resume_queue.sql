-- resume_queue: lets a paused queue be claimed from again, and wakes its idle consumers.
--
-- Locks:  as _change_queues.
-- Raises: JQ001 no such queue; 22023 for null.
create or replace function resume_queue(queue text)
returns boolean
language plpgsql
volatile
security definer
set search_path from current
as $$
declare
  target queue;
begin
  perform _change_queues();
  target := _find_queue(queue);
  update queue q set paused = false where q.version = target.version and q.paused;
  if not found then
    return false;
  end if;
  perform _wake(target.id);
  return true;
end
$$;

comment on function resume_queue is
  'Ends a pause_queue and wakes idle consumers. Answers false if the queue was not paused. '
  'Errors: JQ001, 22023.';
