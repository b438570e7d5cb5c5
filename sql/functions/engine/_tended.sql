-- _tended: until when this session need not keep house for a queue (_keep_house), in seconds since
-- 1970; 0 if it never did.
--
-- Locks:  none.
-- Raises: nothing.
-- Notes:  A setting of the session: no table is read or written to find out.
create or replace function _tended(queue_id bigint)
returns double precision
language sql
stable
return coalesce(nullif(
  current_setting(concat('pgq_sql.tended_', 'queue'::regclass::oid, '_', queue_id), true),
  ''), '0')::double precision;

comment on function _tended is
  'Until when this session need not keep house for the queue, in seconds since 1970. Private.';
