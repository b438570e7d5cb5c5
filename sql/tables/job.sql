-- job: every live job, from enqueue until ack or death.
--
-- A claim changes token, lease_until, attempt and worker only. None of them may appear in an index
-- or in an index predicate: then a claim is a HOT update, which wrote 2 WAL records and 177 bytes a
-- job here, against 4 and 396 with a partial index on unclaimed jobs. HOT needs room for a second
-- version on the page, hence the fillfactor. The four stand together because PostgreSQL leaves the
-- unchanged start and end of a row out of the WAL.
--
-- job_claim is for statements that name a lane and say so: `lane_id > 0` is true of every row, but
-- only what repeats it can use the index. It has the id too, so otherwise `id = any (ids)` read it
-- from end to end whenever that was planned while the table was almost empty: under a held snapshot
-- 3,000 jobs a second then fell to 1,500.
--
-- There is no foreign key to queue: its check would lock the queue's row for each enqueue.
create table job (
  id bigint generated always as identity primary key,
  lane_id bigint not null,
  run_at timestamptz not null,
  enqueued_at timestamptz not null,
  settings bigint not null,
  token bigint not null default 0,
  lease_until timestamptz,
  attempt integer not null default 0,
  worker text,
  last_error text,
  expires_at timestamptz,
  expires_in interval,
  keep_done interval,
  resume_at timestamptz,
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
  payload jsonb not null
) with (
  fillfactor = 45,
  autovacuum_vacuum_scale_factor = 0.01,
  autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0.1,
  autovacuum_vacuum_cost_delay = 0
);

create index job_claim on job (lane_id, run_at, id) where lane_id > 0;
create index job_expires on job (expires_at) where expires_at is not null;

comment on table job is
  'Live jobs. Inserted by enqueue, redrive and as dead letters; claimed by claim; settled by ack, '
  'retry, release, dead_letter; removed by sweep, cancel, purge_queue and drop_queue too.';
comment on column job.id is 'Never used twice; order within one instant of one lane.';
comment on column job.lane_id is 'queue_id * 65536 + priority + 32768, see table lane.';
comment on column job.run_at is 'Not before this instant; also the order within a lane.';
comment on column job.enqueued_at is 'Database clock at enqueue.';
comment on column job.settings is 'queue.version that this job was enqueued under.';
comment on column job.token is 'Raised by each claim, never lowered: the fence of the lease.';
comment on column job.lease_until is 'End of the current lease; null: not claimed.';
comment on column job.attempt is 'Runs begun and not given back; 1 in the first run.';
comment on column job.worker is 'Label of the current claimant.';
comment on column job.last_error is 'Error of the last failed run, at most 8192 characters.';
comment on column job.expires_at is 'Dead if not finished by then; null: never.';
comment on column job.expires_in is 'As set for this job: expires_at is counted with it anew.';
comment on column job.keep_done is
  'How long it is kept when it is finished, as the queue said at enqueue; null: not at all.';
comment on column job.resume_at is
  'The run_at to go back to; not null: suspended, and run_at is infinity.';
comment on column job.redrives is 'How often it came back from the dead; null: never.';
comment on column job.dedup_key is 'What its producer named it, see table dedup; null: none.';
comment on column job.progress is 'What the handler last said with heartbeat.';
comment on column job.max_attempts is
  'Set for this job; null: as that version of the queue says. So the six below.';
comment on column job.visibility_timeout is 'Length of a lease.';
comment on column job.retry_backoff is 'fixed, linear or exponential.';
comment on column job.retry_factor is 'Base of the exponential curve.';
comment on column job.retry_delay is 'Delay before the second run.';
comment on column job.retry_max_delay is 'Cap of the curve, before jitter.';
comment on column job.retry_jitter is
  'The delay is multiplied with a number drawn uniformly from here.';
comment on column job.headers is 'A JSON object of the producer''s, for tracing and the like.';
comment on column job.payload is 'The work, as the producer gave it.';
