-- pop: claims up to n jobs and ends them at once: each runs at most once.
--
-- Locks:  as claim; as _keep.
-- Raises: JQ001 no such queue; 22023 for a null queue.
-- Notes:  If the caller dies after its commit, the jobs are gone. In a transaction that rolls back
--         they stay. The lease only has to outlast this call, however short the queue's may be.
create or replace function pop(queue text, n integer default 1)
returns setof claimed_job
language plpgsql
volatile
security definer
set search_path from current
as $$
declare
  taken claimed_job;
  job_ids bigint[] := array[]::bigint[];
  tokens bigint[] := array[]::bigint[];
begin
  for taken in select * from claim(queue, 'pop', n, interval '1 hour') loop
    job_ids := job_ids || taken.job_id;
    tokens := tokens || taken.token;
    return next taken;
  end loop;
  if cardinality(job_ids) > 0 then
    perform ack_many(job_ids, tokens);
  end if;
end
$$;

comment on function pop is
  'Takes up to n ready jobs and ends them at once, in run order: at most once. Answers '
  'claimed_job rows; none if nothing is ready or n <= 0. Errors: JQ001, 22023.';
