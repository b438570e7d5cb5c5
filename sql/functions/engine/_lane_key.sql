-- _lane_key: the first key of a lane's advisory locks.
--
-- Locks:  none.
-- Raises: nothing.
-- Notes:  Hashed with the oid of this schema's own table, so that neither another installation nor
--         an application's own locks meet them. Two lanes with one key are harmless: a producer of
--         one then holds back the marks of both.
create or replace function _lane_key(lane_id bigint)
returns integer
language sql
stable
return hashint8(lane_id # ('lane'::regclass::bigint << 31));

comment on function _lane_key is 'First key of a lane''s advisory locks. Private.';
