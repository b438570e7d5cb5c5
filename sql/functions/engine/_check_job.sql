-- _check_job: refuses what cannot become a job.
--
-- Locks:  none.
-- Raises: JQ007 payload or headers too large; 22023 the rest.
create or replace function _check_job(
  target queue,
  payload jsonb,
  headers jsonb,
  priority integer,
  delay interval,
  run_at timestamptz
)
returns void
language plpgsql
stable
set search_path from current
as $$
declare
  size integer;
begin
  if payload is null then
    raise exception 'payload must not be null'
      using errcode = '22023', hint = 'For a job without one use ''{}'' or ''null''::jsonb.';
  end if;
  size := octet_length(payload::text);
  if size > target.max_payload then
    raise exception 'payload is too large'
      using errcode = 'JQ007',
        detail = format('%s bytes as JSON text, the queue accepts %s', size, target.max_payload),
        hint = 'Store it elsewhere and enqueue a reference, or raise the queue''s max_payload.';
  end if;
  if headers is not null then
    if jsonb_typeof(headers) <> 'object' then
      raise exception 'headers must be a JSON object' using errcode = '22023';
    end if;
    size := octet_length(headers::text);
    if size > target.max_payload then
      raise exception 'headers are too large'
        using errcode = 'JQ007',
          detail = format('%s bytes as JSON text, the queue accepts %s', size, target.max_payload);
    end if;
  end if;
  if priority not between -32768 and 32767 then
    raise exception 'priority is out of range'
      using errcode = '22023',
        detail = format('priority = %s', priority),
        hint = 'It is -32768 to 32767; higher runs first.';
  end if;
  if delay is not null then
    perform _check_duration('delay', delay);
  end if;
  if run_at is not null
    and not (isfinite(run_at) and run_at <= _now() + interval '9007199254740 ms')
  then
    raise exception 'run_at is out of range'
      using errcode = '22023',
        detail = format('run_at = %s', run_at),
        hint = 'It is an instant of the next 285 years, or a past one, which means now.';
  end if;
end
$$;

comment on function _check_job is
  'Refuses a payload, headers, priority, delay or run_at that cannot be (JQ007, 22023). Private.';
