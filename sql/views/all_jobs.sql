-- all_jobs: every job there is, live, dead or done, in one shape.
create or replace view all_jobs as
select
  job_id,
  queue,
  state,
  priority,
  run_at,
  enqueued_at,
  expires_at,
  attempt,
  max_attempts,
  token,
  worker,
  lease_until,
  last_error,
  visibility_timeout,
  retry_backoff,
  retry_factor,
  retry_delay,
  retry_max_delay,
  retry_jitter,
  dedup_key,
  redrives,
  headers,
  payload,
  progress,
  null::jsonb as result,
  null::text as reason,
  null::timestamptz as ended_at
from jobs
union all
select
  job_id,
  queue,
  'dead' as state,
  priority,
  run_at,
  enqueued_at,
  expires_at,
  attempt,
  max_attempts,
  token,
  worker,
  null as lease_until,
  error as last_error,
  visibility_timeout,
  retry_backoff,
  retry_factor,
  retry_delay,
  retry_max_delay,
  retry_jitter,
  dedup_key,
  redrives,
  headers,
  payload,
  progress,
  null as result,
  reason,
  dead_at as ended_at
from dead_jobs
union all
select
  job_id,
  queue,
  case outcome when 'acked' then 'done' else outcome end as state,
  priority,
  run_at,
  enqueued_at,
  expires_at,
  attempt,
  max_attempts,
  token,
  worker,
  null as lease_until,
  last_error,
  null as visibility_timeout,
  null as retry_backoff,
  null as retry_factor,
  null as retry_delay,
  null as retry_max_delay,
  null as retry_jitter,
  dedup_key,
  redrives,
  headers,
  payload,
  progress,
  result,
  null as reason,
  done_at as ended_at
from done_jobs;

comment on view all_jobs is
  'Every job that is kept: live, dead or done. What only some of them have is null for the others.';
comment on column all_jobs.job_id is 'Id.';
comment on column all_jobs.queue is 'Name of the queue.';
comment on column all_jobs.state is
  'ready, scheduled, suspended, running, dead, done or cancelled.';
comment on column all_jobs.priority is 'Higher runs first.';
comment on column all_jobs.run_at is 'When its next run is due, or its last one was.';
comment on column all_jobs.enqueued_at is 'Database clock at enqueue.';
comment on column all_jobs.expires_at is 'Dead if not finished by then; null: never.';
comment on column all_jobs.attempt is 'Runs used.';
comment on column all_jobs.max_attempts is 'Runs in all.';
comment on column all_jobs.token is 'Of the latest claim.';
comment on column all_jobs.worker is 'Label of the latest claimant.';
comment on column all_jobs.lease_until is 'End of the lease, while it runs.';
comment on column all_jobs.last_error is 'Error of the last failed run, or what it died of.';
comment on column all_jobs.visibility_timeout is 'Length of a lease; null if done.';
comment on column all_jobs.retry_backoff is 'fixed, linear or exponential; null if done.';
comment on column all_jobs.retry_factor is 'Base of the exponential curve; null if done.';
comment on column all_jobs.retry_delay is 'Delay before the second run; null if done.';
comment on column all_jobs.retry_max_delay is 'Cap of the curve, before jitter; null if done.';
comment on column all_jobs.retry_jitter is 'Range the delay is multiplied with; null if done.';
comment on column all_jobs.dedup_key is 'As the producer gave it.';
comment on column all_jobs.redrives is 'How often it came back from the dead.';
comment on column all_jobs.headers is 'As the producer gave them.';
comment on column all_jobs.payload is 'As the producer gave it.';
comment on column all_jobs.progress is 'What the handler last said with heartbeat.';
comment on column all_jobs.result is 'What the ack said, if done.';
comment on column all_jobs.reason is
  'Why, if dead: failed, max attempts exceeded, expired or queue dropped.';
comment on column all_jobs.ended_at is 'Database clock when it died or was finished or cancelled.';
