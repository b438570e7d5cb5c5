-- create_queue: makes a queue, unless one of that name is there already.
--
-- Locks:  the name: of two creators at once the second waits for the first.
-- Raises: 22023 for a bad name or setting; JQ005 unknown option.
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
  keep_dead interval default null,
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
#variable_conflict use_column
declare
  new_id bigint;
begin
  perform _check_queue_name(queue);
  perform _check_run_options(max_attempts, visibility_timeout, expires_in, retry_backoff,
    retry_factor, retry_delay, retry_max_delay, retry_jitter);
  perform _check_duration('keep_dead', keep_dead, forever => true);
  if not max_payload between 1 and 268435455 then
    raise exception 'max_payload is out of range'
      using errcode = '22023',
        detail = format('max_payload = %s', max_payload),
        hint = 'It is 1 to 268435455 bytes, the most a jsonb value holds.';
  end if;
  perform _check_options(options);

  insert into queue (
    name, max_attempts, visibility_timeout, retry_backoff, retry_factor, retry_delay,
    retry_max_delay, retry_jitter, expires_in, keep_dead, notify, max_payload, created_at
  ) values (
    create_queue.queue, coalesce(create_queue.max_attempts, 5),
    coalesce(_exact(create_queue.visibility_timeout), '30 s'),
    coalesce(create_queue.retry_backoff, 'exponential'), coalesce(create_queue.retry_factor, 2),
    coalesce(_exact(create_queue.retry_delay), '500 ms'),
    coalesce(_exact(create_queue.retry_max_delay), '5 min'),
    coalesce(create_queue.retry_jitter, '[0.8,1.2]'), _exact(create_queue.expires_in),
    coalesce(case when isfinite(create_queue.keep_dead) then _exact(create_queue.keep_dead)
      else create_queue.keep_dead end, '14 days'), coalesce(create_queue.notify, true),
    coalesce(create_queue.max_payload, 1048576), _now()
  )
  on conflict (name) where current do nothing
  returning id into new_id;
  if new_id is null then
    return false;
  end if;
  insert into lane (id) values ((new_id << 16) + 32768);
  return true;
end
$$;

comment on function create_queue is
  'Makes a queue. Name: 1 to 100 bytes of ASCII letters, digits and _ - . : /, not beginning with '
  'pgq. Settings and defaults: max_attempts 5 runs, visibility_timeout 30 s, retry_backoff '
  'exponential, retry_factor 2, retry_delay 500 ms, retry_max_delay 5 min, retry_jitter '
  '[0.8,1.2], expires_in none, keep_dead 14 days, notify true, max_payload 1048576 bytes. Answers '
  'true if made, false if it was there (left unchanged). Errors: 22023, JQ005.';
