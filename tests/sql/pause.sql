-- pause_queue, resume_queue: what a paused queue still does, and who is told that it goes on.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
\ir support/wake.sql
select plan(29);
select create_queue('q', visibility_timeout => '10 s', retry_delay => '0');
select create_queue('other');

select enqueue_many('q', array['"runs"', '"dies"', '"waits"']::jsonb[]);
select enqueue('other');
create temp table held as select job_id, token, payload from claim('q', 'w', 2);

select is(pause_queue('q'), true, 'a queue is paused');
select is(pause_queue('q'), false, 'once');
select is(
  (select jsonb_object_agg(queue, paused) from queues), '{"q": true, "other": false}',
  'that one and no other');
select is_empty($$ select * from claim('q', 'w', 10) $$, 'its jobs are not claimed');
select is_empty($$ select * from pop('q', 10) $$, 'nor popped');
select is((select count(*) from claim('other', 'w')), 1::bigint, 'those of another are');

select is((select outcome from enqueue('q', '"new"')), 'inserted', 'enqueue works');
select is(
  (select count(*) from enqueue_many('q', array['"many"']::jsonb[])), 1::bigint,
  'so does enqueue_many');
select results_eq(
  $$ select payload from jobs where queue = 'q' and state = 'ready' order by job_id $$,
  $$ values (jsonb '"waits"'), ('"new"'), ('"many"') $$, 'what waits is ready');

-- Jobs that run go on.
select is(
  (select h.outcome from held, heartbeat(job_id, token) h where payload = '"runs"'), 'extended',
  'a running job extends its lease');
select is(
  (select ack(job_id, token) from held where payload = '"runs"'), 'acked', 'and is acked');
select is(
  (select retry(job_id, token) from held where payload = '"dies"'), 'retried', 'or given back');
select is_empty($$ select * from claim('q', 'w', 10) $$, 'but not claimed again');

-- A paused queue is looked after.
select resume_queue('q');
select is((select count(*) from claim('q', 'w', 10)), 4::bigint, 'all of them run');
select pause_queue('q');
select set_config('test.ahead', '11 s', true);
select is_empty($$ select * from claim('q', 'w', 10) $$, 'their leases run out in a pause');
select results_eq(
  $$ select distinct worker, last_error from jobs where queue = 'q' $$,
  $$ values (null::text, 'lease expired') $$, 'and a claim that finds nothing frees them');

-- It goes on.
select pg_temp.woken();
select is(resume_queue('q'), true, 'a paused queue goes on');
select is(pg_temp.woken(), 'q', 'its idle consumers are woken');
select is(resume_queue('q'), false, 'once');
select is(pg_temp.woken(), '', 'nobody is woken for nothing');
select is(resume_queue('other'), false, 'a queue that was never paused cannot go on');
select is((select count(*) from claim('q', 'w', 10)), 4::bigint, 'its jobs are claimed again');
select alter_queue('q', notify => false);
select pause_queue('q');
select resume_queue('q');
select is(pg_temp.woken(), '', 'a queue that does not notify does not even then');

select throws_ok($$ select pause_queue('nowhere') $$, 'JQ001', null, 'pause: an unknown queue');
select throws_ok($$ select resume_queue('nowhere') $$, 'JQ001', null, 'resume: an unknown queue');
select throws_ok($$ select pause_queue(null) $$, '22023', null, 'pause: no queue');
select throws_ok($$ select resume_queue(null) $$, '22023', null, 'resume: no queue');
select drop_queue('other', force => true);
select throws_ok($$ select pause_queue('other') $$, 'JQ001', null, 'pause: a dropped queue');
select throws_ok($$ select resume_queue('other') $$, 'JQ001', null, 'resume: a dropped queue');

select * from finish();
rollback;
