-- resume: lets a suspended job run again, at its old run time or now.
--
-- Locks:  the job's row; a producer's locks in its lane (_announce).
-- Raises: 22023 for null.
-- Notes:  Looks again, as promote does.
create or replace function resume(job_id bigint)
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
  lane bigint;
  stamp timestamptz;
  state text := _state(job_id);
begin
  while state = 'suspended' loop
    lane := (select j.lane_id from job j where j.id = resume.job_id);
    stamp := _announce(lane);
    update job j
    set run_at = greatest(j.resume_at, stamp), resume_at = null
    where j.id = resume.job_id and j.lane_id = lane and j.resume_at is not null;
    if found then
      perform _wake(lane >> 16);
      return 'resumed';
    end if;
    state := _state(job_id);
  end loop;
  return state;
end
$$;

comment on function resume is
  'Lets a suspended job run again, at the run time that it had, or now if that is past. Answers '
  '''resumed'', or its state if it was not suspended: ''ready'', ''scheduled'', ''running'' or '
  '''gone''. Errors: 22023.';
