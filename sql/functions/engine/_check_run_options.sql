-- _check_run_options: refuses values that make no sense for how a job runs; null means not given.
-- The same for a queue's settings and for one job's.
--
-- Locks:  none.
-- Raises: 22023.
create or replace function _check_run_options(
  max_attempts integer,
  visibility_timeout interval,
  expires_in interval,
  retry_backoff text,
  retry_factor double precision,
  retry_delay interval,
  retry_max_delay interval,
  retry_jitter numrange
)
returns void
language plpgsql
immutable
set search_path from current
as $$
begin
  if max_attempts < 1 then
    raise exception 'max_attempts must be at least 1'
      using errcode = '22023', detail = format('max_attempts = %s', max_attempts);
  end if;
  perform _check_lease('visibility_timeout', visibility_timeout);
  perform _check_duration('expires_in', expires_in);
  perform _check_duration('retry_delay', retry_delay);
  perform _check_duration('retry_max_delay', retry_max_delay);
  if retry_backoff not in ('fixed', 'linear', 'exponential') then
    raise exception 'unknown retry_backoff'
      using errcode = '22023',
        detail = format('retry_backoff = "%s"', left(retry_backoff, 200)),
        hint = 'It is fixed, linear or exponential.';
  end if;
  if not retry_factor between 1 and 1000 then
    raise exception 'retry_factor is out of range'
      using errcode = '22023',
        detail = format('retry_factor = %s', retry_factor),
        hint = 'It is 1 to 1000.';
  end if;
  if retry_jitter is not null
    and not coalesce(lower(retry_jitter) >= 0 and upper(retry_jitter) <= 10, false)
  then
    raise exception 'retry_jitter is out of range'
      using errcode = '22023',
        detail = format('retry_jitter = %s', retry_jitter),
        hint = 'It is a range within [0,10], such as [0.8,1.2] or, for none, [1,1].';
  end if;
end
$$;

comment on function _check_run_options is
  'Refuses nonsensical attempts, durations and retry settings (22023); null means not given. '
  'Private.';
