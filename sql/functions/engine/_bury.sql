-- _bury: moves jobs that no longer run into dead_job, in the statement that removes them.
--
-- Locks:  the rows, which the caller has locked already.
-- Raises: nothing.
-- Notes:  errors are per id; with them, ids must ascend. A null one leaves the last error standing.
create or replace function _bury(ids bigint[], reason text, errors text[] default null)
returns bigint
language plpgsql
volatile
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  clock constant timestamptz := _now();
  buried bigint;
begin
  with removed as (
    delete from job j where j.id = any (ids) returning j.*
  )
  insert into dead_job (
    id, queue_id, priority, run_at, enqueued_at, settings, token, attempt, worker, expires_at,
    max_attempts, visibility_timeout, retry_backoff, retry_factor, retry_delay, retry_max_delay,
    retry_jitter, headers, payload, reason, error, dead_at
  )
  select
    r.id, r.lane_id >> 16, (r.lane_id & 65535) - 32768, r.run_at, r.enqueued_at, r.settings,
    r.token, r.attempt, r.worker, r.expires_at, r.max_attempts, r.visibility_timeout,
    r.retry_backoff, r.retry_factor, r.retry_delay, r.retry_max_delay, r.retry_jitter, r.headers,
    r.payload, _bury.reason,
    coalesce(left(errors[width_bucket(r.id, ids)], 8192), r.last_error), clock
  from removed r;
  get diagnostics buried = row_count;
  return buried;
end
$$;

comment on function _bury is 'Moves locked jobs to dead_job; answers how many. Private.';
