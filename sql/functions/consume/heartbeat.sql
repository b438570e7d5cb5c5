-- heartbeat: renews a lease: it then ends at now + extend, whatever was left of it.
--
-- Locks:  the job's row.
-- Raises: 22023 for nulls and bad durations; JQ007 progress too large.
create or replace function heartbeat(
  job_id bigint,
  token bigint,
  extend interval default null,
  progress jsonb default null,
  out outcome text,
  out lease_until timestamptz,
  out observed_at timestamptz
)
language plpgsql
volatile
security definer
set search_path from current
as $$
#variable_conflict use_column
begin
  select h.outcome, h.lease_until, h.observed_at into outcome, lease_until, observed_at
  from heartbeat_many(array[job_id], array[token], array[extend], array[progress]) h;
  if outcome = 'progress too large' then
    raise exception 'progress is too large'
      using errcode = 'JQ007',
        detail = format('job %s', job_id),
        hint = 'It may have 65536 bytes as JSON text.';
  end if;
end
$$;

comment on function heartbeat is
  'Renews a lease, to end at now + extend (null: the job''s visibility timeout), whatever was left '
  'of it. Answers outcome ''extended'', ''lost'' or ''gone'' as in ack, the new lease_until (null '
  'unless extended) and observed_at, the database clock. A late heartbeat is lost. progress: any '
  'JSON value up to 65536 bytes, shown by get_job; null leaves it. Errors: 22023, JQ007.';
