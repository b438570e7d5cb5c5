-- _wake_queues: wakes the idle consumers of queues whose jobs were just given back, if they are due
-- soon.
--
-- Locks:  as _wake.
-- Raises: nothing.
create or replace function _wake_queues(ids bigint[])
returns void
language plpgsql
volatile
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  queue_id bigint;
begin
  for queue_id in
    select distinct q.id
    from job j
    join queue q on q.version = j.settings
    where j.id = any (ids)
      and j.run_at < _now() + interval '1 minute'
  loop
    perform _wake(queue_id);
  end loop;
end
$$;

comment on function _wake_queues is
  'Wakes idle consumers of the queues in which these jobs are due soon. Private.';
