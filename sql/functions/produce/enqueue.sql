-- enqueue: puts one job into a queue, in the caller's transaction: if that rolls back, there is no
-- job.
--
-- Locks:  as _announce; no row, and nothing another producer waits for, except with a dedup_key:
--         that key (_take_key), and with `replace` the row of the job that holds it.
-- Raises: JQ001 no such queue; JQ005 unknown option; JQ007 payload or headers too large; 22023
--         null, negative or out-of-range arguments.
-- Notes:  delay wins over run_at; a run_at in the past becomes now. expires_in counts from the run
--         time, or from now if a replaced job's is past. With `replace`, a job that does not run
--         keeps its id, its place if no run time and no other priority is given, and its
--         suspension; all else is new. One that runs is left alone, and the new job has the key
--         from then on. Null for an option means the queue's default. The size is that of the JSON
--         text: a few stored bytes such as 1e131071 print as 131,072. PL/pgSQL prepares each
--         expression anew in each transaction, 1.5 us apiece, and each statement costs several. So
--         the usual call, a payload and no options in a transaction that is still in its first 100
--         ms slot, is one statement: it finds the queue, locks the slot as _announce does, reads
--         the clock under the locks, checks that the slot has not ended, inserts, and tests for
--         idle consumers. Whatever it cannot do is left to the second part, which does all other
--         calls. One statement took 40 us of processor time where separate ones took 53; a bare
--         INSERT of the row takes 20.
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
  dedup_key text default null,
  dedup_mode text default null,
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
#variable_conflict use_variable
declare
  lane bigint;
  nobody_waits boolean;
begin
  if priority = 0
    and options = '{}'
    and num_nonnulls(delay, run_at, max_attempts, visibility_timeout, expires_in, retry_backoff,
      retry_factor, retry_delay, retry_max_delay, retry_jitter, dedup_key, dedup_mode,
      headers) = 0
  then
    insert into job (lane_id, run_at, enqueued_at, settings, expires_at, keep_done, payload)
    select s.lane_id, s.clock, s.clock, s.version, s.clock + s.expires_in, s.keep_done, payload
    from (
      select (q.id << 16) + 32768 as lane_id, q.version, q.expires_in, q.keep_done,
        _now() as clock
      from queue q
      where q.name = enqueue.queue collate "C"
        and q.current
        and octet_length(payload::text) <= q.max_payload
        and pg_try_advisory_xact_lock_shared(_lane_key((q.id << 16) + 32768))
        and pg_try_advisory_xact_lock_shared(
          _slot_key((q.id << 16) + 32768, current_timestamp))
      offset 0
    ) s
    where _slot(s.clock) = _slot(current_timestamp)
    returning id, 'inserted', lane_id, _nobody_waits(lane_id >> 16)
    into job_id, outcome, lane, nobody_waits;
    if nobody_waits then
      return;
    end if;
    if lane is not null then
      perform _wake(lane >> 16);
      return;
    end if;
  end if;

  declare
    target constant queue := _find_queue(queue);
    clock timestamptz;
    holder bigint;
    replaced job;
  begin
    priority := coalesce(priority, 0);
    perform _check_job(target, payload, headers, priority, delay, run_at);
    perform _check_run_options(max_attempts, visibility_timeout, expires_in, retry_backoff,
      retry_factor, retry_delay, retry_max_delay, retry_jitter);
    perform _check_key(dedup_key, dedup_mode);
    perform _check_options(options);
    outcome := 'inserted';
    while dedup_key is not null loop
      holder := _take_key(target.id, dedup_key, dedup_mode is not distinct from 'replace');
      exit when holder is null;
      if dedup_mode is distinct from 'replace' then
        job_id := holder;
        outcome := 'existing';
        return;
      end if;
      replaced := _withdraw(holder);
      if replaced.id is not null then
        outcome := 'replaced';
        exit;
      end if;
      exit when _pass_key(target.id, dedup_key, holder);
    end loop;

    lane := (target.id << 16) + priority + 32768;
    clock := _announce(lane);
    if priority <> 0 then
      insert into lane (id) select lane where not exists (select from lane l where l.id = lane);
    end if;
    run_at := case
      when delay is not null then clock + _exact(delay)
      when run_at is null and replaced.lane_id = lane
        then coalesce(replaced.resume_at, replaced.run_at)
      else greatest(clock, run_at)
    end;
    insert into job (
      id, lane_id, run_at, resume_at, enqueued_at, settings, token, expires_at, expires_in,
      keep_done, dedup_key, max_attempts, visibility_timeout, retry_backoff, retry_factor,
      retry_delay, retry_max_delay, retry_jitter, headers, payload
    )
    overriding system value
    values (
      coalesce(replaced.id, nextval('job_id_seq')), lane,
      case when replaced.resume_at is null then run_at else 'infinity' end,
      case when replaced.resume_at is not null then run_at end,
      clock, target.version, coalesce(replaced.token, 0),
      greatest(run_at, clock) + coalesce(_exact(expires_in), target.expires_in), _exact(expires_in),
      target.keep_done, dedup_key, max_attempts, _exact(visibility_timeout), retry_backoff,
      retry_factor, _exact(retry_delay), _exact(retry_max_delay), retry_jitter, headers, payload
    )
    returning id into job_id;
    if dedup_key is not null then
      perform _give_key(target.id, dedup_key, job_id);
    end if;
    if run_at < clock + interval '1 minute' then
      perform _wake(target.id);
    end if;
  end;
end
$$;

comment on function enqueue is
  'Puts one job into a queue, in the caller''s transaction. payload: any JSON value. priority: '
  'higher runs first, -32768 to 32767. delay wins over run_at; both may be omitted (now). '
  'Intervals are 0 to 9007199254740 ms; null options take the queue''s default. dedup_key, 1 to '
  '1000 bytes: while a live job of the queue has it, dedup_mode ignore (the default) keeps that '
  'job, and replace puts this one in its place; one that runs, or whose lease ran out and is not '
  'swept yet, goes on, and this one is inserted and has the key. Answers (job_id, outcome): '
  'inserted, existing or replaced. Errors: JQ001, JQ005, JQ007, 22023; 40001 above READ COMMITTED '
  'if another transaction has just taken the key.';
