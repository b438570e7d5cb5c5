-- Consumers of every queue seem to be idle, and pg_temp.woken() answers which queues were notified
-- since it was last called. It goes with the test's transaction, and is never installed.
--
-- A notification is sent at commit, and a test never commits. But whoever sends one asks for the
-- channel first, and nobody else in these tests does.
create or replace function pgq_sql._nobody_waits(queue_id bigint)
returns boolean
language sql
volatile
return false;

create or replace function pgq_sql._channel(queue_id bigint)
returns text
language plpgsql
volatile
set search_path = pgq_sql, pg_temp
as $$
begin
  perform set_config('test.woken', concat_ws(' ', nullif(current_setting('test.woken', true), ''), (
    select q.name from queue q where q.id = _channel.queue_id and q.current)), true);
  return 'pgq_test';
end
$$;

create function pg_temp.woken()
returns text
language plpgsql
volatile
as $$
declare
  woken constant text := coalesce(current_setting('test.woken', true), '');
begin
  perform set_config('test.woken', '', true);
  return woken;
end
$$;
