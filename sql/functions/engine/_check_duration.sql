-- _check_duration: refuses a duration outside 0 to 9,007,199,254,740 ms, the range in which every
-- whole millisecond is exact in a double. Null is accepted: the option was not given.
--
-- Locks:  none.
-- Raises: 22023.
-- Notes:  Compared twice: PostgreSQL compares with years of 360 days, and _exact counts 365.25, so
--         that '-1 year 360 days' is 0 for the first and minus five days for the second.
create or replace function _check_duration(
  what text,
  duration interval,
  forever boolean default false
)
returns void
language plpgsql
immutable
set search_path from current
as $$
begin
  if duration is null
    or (duration between '0' and '9007199254740 ms'
      and date_part('epoch', duration) between 0 and 9007199254.74)
    or (forever and not isfinite(duration) and duration > '0')
  then
    return;
  end if;
  raise exception '% is out of range', what
    using errcode = '22023',
      detail = format('%s = %s', what, duration),
      hint = 'Durations are 0 to 9007199254740 ms.';
end
$$;

comment on function _check_duration is
  'Refuses a duration outside 0 to 9007199254740 ms (22023); null passes, and infinity where '
  'asked for. Private.';
