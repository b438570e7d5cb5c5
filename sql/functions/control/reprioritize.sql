-- reprioritize: moves a job that does not run to another priority.
--
-- Locks:  the job's row; a producer's locks in the new lane (_announce).
-- Raises: 22023 for nulls and a priority out of range.
-- Notes:  A ready job joins the end of its new lane, with a fresh run_at: claims do not look behind
--         the mark. A running one stays: its retry would come back into a lane in which nobody has
--         announced it. Looks again if a producer has just replaced the job.
create or replace function reprioritize(job_id bigint, priority integer)
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
  before bigint;
  stamp timestamptz;
begin
  if priority is null or priority not between -32768 and 32767 then
    raise exception 'priority is out of range'
      using errcode = '22023',
        detail = format('priority = %s', priority),
        hint = 'It is -32768 to 32767; higher runs first.';
  end if;
  loop
    select (j.lane_id & -65536) + priority + 32768, j.lane_id into lane, before
    from job j where j.id = reprioritize.job_id and j.lease_until is null;
    exit when lane is null or lane = before;
    stamp := _announce(lane);
    insert into lane (id) select lane where not exists (select from lane l where l.id = lane);
    update job j
    set lane_id = lane, run_at = greatest(j.run_at, stamp)
    where j.id = reprioritize.job_id and j.lease_until is null and j.lane_id <> lane;
    if found then
      perform _wake(lane >> 16);
      return 'reprioritized';
    end if;
  end loop;
  return _state(job_id);
end
$$;

comment on function reprioritize is
  'Gives a job that does not run another priority; a ready one joins the end of it. Answers '
  '''reprioritized'', or its state if nothing changed: ''running'', ''ready'', ''scheduled'', '
  '''suspended'', ''gone''. A job whose lease ran out counts as running until it is swept. '
  'Errors: 22023.';
