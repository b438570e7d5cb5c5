-- purge_queue: removes every job of a queue that does not run.
--
-- Locks:  the rows, in id order; those that a claim is just taking are waited for and then left
--         alone. Rows of dedup, as _free_keys.
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
  clock constant timestamptz := _now();
  purged bigint;
  held dedup[];
begin
  with removed as (
    delete from job j
    where j.id = any (array(
      select x.id
      from job x
      where x.lane_id between target.id << 16 and (target.id << 16) + 65535
        and x.lane_id > 0
        and (x.lease_until is null or x.lease_until <= clock)
      order by x.id
      for update
    ))
    returning j.id, j.lane_id, j.dedup_key
  )
  select count(*), array_agg(row(r.lane_id >> 16, r.dedup_key, r.id)::dedup)
    filter (where r.dedup_key is not null)
  into purged, held
  from removed r;
  perform _free_keys(held);
  return purged;
end
$$;

comment on function purge_queue is
  'Removes every job of the queue that does not run: ready (also if its lease ran '
  'out), scheduled, suspended. Nothing of them is kept. Answers how many. Errors: JQ001, 22023.';
