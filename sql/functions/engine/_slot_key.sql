-- _slot_key: the key of the advisory lock on (lane, slot) that a producer holds who began in it.
--
-- Locks:  none.
-- Raises: nothing.
create or replace function _slot_key(lane_id bigint, instant timestamptz)
returns bigint
language sql
stable
return hashfloat8extended(date_part('epoch', _slot(instant)), _lane_key(lane_id));

comment on function _slot_key is
  'Key of the lock of those who became producers of a lane in the slot of an instant. Private.';
