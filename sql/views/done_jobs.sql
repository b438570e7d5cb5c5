-- done_jobs: history, with every option resolved.
create or replace view done_jobs as
select
  d.id as job_id,
  q.name as queue,
  d.outcome,
  d.result,
  d.done_at,
  d.keep_until,
  d.priority,
  d.run_at,
  d.enqueued_at,
  d.expires_at,
  d.attempt,
  coalesce(d.max_attempts, q.max_attempts) as max_attempts,
  d.token,
  d.worker,
  d.last_error,
  d.dedup_key,
  coalesce(d.redrives, 0) as redrives,
  d.progress,
  d.headers,
  d.payload
from done_job d
join queue q on q.version = d.settings
where d.keep_until > (select _now());

comment on view done_jobs is 'Finished and cancelled jobs of queues that keep them.';
comment on column done_jobs.job_id is 'Id, the same as in life.';
comment on column done_jobs.queue is 'Name of its queue.';
comment on column done_jobs.outcome is 'acked or cancelled.';
comment on column done_jobs.result is 'What the ack said.';
comment on column done_jobs.done_at is 'Database clock when it ended.';
comment on column done_jobs.keep_until is 'Until then it is shown here.';
comment on column done_jobs.priority is 'Its priority.';
comment on column done_jobs.run_at is 'When its last run was due.';
comment on column done_jobs.enqueued_at is 'Database clock at enqueue.';
comment on column done_jobs.expires_at is 'When it would have expired.';
comment on column done_jobs.attempt is 'Runs used.';
comment on column done_jobs.max_attempts is 'Runs it had.';
comment on column done_jobs.token is 'Of its last claim.';
comment on column done_jobs.worker is 'Label of the last claimant.';
comment on column done_jobs.last_error is 'Error of its last failed run.';
comment on column done_jobs.dedup_key is 'Its key, which others may hold by now.';
comment on column done_jobs.redrives is 'How often it had come back from the dead.';
comment on column done_jobs.progress is 'What the handler last said with heartbeat.';
comment on column done_jobs.headers is 'As the producer gave them.';
comment on column done_jobs.payload is 'As the producer gave it.';
