-- _check_jobs: refuses a batch of which any item cannot become a job; the checks are _check_job's.
--
-- Locks:  none.
-- Raises: JQ007, 22023; DETAIL names the item.
-- Notes:  One pass in SQL finds the first suspicious item, and only that one goes through
--         _check_job, which words the error.
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
  n constant integer := cardinality(payloads);
  latest constant timestamptz := _now() + interval '9007199254740 ms';
  suspect record;
  detail text;
  hint text;
begin
  if payloads is null then
    raise exception 'payloads must not be null' using errcode = '22023';
  end if;
  if array_ndims(payloads) > 1 or n <> any (array[
    cardinality(headers), cardinality(priorities), cardinality(delays), cardinality(run_ats)])
  then
    raise exception 'arrays must have one element per payload'
      using errcode = '22023', detail = format('%s payloads', n);
  end if;
  select * into suspect
  from unnest(payloads, headers, priorities, delays, run_ats)
    with ordinality u(payload, header, priority, delay, run_at, ordinal)
  where u.payload is null
    or octet_length(u.payload::text) > target.max_payload
    or (u.header is not null
      and (jsonb_typeof(u.header) <> 'object' or octet_length(u.header::text) > target.max_payload))
    or u.priority not between -32768 and 32767
    or not u.delay between '0' and '9007199254740 ms'
    or not (isfinite(u.run_at) and u.run_at <= latest)
  order by u.ordinal
  limit 1;
  if found then
    begin
      perform _check_job(target, suspect.payload, suspect.header, coalesce(suspect.priority, 0),
        suspect.delay, suspect.run_at);
    exception when others then
      get stacked diagnostics detail = pg_exception_detail, hint = pg_exception_hint;
      raise exception '%', sqlerrm
        using errcode = sqlstate, hint = hint,
          detail = concat_ws(': ', format('item %s', suspect.ordinal), nullif(detail, ''));
    end;
  end if;
end
$$;

comment on function _check_jobs is
  'Refuses a batch with an item that _check_job refuses, naming the item. Private.';
