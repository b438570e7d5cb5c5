-- drop_queue: what it refuses, what goes with a queue, what stays, and who may have its name next.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
select plan(51);

-- An empty one.
select create_queue('q');
select is(drop_queue('q'), 0::bigint, 'a queue without jobs goes');
select is_empty($$ select * from queues $$, 'it is not listed any more');
select is((select count(*) from lane), 0::bigint, 'nor are its lanes');
select throws_ok(format('select %s', call), 'JQ001', null, call || ': no such queue any more')
from unnest(array['enqueue(''q'')', 'enqueue_many(''q'', ''{}'')', 'claim(''q'', ''w'')',
  'pop(''q'')', 'alter_queue(''q'')', 'drop_queue(''q'')', 'next_run_at(''q'')']) call;

-- Refused.
create function pg_temp.refused(what text) returns text language sql as
  $$ select throws_ok('select drop_queue(''q'')', 'JQ004', null, what || ' is in the way') $$;
select create_queue('q', retry_delay => '1 h', keep_done => '10 days', keep_dead => '10 days');
select enqueue('q', '"dead"');
select pg_temp.refused('a ready job');
create temp table held as select job_id, token from claim('q', 'w');
select pg_temp.refused('a running job');
select retry(job_id, token) from held;
select pg_temp.refused('a scheduled job');
select suspend(job_id) from held;
select pg_temp.refused('a suspended job');
select enqueue('q', priority => -32768);
select cancel(job_id) from held;
select pg_temp.refused('a job of the lowest priority');
select enqueue('q', priority => 32767);
select cancel(job_id) from jobs where priority < 0;
select pg_temp.refused('a job of the highest priority');
select is((select count(*) from queues where queue = 'q'), 1::bigint, 'the queue is there');
select is((select count(*) from jobs), 1::bigint, 'with its job');
select throws_ok(
  $$ select drop_queue('q', force => null) $$, '22023', null, 'force null is refused');
select throws_ok($$ select drop_queue(null) $$, '22023', null, 'no queue is refused');
select throws_ok(
  $$ select drop_queue('nowhere', force => true) $$, 'JQ001', null, 'an unknown queue is refused');

-- The dead letter queue of another.
select create_queue('letters');
select create_queue('sender', dead_letter_queue => 'letters');
select throws_ok(
  format('select drop_queue(''letters'', force => %L)', force), 'JQ004', null,
  format('a queue that takes dead letters is refused, force %s', force))
from unnest(array[false, true]) force;
select alter_queue('sender', reset => '{dead_letter_queue}');
select is(drop_queue('letters'), 0::bigint, 'it goes when nobody sends letters any more');
select create_queue('letters');
select alter_queue('sender', dead_letter_queue => 'letters');
select is(drop_queue('sender'), 0::bigint, 'a queue that sends letters can go');
select is(drop_queue('letters'), 0::bigint, 'and then the one that took them');

-- With force.
select purge_queue('q');
select enqueue('q', '"dead"');
select dead_letter(job_id, token) from claim('q', 'w');
select enqueue('q', '"done"');
select ack(job_id, token, '"result"') from claim('q', 'w');
create temp table ended as select * from all_jobs where state in ('dead', 'done', 'cancelled');
select alter_queue('q', keep_dead => '20 days');
select create_queue('stays');
select enqueue('stays', dedup_key => 'k');
select enqueue('q', '"runs"', dedup_key => 'k');
truncate held; insert into held select job_id, token from claim('q', 'w');
select enqueue_many('q', array['1', '2']::jsonb[], delays => array[null, '1 h']::interval[]);
select pause_queue('q');
select id as old_id from queue where name = 'q' and current \gset
select is(drop_queue('q', force => true), 3::bigint, 'with force its jobs go too');
select is((select string_agg(queue, ' ') from jobs), 'stays', 'its jobs, and no other queue''s');
select is((select h.outcome from held, heartbeat(job_id, token) h), 'gone', 'a handler learns it');
select is((select ack(job_id, token) from held), 'gone', 'at the latest from its ack');
select set_eq(
  $$ select * from all_jobs where state in ('dead', 'done', 'cancelled') $$,
  $$ select * from ended $$, 'dead and done jobs stay, and none is added');
