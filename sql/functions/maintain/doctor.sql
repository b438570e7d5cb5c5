-- doctor: what is wrong with the queues, or about to be, and what to do.
--
-- Locks:  none.
-- Raises: nothing.
-- Notes:  Looks at no more than 1,000 jobs of a lane. What the owner may not see of other sessions
--         (pg_read_all_stats) it cannot tell.
create or replace function doctor()
returns table (severity text, finding text, subject text, detail text, hint text)
language plpgsql
volatile
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  clock constant timestamptz := _now();
begin
  return query
  select 'warning', 'long transaction', format('pid %s', a.pid),
    format('%s, open for %s: %s', a.usename, date_trunc('second', clock - a.xact_start), a.state),
    'While it is open nothing that it could still see is vacuumed: tables grow. End it, or '
      'pg_terminate_backend(pid).'
  from pg_stat_activity a
  where a.xact_start < clock - interval '5 minutes'
    -- Of another database it holds nothing back here; a walsender has none.
    and (a.datname is null or a.datname = current_database())
    and (a.backend_xmin is not null or a.backend_xid is not null)
    and a.pid <> pg_backend_pid();

  return query
  select 'warning', 'prepared transaction', p.gid, format('since %s', p.prepared),
    'As a long transaction. COMMIT PREPARED or ROLLBACK PREPARED it.'
  from pg_prepared_xacts p
  where p.database = current_database() and p.prepared < clock - interval '5 minutes';

  return query
  select 'warning', 'replication slot holds back vacuum', s.slot_name::text,
    case when s.active then 'active' else 'not active' end,
    'Drop it if nobody needs it any more.'
  from pg_replication_slots s
  where num_nonnulls(s.xmin, s.catalog_xmin) > 0 and not s.active;

  return query
  select 'warning', 'open producer', format('queue "%s"', q.name),
    format('priority %s, since %s, pids %s', (l.id & 65535) - 32768, m.tail, p.pids),
    'A transaction that enqueued is still open: its jobs come late, and sweeps have more to walk.'
  from (select distinct i.id from lane i) l
  join queue q on q.id = l.id >> 16 and q.current
  cross join lateral (
    select k.head, k.tail from mark k where k.lane_id = l.id order by k.seq desc limit 1
  ) m
  left join lateral (
    select j.id from job j
    where j.lane_id = l.id and j.lane_id > 0 and j.run_at <= m.tail
    limit 1
  ) j on true
  cross join lateral (
    select string_agg(k.pid::text, ', ' order by k.pid) as pids
    from pg_locks k
    where k.locktype = 'advisory'
      and k.objsubid = 1
      and k.mode = 'ShareLock'
      and k.classid::bigint = (_lane_key(l.id) >> 32) & 4294967295
      and k.objid::bigint = _lane_key(l.id) & 4294967295
      and k.database = (select d.oid from pg_database d where d.datname = current_database())
  ) p
  where m.tail < least(m.head, clock - interval '1 minute')
    and j.id is null
    and p.pids is not null;

  return query
  select 'error', 'nobody sweeps', format('queue "%s"', q.name),
    format('a lease ran out at %s', x.lease_until),
    'Claims of the queue do it, under READ COMMITTED; or call sweep() every minute.'
  from queue q
  cross join lateral (
    select min(y.lease_until) as lease_until
    from (
      select j.lease_until
      from lane l
      left join lateral (
        select k.tail from mark k where k.lane_id = l.id order by k.seq desc limit 1
      ) m on true
      cross join lateral (
        select r.lease_until from job r
        where r.lane_id = l.id
          and r.lane_id > 0
          and r.run_at between coalesce(m.tail, '-infinity') and clock
        order by r.run_at, r.id
        limit 1000
      ) j
      where l.id between q.id << 16 and (q.id << 16) + 65535
    ) y
    where y.lease_until < clock - interval '1 minute'
  ) x
  where q.current and x.lease_until is not null;

  return query
  select case when s.paused then 'info' else 'warning' end,
    case when s.paused then 'paused with jobs waiting' else 'backlog' end,
    format('queue "%s"', q.name),
    format('%s ready%s, the first for %s', s.ready, case when not s.exact then ' or more' end,
      date_trunc('second', s.oldest_ready)),
    case when s.paused then 'resume_queue when it may go on.'
      else 'More workers, larger claims, or find out why none runs.' end
  from queue q
  cross join lateral queue_stats(q.name, 1000) s
  where q.current and s.oldest_ready > interval '5 minutes';

  return query
  select 'warning', 'dead rows pile up', t.relname::text,
    format('%s dead, %s live, last autovacuum %s', t.n_dead_tup, t.n_live_tup,
      coalesce(t.last_autovacuum::text, 'never')),
    'See whether autovacuum is on and what holds it back (long transactions, slots).'
  from pg_stat_user_tables t
  where t.schemaname = current_schema()
    and t.n_dead_tup > 100000
    and t.n_dead_tup > t.n_live_tup;

  return query
  select 'error', 'function changed', coalesce(i.signature, r.signature),
    case when i.signature is null then 'new since the release was installed'
      when r.signature is null then 'missing' else 'not as the release installed it' end,
    'Find out who changed it and why; then downgrade one release and upgrade again, or restore it.'
  from _routines() i
  full join routine r on r.signature = i.signature
  where i.hash is distinct from r.hash;

  return query
  select 'error', 'autovacuum is off', s.name, format('%s = %s', s.name, s.setting),
    'Queues need it: switch it on.'
  from pg_settings s
  where s.name in ('autovacuum', 'track_counts') and s.setting = 'off';
end
$$;

comment on function doctor is
  'Findings about the queues, one row each, none if all is well: (severity error, warning or '
  'info; finding, subject, detail, hint what to do): long transactions, open producers, leases '
  'that nobody sweeps, backlogs, dead rows, functions that were changed, autovacuum off. Later '
  'versions may add findings.';
