-- _state: what to answer about a job that a control function cannot change.
--
-- Locks:  none.
-- Raises: 22023 if job_id is null.
-- Notes:  A lease that ran out still counts as running: the job is a sweep's to bring back.
create or replace function _state(job_id bigint)
returns text
language plpgsql
volatile
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  state text;
begin
  if job_id is null then
    raise exception 'job_id must not be null' using errcode = '22023';
  end if;
  select case
    when j.lease_until is not null then 'running'
    when j.resume_at is not null then 'suspended'
    when j.run_at > _now() then 'scheduled'
    else 'ready' end
  into state
  from job j where j.id = _state.job_id;
  return coalesce(state, 'gone');
end
$$;

comment on function _state is
  'running, suspended, scheduled, ready or, if there is no such live job, gone. Private.';
