-- _slot_key: the second key of a lane's advisory locks: which 100 ms an instant falls into.
--
-- Locks:  none.
-- Raises: nothing.
-- Notes:  Never negative, so it does not meet -1, the key that every open producer of a lane holds.
create or replace function _slot_key(instant timestamptz)
returns integer
language sql
stable
return (round(date_part('epoch',
  date_bin('100 ms', instant, timestamptz '2000-01-01 00:00:00+00')) * 10)::bigint
  & 2147483647)::integer;

comment on function _slot_key is 'Key of the 100 ms slot of an instant. Private.';
