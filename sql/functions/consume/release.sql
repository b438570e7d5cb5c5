-- release: gives a job back unrun, at no cost of an attempt; with a delay, a snooze.
--
-- Locks:  as release_many.
-- Raises: 22023 for nulls and bad delays.
create or replace function release(job_id bigint, token bigint, delay interval default null)
returns text
language plpgsql
volatile
security definer
set search_path from current
as $$
begin
  return (select r.outcome from release_many(array[job_id], array[token], array[delay]) r);
end
$$;

comment on function release is
  'Gives a job back at no cost of an attempt, to run again at once or after delay: for shutdown '
  'and snooze. Answers ''released'', ''lost'' or ''gone'' as in ack. Errors: 22023.';
