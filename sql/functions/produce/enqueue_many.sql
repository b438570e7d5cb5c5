-- enqueue_many: puts many jobs into a queue in one statement, in the caller's transaction: all or
-- none.
--
-- Locks:  as _announce, for each priority used; as enqueue for dedup keys: all keys in their order,
--         then the rows of jobs to be replaced in id order, as whoever locks many jobs does.
-- Raises: as enqueue; DETAIL names the item. 22023 also for arrays of unequal length or not counted
--         from 1.
-- Notes:  Ids are drawn in input order, so jobs of one run time and priority run in that order.
--         With keys, the items whose key has a holder come first, by its id.
--         The insert leaves out what it should not take; if anything is missing then, _check_jobs
--         finds the first such item and words the error, which undoes the rest. So a good batch is
--         unpacked once.
create or replace function enqueue_many(
  queue text,
  payloads jsonb[],
  priorities integer[] default null,
  delays interval[] default null,
  run_ats timestamptz[] default null,
  headers jsonb[] default null,
  max_attempts integer default null,
  visibility_timeout interval default null,
  expires_in interval default null,
  retry_backoff text default null,
  retry_factor double precision default null,
  retry_delay interval default null,
  retry_max_delay interval default null,
  retry_jitter numrange default null,
  dedup_keys text[] default null,
  dedup_mode text default null,
  options jsonb default '{}'
)
returns table (ordinal bigint, job_id bigint, outcome text)
language plpgsql
volatile
security definer
set search_path from current
as $$
#variable_conflict use_column
declare
  target queue;
  base bigint;
  clock timestamptz;
  lane bigint;
  inserted bigint;
  keys text[];
  holders bigint[];
  holder bigint;
  place bigint;
  entered record;
  ids bigint[];
  outcomes text[];
begin
  select q.* into target from queue q where q.name = enqueue_many.queue collate "C" and q.current;
  if not coalesce(
    target.id > 0
    and array_ndims(payloads) = 1
    and array_lower(payloads, 1) = 1
    and options = '{}'
    and num_nonnulls(headers, priorities, delays, run_ats, max_attempts, visibility_timeout,
      expires_in, retry_backoff, retry_factor, retry_delay, retry_max_delay, retry_jitter,
      dedup_keys, dedup_mode) = 0,
    false)
  then
    target := _find_queue(queue);
    perform _check_batch(payloads,
      array[_dims(headers), _dims(priorities), _dims(delays), _dims(run_ats),
        _dims(dedup_keys)]);
    perform _check_run_options(max_attempts, visibility_timeout, expires_in, retry_backoff,
      retry_factor, retry_delay, retry_max_delay, retry_jitter);
    perform _check_options(options);
    -- A batch with keys may have items without: their mode is checked all the same.
    perform _check_key(
      case when dedup_keys is not null then coalesce(u.key, '-') end, dedup_mode, u.ordinal)
    from unnest(coalesce(dedup_keys, '{null}')) with ordinality u (key, ordinal);
    if cardinality(payloads) = 0 then
      return;
    end if;
    if num_nonnulls(variadic dedup_keys) > 0 then
      perform _check_jobs(target, payloads, headers, priorities, delays, run_ats);
      select array_agg(k.key), array_agg(
        _take_key(target.id, k.key, dedup_mode is not distinct from 'replace'))
      into keys, holders
      from (
        select distinct d.key collate "C" as key from unnest(dedup_keys) d (key) order by 1
      ) k
      where k.key is not null;
      for place, holder in
        select u.ordinal, k.holder
        from unnest(dedup_keys) with ordinality u (key, ordinal)
        left join unnest(keys, holders) k (key, holder) on k.key = u.key
        order by k.holder, u.ordinal
      loop
        if holder is not null and dedup_mode is distinct from 'replace' then
          ids[place] := holder;
          outcomes[place] := 'existing';
        else
          entered := enqueue(
            queue, payloads[place], priorities[place], delays[place], run_ats[place], max_attempts,
            visibility_timeout, expires_in, retry_backoff, retry_factor, retry_delay,
            retry_max_delay, retry_jitter, dedup_keys[place],
            case when dedup_keys[place] is not null then dedup_mode end, headers[place]);
          ids[place] := entered.job_id;
          outcomes[place] := entered.outcome;
        end if;
      end loop;
      return query
      select u.ordinal, u.job_id, u.outcome
      from unnest(ids, outcomes) with ordinality u (job_id, outcome, ordinal);
      return;
    end if;
  end if;

  base := (target.id << 16) + 32768;
  for lane in
    select distinct base + coalesce(p, 0)
    from unnest(coalesce(priorities, '{0}')) p
    order by 1
  loop
    clock := _announce(lane);
    if lane <> base then
      insert into lane (id) select lane where not exists (select from lane l where l.id = lane);
    end if;
  end loop;

  return query
  with inserted as (
    insert into job (
      lane_id, run_at, enqueued_at, settings, expires_at, expires_in, keep_done, max_attempts,
      visibility_timeout, retry_backoff, retry_factor, retry_delay, retry_max_delay, retry_jitter,
      headers, payload
    )
    select base + coalesce(x.priority, 0), x.due, clock, target.version,
      x.due + coalesce(_exact(enqueue_many.expires_in), target.expires_in),
      _exact(enqueue_many.expires_in), target.keep_done, enqueue_many.max_attempts,
      _exact(enqueue_many.visibility_timeout),
      enqueue_many.retry_backoff, enqueue_many.retry_factor, _exact(enqueue_many.retry_delay),
      _exact(enqueue_many.retry_max_delay), enqueue_many.retry_jitter, x.headers, x.payload
    from (
      select u.payload, enqueue_many.headers[u.ordinal] as headers,
        priorities[u.ordinal] as priority,
        case when delays[u.ordinal] is null then greatest(clock, run_ats[u.ordinal])
          else clock + _exact(delays[u.ordinal]) end as due
      from unnest(payloads) with ordinality u (payload, ordinal)
      where _can_be_job(u.payload, enqueue_many.headers[u.ordinal], priorities[u.ordinal],
        delays[u.ordinal], run_ats[u.ordinal], target.max_payload, clock)
      order by u.ordinal
    ) x
    returning id
  )
  select row_number() over (order by i.id), i.id, 'inserted' from inserted i;
  get diagnostics inserted = row_count;
  if inserted < cardinality(payloads) then
    perform _check_jobs(target, payloads, headers, priorities, delays, run_ats);
  end if;

  if num_nonnulls(delays, run_ats) = 0 or exists (
    select
    from unnest(payloads, delays, run_ats) u (payload, delay, run_at)
    where coalesce(clock + u.delay, u.run_at, clock) < clock + interval '1 minute')
  then
    perform _wake(target.id);
  end if;
end
$$;

comment on function enqueue_many is
  'Puts many jobs into a queue, all or none, in the caller''s transaction. Arrays have one element '
  'per payload, a null one meaning the default; the other options hold for all. Answers one row '
  'per payload in input order: (ordinal from 1, job_id, outcome as in enqueue). Errors as '
  'enqueue, DETAIL naming the item.';
