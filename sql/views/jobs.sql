-- jobs: the live jobs as they stand, with every option resolved.
create or replace view jobs as
select
  j.id as job_id,
  q.name as queue,
  case
    when j.lease_until > c.clock then 'running'
    when j.resume_at is not null then 'suspended'
    when j.run_at > c.clock then 'scheduled'
    else 'ready'
  end as state,
  ((j.lane_id & 65535) - 32768)::integer as priority,
  coalesce(j.resume_at, j.run_at) as run_at,
  j.enqueued_at,
  j.expires_at,
  j.attempt,
  coalesce(j.max_attempts, q.max_attempts) as max_attempts,
  j.token,
  j.worker,
  j.lease_until,
  j.last_error,
  coalesce(j.visibility_timeout, q.visibility_timeout) as visibility_timeout,
  coalesce(j.retry_backoff, q.retry_backoff) as retry_backoff,
  coalesce(j.retry_factor, q.retry_factor) as retry_factor,
  coalesce(j.retry_delay, q.retry_delay) as retry_delay,
  coalesce(j.retry_max_delay, q.retry_max_delay) as retry_max_delay,
  coalesce(j.retry_jitter, q.retry_jitter) as retry_jitter,
  coalesce(j.keep_done, '0') as keep_done,
  j.dedup_key,
  coalesce(j.redrives, 0) as redrives,
  j.progress,
  j.headers,
  j.payload
from job j
join queue q on q.version = j.settings
cross join (select _now() as clock offset 0) c;

comment on view jobs is 'Live jobs with every option resolved.';
comment on column jobs.job_id is 'Id.';
comment on column jobs.queue is 'Name of the queue.';
comment on column jobs.state is
  'ready, scheduled (run_at in the future), suspended or running. A job whose lease ran out is '
  'ready: the next sweep frees it.';
comment on column jobs.priority is 'Higher runs first.';
comment on column jobs.run_at is 'Not before this instant.';
comment on column jobs.enqueued_at is 'Database clock at enqueue.';
comment on column jobs.expires_at is 'Dead if not finished by then; null: never.';
comment on column jobs.attempt is 'Runs begun and not given back.';
comment on column jobs.max_attempts is 'Runs in all.';
comment on column jobs.token is 'Of the latest claim.';
comment on column jobs.worker is 'Label of the claimant; null if not claimed.';
comment on column jobs.lease_until is 'End of the lease; null if not claimed.';
comment on column jobs.last_error is 'Error of the last failed run.';
comment on column jobs.visibility_timeout is 'Length of a lease.';
comment on column jobs.retry_backoff is 'fixed, linear or exponential.';
comment on column jobs.retry_factor is 'Base of the exponential curve.';
comment on column jobs.retry_delay is 'Delay before the second run.';
comment on column jobs.retry_max_delay is 'Cap of the curve, before jitter.';
comment on column jobs.retry_jitter is 'Range the delay is multiplied with.';
comment on column jobs.keep_done is 'How long it is kept when it is finished.';
comment on column jobs.dedup_key is
  'As the producer gave it. One that runs may have passed it on to a successor.';
comment on column jobs.redrives is 'How often it came back from the dead.';
comment on column jobs.progress is 'What the handler last said with heartbeat.';
comment on column jobs.headers is 'As the producer gave them.';
comment on column jobs.payload is 'As the producer gave it.';
