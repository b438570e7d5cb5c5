-- sweep: counts of what it did; expiry, retention, and jobs below the mark.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
select plan(18);
select create_queue('q', max_attempts => 2, visibility_timeout => '10 s', keep_dead => '1 day');

select results_eq(
  $$ select task, count from sweep() $$,
  $$ values ('recovered', 0::bigint), ('exhausted', 0), ('late', 0), ('expired', 0), ('purged', 0),
    ('dropped', 0), ('history', 0) $$,
  'nothing to do');
select throws_ok($$ select sweep(null) $$, '22023', null, 'n null is refused');
select throws_ok($$ select sweep(-1) $$, '22023', null, 'n negative is refused');

-- One row: what the sweep did, as an object.
create function pg_temp.swept(n int default 1000) returns jsonb language sql as
  $$ select jsonb_object_agg(task, count) from pgq_sql.sweep(n) where count > 0 $$;

-- Leases that run out, first with an attempt left, then at the last one.
select enqueue_many('q', array_fill('{}'::jsonb, array[3]));
select claim('q', 'w', 3);
select set_config('test.ahead', '11 s', true);
select is(pg_temp.swept(2), '{"recovered": 2}', 'at most n of a kind');
select is(pg_temp.swept(), '{"recovered": 1}', 'the rest with the next sweep');
select results_eq(
  $$ select distinct state, attempt, last_error, worker from jobs $$,
  $$ values ('ready', 1, 'lease expired', null::text) $$,
  'they are ready, at the cost of the attempt');
select claim('q', 'w', 3);
select set_config('test.ahead', '22 s', true);
select is(pg_temp.swept(), '{"exhausted": 3}', 'at the last attempt they are dead');
select results_eq(
  $$ select distinct reason, error, attempt from dead_jobs $$,
  $$ values ('max attempts exceeded', 'lease expired', 2) $$,
  'with the reason');

-- Retention.
select set_config('test.ahead', '1 day 21 s', true);
select is(pg_temp.swept(), null, 'dead jobs are kept for keep_dead');
select set_config('test.ahead', '1 day 23 s', true);
select is(pg_temp.swept(2), '{"purged": 2}', 'and then purged, at most n');
select is(pg_temp.swept(), '{"purged": 1}', 'the rest with the next sweep');

-- Expiry: of a job that waits, one that runs, one that is not due.
select enqueue('q', '"waits"', expires_in => '1 min');
select enqueue('q', '"runs"', expires_in => '1 min', priority => 1, visibility_timeout => '1 h');
select enqueue('q', '"later"', expires_in => '1 min', delay => '1 h');
select is((select payload from claim('q', 'w')), '"runs"', 'one of them runs');
select set_config('test.ahead', '1 day 84 s', true);
select is_empty($$ select claim('q', 'w', 10) $$, 'an expired job is not claimed, swept or not');
select is(
  (select coalesce(pg_temp.swept(), '{}')), '{}', 'that claim has swept already');
select results_eq(
  $$ select payload, reason from dead_jobs order by payload #>> '{}' $$,
  $$ values (jsonb '"runs"', 'expired'), ('"waits"', 'expired') $$,
  'both are dead, waiting or running');
select is((select count(*) from jobs), 1::bigint, 'expires_in counts from the run time');

-- A job below the mark, as a clock that was set back leaves it.
delete from job;
select enqueue('q', '"above"');
select claim('q', 'w');
select set_config('test.ahead', '2 days', true);
select enqueue('q', '"next"');
select claim('q', 'w');
update job set lease_until = null, run_at = run_at - interval '1 hour' where payload = '"above"';
select is(
  (pg_temp.swept() ->> 'late')::int, 1, 'sweep finds a job below the mark, however far');
select ok(
  exists (select from claim('q', 'w', 10) where payload = '"above"'), 'and it is claimed');

select * from finish();
rollback;
