-- suspend: holds a job back until resume.
--
-- Locks:  the job's row.
-- Raises: 22023 for null.
-- Notes:  Its run_at becomes infinity, outside every scan: any number of suspended jobs costs
--         claims nothing. Looks again if a producer has just replaced the job.
create or replace function suspend(job_id bigint)
returns text
language plpgsql
volatile
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  state text;
begin
  loop
    update job j
    set resume_at = j.run_at, run_at = 'infinity'
    where j.id = suspend.job_id and j.lease_until is null and j.resume_at is null;
    if found then
      return 'suspended';
    end if;
    state := _state(job_id);
    exit when state in ('suspended', 'running', 'gone');
  end loop;
  return state;
end
$$;

comment on function suspend is
  'Holds a job back until resume; expires_at still counts. Answers ''suspended'' (also if it was), '
  '''running'' or ''gone''. A job whose lease ran out counts as running until it is swept. '
  'Errors: 22023.';
