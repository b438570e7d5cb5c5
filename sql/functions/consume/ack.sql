-- ack: ends a job as done; its row goes.
--
-- Locks:  the job's row.
-- Raises: 22023 for nulls.
-- Notes:  A stale claim is an answer, not an error: look at it. In the caller's transaction the ack
--         commits together with whatever else the caller did.
create or replace function ack(job_id bigint, token bigint)
returns text
language plpgsql
volatile
security definer
set search_path from current
as $$
begin
  return (select a.outcome from ack_many(array[job_id], array[token]) a);
end
$$;

comment on function ack is
  'Ends a job as done. Answers ''acked'' (the row is gone), ''lost'' (another claim holds the job '
  'or the lease ran out; nothing changed) or ''gone'' (no such job any more). Errors: 22023.';
