-- queues: the queues with their current settings.
create or replace view queues as
select
  q.name as queue,
  q.max_attempts,
  q.visibility_timeout,
  q.retry_backoff,
  q.retry_factor,
  q.retry_delay,
  q.retry_max_delay,
  q.retry_jitter,
  q.expires_in,
  coalesce(q.keep_done, '0') as keep_done,
  q.keep_dead,
  d.name as dead_letter_queue,
  q.notify,
  q.max_payload,
  q.paused,
  q.created_at
from queue q
left join queue d on d.id = q.dead_letter_queue_id and d.current
where q.current;

comment on view queues is 'Queues with their current settings.';
comment on column queues.queue is 'Name.';
comment on column queues.max_attempts is 'Runs in all, the first included.';
comment on column queues.visibility_timeout is 'Length of a lease.';
comment on column queues.retry_backoff is 'fixed, linear or exponential.';
comment on column queues.retry_factor is 'Base of the exponential curve.';
comment on column queues.retry_delay is 'Delay before the second run.';
comment on column queues.retry_max_delay is 'Cap of the curve, before jitter.';
comment on column queues.retry_jitter is
  'The delay is multiplied with a number drawn uniformly from here.';
comment on column queues.expires_in is
  'A job not finished this long after its run time is dead; null: never.';
comment on column queues.keep_done is 'How long done jobs are kept; 0: not at all.';
comment on column queues.keep_dead is 'How long dead jobs are kept.';
comment on column queues.dead_letter_queue is
  'In which its dead jobs become jobs; null: they become rows of dead_jobs.';
comment on column queues.notify is 'Whether idle consumers are woken.';
comment on column queues.max_payload is 'Bytes of the payload as JSON text.';
comment on column queues.paused is 'Whether claims find nothing.';
comment on column queues.created_at is 'Since when these settings hold for new jobs.';
