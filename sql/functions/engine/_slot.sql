-- _slot: the beginning of the 100 ms slot that an instant falls into.
--
-- Locks:  none.
-- Raises: nothing.
create or replace function _slot(instant timestamptz)
returns timestamptz
language sql
immutable
return date_bin('100 ms', instant, timestamptz '2000-01-01 00:00:00+00');

comment on function _slot is 'Beginning of the 100 ms slot of an instant. Private.';
