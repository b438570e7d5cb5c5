-- dedup: who holds a dedup key of a queue: the live job that no second one may stand beside.
--
-- A table and not a unique index on job: when a running job's key passes to its successor, only
-- this row changes. Were it the job's own row, a producer that stays open would hold up the
-- heartbeat and the ack of a job that runs.
--
-- A row whose job is gone means nothing (_take_key takes it over). They are rare: whoever ends a
-- job removes its row, except where a producer is just passing the key on.
create table dedup (
  queue_id bigint not null,
  key text collate "C" not null,
  job_id bigint not null,
  primary key (queue_id, key)
) with (
  fillfactor = 80
);

comment on table dedup is
  'Dedup keys in use. Written by enqueue and enqueue_many (_take_key), removed with the job.';
comment on column dedup.queue_id is 'The queue: keys of two queues never meet.';
comment on column dedup.key is 'As the producer gave it, 1 to 1000 bytes.';
comment on column dedup.job_id is 'The job that holds it; 0 while that is being inserted.';
