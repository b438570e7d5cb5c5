-- next_run_at: when the queue's next unclaimed job is due.
--
-- Locks:  none.
-- Raises: JQ001 no such queue; 22023 for null.
-- Notes:  For a consumer that wants to sleep until then. Leases that may run out earlier are not
--         counted: claims find those by polling. Jobs waiting at infinity are not due, and
--         nothing is while the queue is paused.
create or replace function next_run_at(queue text)
returns timestamptz
language plpgsql
volatile
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  target constant queue := _find_queue(queue);
  clock constant timestamptz := _now();
begin
  return (
    select min(first_job.run_at)
    from lane l
    left join lateral (
      select k.head, k.head_id from mark k where k.lane_id = l.id order by k.seq desc limit 1
    ) m on m.head <= clock
    cross join lateral (
      select j.run_at
      from job j
      where j.lane_id = l.id
        and j.lane_id > 0
        and (j.run_at, j.id) >= (coalesce(m.head, '-infinity'), coalesce(m.head_id, 0))
        and j.run_at < 'infinity'
        and j.lease_until is null
      order by j.run_at, j.id
      limit 1
    ) first_job
    where l.id between target.id << 16 and (target.id << 16) + 65535
      and not target.paused
  );
end
$$;

comment on function next_run_at is
  'When the queue''s next unclaimed job is due: a past instant if one is ready, null if there is '
  'none or the queue is paused. Errors: JQ001, 22023.';
