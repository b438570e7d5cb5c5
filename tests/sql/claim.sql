-- claim: the order, the lease, the fence, and what comes back when a lease runs out.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
select plan(26);
select create_queue('q');

select is_empty($$ select * from claim('q', 'w') $$, 'an empty queue answers no row');
select enqueue('q', '"low"', priority => -1);
select enqueue('q', '"first"');
select enqueue('q', '"second"');
select enqueue('q', '"high"', priority => 9);
select enqueue('q', '"later"', delay => '1 min', priority => 99);

select is_empty($$ select * from claim('q', 'w', 0) $$, 'n = 0 claims nothing');
select is_empty($$ select * from claim('q', 'w', -1) $$, 'n < 0 claims nothing');
select is_empty($$ select * from claim('q', 'w', null) $$, 'n = null claims nothing');
select results_eq(
  $$ select payload from claim('q', 'w', 10) $$,
  $$ values (jsonb '"high"'), ('"first"'), ('"second"'), ('"low"') $$,
  'priority, then run time, then id; what is not due stays');
select is_empty($$ select * from claim('q', 'w', 10) $$, 'a claimed job is not claimed again');
select is((select count(*) from jobs where state = 'running'), 4::bigint, 'claimed jobs are running');

select set_config('test.ahead', '61 s', true);
select results_eq(
  $$ select payload, attempt from claim('q', 'w') $$, $$ values (jsonb '"later"', 1) $$,
  'a delayed job comes when it is due');

-- The first four have been claimed 61 s ago, for 30 s. Claims would sweep too, in their own time.
select set_config('test.ahead', '63 s', true);
select sweep();
select results_eq(
  $$ select payload, attempt from claim('q', 'other', 10) $$,
  $$ values (jsonb '"high"', 2), ('"first"', 2), ('"second"', 2), ('"low"', 2) $$,
  'jobs whose lease ran out are claimed again, at the cost of an attempt');

select create_queue('lease', visibility_timeout => '10 s', max_attempts => 2);
select enqueue('lease');
create temp table claimed as select * from claim('lease', 'w');
select results_eq(
  $$ select queue, payload, headers, attempt, max_attempts, priority, last_error from claimed $$,
  $$ values ('lease', jsonb '{}', null::jsonb, 1, 2, 0, null::text) $$,
  'a claim answers the whole job');
select is((select lease_until - observed_at from claimed), interval '10 s', 'the lease is the queue''s');
select cmp_ok((select token from claimed), '>', 0::bigint, 'it has a token');
select set_config('test.ahead', '75 s', true);
select ok(
  exists (select from sweep() where task = 'recovered' and count = 1), 'sweep tells what it did');
create temp table again as select * from claim('lease', 'w2', 1, '1 min');
select is((select job_id from again), (select job_id from claimed), 'the same job again');
select cmp_ok(
  (select token from again), '>', (select token from claimed), 'its token has risen');
select is(
  (select lease_until - observed_at from again), interval '1 min', 'the caller may set the lease');
select is((select ack(job_id, token) from claimed), 'lost', 'the old token acks nothing');
select is((select ack(job_id, token) from again), 'acked', 'the current token does');
select is((select ack(job_id, token) from again), 'gone', 'once');

select enqueue('lease', visibility_timeout => '5 s');
select is(
  (select lease_until - observed_at from claim('lease', 'w')), interval '5 s',
  'a job may have its own lease');
select set_config('test.ahead', '85 s', true);
select sweep();
select is((select attempt from claim('lease', 'w')), 2, 'its last attempt');
select set_config('test.ahead', '95 s', true);
select sweep();
select is_empty($$ select * from claim('lease', 'w') $$, 'after the last attempt it is not claimed');
select results_eq(
  $$ select reason from dead_jobs where queue = 'lease' $$,
  $$ values ('max attempts exceeded') $$, 'it is dead');

select throws_ok($$ select claim('nowhere', 'w') $$, 'JQ001', null, 'an unknown queue is refused');
select throws_ok($$ select claim('q', '') $$, '22023', null, 'an empty label is refused');
select throws_ok(
  $$ select claim('q', 'w', 1, '0') $$, '22023', null, 'a lease of no length is refused');

select * from finish();
rollback;
