-- sweep: the housekeeping of every queue, bounded to n jobs a lane. Claims do it for
-- their own queue; this is for queues that nobody claims from, or only above READ COMMITTED, and
-- for history: call it from pg_cron.
--
-- Locks:  rows of the jobs concerned, skipping those that others hold: any number of sweeps may run
--         at once. As _sweep_history.
-- Raises: 22023 for n null or negative; 25001 if the transaction is not READ COMMITTED.
-- Notes:  Looks at each lane from its bottom, so it also finds jobs stamped by a clock that was set
--         back. While a snapshot is held, that means a walk past every job finished since: call it
--         every minute, not every second.
create or replace function sweep(n integer default 1000)
returns table (task text, count bigint)
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
  target_id bigint;
  known boolean;
  swept record;
  recovered bigint := 0::bigint;
  exhausted bigint := 0::bigint;
  late bigint := 0::bigint;
  expired bigint := 0::bigint;
  purged bigint := 0::bigint;
  dropped bigint := 0::bigint;
begin
  if n is null or n < 0 then
    raise exception 'n must not be null or negative' using errcode = '22023';
  end if;
  perform _need_read_committed('sweep');
  for target_id, known in
    select q.id, bool_or(q.current) from queue q group by q.id order by q.id
  loop
    -- A dropped queue is visited only for what is left of it.
    continue when not known and not exists (
        select from job j
        where j.lane_id between target_id << 16 and (target_id << 16) + 65535
          and j.lane_id > 0)
      and not exists (select from dead_job d where d.queue_id = target_id);
    perform _advance_marks(target_id);
    swept := _sweep_queue(target_id, n, whole => true);
    recovered := recovered + swept.recovered;
    exhausted := exhausted + swept.exhausted;
    late := late + swept.late;
    expired := expired + swept.expired;
    purged := purged + swept.purged;
    if not known then
      dropped := dropped + _bury_orphans(target_id, n);
    end if;
  end loop;
  return query values
    ('recovered', recovered), ('exhausted', exhausted), ('late', late), ('expired', expired),
    ('purged', purged), ('dropped', dropped), ('history', _sweep_history());
end
$$;

comment on function sweep is
  'Housekeeping of every queue, at most n jobs a lane, and n expired, n purged and n dropped for '
  'each queue. Answers (task, count): recovered (lease ran out, ready again), exhausted (ran out '
  'at the last attempt, dead), late (committed after the mark had passed, ready again), expired '
  '(past expires_at, dead), purged (dead rows past keep_dead), dropped (jobs of a dropped queue, '
  'dead), history (days of done jobs past keep_done). Later versions may add tasks. Errors: '
  '22023, 25001.';
