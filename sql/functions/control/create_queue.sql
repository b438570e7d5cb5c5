-- create_queue: makes a queue, unless one of that name is there already.
--
-- Locks:  as _change_queues, if there is none; with keep_done as _add_done_day.
-- Raises: 22023 for a bad name or setting; JQ001 no such dead letter queue; JQ005 unknown option;
--         25001 if it has a dead letter queue and the transaction is not READ COMMITTED.
-- Notes:  Null for a setting means its default. A queue that is there is left unchanged, so that
--         deploy scripts may call this each time.
create or replace function create_queue(
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
  made queue;
begin
  perform _check_queue_name(queue);
  perform _check_options(options);
  made := _settings(null, max_attempts, visibility_timeout, retry_backoff, retry_factor,
    retry_delay, retry_max_delay, retry_jitter, expires_in, keep_done, keep_dead,
    dead_letter_queue, notify, max_payload, '{}');
  if exists (select from queue q where q.name = create_queue.queue collate "C" and q.current) then
    return false;
  end if;
  perform _change_queues(linking => dead_letter_queue is not null);
  -- Again, now that a dead letter queue cannot go.
  made := _settings(null, max_attempts, visibility_timeout, retry_backoff, retry_factor,
    retry_delay, retry_max_delay, retry_jitter, expires_in, keep_done, keep_dead,
    dead_letter_queue, notify, max_payload, '{}');
  made.version := nextval(pg_get_serial_sequence('queue', 'version'));
  made.id := nextval(pg_get_serial_sequence('queue', 'id'));
  made.current := true;
  made.name := queue;
  made.paused := false;
  made.created_at := _now();
  insert into queue overriding system value values (made.*)
  on conflict (name) where current do nothing;
  if not found then
    return false;
  end if;
  insert into lane (id) values ((made.id << 16) + 32768);
  if made.keep_done is not null then
    perform _add_done_day(made.created_at + made.keep_done);
  end if;
  return true;
end
$$;

comment on function create_queue is
  'Makes a queue. Name: 1 to 100 bytes of ASCII letters, digits and _ - . : /, the '
  'beginning "pgq." is reserved. Settings and defaults: max_attempts 5 runs, visibility_timeout '
  '30 s, retry_backoff exponential, retry_factor 2, retry_delay 500 ms, retry_max_delay 5 min, '
  'retry_jitter [0.8,1.2], expires_in none, keep_done 0 (no history of done jobs), keep_dead 14 '
  'days, dead_letter_queue none (dead jobs go to dead_jobs), notify true, max_payload 1048576 '
  'bytes. Answers true if made, false if it was there (left unchanged). Errors: 22023, JQ001, '
  'JQ005; 25001 with a dead_letter_queue above READ COMMITTED.';
