-- promote: lets a scheduled or retrying job run now.
--
-- Locks:  the job's row; a producer's locks in its lane (_announce).
-- Raises: 22023 for null.
-- Notes:  Looks again if somebody has given the job another priority meanwhile, or replaced it: its
--         new run_at must be announced in the lane that it is in.
create or replace function promote(job_id bigint)
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
  while state = 'scheduled' loop
    lane := (select j.lane_id from job j where j.id = promote.job_id);
    stamp := _announce(lane);
    update job j
    set run_at = stamp
    where j.id = promote.job_id
      and j.lane_id = lane
      and j.lease_until is null
      and j.resume_at is null
      and j.run_at > stamp;
    if found then
      perform _wake(lane >> 16);
      return 'promoted';
    end if;
    state := _state(job_id);
  end loop;
  return state;
end
$$;

comment on function promote is
  'Lets a job that waits for its run time, or for its retry, run now. Answers ''promoted'', or the '
  'state that stood in the way: ''ready'', ''running'', ''suspended'', ''gone''. A job '
  'whose lease ran out counts as running until it is swept. Errors: 22023.';
