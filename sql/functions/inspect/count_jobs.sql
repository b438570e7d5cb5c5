-- count_jobs: how many jobs there are, by queue and state.
--
-- Locks:  none.
-- Raises: JQ001 no such queue; 22023 unknown state.
-- Notes:  Exact, so it reads every job that it counts. queue_stats is the one to call often.
create or replace function count_jobs(queue text default null, state text default null)
returns setof job_count
language plpgsql
stable
security definer
set search_path from current
set jit = off
as $$
begin
  perform _check_filter(count_jobs.queue, count_jobs.state);
  return query
  select a.queue, a.state, count(*)
  from all_jobs a
  where (count_jobs.queue is null or a.queue = count_jobs.queue collate "C")
    and (count_jobs.state is null or a.state = count_jobs.state)
  group by a.queue, a.state
  order by a.queue, a.state;
end
$$;

comment on function count_jobs is
  'Exact numbers of jobs: one row of job_count per queue and state that has any. Reads every job '
  'it counts. Errors: JQ001, 22023.';
