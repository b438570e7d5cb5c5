-- _exact: a duration without days and months, which would depend on the caller's time zone: '120
-- days' is an hour short where the clocks change in between.
--
-- Locks:  none.
-- Raises: nothing; the duration has passed _check_duration.
-- Notes:  A day is 24 hours, a month 30 days, a year 365.25 days.
create or replace function _exact(duration interval)
returns interval
language sql
immutable
return make_interval(secs => date_part('epoch', duration));

comment on function _exact is
  'The duration in hours, minutes and seconds: a day is 24 hours, a month 30 days, a year 365.25 '
  'days. Private.';
