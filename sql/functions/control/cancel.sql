-- cancel: ends a job that nobody wants any more, also while it runs.
--
-- Locks:  the job's row; as _keep.
-- Raises: 22023 for null.
-- Notes:  A running handler learns it from its next heartbeat or ack: 'gone'. The job becomes
--         history if its queue keeps any. Looks again if a producer has just replaced it.
create or replace function cancel(job_id bigint)
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
  ended job[];
begin
  loop
    delete from job j where j.id = cancel.job_id returning array[j] into ended;
    if found then
      perform _keep(ended, 'cancelled');
      return 'cancelled';
    end if;
    exit when _state(job_id) = 'gone';
  end loop;
  return 'gone';
end
$$;

comment on function cancel is
  'Ends a job, whether it runs or not; a running handler is told ''gone'' by its next heartbeat or '
  'ack. Answers ''cancelled'', or ''gone'' if there is no such live job. Errors: 22023.';
