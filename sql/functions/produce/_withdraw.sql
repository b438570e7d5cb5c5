-- _withdraw: takes a job that does not run out of its queue, to be put back with other contents.
--
-- Locks:  the job's row: a claim that is just taking it is waited for.
-- Raises: nothing.
create or replace function _withdraw(job_id bigint)
returns job
language plpgsql
volatile
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  withdrawn job;
begin
  delete from job j
  where j.id = _withdraw.job_id and j.lease_until is null
  returning j.* into withdrawn;
  return withdrawn;
end
$$;

comment on function _withdraw is
  'Removes a job that does not run and answers its row, nulls if it runs or is gone. Private.';
