-- enqueue: puts one job into a queue, in the caller's transaction: if that rolls back, there is no
-- job.
--
-- Locks:  as _announce; no row, and nothing another producer waits for.
-- Raises: JQ001 no such queue; JQ005 unknown option; JQ007 payload or headers too large; 22023
--         null, negative or out-of-range arguments.
-- Notes:  All options are resolved here, with one clock reading. delay wins over run_at; a run_at
--         in the past becomes now. expires_in counts from the run time. Null for an option means
--         the queue's default. A call with a payload and nothing else is judged by one expression;
--         the checks that word the errors run for the others. Each expression costs about 1.5 us in
--         a new transaction. The size is that of the JSON text: a few stored bytes such as 1e131071
--         print as 131,072.
create or replace function enqueue(
  queue text,
  payload jsonb default '{}',
  priority integer default 0,
  delay interval default null,
  run_at timestamptz default null,
  max_attempts integer default null,
  visibility_timeout interval default null,
  expires_in interval default null,
  retry_backoff text default null,
  retry_factor double precision default null,
  retry_delay interval default null,
  retry_max_delay interval default null,
  retry_jitter numrange default null,
  headers jsonb default null,
  options jsonb default '{}',
  out job_id bigint,
  out outcome text
)
language plpgsql
volatile
security definer
set search_path from current
as $$
declare
  target record;
  checked queue;
  lane bigint;
  clock timestamptz;
  due timestamptz;
begin
  select q.id, q.version, q.expires_in, q.notify, q.max_payload into target
  from queue q
  where q.name = enqueue.queue and q.current;

  if not coalesce(
    octet_length(payload::text) <= target.max_payload
    and priority = 0
    and options = '{}'
    and num_nonnulls(delay, run_at, max_attempts, visibility_timeout, expires_in, retry_backoff,
      retry_factor, retry_delay, retry_max_delay, retry_jitter, headers) = 0,
    false)
  then
    priority := coalesce(priority, 0);
    checked := _find_queue(queue);
    target := checked;
    perform _check_job(checked, payload, headers, priority, delay, run_at);
    perform _check_run_options(max_attempts, visibility_timeout, expires_in, retry_backoff,
      retry_factor, retry_delay, retry_max_delay, retry_jitter);
    perform _check_options(options);
    delay := _exact(delay);
    visibility_timeout := _exact(visibility_timeout);
    expires_in := _exact(expires_in);
    retry_delay := _exact(retry_delay);
    retry_max_delay := _exact(retry_max_delay);
  end if;

  lane := (target.id << 16) + priority + 32768;
  clock := _announce(lane);
  if priority <> 0 then
    insert into lane (id) select lane where not exists (select from lane l where l.id = lane);
  end if;

  due := case when delay is null then greatest(clock, run_at) else clock + delay end;
  insert into job (
    lane_id, run_at, enqueued_at, settings, expires_at, max_attempts, visibility_timeout,
    retry_backoff, retry_factor, retry_delay, retry_max_delay, retry_jitter, headers, payload
  ) values (
    lane, due, clock, target.version, due + coalesce(expires_in, target.expires_in),
    max_attempts, visibility_timeout,
    retry_backoff, retry_factor, retry_delay, retry_max_delay, retry_jitter, headers, payload
  )
  returning id into job_id;
  outcome := 'inserted';

  if target.notify and due < clock + interval '1 minute' then
    perform _wake(target.id);
  end if;
end
$$;

comment on function enqueue is
  'Puts one job into a queue, in the caller''s transaction. payload: any JSON value. priority: '
  'higher runs first, -32768 to 32767. delay wins over run_at; both may be omitted (now). '
  'Intervals are 0 to 9007199254740 ms; null options take the queue''s default. Answers (job_id, '
  'outcome), outcome ''inserted''. Errors: JQ001, JQ005, JQ007, 22023.';
