-- claimed_job: a row of claim. A type of its own, so that it can gain attributes without a change
-- of claim's signature.
create type claimed_job as (
  job_id bigint,
  token bigint,
  queue text,
  payload jsonb,
  headers jsonb,
  attempt integer,
  max_attempts integer,
  priority integer,
  run_at timestamptz,
  enqueued_at timestamptz,
  lease_until timestamptz,
  observed_at timestamptz,
  last_error text
);

comment on type claimed_job is 'A job under a lease, as claim answers it.';
comment on column claimed_job.job_id is 'With token: names the lease in every settling call.';
comment on column claimed_job.token is 'Raised by each claim of the job.';
comment on column claimed_job.queue is 'Name of the queue.';
comment on column claimed_job.payload is 'As the producer gave it.';
comment on column claimed_job.headers is 'As the producer gave them; null if none.';
comment on column claimed_job.attempt is '1 in the first run.';
comment on column claimed_job.max_attempts is 'Runs in all.';
comment on column claimed_job.priority is 'Higher runs first.';
comment on column claimed_job.run_at is 'When it was due.';
comment on column claimed_job.enqueued_at is 'Database clock at enqueue.';
comment on column claimed_job.lease_until is 'End of the lease.';
comment on column claimed_job.observed_at is
  'Database clock at the claim: lease_until - observed_at is the lease on the caller''s own clock.';
comment on column claimed_job.last_error is 'Error of the last failed run; null if none.';
