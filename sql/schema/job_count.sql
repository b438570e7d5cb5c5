-- job_count: a row of count_jobs.
create type job_count as (
  queue text,
  state text,
  count bigint
);

comment on type job_count is 'How many jobs of a queue are in a state.';
comment on column job_count.queue is 'Name of the queue.';
comment on column job_count.state is
  'ready, scheduled, suspended, running, dead, done or cancelled.';
comment on column job_count.count is 'How many.';
