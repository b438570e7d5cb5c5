-- alter_queue: every setting there and back, what jobs keep, what holds at once, what it refuses.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
\ir support/wake.sql
select plan(77);
select create_queue('letters');
select create_queue('q');

create function pg_temp.settings() returns jsonb language sql as
  $$ select to_jsonb(x) - 'queue' - 'paused' - 'created_at'
     from pgq_sql.queues x where x.queue = 'q' $$;
create temp table fresh as select pg_temp.settings() as settings;
create function pg_temp.altered(arguments text) returns boolean language plpgsql as $$
declare
  answer boolean;
begin
  execute format('select pgq_sql.alter_queue(''q'', %s)', arguments) into answer;
  return answer;
end $$;

-- What alter_queue answers and what it changes: given, given again, reset, reset again.
create function pg_temp.there_and_back(setting text, value text) returns jsonb language plpgsql
as $$
declare
  given constant text := format('%s => %L', setting, value);
  back constant text := format('reset => array[%L]', setting);
  told jsonb := '[]';
begin
  told := told || jsonb_build_array(pg_temp.altered(given), (
    select jsonb_object_agg(n.key, n.value)
    from fresh f, jsonb_each(pg_temp.settings()) n
    where n.value is distinct from f.settings -> n.key));
  told := told || jsonb_build_array(pg_temp.altered(given));
  told := told || jsonb_build_array(pg_temp.altered(back), (
    select pg_temp.settings() = f.settings from fresh f));
  return told || jsonb_build_array(pg_temp.altered(back));
end $$;
create temp table tried (setting text, value text, shown jsonb);
insert into tried values
  ('max_attempts', '9', '9'),
  ('visibility_timeout', '1 min', '"00:01:00"'),
  ('retry_backoff', 'fixed', '"fixed"'),
  ('retry_factor', '3', '3'),
  ('retry_delay', '2 s', '"00:00:02"'),
  ('retry_max_delay', '1 h', '"01:00:00"'),
  ('retry_jitter', '[1,1]', '"[1,1]"'),
  ('expires_in', '1 day', '"24:00:00"'),
  ('keep_done', '2 days', '"48:00:00"'),
  ('keep_dead', '1 h', '"01:00:00"'),
  ('dead_letter_queue', 'letters', '"letters"'),
  ('notify', 'false', 'false'),
  ('max_payload', '10', '10');
select is(
  pg_temp.there_and_back(setting, value),
  jsonb_build_array(true, jsonb_build_object(setting, shown), false, true, true, false),
  setting || ' changes, once, and nothing else does; reset takes it back, once')
from tried;
select set_eq(
  $$ select setting from tried $$,
  $$ select unnest(proargnames) from pg_proc
     where oid = 'alter_queue'::regproc except values ('queue'), ('reset'), ('options') $$,
  'these are all settings');
select set_eq(
  $$ select setting from tried $$, $$ select jsonb_object_keys(settings) from fresh $$,
  'and the view shows them all');

-- Nothing, several, both.
create temp table versions as select count(*) as n from queue;
select is(alter_queue('q'), false, 'no setting, no change');
select is(
  alter_queue('q', max_attempts => 5, keep_dead => '14 days'), false, 'the same is no change');
select is(alter_queue('q', keep_done => '0'), false, 'no history is no change from none');
select is(alter_queue('q', reset => null), false, 'reset null resets nothing');
select is((select count(*) from queue), (select n from versions), 'no change makes no version');
select is(
  alter_queue('q', max_attempts => 2, retry_delay => '1 min', expires_in => '1 h'), true,
  'several at once');
select is(
  alter_queue('q', max_attempts => 3, reset => '{max_attempts,expires_in}'), true,
  'given and reset at once');
select results_eq(
  $$ select max_attempts, retry_delay, expires_in from queues where queue = 'q' $$,
  $$ values (3, interval '1 min', null::interval) $$,
  'what is given wins over reset, what is not named stays');
