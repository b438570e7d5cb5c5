-- _channel: the notification channel of a queue.
--
-- Locks:  none.
-- Raises: nothing.
-- Notes:  Channels have no privileges: anyone in the database may listen. So the name is made of
--         ids and tells nothing.
create or replace function _channel(queue_id bigint)
returns text
language sql
stable
return format('pgq_%s_%s', 'queue'::regclass::oid::bigint, queue_id);

comment on function _channel is 'Notification channel of a queue: pgq_<oid>_<queue id>. Private.';
