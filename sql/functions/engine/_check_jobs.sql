-- _check_jobs: refuses a batch of which some item cannot become a job.
--
-- Locks:  none.
-- Raises: JQ007, 22023; DETAIL names the first such item.
create or replace function _check_jobs(
  target queue,
  payloads jsonb[],
  headers jsonb[],
  priorities integer[],
  delays interval[],
  run_ats timestamptz[]
)
returns void
language plpgsql
stable
set search_path from current
as $$
declare
  suspect record;
  detail text;
  hint text;
begin
  select * into suspect
  from unnest(payloads, headers, priorities, delays, run_ats)
    with ordinality u (payload, headers, priority, delay, run_at, ordinal)
  where not _can_be_job(
    u.payload, u.headers, u.priority, u.delay, u.run_at, target.max_payload, _now())
  order by u.ordinal
  limit 1;
  if not found then
    return;
  end if;
  begin
    perform _check_job(target, suspect.payload, suspect.headers, coalesce(suspect.priority, 0),
      suspect.delay, suspect.run_at);
  exception when others then
    get stacked diagnostics detail = pg_exception_detail, hint = pg_exception_hint;
    raise exception '%', sqlerrm
      using errcode = sqlstate, hint = hint,
        detail = concat_ws(': ', format('item %s', suspect.ordinal), nullif(detail, ''));
  end;
end
$$;

comment on function _check_jobs is
  'Raises what _check_job raises for the first item that cannot be a job, naming it. Private.';
