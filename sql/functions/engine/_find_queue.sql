-- _find_queue: the current version of a queue, by name.
--
-- Locks:  none.
-- Raises: 22023 if the name is null; JQ001 if there is no such queue.
-- Notes:  The collation is said because an argument brings the one of the caller's column along.
--         enqueue and claim look for themselves, in the query that fetches what else they need, and
--         come here for the error.
create or replace function _find_queue(queue text)
returns queue
language plpgsql
stable
set search_path from current
as $$
declare
  found_queue queue;
begin
  select * into found_queue from queue q where q.name = _find_queue.queue collate "C" and q.current;
  if found then
    return found_queue;
  end if;
  if queue is null then
    raise exception 'queue must not be null' using errcode = '22023';
  end if;
  raise exception 'no such queue'
    using errcode = 'JQ001',
      detail = format('queue "%s"', left(queue, 200)),
      hint = 'Make it with create_queue.';
end
$$;

comment on function _find_queue is
  'The queue with that name in its current version; JQ001 if there is none. Private.';
