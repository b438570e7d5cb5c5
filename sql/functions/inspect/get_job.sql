-- get_job: one job, live, dead or done.
--
-- Locks:  none.
-- Raises: 22023 for null.
-- Notes:  No row if there is no such job, or nothing of it was kept. A move from one table to
--         another is one transaction, so a job is never seen twice, and never missed.
create or replace function get_job(job_id bigint)
returns setof all_jobs
language plpgsql
stable
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
begin
  if job_id is null then
    raise exception 'job_id must not be null' using errcode = '22023';
  end if;
  return query select a.* from all_jobs a where a.job_id = get_job.job_id;
end
$$;

comment on function get_job is
  'One row of all_jobs: the job, live, dead or done, with every option resolved (those of a done '
  'job''s retries are not kept); no row if there is no such job any more. Errors: 22023.';
