-- ack, retry, dead_letter, release, heartbeat: each answers, and changes nothing for a stale token.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
select plan(40);
select create_queue('q', max_attempts => 2, retry_backoff => 'fixed', retry_delay => '10 s',
  retry_jitter => '[1,1]');

-- Enqueue and claim one job; the answer is its id and token.
create function pg_temp.held(out job bigint, out token bigint, payload jsonb default '{}')
language sql
as $$
  select pgq_sql.enqueue('q', payload);
  select job_id, token from pgq_sql.claim('q', 'w');
$$;

create temp table j as select * from pg_temp.held();
select is((select ack(job, token) from j), 'acked', 'ack');
select is((select count(*) from jobs), 0::bigint, 'an acked job is gone');
select is((select ack(job, token) from j), 'gone', 'ack of no job');

truncate j; insert into j select * from pg_temp.held();
select is((select ack(job, token + 1) from j), 'lost', 'ack with another token');
select is((select retry(job, token - 1) from j), 'lost', 'retry with another token');
select is((select dead_letter(job, token - 1) from j), 'lost', 'dead_letter with another token');
select is((select release(job, token - 1) from j), 'lost', 'release with another token');
select is((select (heartbeat(job, token - 1)).outcome from j), 'lost', 'heartbeat with another token');
select is((select state from jobs), 'running', 'none of them changed the job');
select is((select retry(-1, 1)), 'gone', 'retry of no job');
select is((select dead_letter(-1, 1)), 'gone', 'dead_letter of no job');
select is((select release(-1, 1)), 'gone', 'release of no job');
select is((select outcome from heartbeat(-1, 1)), 'gone', 'heartbeat of no job');

select is((select release(job, token) from j), 'released', 'release');
select is((select attempt from jobs), 0, 'a release costs no attempt');
create temp table again as select * from claim('q', 'w');
select cmp_ok((select token from again), '>', (select token from j), 'yet the token has risen');
select is((select attempt from again), 1, 'it is the first attempt still');
select is((select release(job_id, token, '1 min') from again), 'released', 'release with a delay');
select is_empty($$ select * from claim('q', 'w') $$, 'a snoozed job is not due');
select set_config('test.ahead', '61 s', true);

truncate j; insert into j select job_id, token from claim('q', 'w');
select is((select retry(job, token, 'boom') from j), 'retried', 'retry');
select is((select last_error from jobs), 'boom', 'the error is kept');
select ok(
  (select run_at between _now() + interval '9 s' and _now() + interval '10 s' from jobs),
  'it is due after the queue''s delay');
select set_config('test.ahead', '72 s', true);
truncate j; insert into j select job_id, token from claim('q', 'w');
select is((select attempt from jobs), 2, 'the second attempt');
select is((select retry(job, token, 'bang') from j), 'dead', 'a retry of the last attempt');
select results_eq(
  $$ select reason, error, attempt from dead_jobs $$,
  $$ values ('max attempts exceeded', 'bang', 2) $$, 'buried with its error');
select is((select count(*) from jobs), 0::bigint, 'and gone from the live jobs');

truncate j; insert into j select * from pg_temp.held('"x"');
select is((select retry(job, token, delay => '0') from j), 'retried', 'retry with an own delay');
truncate j; insert into j select job_id, token from claim('q', 'w');
select is((select dead_letter(job, token) from j), 'dead', 'dead_letter');
select results_eq(
  $$ select payload, reason, error from dead_jobs where job_id = (select job from j) $$,
  $$ values (jsonb '"x"', 'failed', 'failed') $$, 'buried whole');

truncate j; insert into j select * from pg_temp.held();
select is(
  (select h.outcome from j, heartbeat(job, token, '2 min') h), 'extended', 'heartbeat');
select ok(
  (select lease_until between _now() + interval '119 s' and _now() + interval '2 min' from jobs),
  'the lease ends at now + extend');
select is(
  (select h.lease_until < _now() + interval '31 s' from j, heartbeat(job, token) h), true,
  'without extend it is the visibility timeout, even if that is shorter');
select set_config('test.ahead', '110 s', true);
select is((select (heartbeat(job, token)).outcome from j), 'lost', 'a lease that ran out is not extended');
select is((select ack(job, token) from j), 'lost', 'nor acked');

select throws_ok(format('select %s', call), '22023', null, call || ' is refused')
from unnest(array[
  'ack(null, 1)',
  'ack(1, null)',
  'retry(1, 1, delay => ''-1 s'')',
  'release(1, 1, ''-1 s'')',
  'heartbeat(1, 1, ''-1 s'')',
  'dead_letter(null, null)'
]) call;

select * from finish();
rollback;