select results_eq(
  $$ select state, result from list_jobs('q') order by state $$,
  $$ values ('cancelled', null::jsonb), ('cancelled', null), ('dead', null),
       ('done', '"result"') $$,
  'they are found under its name');
select is((select count(*) from dedup), 1::bigint, 'its dedup keys are gone, others stay');
select is_empty(
  format('select from mark where lane_id >> 16 = %s', :old_id), 'so are its marks');

-- What a producer commits that was open when the queue was dropped.
create function pg_temp.orphans(n int, queue text default 'q') returns void language sql as $$
  insert into pgq_sql.job (lane_id, run_at, enqueued_at, settings, dedup_key, payload)
  select (q.id << 16) + 32768, pgq_sql._now(), pgq_sql._now(), q.version, 'orphan', '"orphan"'
  from (select id, max(version) as version from pgq_sql.queue where name = orphans.queue group by id
        order by id desc limit 1) q, generate_series(1, n)
$$;
create function pg_temp.swept(n int default 1000) returns jsonb language sql as
  $$ select jsonb_object_agg(task, count) from pgq_sql.sweep(n) where count > 0 $$;
select pg_temp.orphans(3);
select is(pg_temp.swept(2), '{"dropped": 2}', 'a sweep ends at most n jobs of a dropped queue');
select is(pg_temp.swept(), '{"dropped": 1}', 'the rest with the next one');
select results_eq(
  $$ select reason, error, count(*) from dead_jobs
     where payload = '"orphan"' and queue = 'q' group by 1, 2 $$,
  $$ values ('queue dropped', null::text, 3::bigint) $$, 'they are dead, with the reason');
select throws_ok(
  $$ select redrive(queue => 'q') $$, 'JQ001', null, 'there is no queue to bring them back to');
select is(discard_dead(queue => 'q', n => 1), 1::bigint, 'but they can be discarded by its name');

select create_queue('letters');
select create_queue('sender', dead_letter_queue => 'letters');
select drop_queue('sender');
select pg_temp.orphans(1, 'sender');
select drop_queue('letters');
select is(pg_temp.swept(), '{"dropped": 1}', 'an orphan becomes no letter');
select is(
  (select reason from dead_jobs where queue = 'sender'), 'queue dropped',
  'the queue that would take it may be gone too');
select discard_dead(queue => 'sender');

-- The name is free.
select is(create_queue('q', max_attempts => 3), true, 'another queue can have the name');
select results_eq(
  $$ select max_attempts, keep_done, paused from queues where queue = 'q' $$,
  $$ values (3, interval '0', false) $$, 'and has nothing of the old one');
select is(
  (select outcome from enqueue('q', '"new"', dedup_key => 'k')), 'inserted', 'not even its keys');
select results_eq(
  $$ select payload from claim('q', 'w', 10) $$, $$ values (jsonb '"new"') $$,
  'its consumers get its jobs');
select is_empty($$ select * from redrive(queue => 'q') $$, 'the old one''s dead are not its dead');
select is(discard_dead(queue => 'q'), 0::bigint, 'nor discarded as its');
select throws_ok(
  format('select redrive(array[%s])', (select min(job_id) from dead_jobs)), 'JQ001', null,
  'nor redriven into it by id');

-- Retention goes on as the old queue's last settings say.
select set_config('test.ahead', '11 days', true);
select pg_temp.swept();
select is(
  (select count(*) from dead_jobs), 3::bigint, 'dead jobs stay as long as its settings said');
select is((select count(*) from done_jobs), 0::bigint, 'so do done ones');
select set_config('test.ahead', '21 days', true);
select is(pg_temp.swept() ->> 'purged', '3', 'and then go');

select * from finish();
rollback;
