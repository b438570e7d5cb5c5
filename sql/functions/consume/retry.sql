-- retry: gives a failed job back, to run again after a while; dead if this was its last attempt.
--
-- Locks:  as retry_many.
-- Raises: 22023 for nulls and bad delays.
create or replace function retry(
  job_id bigint,
  token bigint,
  error text default null,
  delay interval default null
)
returns text
language plpgsql
volatile
security definer
set search_path from current
as $$
begin
  return (
    select r.outcome
    from retry_many(array[job_id], array[token], array[error], array[delay]) r
  );
end
$$;

comment on function retry is
  'Gives a failed job back, to run again after delay, or after its own backoff if that is null. '
  'error is kept, at most 8192 characters. Answers ''retried'', ''dead'' (that was the last '
  'attempt: reason ''max attempts exceeded''), ''lost'' or ''gone'' as in ack. Errors: 22023.';
