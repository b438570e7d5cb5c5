-- dead_jobs: the dead jobs, with every option resolved.
create or replace view dead_jobs as
select
  d.id as job_id,
  q.name as queue,
  d.reason,
  d.error,
  d.dead_at,
  d.priority,
  d.run_at,
  d.enqueued_at,
  d.expires_at,
  d.attempt,
  coalesce(d.max_attempts, q.max_attempts) as max_attempts,
  d.token,
  d.worker,
  coalesce(d.visibility_timeout, q.visibility_timeout) as visibility_timeout,
  coalesce(d.retry_backoff, q.retry_backoff) as retry_backoff,
  coalesce(d.retry_factor, q.retry_factor) as retry_factor,
  coalesce(d.retry_delay, q.retry_delay) as retry_delay,
  coalesce(d.retry_max_delay, q.retry_max_delay) as retry_max_delay,
  coalesce(d.retry_jitter, q.retry_jitter) as retry_jitter,
  d.dedup_key,
  coalesce(d.redrives, 0) as redrives,
  d.progress,
  d.headers,
  d.payload
from dead_job d
join queue q on q.version = d.settings;

comment on view dead_jobs is 'Dead jobs, kept for the queue''s keep_dead.';
comment on column dead_jobs.job_id is 'Id, the same as in life.';
comment on column dead_jobs.queue is 'Name of the queue it died in.';
comment on column dead_jobs.reason is 'failed, max attempts exceeded, expired or queue dropped.';
comment on column dead_jobs.error is 'Error of the last run.';
comment on column dead_jobs.dead_at is 'Database clock when it died.';
comment on column dead_jobs.priority is 'Its priority.';
comment on column dead_jobs.run_at is 'When its last run was due.';
comment on column dead_jobs.enqueued_at is 'Database clock at enqueue.';
comment on column dead_jobs.expires_at is 'When it would have expired.';
comment on column dead_jobs.attempt is 'Runs used.';
comment on column dead_jobs.max_attempts is 'Runs it had.';
comment on column dead_jobs.token is 'Of its last claim.';
comment on column dead_jobs.worker is 'Label of the last claimant.';
comment on column dead_jobs.visibility_timeout is 'Length of a lease.';
comment on column dead_jobs.retry_backoff is 'fixed, linear or exponential.';
comment on column dead_jobs.retry_factor is 'Base of the exponential curve.';
comment on column dead_jobs.retry_delay is 'Delay before the second run.';
comment on column dead_jobs.retry_max_delay is 'Cap of the curve, before jitter.';
comment on column dead_jobs.retry_jitter is 'Range the delay was multiplied with.';
comment on column dead_jobs.dedup_key is 'Its key, which others may hold by now.';
comment on column dead_jobs.redrives is 'How often it had come back from the dead.';
comment on column dead_jobs.progress is 'What the handler last said with heartbeat.';
comment on column dead_jobs.headers is 'As the producer gave them.';
comment on column dead_jobs.payload is 'As the producer gave it.';
