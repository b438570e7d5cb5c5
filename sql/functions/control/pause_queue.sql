-- pause_queue: claims of the queue find nothing from now on. Running jobs go on, enqueue works.
--
-- Locks:  as _change_queues.
-- Raises: JQ001 no such queue; 22023 for null.
-- Notes:  Stored: it outlives restarts. A claim whose statement began earlier may still take jobs.
create or replace function pause_queue(queue text)
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
  update queue q set paused = true where q.version = target.version and not q.paused;
  return found;
end
$$;

comment on function pause_queue is
  'From now on claims of the queue find nothing; running jobs go on and enqueue works. Answers '
  'false if it was paused already. Errors: JQ001, 22023.';
