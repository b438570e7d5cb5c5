-- purge_queue: removes every job of a queue that does not run.
--
-- Locks:  the rows; those that a claim is just taking are waited for and then left alone.
-- Raises: JQ001 no such queue; 22023 for null.
-- Notes:  Nothing of them is kept, neither as history nor as dead jobs.
create or replace function purge_queue(queue text)
returns bigint
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
  purged bigint;
begin
  with removed as (
    delete from job j
    where j.lane_id between target.id << 16 and (target.id << 16) + 65535
      and j.lane_id > 0
      and (j.lease_until is null or j.lease_until <= _now())
    returning j.id, j.lane_id, j.dedup_key
  ), freed as (
    delete from dedup d
    using removed r
    where r.dedup_key is not null
      and d.queue_id = r.lane_id >> 16 and d.key = r.dedup_key and d.job_id = r.id
  )
  select count(*) into purged from removed r;
  return purged;
end
$$;

comment on function purge_queue is
  'Removes every job of the queue that does not run: ready, scheduled, suspended. Nothing of them '
  'is kept. Answers how many. Errors: JQ001, 22023.';
