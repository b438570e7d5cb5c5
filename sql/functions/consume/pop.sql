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
  taken claimed_job[];
begin
  select array_agg(c) into taken from claim(queue, 'pop', n, interval '1 hour') c;
  perform ack_many(array_agg(t.job_id), array_agg(t.token))
  from unnest(taken) t having count(*) > 0;
  return query select * from unnest(taken);
end
$$;

comment on function pop is
  'Takes up to n ready jobs and ends them at once, in run order: at most once. Answers '
  'claimed_job rows; none if nothing is ready or n <= 0. Errors: JQ001, 22023.';