select is(alter_queue('q', keep_done => '1 day'), true, 'history');
select is(alter_queue('q', keep_done => '0'), true, 'and none again');
select set_config('test.ahead', '10 s', true);
select created_at as before from queues where queue = 'q' \gset
select alter_queue('q', max_attempts => 3);
select is(
  (select created_at from queues where queue = 'q'), timestamptz :'before',
  'created_at stays where nothing changed');
select alter_queue('q', max_attempts => 4);
select ok(
  (select created_at > timestamptz :'before' + interval '9 s' from queues where queue = 'q'),
  'and tells since when it is so');

-- Jobs keep what they were enqueued under.
select create_queue('old', max_attempts => 1, visibility_timeout => '10 s',
  retry_backoff => 'fixed', retry_factor => 1, retry_delay => '1 s', retry_max_delay => '1 s',
  retry_jitter => '[1,1]');
select enqueue_many('old', array['"old 1"', '"old 2"']::jsonb[]);
select alter_queue('old', max_attempts => 7, visibility_timeout => '1 min',
  retry_backoff => 'linear', retry_factor => 4, retry_delay => '2 s', retry_max_delay => '3 s',
  retry_jitter => '[0,1]', expires_in => '1 h', keep_done => '1 day', max_payload => 9);
select enqueue('old', '"new"');
select results_eq(
  $$ select max_attempts, visibility_timeout, retry_backoff, retry_factor, retry_delay,
       retry_max_delay, retry_jitter, expires_at - run_at, keep_done
     from jobs where queue = 'old' order by job_id offset 1 $$,
  $$ values (1, interval '10 s', 'fixed', 1::float8, interval '1 s', interval '1 s',
         numrange '[1,1]', null::interval, interval '0'),
       (7, '1 min', 'linear', 4, '2 s', '3 s', '[0,1]', '1 h', '1 day') $$,
  'a job shows the settings of its time');
create temp table held as select * from claim('old', 'w', 3);
select results_eq(
  $$ select payload, max_attempts, lease_until - observed_at from held $$,
  $$ values (jsonb '"old 1"', 1, interval '10 s'), ('"old 2"', 1, '10 s'), ('"new"', 7, '1 min') $$,
  'runs under them');
select results_eq(
  $$ select outcome from held h, retry(h.job_id, h.token) outcome where payload <> '"old 2"' $$,
  $$ values ('dead'), ('retried') $$,
  'has their attempts');
select is(
  (select run_at - _now() between interval '0' and interval '2 s' from jobs
   where payload = '"new"'), true, 'and their delays');
select set_config('test.ahead', '13 s', true);
update held set token = c.token from claim('old', 'w', 3) c where c.job_id = held.job_id;
select results_eq(
  $$ select outcome from held h, ack(h.job_id, h.token) outcome where payload <> '"old 1"' $$,
  $$ values ('acked'), ('acked') $$, 'the others are acked');
select results_eq(
  $$ select payload from done_jobs $$, $$ values (jsonb '"new"') $$,
  'history is for those that came after it was asked for');
select throws_ok(
  $$ select enqueue('old', '"too long"') $$, 'JQ007', null,
  'a new max_payload is for what is enqueued from then on');

-- What is the queue's own holds at once, for jobs that were there before too.
select create_queue('own', keep_dead => '10 days', retry_delay => '0');
select enqueue_many('own', array['1', '2', '3', '4']::jsonb[]);
select pg_temp.woken();
create temp table mine as select * from claim('own', 'w', 4);
select release(job_id, token) from mine where payload = '1';
select is(pg_temp.woken(), 'own', 'a queue that notifies');
update mine set token = c.token from claim('own', 'w') c where c.job_id = mine.job_id;
select alter_queue('own', notify => false);
select release(job_id, token) from mine where payload = '1';
select enqueue('own', '5');
select is(pg_temp.woken(), '', 'notifies no more, for no job');
select alter_queue('own', reset => '{notify}');
select enqueue('own', '6');
select is(pg_temp.woken(), 'own', 'until it is told to');

select is(
  (select dead_letter(job_id, token) from mine where payload = '2'), 'dead', 'a dead job');
