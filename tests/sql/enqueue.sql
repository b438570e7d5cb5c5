-- enqueue and enqueue_many: what they store, what they refuse.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
select plan(39);
select create_queue('q', max_payload => 100);

select is((select outcome from enqueue('q')), 'inserted', 'a job needs a queue only');
select results_eq(
  $$ select payload, headers, priority, attempt, max_attempts, state from jobs where queue = 'q' $$,
  $$ values (jsonb '{}', null::jsonb, 0, 0, 5, 'ready') $$,
  'its defaults are those of the queue');
-- A job is seen by the statements after the one that made it.
select job_id from enqueue('q', delay => '1 min') \gset
select is(
  (select state from jobs where job_id = :job_id), 'scheduled', 'a delayed job is scheduled');
select ok(
  (select run_at between _now() + interval '59 s' and _now() + interval '1 min'
   from jobs where job_id = :job_id),
  'its delay counts from now');
select job_id from enqueue('q', delay => '5 s', run_at => _now() + interval '1 day') \gset
select ok(
  (select run_at < _now() + interval '10 s' from jobs where job_id = :job_id),
  'delay wins over run_at');
select job_id from enqueue('q', run_at => '2000-01-01') \gset
select ok(
  (select run_at >= enqueued_at from jobs where job_id = :job_id),
  'a run_at in the past becomes now');
select enqueue('q', '[1, "a"]', priority => -5, max_attempts => 2, headers => '{"trace": "t"}');
select results_eq(
  $$ select payload, headers, priority, max_attempts from jobs where priority = -5 $$,
  $$ values (jsonb '[1, "a"]', jsonb '{"trace": "t"}', -5, 2) $$,
  'what is given is what is stored');
select cmp_ok(
  (select job_id from enqueue('q')), '>', (select max(job_id) from jobs), 'ids rise');

select throws_ok($$ select enqueue('nowhere') $$, 'JQ001', null, 'an unknown queue is refused');
select throws_ok($$ select enqueue(null) $$, '22023', null, 'no queue is refused');
select throws_ok(
  $$ select enqueue('q', to_jsonb(repeat('x', 100))) $$, 'JQ007', null,
  'a payload over the limit is refused');
select throws_ok(
  $$ select enqueue('q', '1e1000') $$, 'JQ007', null,
  'a payload counts as it would be printed');
select throws_ok(
  $$ select enqueue('q', options => '{"colour": 1}') $$, 'JQ005', null,
  'an unknown option is refused');
select throws_ok(
  format('select enqueue(''q'', %s)', argument), '22023', null, argument || ' is refused')
from unnest(array[
  'null',
  'priority => 32768',
  'priority => -32769',
  'delay => ''-1 ms''',
  'delay => ''9007199254741 ms''',
  'run_at => ''infinity''',
  'max_attempts => 0',
  'visibility_timeout => ''0''',
  'expires_in => ''-1 s''',
  'retry_backoff => ''''',
  'headers => ''[]''',
  'options => ''[]'''
]) argument;

select results_eq(
  $$ select ordinal, outcome from enqueue_many('q', array['1', '2', '3']::jsonb[]) $$,
  $$ values (1::bigint, 'inserted'), (2, 'inserted'), (3, 'inserted') $$,
  'one row per payload, in input order');
select enqueue_many('q', array['4', '5']::jsonb[], priorities => array[7, null],
  delays => array[null, '1 h']::interval[]);
select results_eq(
  $$ select payload, priority, state from jobs where payload in ('4', '5') order by job_id $$,
  $$ values (jsonb '4', 7, 'ready'), (jsonb '5', 0, 'scheduled') $$,
  'each job has its own priority and delay, null meaning the default');
select is_empty($$ select * from enqueue_many('q', '{}') $$, 'no payloads, no jobs');
select throws_ok(
  $$ select * from enqueue_many('q', null) $$, '22023', null, 'no array is refused');
select throws_ok(
  $$ select * from enqueue_many('q', array['1', '2']::jsonb[], priorities => array[1]) $$,
  '22023', null, 'arrays of unequal length are refused');
select throws_ok(
  $$ select * from enqueue_many('q', array['1', null]::jsonb[]) $$,
  '22023', null, 'one bad item refuses the batch');
select throws_ok(
  $$ select * from enqueue_many('q', array['1', to_jsonb(repeat('x', 100))]) $$,
  'JQ007', null, 'one large item refuses the batch');
select is((select count(*) from jobs where payload in ('1', '2', '3')), 3::bigint,
  'a refused batch leaves nothing');
select throws_ok(
  $$ select * from enqueue_many('nowhere', '{}') $$, 'JQ001', null,
  'an unknown queue is refused even without payloads');

-- An interval compares as if years had 360 days, and counts as if they had 365.25.
select throws_ok(
  format('select enqueue(%L, delay => %L)', 'q', d), '22023', null, d || ' is no delay')
from unnest(array['-12 mons 360 days', '289 years']) d;
select throws_ok(
  $$ select enqueue_many('q', '{1}', delays => '{-12 mons 360 days}') $$, '22023', null,
  'nor in a batch');
select throws_ok(
  $$ select enqueue('q', visibility_timeout => '-4 years 1461 days') $$, '22023', null,
  'a lease of no time is refused');
select throws_ok(
  $$ select enqueue('q', expires_in => '289 years') $$, '22023', null, 'nor may expiry be so far');

select * from finish();
rollback;
