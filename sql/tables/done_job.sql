-- done_job: finished and cancelled jobs of queues that keep history. Append-only, and dropped by
-- whole days: deleting a history of millions costs as much WAL as writing it, and leaves dead rows.
--
-- A job names its day itself: keep_until is when it ended plus the queue's keep_done at enqueue.
-- The partition of a day is made by the first job that needs it (_add_done_day); sweep drops a day
-- when it is over. What is kept forever has a partition of its own.
create table done_job (
  id bigint not null,
  queue_id bigint not null,
  priority integer not null,
  outcome text not null check (outcome in ('acked', 'cancelled')),
  run_at timestamptz not null,
  enqueued_at timestamptz not null,
  settings bigint not null,
  token bigint not null,
  attempt integer not null,
  max_attempts integer,
  worker text,
  expires_at timestamptz,
  redrives integer,
  dedup_key text collate "C",
  headers jsonb,
  payload jsonb not null,
  progress jsonb,
  result jsonb,
  last_error text,
  done_at timestamptz not null,
  keep_until timestamptz not null,
  primary key (id, keep_until)
) partition by range (keep_until);

create index done_job_done_at on done_job (queue_id, done_at);

comment on table done_job is
  'History: jobs that were acked or cancelled, by the day on which they may go. Written by ack, '
  'ack_many, pop and cancel (_keep); its days are dropped by sweep.';
comment on column done_job.id is 'The job''s id.';
comment on column done_job.queue_id is 'Its queue.';
comment on column done_job.priority is 'Its priority.';
comment on column done_job.outcome is 'acked or cancelled.';
comment on column done_job.run_at is 'When its last run was due.';
comment on column done_job.enqueued_at is 'Database clock at enqueue.';
comment on column done_job.settings is 'queue.version that it was enqueued under.';
comment on column done_job.token is 'Its last token.';
comment on column done_job.attempt is 'Runs used.';
comment on column done_job.max_attempts is
  'As set for this job; null: as that version of the queue says.';
comment on column done_job.worker is 'Label of the last claimant.';
comment on column done_job.expires_at is 'When it would have expired.';
comment on column done_job.redrives is 'How often it had come back from the dead; null: never.';
comment on column done_job.dedup_key is 'Its key, which others may hold by now.';
comment on column done_job.headers is 'As the producer gave them.';
comment on column done_job.payload is 'As the producer gave it.';
comment on column done_job.progress is 'What the handler last said with heartbeat.';
comment on column done_job.result is 'What the ack said.';
comment on column done_job.last_error is 'Error of its last failed run.';
comment on column done_job.done_at is 'Database clock when it ended.';
comment on column done_job.keep_until is 'Until then views show it; its day is dropped after that.';
