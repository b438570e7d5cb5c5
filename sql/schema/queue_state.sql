-- queue_state: the row of queue_stats.
create type queue_state as (
  queue text,
  paused boolean,
  ready bigint,
  scheduled bigint,
  suspended bigint,
  running bigint,
  dead bigint,
  oldest_ready interval,
  done_last_minute bigint,
  dead_last_minute bigint,
  exact boolean
);

comment on type queue_state is 'The state of a queue, as queue_stats answers it.';
comment on column queue_state.queue is 'Name of the queue.';
comment on column queue_state.paused is 'Whether claims find nothing.';
comment on column queue_state.ready is
  'Jobs that are due and under no lease, also while the queue is paused.';
comment on column queue_state.scheduled is 'Jobs whose run time is to come.';
comment on column queue_state.suspended is 'Jobs that wait for resume.';
comment on column queue_state.running is 'Jobs under a lease.';
comment on column queue_state.dead is 'Rows of dead_jobs.';
comment on column queue_state.oldest_ready is
  'For how long the first ready job has been due, or its last lease over; null if none is.';
comment on column queue_state.done_last_minute is
  'Jobs finished or cancelled in the last minute; null if the queue keeps no history.';
comment on column queue_state.dead_last_minute is 'Jobs that died in the last minute.';
comment on column queue_state.exact is
  'False if a figure reached the bound: it is a lower limit then.';
