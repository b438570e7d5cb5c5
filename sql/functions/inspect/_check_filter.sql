-- _check_filter: refuses a queue or state that no job can have; null passes.
--
-- Locks:  none.
-- Raises: JQ001 no such queue; 22023 unknown state.
-- Notes:  A dropped queue still has dead and done jobs, so its name passes.
create or replace function _check_filter(queue text, state text)
returns void
language plpgsql
stable
set search_path from current
as $$
begin
  if queue is not null and not exists (
    select from queue q where q.name = _check_filter.queue collate "C")
  then
    perform _find_queue(queue);
  end if;
  if state not in ('ready', 'scheduled', 'suspended', 'running', 'dead', 'done', 'cancelled') then
    raise exception 'no such state'
      using errcode = '22023',
        detail = format('state = "%s"', left(state, 200)),
        hint = 'It is ready, scheduled, suspended, running, dead, done or cancelled.';
  end if;
end
$$;

comment on function _check_filter is
  'Refuses a queue name that was never used (JQ001) and an unknown state (22023). Private.';