select alter_queue('own', dead_letter_queue => 'letters');
select is(
  (select dead_letter(job_id, token) from mine where payload = '3'), 'dead', 'a second');
select alter_queue('own', reset => '{dead_letter_queue}');
select is(
  (select dead_letter(job_id, token) from mine where payload = '4'), 'dead', 'a third');
select results_eq(
  $$ select payload from dead_jobs where queue = 'own' order by job_id $$,
  $$ values (jsonb '2'), ('4') $$, 'without dead letter queue they are kept');
select results_eq(
  $$ select payload -> 'payload' from jobs where queue = 'letters' $$,
  $$ values (jsonb '3') $$, 'with one that died there, though enqueued before');

create function pg_temp.kept() returns bigint language sql as $$
  select pgq_sql.sweep();
  select count(*) from pgq_sql.dead_jobs where queue = 'own';
$$;
select set_config('test.ahead', '5 days', true);
select is(pg_temp.kept(), 2::bigint, 'dead jobs are kept for keep_dead');
select alter_queue('own', keep_dead => '20 days');
select set_config('test.ahead', '15 days', true);
select is(pg_temp.kept(), 2::bigint, 'a longer one keeps those that are dead already');
select alter_queue('own', keep_dead => '1 day');
select is(pg_temp.kept(), 0::bigint, 'a shorter one does not');

select pause_queue('own');
select alter_queue('own', max_attempts => 2);
select is((select paused from queues where queue = 'own'), true, 'a paused queue stays paused');

-- Dead letters never go round.
select create_queue(name) from unnest(array['a', 'b', 'c']) name;
select is(alter_queue('a', dead_letter_queue => 'b'), true, 'dead letters of dead letters');
select is(alter_queue('b', dead_letter_queue => 'c'), true, 'and of those');
select throws_ok(
  format('select alter_queue(''c'', dead_letter_queue => %L)', name), 'JQ004', null,
  format('of c they cannot go to %s', name))
from unnest(array['a', 'b', 'c']) name;
select alter_queue('b', reset => '{dead_letter_queue}');
select is(alter_queue('c', dead_letter_queue => 'a'), true, 'an open circle is none');
-- Nobody can make one; were there one all the same, nothing may run for ever.
update queue set dead_letter_queue_id = (select q.id from queue q where q.name = 'c' and q.current)
where name = 'b' and current;
select is(create_queue('d', dead_letter_queue => 'a'), true, 'a circle further on ends nothing');

-- Refused.
create temp table before as select * from queue;
select throws_ok(
  $$ select alter_queue('nowhere', max_attempts => 1) $$, 'JQ001', null, 'an unknown queue');
select throws_ok($$ select alter_queue(null) $$, '22023', null, 'no queue');
select throws_ok(
  $$ select alter_queue('q', dead_letter_queue => 'nowhere') $$, 'JQ001', null,
  'an unknown dead letter queue');
select throws_ok(
  $$ select alter_queue('q', options => '{"colour": 1}') $$, 'JQ005', null, 'an unknown option');
select throws_ok(
  format('select alter_queue(''q'', %s)', setting), '22023', null, setting || ' is refused')
from unnest(array[
  'max_attempts => 0',
  'visibility_timeout => ''0''',
  'visibility_timeout => ''9007199254741 ms''',
  'retry_backoff => ''random''',
  'retry_factor => 0.5',
  'retry_factor => ''NaN''',
  'retry_delay => ''-1 s''',
  'retry_max_delay => ''-1 s''',
  'retry_jitter => ''[-1,1]''',
  'retry_jitter => ''empty''',
  'expires_in => ''-1 s''',
  'keep_done => ''-1 s''',
  'keep_dead => ''-1 s''',
  'max_payload => 0',
  'max_payload => 268435456',
  'reset => ''{colour}''',
  'reset => ''{queue}''',
  'reset => ''{max_attempts,null}''',
  'options => ''[]'''
]) setting;
select set_eq($$ select * from queue $$, $$ select * from before $$, 'nothing was half changed');

select * from finish();
rollback;
