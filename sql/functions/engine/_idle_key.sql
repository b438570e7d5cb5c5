-- _idle_key: the key of a queue's idle lock (wait_begin).
--
-- Locks:  none.
-- Raises: nothing.
-- Notes:  Made from the oid of this schema's own table, as _lane_key.
create or replace function _idle_key(queue_id bigint)
returns bigint
language sql
stable
return queue_id # ('queue'::regclass::bigint << 31);

comment on function _idle_key is 'Key of a queue''s idle lock. Private.';
