-- _exact_or_forever: as _exact, for a duration that may be infinite.
--
-- Locks:  none.
-- Raises: nothing; the duration has passed _check_duration.
create or replace function _exact_or_forever(duration interval)
returns interval
language sql
immutable
return case when isfinite(duration) then _exact(duration) else duration end;

comment on function _exact_or_forever is '_exact, but infinity stays. Private.';
