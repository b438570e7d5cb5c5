-- redrive: brings dead jobs back to life, under their old ids, with all their attempts before them.
--
-- Locks:  the dead rows, in id order; those of a whole queue only if nobody else holds them. A
--         producer's locks in their lanes (_announce).
-- Raises: 22023 unless exactly one of dead_ids and queue is given, for nulls in dead_ids, n < 0,
--         n without a queue and dry_run null; JQ001 no such queue, or the queue of a job is gone;
--         JQ003 if one of dead_ids is not dead.
-- Notes:  All or none. The token goes on from where it was, so a worker that still holds the old
--         lease stays locked out. The dedup key is dropped: somebody else may hold it by now.
--         Expiry counts anew from now.
create or replace function redrive(
  dead_ids bigint[] default null,
  queue text default null,
  n integer default null,
  dry_run boolean default false
)
returns table (ordinal bigint, job_id bigint, outcome text)
language plpgsql
volatile
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  ids bigint[];
  id_in_question bigint;
  lane bigint;
  stamp timestamptz := _now();
begin
  if dry_run is null then
    raise exception 'dry_run must not be null' using errcode = '22023';
  end if;
  ids := _dead_ids(dead_ids, queue, n);
  select x.id into id_in_question
  from (select d.id, d.queue_id from dead_job d where d.id = any (ids) offset 0) x
  where not exists (select from queue q where q.id = x.queue_id and q.current)
  order by x.id
  limit 1;
  if found then
    raise exception 'the queue of a job is gone'
      using errcode = 'JQ001',
        detail = format('job %s', id_in_question),
        hint = 'Discard it, or enqueue its payload into another queue.';
  end if;

  if not dry_run then
    for lane in
      select distinct (d.queue_id << 16) + d.priority + 32768
      from dead_job d where d.id = any (ids) order by 1
    loop
      stamp := _announce(lane);
      insert into lane (id) select lane where not exists (select from lane l where l.id = lane);
    end loop;
    with removed as (
      delete from dead_job d where d.id = any (ids) returning d.*
    )
    insert into job (
      id, lane_id, run_at, enqueued_at, settings, token, attempt, last_error, expires_at,
      expires_in, keep_done, redrives, max_attempts, visibility_timeout, retry_backoff,
      retry_factor, retry_delay, retry_max_delay, retry_jitter, headers, payload
    )
    overriding system value
    select r.id, (r.queue_id << 16) + r.priority + 32768, stamp, r.enqueued_at, r.settings, r.token,
      0, r.error, stamp + coalesce(r.expires_in, q.expires_in), r.expires_in, r.keep_done,
      coalesce(r.redrives, 0) + 1, r.max_attempts, r.visibility_timeout, r.retry_backoff,
      r.retry_factor, r.retry_delay, r.retry_max_delay, r.retry_jitter, r.headers, r.payload
    from removed r
    cross join lateral (
      select v.expires_in from queue v where v.version = r.settings offset 0
    ) q;
    perform _wake_queues(ids);
  end if;
  return query
  select u.ordinal, u.id, 'redriven'
  from unnest(coalesce(dead_ids, ids)) with ordinality u(id, ordinal);
end
$$;

comment on function redrive is
  'Brings dead jobs back: those named, or the n (null: all) of a queue that died first. Same ids, '
  'all attempts anew, redrives raised by one, dedup key dropped. All or none; with dry_run '
  'nothing changes. Answers one row per job: (ordinal from 1, job_id, outcome ''redriven''). '
  'Errors: JQ001, JQ003, 22023.';
