-- enqueue_many: puts many jobs into a queue in one statement, in the caller's transaction: all or
-- none.
--
-- Locks:  as _announce, for each priority used.
-- Raises: as enqueue; DETAIL names the item. 22023 also for arrays of unequal length.
-- Notes:  Ids are drawn in input order, so jobs of one run time and priority run in that order.
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
  target constant queue := _find_queue(queue);
  base constant bigint := (target.id << 16) + 32768;
  clock timestamptz;
  first_due timestamptz;
  lane bigint;
begin
  perform _check_jobs(target, payloads, headers, priorities, delays, run_ats);
  perform _check_run_options(max_attempts, visibility_timeout, expires_in, retry_backoff,
    retry_factor, retry_delay, retry_max_delay, retry_jitter);
  perform _check_options(options);
  visibility_timeout := _exact(visibility_timeout);
  expires_in := coalesce(_exact(expires_in), target.expires_in);
  retry_delay := _exact(retry_delay);
  retry_max_delay := _exact(retry_max_delay);
  if delays is not null then
    delays := array(
      select _exact(d) from unnest(delays) with ordinality u(d, place) order by place);
  end if;
  if cardinality(payloads) = 0 then
    return;
  end if;

  for lane in
    select distinct base + coalesce(p, 0)
    from unnest(coalesce(priorities, '{0}')) p
    order by 1
  loop
    clock := _announce(lane);
    insert into lane (id) select lane where not exists (select from lane l where l.id = lane);
  end loop;

  return query
  with item as materialized (
    select x.ordinal, nextval('job_id_seq') as id, base + coalesce(x.priority, 0) as lane_id,
      case when x.delay is not null then clock + x.delay else greatest(clock, x.run_at) end as due,
      x.headers, x.payload
    from (
      select * from unnest(payloads, priorities, delays, run_ats, enqueue_many.headers)
        with ordinality u(payload, priority, delay, run_at, headers, ordinal)
      order by u.ordinal
    ) x
  ),
  inserted as (
    insert into job (
      id, lane_id, run_at, enqueued_at, settings, expires_at, max_attempts, visibility_timeout,
      retry_backoff, retry_factor, retry_delay, retry_max_delay, retry_jitter, headers, payload
    )
    overriding system value
    select
      i.id, i.lane_id, i.due, clock, target.version,
      i.due + enqueue_many.expires_in, enqueue_many.max_attempts,
      enqueue_many.visibility_timeout, enqueue_many.retry_backoff,
      enqueue_many.retry_factor, enqueue_many.retry_delay, enqueue_many.retry_max_delay,
      enqueue_many.retry_jitter, i.headers, i.payload
    from item i
  )
  select i.ordinal, i.id, 'inserted' from item i order by i.ordinal;

  if target.notify then
    select min(case when d.delay is null then greatest(clock, d.run_at) else clock + d.delay end)
    into first_due
    from unnest(payloads, delays, run_ats) d (payload, delay, run_at);
    if first_due < clock + interval '1 minute' then
      perform _wake(target.id);
    end if;
  end if;
end
$$;

comment on function enqueue_many is
  'Puts many jobs into a queue, all or none, in the caller''s transaction. Arrays have one element '
  'per payload, a null one meaning the default; the other options hold for all. Answers one row '
  'per payload in input order: (ordinal from 1, job_id, outcome ''inserted''). Errors as enqueue, '
  'DETAIL naming the item.';
