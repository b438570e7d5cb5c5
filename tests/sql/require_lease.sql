-- require_lease: goes on only under a lease that holds.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
select plan(12);
select create_queue('q');
select job_id as id from enqueue('q') \gset

select throws_ok(
  format('select require_lease(%s, 0)', :id), 'JQ002', 'the lease is lost',
  'a job that nobody has claimed');
select token from claim('q', 'w') \gset
select lives_ok(format('select require_lease(%s, %s)', :id, :token), 'the claimant may go on');
select lives_ok(format('select require_lease(%s, %s)', :id, :token), 'it may ask again');
select throws_ok(
  format('select require_lease(%s, %s)', :id, :token - 1), 'JQ002', 'the lease is lost',
  'an older token may not');
select throws_ok(
  format('select require_lease(%s, %s)', :id, :token + 1), 'JQ002', 'the lease is lost',
  'nor one that was never given');
select set_config('test.ahead', '31 s', true);
select throws_ok(
  format('select require_lease(%s, %s)', :id, :token), 'JQ002', 'the lease is lost',
  'nor one whose lease ran out, swept or not');
select set_config('test.ahead', '', true);
select is(ack(:id, :token), 'acked', 'it acks in the same transaction');
select throws_ok(
  format('select require_lease(%s, %s)', :id, :token), 'JQ003', 'no such job',
  'a job that was acked');
select throws_ok($$ select require_lease(-1, 1) $$, 'JQ003', 'no such job', 'a job that never was');
select job_id as id from enqueue('q') \gset
select token from claim('q', 'w') \gset
select dead_letter(:id, :token);
select throws_ok(
  format('select require_lease(%s, %s)', :id, :token), 'JQ003', 'no such job', 'a dead job');
select throws_ok(format('select %s', call), '22023', null, call || ' is refused')
from unnest(array['require_lease(null, 1)', 'require_lease(1, null)']) call;

select * from finish();
rollback;
