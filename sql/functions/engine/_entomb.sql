-- _entomb: removes jobs and puts each into one of the given dead letter queues, if its queue has
-- one of them, else among the dead.
--
-- Locks:  the rows, which the caller has locked already; rows of dedup, as _free_keys.
-- Raises: 54000, 54001 if a payload and its headers do not fit into a letter: jsonb holds 256 MB,
--         and making one takes more stack than reading the text did.
-- Notes:  errors are per id; with them, ids must ascend. A null one leaves the last error standing.
create or replace function _entomb(
  ids bigint[],
  reason text,
  errors text[],
  boxes bigint[]
)
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
  clock constant timestamptz := _now();
  buried bigint;
  held dedup[];
begin
  with removed as (
    delete from job j where j.id = any (ids)
    returning j.*, coalesce(left(errors[width_bucket(j.id, ids)], 8192), j.last_error) as error, (
      select q.dead_letter_queue_id
      from queue q
      where q.id = j.lane_id >> 16
        and q.current
        and q.dead_letter_queue_id = any (boxes)
        and exists (select from queue b where b.id = q.dead_letter_queue_id and b.current)
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
        'reason', _entomb.reason,
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
      r.enqueued_at, r.settings, r.token, r.attempt, r.worker, r.expires_at, r.expires_in,
      r.keep_done, r.redrives, r.dedup_key, r.progress, r.max_attempts, r.visibility_timeout,
      r.retry_backoff, r.retry_factor, r.retry_delay, r.retry_max_delay, r.retry_jitter, r.headers,
      r.payload, _entomb.reason, r.error, clock
    from removed r
    where r.box is null
  )
  select count(*), array_agg(row(r.lane_id >> 16, r.dedup_key, r.id)::dedup)
    filter (where r.dedup_key is not null)
  into buried, held
  from removed r;
  perform _free_keys(held);
  return buried;
end
$$;

comment on function _entomb is
  'Moves locked jobs to dead_job or into the given dead letter queues; answers how many. Private.';
