-- purge_queue: what goes, what stays, and that nothing is kept of what goes.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
select plan(18);
select create_queue('q', keep_done => '1 day', retry_delay => '1 h', visibility_timeout => '10 s');
select create_queue('other');

select is(purge_queue('q'), 0::bigint, 'an empty queue has nothing to purge');

-- One job of each state, and some that are not its.
select enqueue('q', '"runs"', dedup_key => 'runs', visibility_timeout => '1 h');
select enqueue('q', '"done"');
select enqueue('q', '"dead"');
select enqueue('q', '"retried"');
create temp table held as select job_id, token, payload from claim('q', 'w', 4);
select ack(job_id, token) from held where payload = '"done"';
select dead_letter(job_id, token) from held where payload = '"dead"';
select retry(job_id, token) from held where payload = '"retried"';
select enqueue('q', '"abandoned"');
create temp table abandoned as select job_id, token from claim('q', 'w');
select set_config('test.ahead', '11 s', true);
select enqueue('q', '"ready"', dedup_key => 'ready');
select enqueue('q', '"urgent"', priority => 32767);
select enqueue('q', '"last"', priority => -32768);
select enqueue('q', '"scheduled"', delay => '1 h', dedup_key => 'scheduled');
select enqueue('q', '"suspended"', dedup_key => 'suspended');
select suspend(job_id) from jobs where payload = '"suspended"';
select enqueue('other', '"other"', dedup_key => 'ready');
select results_eq(
  $$ select payload, state from jobs where queue = 'q' order by payload #>> '{}' collate "C" $$,
  $$ values (jsonb '"abandoned"', 'ready'), ('"last"', 'ready'), ('"ready"', 'ready'),
       ('"retried"', 'scheduled'), ('"runs"', 'running'), ('"scheduled"', 'scheduled'),
       ('"suspended"', 'suspended'), ('"urgent"', 'ready') $$,
  'a job of each state');

select is(purge_queue('q'), 7::bigint, 'all go but one');
select results_eq(
  $$ select payload, state from jobs where queue = 'q' $$,
  $$ values (jsonb '"runs"', 'running') $$, 'the one that runs');
select is((select count(*) from jobs where queue = 'other'), 1::bigint, 'other queues keep theirs');
select results_eq(
  $$ select payload from done_jobs $$, $$ values (jsonb '"done"') $$,
  'what goes is no history; history stays');
select results_eq(
  $$ select payload from dead_jobs $$, $$ values (jsonb '"dead"') $$,
  'nor is it dead; dead jobs stay');
select is(
  (select ack(job_id, token) from abandoned), 'gone',
  'one whose lease had run out is gone to its worker');
select is((select count(*) from dedup), 2::bigint, 'no dedup key is left behind');
select is(purge_queue('q'), 0::bigint, 'a second time there is nothing');
select is_empty($$ select * from claim('q', 'w', 10) $$, 'and nothing to claim');

select results_eq(
  $$ select k, (enqueue('q', dedup_key => k)).outcome
     from unnest(array['ready', 'scheduled', 'suspended', 'runs']) k $$,
  $$ values ('ready', 'inserted'), ('scheduled', 'inserted'), ('suspended', 'inserted'),
       ('runs', 'existing') $$,
  'dedup keys are free again, except the running job''s');
select is(
  (select outcome from enqueue('other', dedup_key => 'ready')), 'existing',
  'another queue''s key is another key');
select is(
  (select ack(job_id, token) from held where payload = '"runs"'), 'acked',
  'the running job goes its way');

select pause_queue('q');
select is(purge_queue('q'), 3::bigint, 'a paused queue can be purged');
select throws_ok($$ select purge_queue('nowhere') $$, 'JQ001', null, 'an unknown queue');
select throws_ok($$ select purge_queue(null) $$, '22023', null, 'no queue');
select drop_queue('q');
select throws_ok($$ select purge_queue('q') $$, 'JQ001', null, 'a dropped queue');

select * from finish();
rollback;
