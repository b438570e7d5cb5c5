-- list_jobs: jobs in id order, a page at a time.
--
-- Locks:  none.
-- Raises: 22023 for null or negative n and an unknown state; JQ001 no such queue.
-- Notes:  By keyset: the next page begins after the last id of this one, and costs no more than the
--         first. A filter that few jobs meet reads many rows to fill a page.
--         The ids come first, from the three tables in id order, then their jobs: ordering the view
--         itself sorted every job after `after` for each page. Before PostgreSQL 17 each id is
--         looked up in each day of history: hence the small step where a filter leaves a page
--         unfilled.
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
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
declare
  place bigint := coalesce(after, 0);
  step integer := least(n, 1000);
  wanted integer := n;
  page bigint[];
  listed integer;
begin
  perform _check_filter(queue, state);
  if n is null or n < 0 then
    raise exception 'n must not be null or negative' using errcode = '22023';
  end if;
  while wanted > 0 loop
    select array_agg(x.id order by x.id) into page
    from (
      select u.id
      from (
        (select j.id from job j
          where j.id > place and coalesce(state, '') not in ('dead', 'done', 'cancelled')
          order by j.id limit step)
        union all
        (select d.id from dead_job d
          where d.id > place and coalesce(state, 'dead') = 'dead'
          order by d.id limit step)
        union all
        (select d.id from done_job d
          where d.id > place and coalesce(state, 'done') in ('done', 'cancelled')
          order by d.id limit step)
      ) u
      order by u.id
      limit step
    ) x;
    exit when page is null;
    return query
    select a.*
    from all_jobs a
    where a.job_id = any (page)
      and (list_jobs.queue is null or a.queue = list_jobs.queue collate "C")
      and (list_jobs.state is null or a.state = list_jobs.state)
      and (list_jobs.worker is null or a.worker = list_jobs.worker)
      and (payload_has is null or a.payload @> payload_has)
    order by a.job_id
    limit wanted;
    get diagnostics listed = row_count;
    wanted := wanted - listed;
    place := page[cardinality(page)];
    step := 200;
  end loop;
end
$$;

comment on function list_jobs is
  'Jobs in id order, n at a time, beginning after the id `after`. Null filters let everything '
  'through; payload_has: what the payload contains, in the sense of @>. Answers rows of all_jobs. '
  'Errors: JQ001, 22023.';
