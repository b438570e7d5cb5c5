-- _bury: ends jobs as dead, in the statement that removes them: they become rows of dead_job, or
-- letters in the dead letter queue of their queue.
--
-- Locks:  the rows, which the caller has locked already; a producer's locks in the lanes of dead
--         letter queues (_announce); rows of dedup, as _keep.
-- Raises: nothing: what cannot become a letter becomes a row of dead_job.
-- Notes:  errors are per id; with them, ids must ascend. A null one leaves the last error standing.
--         The dead letter queue is the one that the queue has now, not when the job was enqueued. A
--         queue that others send letters to cannot be dropped; were it gone all the same, the job
--         would become a row of dead_job.
--         A job of more than 100 MB stays out of an envelope: jsonb holds 256 MB at most.
create or replace function _bury(ids bigint[], reason text, errors text[] default null)
returns bigint
language plpgsql
volatile
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  boxes bigint[] := array[]::bigint[];
  box bigint;
  clock timestamptz;
  buried bigint;
begin
  for box in
    select distinct x.box
    from (
      select (
        select q.dead_letter_queue_id from queue q where q.id = j.lane_id >> 16 and q.current
      ) as box
      from job j where j.id = any (ids)
    ) x
    where x.box is not null
    order by 1
  loop
    perform _announce((box << 16) + 32768);
    boxes := boxes || box;
  end loop;

  clock := _now();
  with removed as (
    delete from job j where j.id = any (ids)
    returning j.*, coalesce(left(errors[width_bucket(j.id, ids)], 8192), j.last_error) as error, (
      select q.dead_letter_queue_id
      from queue q
      where q.id = j.lane_id >> 16
        and q.current
        and q.dead_letter_queue_id = any (boxes)
        and exists (select from queue b where b.id = q.dead_letter_queue_id and b.current)
        -- Unpacked: compressed, a payload of 250 MB may have 2.
        and pg_column_size(j.payload #> '{}') + coalesce(pg_column_size(j.headers #> '{}'), 0)
          < 100000000
    ) as box
  ), letters as (
    insert into job (lane_id, run_at, enqueued_at, settings, expires_at, keep_done, payload)
    select (r.box << 16) + 32768, clock, clock, q.version, clock + q.expires_in, q.keep_done,
      jsonb_build_object(
        'schema', 'pgq_sql.dead-letter.v1',
        'queue', (select o.name from queue o where o.version = r.settings),
        'job_id', r.id,
        'attempt', r.attempt,
        'payload', r.payload,
        'headers', r.headers,
        'reason', _bury.reason,
        'error', r.error,
        'dead_at', clock)
    from removed r
    cross join lateral (
      select v.version, v.expires_in, v.keep_done
      from queue v where v.id = r.box and v.current offset 0
    ) q
  ), graves as (
    insert into dead_job (
      id, queue_id, priority, run_at, enqueued_at, settings, token, attempt, worker, expires_at,
      expires_in, keep_done, redrives, dedup_key, progress, max_attempts, visibility_timeout,
      retry_backoff, retry_factor, retry_delay, retry_max_delay, retry_jitter, headers, payload,
      reason, error, dead_at
    )
    select
      r.id, r.lane_id >> 16, (r.lane_id & 65535) - 32768, coalesce(r.resume_at, r.run_at),
      r.enqueued_at, r.settings,
      r.token, r.attempt, r.worker, r.expires_at, r.expires_in, r.keep_done, r.redrives,
      r.dedup_key, r.progress, r.max_attempts, r.visibility_timeout, r.retry_backoff,
      r.retry_factor, r.retry_delay, r.retry_max_delay, r.retry_jitter, r.headers, r.payload,
      _bury.reason, r.error, clock
    from removed r
    where r.box is null
  ), freed as (
    delete from dedup d
    where d.ctid = any (array(
      select x.ctid
      from removed r
      cross join lateral (
        select k.ctid from dedup k
        where k.queue_id = r.lane_id >> 16 and k.key = r.dedup_key and k.job_id = r.id
        for update skip locked
      ) x
      where r.dedup_key is not null
    ))
  )
  select count(*) into buried from removed;

  foreach box in array boxes loop
    perform _wake(box);
  end loop;
  return buried;
end
$$;

comment on function _bury is
  'Moves locked jobs to dead_job or into a dead letter queue; answers how many. Private.';
