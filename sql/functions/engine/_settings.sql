-- _settings: the settings of a queue, made from given ones, from those before, and from the
-- defaults.
--
-- Locks:  none; callers hold _change_queues.
-- Raises: 22023 for bad values and unknown settings in reset; JQ001 no such dead letter queue;
--         JQ004 dead letters would go round in a circle.
-- Notes:  The one place that knows the defaults. before is null for a new queue.
create or replace function _settings(
  before queue,
  max_attempts integer,
  visibility_timeout interval,
  retry_backoff text,
  retry_factor double precision,
  retry_delay interval,
  retry_max_delay interval,
  retry_jitter numrange,
  expires_in interval,
  keep_done interval,
  keep_dead interval,
  dead_letter_queue text,
  notify boolean,
  max_payload integer,
  reset text[]
)
returns queue
language plpgsql
stable
set search_path from current
as $$
declare
  s queue := before;
  unknown text;
begin
  perform _check_run_options(max_attempts, visibility_timeout, expires_in, retry_backoff,
    retry_factor, retry_delay, retry_max_delay, retry_jitter);
  perform _check_duration('keep_done', keep_done, forever => true);
  perform _check_duration('keep_dead', keep_dead, forever => true);
  if not max_payload between 1 and 268435455 then
    raise exception 'max_payload is out of range'
      using errcode = '22023',
        detail = format('max_payload = %s', max_payload),
        hint = 'It is 1 to 268435455 bytes, the most a jsonb value holds.';
  end if;
  select r into unknown
  from unnest(reset) r
  where r is null or r not in (
    'max_attempts', 'visibility_timeout', 'retry_backoff', 'retry_factor', 'retry_delay',
    'retry_max_delay', 'retry_jitter', 'expires_in', 'keep_done', 'keep_dead',
    'dead_letter_queue', 'notify', 'max_payload')
  limit 1;
  if found then
    raise exception 'no such setting'
      using errcode = '22023',
        detail = format('reset names "%s"', left(unknown, 200)),
        hint = 'Use the names of alter_queue''s arguments.';
  end if;

  if s.id is null or 'max_attempts' = any (reset) then
    s.max_attempts := 5;
  end if;
  if s.id is null or 'visibility_timeout' = any (reset) then
    s.visibility_timeout := '30 s';
  end if;
  if s.id is null or 'retry_backoff' = any (reset) then
    s.retry_backoff := 'exponential';
  end if;
  if s.id is null or 'retry_factor' = any (reset) then
    s.retry_factor := 2;
  end if;
  if s.id is null or 'retry_delay' = any (reset) then
    s.retry_delay := '500 ms';
  end if;
  if s.id is null or 'retry_max_delay' = any (reset) then
    s.retry_max_delay := '5 min';
  end if;
  if s.id is null or 'retry_jitter' = any (reset) then
    s.retry_jitter := '[0.8,1.2]';
  end if;
  if 'expires_in' = any (reset) then
    s.expires_in := null;
  end if;
  if 'keep_done' = any (reset) then
    s.keep_done := null;
  end if;
  if s.id is null or 'keep_dead' = any (reset) then
    s.keep_dead := '336 hours';
  end if;
  if 'dead_letter_queue' = any (reset) then
    s.dead_letter_queue_id := null;
  end if;
  if s.id is null or 'notify' = any (reset) then
    s.notify := true;
  end if;
  if s.id is null or 'max_payload' = any (reset) then
    s.max_payload := 1048576;
  end if;

  s.max_attempts := coalesce(max_attempts, s.max_attempts);
  s.visibility_timeout := coalesce(_exact(visibility_timeout), s.visibility_timeout);
  s.retry_backoff := coalesce(retry_backoff, s.retry_backoff);
  s.retry_factor := coalesce(retry_factor, s.retry_factor);
  s.retry_delay := coalesce(_exact(retry_delay), s.retry_delay);
  s.retry_max_delay := coalesce(_exact(retry_max_delay), s.retry_max_delay);
  s.retry_jitter := coalesce(retry_jitter, s.retry_jitter);
  s.expires_in := coalesce(_exact(expires_in), s.expires_in);
  s.keep_done := nullif(coalesce(_exact_or_forever(keep_done), s.keep_done), '0');
  s.keep_dead := coalesce(_exact_or_forever(keep_dead), s.keep_dead);
  s.notify := coalesce(notify, s.notify);
  s.max_payload := coalesce(max_payload, s.max_payload);

  if dead_letter_queue is not null then
    s.dead_letter_queue_id := (_find_queue(dead_letter_queue)).id;
    if exists (
      with recursive way (id) as (
        select s.dead_letter_queue_id
        union
        select q.dead_letter_queue_id from way w join queue q on q.id = w.id and q.current
      )
      select from way w where w.id = s.id)
    then
      raise exception 'dead letters would go round in a circle'
        using errcode = 'JQ004',
          detail = format('dead_letter_queue "%s"', dead_letter_queue),
          hint = 'Name a queue whose own dead letters do not come back to this one.';
    end if;
  end if;
  return s;
end
$$;

comment on function _settings is
  'Settings of a queue after a change: what is given, else the default where reset names it or '
  'the queue is new, else what was before. Private.';
