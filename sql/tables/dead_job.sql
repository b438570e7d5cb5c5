-- dead_job: jobs that will not run again, whole, until sweep purges them after keep_dead.
create table dead_job (
  id bigint primary key,
  queue_id bigint not null,
  priority integer not null,
  run_at timestamptz not null,
  enqueued_at timestamptz not null,
  settings bigint not null,
  token bigint not null,
  attempt integer not null,
  worker text,
  expires_at timestamptz,
  expires_in interval,
  keep_done interval,
  redrives integer,
  dedup_key text collate "C",
  progress jsonb,
  max_attempts integer,
  visibility_timeout interval,
  retry_backoff text,
  retry_factor double precision,
  retry_delay interval,
  retry_max_delay interval,
  retry_jitter numrange,
  headers jsonb,
  payload jsonb not null,
  reason text not null check (
    reason in ('failed', 'max attempts exceeded', 'expired', 'queue dropped')),
  error text,
  dead_at timestamptz not null
);

create index dead_job_dead_at on dead_job (queue_id, dead_at);

comment on table dead_job is
  'Dead jobs with everything kept. Written by _entomb; removed by redrive, discard_dead, and by '
  'sweep after the queue''s keep_dead.';
comment on column dead_job.id is 'The job''s id.';
comment on column dead_job.queue_id is 'The queue it died in.';
comment on column dead_job.priority is 'Its priority.';
comment on column dead_job.run_at is 'When its last run was due.';
comment on column dead_job.enqueued_at is 'Database clock at enqueue.';
comment on column dead_job.settings is 'queue.version that it was enqueued under.';
comment on column dead_job.token is 'Its last token: never falls, not even if the job comes back.';
comment on column dead_job.attempt is 'Runs used.';
comment on column dead_job.worker is 'Label of the last claimant.';
comment on column dead_job.expires_at is 'When it would have expired.';
comment on column dead_job.expires_in is 'As set for this job.';
comment on column dead_job.keep_done is 'How long it would have been kept when done.';
comment on column dead_job.redrives is 'How often it had come back from the dead; null: never.';
comment on column dead_job.dedup_key is 'Its key, which others may hold by now.';
comment on column dead_job.progress is 'What the handler last said with heartbeat.';
comment on column dead_job.max_attempts is
  'As set for this job; null: as that version of the queue says. So the six below.';
comment on column dead_job.visibility_timeout is 'Length of a lease.';
comment on column dead_job.retry_backoff is 'fixed, linear or exponential.';
comment on column dead_job.retry_factor is 'Base of the exponential curve.';
comment on column dead_job.retry_delay is 'Delay before the second run.';
comment on column dead_job.retry_max_delay is 'Cap of the curve, before jitter.';
comment on column dead_job.retry_jitter is 'Range the delay was multiplied with.';
comment on column dead_job.headers is 'As the producer gave them.';
comment on column dead_job.payload is 'As the producer gave it.';
comment on column dead_job.reason is
  'Why: failed, max attempts exceeded, expired or queue dropped.';
comment on column dead_job.error is 'Error of the last run, at most 8192 characters.';
comment on column dead_job.dead_at is 'Database clock when it died.';
