-- _keep: what is left to do when jobs that keep history or hold a dedup key are finished: their
-- rows go to done_job, their keys are free.
--
-- Locks:  rows of dedup, as _free_keys; for the first job of a day as _add_done_day.
-- Raises: as _add_done_day.
-- Notes:  Takes rows that the caller's statement has deleted already, so no job is locked twice.
--         results are found by the place of the id in ids, which must ascend.
create or replace function _keep(
  ended job[],
  outcome text,
  ids bigint[] default null,
  results jsonb[] default null
)
returns void
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
  day timestamptz;
begin
  perform _free_keys(array_agg(row(e.lane_id >> 16, e.dedup_key, e.id)::dedup))
  from unnest(ended) e where e.dedup_key is not null;

  for day in
    select distinct date_trunc('day', clock + e.keep_done, 'UTC')
    from unnest(ended) e where e.keep_done is not null
  loop
    perform _add_done_day(day);
  end loop;
  insert into done_job (
    id, queue_id, priority, outcome, run_at, enqueued_at, settings, token, attempt, max_attempts,
    worker, expires_at, redrives, dedup_key, headers, payload, progress, result, last_error,
    done_at, keep_until
  )
  select
    e.id, e.lane_id >> 16, (e.lane_id & 65535) - 32768, _keep.outcome,
    coalesce(e.resume_at, e.run_at), e.enqueued_at, e.settings, e.token, e.attempt, e.max_attempts,
    e.worker, e.expires_at, e.redrives, e.dedup_key, e.headers, e.payload, e.progress,
    results[width_bucket(e.id, ids)], e.last_error, clock, clock + e.keep_done
  from unnest(ended) e
  where e.keep_done is not null;
end
$$;

comment on function _keep is
  'Frees the dedup keys of finished jobs and puts those into done_job that are kept. Private.';
