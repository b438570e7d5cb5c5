-- list_jobs: jobs in id order, a page at a time.
--
-- Locks:  none.
-- Raises: 22023 for null or negative n and an unknown state; JQ001 no such queue.
-- Notes:  By keyset: the next page begins after the last id of this one, and costs no more than the
--         first. A filter that few jobs meet reads many rows to fill a page.
create or replace function list_jobs(
  queue text default null,
  state text default null,
  worker text default null,
  payload_has jsonb default null,
  after bigint default 0,
  n integer default 100
)
returns setof all_jobs
language plpgsql
stable
security definer
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
begin
  perform _check_filter(queue, state);
  if n is null or n < 0 then
    raise exception 'n must not be null or negative' using errcode = '22023';
  end if;
  return query
  select a.*
  from all_jobs a
  where a.job_id > coalesce(list_jobs.after, 0)
    and (list_jobs.queue is null or a.queue = list_jobs.queue)
    and (list_jobs.state is null or a.state = list_jobs.state)
    and (list_jobs.worker is null or a.worker = list_jobs.worker)
    and (payload_has is null or a.payload @> payload_has)
  order by a.job_id
  limit n;
end
$$;

comment on function list_jobs is
  'Jobs in id order, n at a time, beginning after the id `after`. Null filters let everything '
  'through; payload_has: what the payload contains, in the sense of @>. Answers rows of all_jobs. '
  'Errors: JQ001, 22023.';
