-- _lane_key: the key of the advisory lock that every open producer of a lane holds.
--
-- Locks:  none.
-- Raises: nothing.
-- Notes:  Made from the oid of this schema's own table, so that neither another installation nor
--         an application's own locks meet it. Two locks with one key are harmless: a producer of
--         one lane then holds back the marks of both.
create or replace function _lane_key(lane_id bigint)
returns bigint
language sql
stable
return lane_id # ('lane'::regclass::bigint << 31);

comment on function _lane_key is 'Key of the lock of a lane''s open producers. Private.';
