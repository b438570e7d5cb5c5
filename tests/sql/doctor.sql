-- doctor: what it finds, and that it finds nothing where all is well. What needs a second session
-- is in tests/python/test_doctor.py.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
select plan(19);

-- Findings about the queues, not about the server.
create function pg_temp.found() returns setof text language sql as
  $$ select concat_ws(': ', severity, finding, subject) from pgq_sql.doctor()
     where subject like 'queue %' $$;

select is_empty('select pg_temp.found()', 'no queues, no findings');
select create_queue('q', visibility_timeout => '10 s'), create_queue('idle'), create_queue('quiet');
select enqueue('q', delay => '1 h');
select enqueue('q', '"first"', visibility_timeout => '10 min');
select is_empty('select pg_temp.found()', 'nor with a job that has just come');

-- A backlog, a paused queue.
select set_config('test.ahead', '4 min', true);
select is_empty('select pg_temp.found()', 'four minutes are no backlog');
select set_config('test.ahead', '6 min', true);
select results_eq(
  'select pg_temp.found()', $$ values ('warning: backlog: queue "q"') $$, 'six are');
select results_eq(
  $$ select detail ~ '^1 ready, the first for 00:0[56]:\d\d$', hint <> ''
     from doctor() where finding = 'backlog' $$,
  $$ values (true, true) $$, 'it tells how many, how long, what to do');
select pause_queue('q');
select results_eq(
  'select pg_temp.found()', $$ values ('info: paused with jobs waiting: queue "q"') $$,
  'in a paused queue that is meant to be');
select resume_queue('q');
select claim('q', 'w');
select is_empty('select pg_temp.found()', 'jobs that run are no backlog');

-- Leases that nobody sweeps.
select set_config('test.ahead', '16 min 30 s', true);
select is_empty('select pg_temp.found()', 'half a minute after a lease may still be swept');
select set_config('test.ahead', '17 min 30 s', true);
select ok(
  'error: nobody sweeps: queue "q"' in (select pg_temp.found()), 'a minute and a half is too long');
select sweep();
select is_empty('select pg_temp.found()', 'a sweep mends it');
select enqueue('idle', visibility_timeout => '1 s');
select claim('idle', 'w');
select set_config('test.ahead', '19 min', true);
select ok(
  'error: nobody sweeps: queue "idle"' in (select pg_temp.found()), 'in each queue');
delete from mark;
select ok(
  'error: nobody sweeps: queue "idle"' in (select pg_temp.found()),
  'also where claims left no mark, as above READ COMMITTED');
select sweep();

-- A lane whose tail stands still though no job is there, because a producer is open: this one.
select is_empty(
  $$ select from doctor() where finding = 'open producer' $$, 'nobody holds a lane up');
insert into mark (lane_id, head, head_id, tail, tail_id, made_at, sweep_at, busy)
select (id << 16) + 32768, _now(), 0, _now() - interval '2 min', 0, _now(), _now(), true
from queue where name in ('q', 'quiet');
update job set run_at = _now() - interval '3 min' where payload = '"first"';
select is_empty(
  $$ select from doctor() where finding = 'open producer' $$, 'nor where a job keeps the tail');
delete from job;
select results_eq(
  'select pg_temp.found()', $$ values ('warning: open producer: queue "q"') $$,
  'a tail that stays');
select is(
  (select count(*) from doctor() where subject = 'queue "quiet"'), 0::bigint,
  'nor where nobody produces and no claim has moved the tail');
select enqueue('q');
select matches(
  (select detail from doctor() where finding = 'open producer'),
  format('^priority 0, since .*, pids %s$', pg_backend_pid()),
  'it names the sessions that have the lane open');

-- Settings.
select is_empty(
  $$ select from doctor() where finding = 'autovacuum is off' and subject = 'track_counts' $$,
  'track_counts is on');
set local track_counts = off;
select results_eq(
  $$ select severity, subject from doctor() where finding = 'autovacuum is off' $$,
  $$ values ('error', 'track_counts') $$, 'without it autovacuum is blind');

select * from finish();
rollback;
