-- dead_letter: ends a job as dead, whatever attempts it has left.
--
-- Locks:  as dead_letter_many.
-- Raises: 22023 for nulls.
create or replace function dead_letter(job_id bigint, token bigint, error text default 'failed')
returns text
language plpgsql
volatile
security definer
set search_path from current
as $$
begin
  return (select d.outcome from dead_letter_many(array[job_id], array[token], array[error]) d);
end
$$;

comment on function dead_letter is
  'Ends a job as dead: it moves to dead_job, or into the dead letter queue of its queue, with '
  'reason ''failed'' and the error, at most 8192 characters. Answers ''dead'', ''lost'' or '
  '''gone'' as in ack. Errors: 22023.';
