-- _can_be_job: whether an item of a batch can become a job; _check_job words what is wrong with it.
--
-- Locks:  none.
-- Raises: nothing.
-- Notes:  Null for headers, priority, delay or run_at means not given. delay as in _check_duration.
create or replace function _can_be_job(
  payload jsonb,
  headers jsonb,
  priority integer,
  delay interval,
  run_at timestamptz,
  max_payload integer,
  clock timestamptz
)
returns boolean
language sql
stable
return coalesce(octet_length(payload::text) <= max_payload, false)
  and (headers is null
    or jsonb_typeof(headers) = 'object' and octet_length(headers::text) <= max_payload)
  and (priority is null or priority between -32768 and 32767)
  and (delay is null
    or delay between '0' and '9007199254740 ms'
      and date_part('epoch', delay) between 0 and 9007199254.74)
  and (run_at is null
    or isfinite(run_at) and run_at <= clock + interval '9007199254740 ms');

comment on function _can_be_job is
  'Whether these can become a job of a queue with that max_payload. Private.';
