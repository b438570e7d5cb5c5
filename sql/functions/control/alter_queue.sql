-- alter_queue: changes settings of a queue, for the jobs that are enqueued from then on.
--
-- Locks:  as _change_queues; with keep_done as _add_done_day.
-- Raises: JQ001 no such queue or dead letter queue; 22023 for bad settings; JQ004 if dead letters
--         would go round in a circle; JQ005 unknown option; 25001 with a dead letter queue if
--         the transaction is not READ COMMITTED.
-- Notes:  Null leaves a setting as it is; reset names those that go back to their default. Jobs
--         keep the settings they were enqueued under, but notify, keep_dead and dead_letter_queue
--         are the queue's own and hold at once.
create or replace function alter_queue(
  queue text,
  max_attempts integer default null,
  visibility_timeout interval default null,
  retry_backoff text default null,
  retry_factor double precision default null,
  retry_delay interval default null,
  retry_max_delay interval default null,
  retry_jitter numrange default null,
  expires_in interval default null,
  keep_done interval default null,
  keep_dead interval default null,
  dead_letter_queue text default null,
  notify boolean default null,
  max_payload integer default null,
  reset text[] default '{}',
  options jsonb default '{}'
)
returns boolean
language plpgsql
volatile
security definer
set search_path from current
as $$
#variable_conflict use_variable
declare
  before queue;
  made queue;
begin
  perform _change_queues(linking => dead_letter_queue is not null);
  before := _find_queue(queue);
  perform _check_options(options);
  made := _settings(before, max_attempts, visibility_timeout, retry_backoff, retry_factor,
    retry_delay, retry_max_delay, retry_jitter, expires_in, keep_done, keep_dead,
    dead_letter_queue, notify, max_payload, reset);
  if made is not distinct from before then
    return false;
  end if;
  update queue q set current = false where q.version = before.version;
  made.version := nextval(pg_get_serial_sequence('queue', 'version'));
  made.created_at := _now();
  insert into queue overriding system value values (made.*);
  if made.keep_done is not null then
    perform _add_done_day(made.created_at + made.keep_done);
  end if;
  return true;
end
$$;

comment on function alter_queue is
  'Changes settings of a queue. Null leaves one as it is; reset names those to put back to their '
  'default, as in reset => ''{expires_in}''. Live jobs keep the settings they have, except that '
  'notify, keep_dead and dead_letter_queue hold at once. Settings as in create_queue. Answers '
  'whether anything changed. Errors: JQ001, JQ004, JQ005, 22023; 25001 with a '
  'dead_letter_queue above READ COMMITTED.';
