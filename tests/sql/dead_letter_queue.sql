-- dead_letter_queue, redrive_queue: the letter that a dead job becomes, and its way back.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
\ir support/wake.sql
select plan(66);
select create_queue('letters', max_attempts => 3, expires_in => '10 days', keep_done => '1 day');
select create_queue('q', max_attempts => 2, retry_delay => '0', dead_letter_queue => 'letters');
select is(
  (select jsonb_object_agg(queue, dead_letter_queue) from queues),
  '{"letters": null, "q": "letters"}', 'a queue names where its dead letters go');

-- The letter.
select enqueue('q', '{"a": [1, null]}', priority => 9, headers => '{"h": 1}', dedup_key => 'k',
  expires_in => '1 h');
select retry(job_id, token, 'first') from claim('q', 'w');
create temp table held as select job_id, token from claim('q', 'w');
select pg_temp.woken();
select is(
  (select dead_letter(job_id, token, 'boom') from held), 'dead', 'a job that dies is dead');
select is((select count(*) from dead_jobs), 0::bigint, 'but not among the dead');
select is_empty($$ select * from get_job((select job_id from held)) $$, 'it is nowhere any more');
select is((select ack(job_id, token) from held), 'gone', 'it is gone');
select results_eq(
  $$ select payload - 'dead_at' from jobs where queue = 'letters' $$,
  $$ select jsonb_build_object(
       'schema', 'pgq_sql.dead-letter.v1', 'queue', 'q', 'job_id', job_id, 'attempt', 2,
       'payload', jsonb '{"a": [1, null]}', 'headers', jsonb '{"h": 1}',
       'reason', 'failed', 'error', 'boom') from held $$,
  'it is the payload of a letter');
select is(
  (select (payload ->> 'dead_at')::timestamptz from jobs), (select enqueued_at from jobs),
  'with the instant of its death');
select results_eq(
  $$ select state, priority, attempt, max_attempts, expires_at - run_at, keep_done, headers,
       redrives, last_error from jobs $$,
  $$ values ('ready', 0, 0, 3, interval '240:00', interval '24:00', null::jsonb, 0, null::text) $$,
  'the letter is a new job under the settings of its own queue');
select is(pg_temp.woken(), 'letters', 'consumers of letters are woken');
select is(
  (select outcome from enqueue('q', '"next"', dedup_key => 'k')), 'inserted',
  'the dedup key is free');
select is(
  (select (enqueue('letters', '"other"', dedup_key => 'k')).outcome), 'inserted',
  'and is no key of the letter');
select cancel(job_id) from jobs;
truncate done_job;

-- Every way to die.
select enqueue('q', '1', max_attempts => 1);
select retry(job_id, token, 'spent') from claim('q', 'w');
select enqueue('q', '2', max_attempts => 1, visibility_timeout => '1 s');
select claim('q', 'w');
select enqueue('q', '3', expires_in => '1 s', delay => '1 s');
select enqueue('q', '4', expires_in => '3 s', max_attempts => 5);
select retry(job_id, token, 'late') from claim('q', 'w');
select claim('q', 'w', 1, '1 h');
select enqueue('q', '5', delay => '1 h');
select set_config('test.ahead', '4 s', true);
select pg_temp.woken();
select is(
  (select jsonb_object_agg(task, count) from sweep() where count > 0),
  '{"exhausted": 1, "expired": 2}', 'sweep buries');
select results_eq(
  $$ select payload -> 'payload', payload ->> 'reason', payload ->> 'error',
       (payload ->> 'attempt')::int, payload -> 'headers'
     from jobs where queue = 'letters' order by payload -> 'payload' $$,
  $$ values (jsonb '1', 'max attempts exceeded', 'spent', 1, jsonb 'null'),
       ('2', 'max attempts exceeded', 'lease expired', 1, 'null'),
       ('3', 'expired', null, 0, 'null'),
       ('4', 'expired', 'late', 2, 'null') $$,
  'each is a letter, with why, and nulls for what it did not have');
select matches(pg_temp.woken(), '^letters( letters)*$', 'sweep wakes consumers of letters');
select is((select count(*) from dead_jobs), 0::bigint, 'none is among the dead');
select results_eq(
  $$ select payload -> 'payload' from claim('letters', 'w', 9) where payload ? 'payload'
     order by 1 $$, $$ select to_jsonb(i) from generate_series(1, 4) i $$, 'letters are claimed');
select is(
  (select string_agg(a.outcome, ' ')
   from (select array_agg(job_id order by job_id) i, array_agg(token order by job_id) t
         from jobs where queue = 'letters') x, ack_many(x.i, x.t) a),
  'acked acked acked acked', 'and done with');
select cancel(job_id) from jobs;
select enqueue_many('q', array_fill(jsonb '"many"', array[3]));
select dead_letter_many(array_agg(job_id), array_agg(token)) from claim('q', 'w', 3);
select is(
  (select count(*) from jobs where queue = 'letters'), 3::bigint, 'many at once are many letters');
select is(
  (select distinct payload ->> 'error' from jobs), 'failed', 'with the default error');
select purge_queue('letters');

-- The error is bounded; the letter is not.
select alter_queue('letters', max_payload => 10);
select enqueue('q', to_jsonb(repeat('x', 100000)));
select dead_letter(job_id, token, repeat('e', 10000)) from claim('q', 'w');
select results_eq(
  $$ select length(payload ->> 'error'), length(payload ->> 'payload') from jobs $$,
  $$ values (8192, 100000) $$,
  'a job is never lost because its letter is larger than the queue accepts');
select purge_queue('letters');

-- A paused queue takes letters. Letters die too.
select pause_queue('letters');
select enqueue('q', '"deep"');
select dead_letter(job_id, token) from claim('q', 'w');
select is(
  (select count(*) from jobs where queue = 'letters'), 1::bigint, 'a paused queue takes them');
select resume_queue('letters');
select create_queue('graveyard');
select alter_queue('letters', dead_letter_queue => 'graveyard');
select dead_letter(job_id, token, 'unreadable') from claim('letters', 'w');
select results_eq(
  $$ select payload ->> 'queue', payload #>> '{payload,queue}', payload #>> '{payload,payload}'
     from jobs where queue = 'graveyard' $$,
  $$ values ('letters', 'q', 'deep') $$, 'a letter that dies is a letter in a letter');
select alter_queue('letters', reset => '{dead_letter_queue,max_payload}');
select enqueue('q', '"shallow"');
select dead_letter(job_id, token) from claim('q', 'w');
select dead_letter(job_id, token) from claim('letters', 'w');
select results_eq(
  $$ select payload ->> 'payload' from dead_jobs where queue = 'letters' $$,
  $$ values ('shallow') $$, 'or among the dead, where its queue has none');

-- Redrive: a letter in a letter, a step at a time.
select is((select count(*) from redrive_queue('graveyard')), 1::bigint, 'the way back');
select is((select count(*) from redrive_queue('letters')), 1::bigint, 'has as many steps');
select results_eq(
  $$ select payload, queue = 'q' from jobs $$, $$ values (jsonb '"deep"', true) $$,
  'and ends where the job began');
select cancel(job_id) from jobs;

-- Who is replayed: ready letters, in run order, and nobody else.
create function pg_temp.letter(of text) returns bigint language sql as $$
  select pgq_sql.enqueue('q', to_jsonb(of));
  select pgq_sql.dead_letter(job_id, token) from pgq_sql.claim('q', 'w');
  select job_id from pgq_sql.jobs
    where queue = 'letters' and payload ->> 'payload' = of order by job_id desc limit 1;
$$;
select pg_temp.letter('runs');
create temp table running as select job_id, token from claim('letters', 'w');
select suspend(pg_temp.letter('suspended'));
select pg_temp.letter('retried');
select retry(job_id, token, delay => '1 h') from claim('letters', 'w');
create temp table l as
  select i as n, pg_temp.letter('job ' || i) as id from generate_series(1, 3) i;
select reprioritize((select id from l where n = 3), 1);
select enqueue('letters', payload)
from unnest(array[
  '"no object"', '[]', '{}', '{"schema": "pgq_sql.dead-letter.v1"}',
  '{"schema": "pgq_sql.dead-letter.v2", "queue": "q", "payload": 1}',
  '{"schema": "pgq_sql.dead-letter.v1", "queue": 7, "payload": 1}',
  '{"schema": "pgq_sql.dead-letter.v1", "queue": "q"}',
  '["schema", "queue", "payload"]'
]::jsonb[]) payload;
select count(*) as letters from jobs where queue = 'letters' \gset

select results_eq(
  $$ select ordinal, letter_id, queue, job_id from redrive_queue('letters', dry_run => true) $$,
  $$ select ordinal, l.id, 'q', null::bigint
     from unnest(array[3, 1, 2]) with ordinality x(n, ordinal) join l using (n) order by 1 $$,
  'a dry run tells the letters that are ready, in run order');
select is((select count(*) from jobs where queue = 'letters'), :letters::bigint, 'and leaves them');
select is((select count(*) from jobs where queue = 'q'), 0::bigint, 'and replays none');
select is_empty($$ select * from redrive_queue('letters', 0) $$, 'none of them');
select pg_temp.woken();
create temp table replayed as select * from redrive_queue('letters', 2);
select results_eq(
  $$ select r.ordinal, r.letter_id, r.queue, j.payload
     from replayed r join jobs j using (job_id) order by 1 $$,
  $$ select x.ordinal, l.id, 'q', to_jsonb('job ' || n)
     from unnest(array[3, 1]) with ordinality x(n, ordinal) join l using (n) order by 1 $$,
  'the first two');
select matches(pg_temp.woken(), '^q( q)*$', 'consumers of the queue of origin are woken');
select is(
  (select count(*) from jobs join replayed on letter_id = jobs.job_id), 0::bigint,
  'their letters are gone');
select is(
  (select count(*) from done_jobs join replayed on letter_id = done_jobs.job_id), 0::bigint,
  'and are no history');
select is(
  (select array_agg(letter_id) from redrive_queue('letters', 99)),
  (select array[id] from l where n = 2), 'the third, as many as there are');
select is_empty($$ select * from redrive_queue('letters') $$, 'no other is replayed');
select is(
  (select count(*) from jobs where queue = 'letters'), :letters::bigint - 3,
  'what is no letter, or not ready, is left alone');
select is(
  (select ack(job_id, token) from running), 'acked', 'a letter that runs runs on');
select is(
  (select count(*) from claim('q', 'w', 9) c where c.attempt = 1), 3::bigint,
  'replayed jobs are claimed like any other');
select cancel(job_id) from jobs;

-- What comes back.
select enqueue('q', 'null', headers => '{"h": 2}', priority => 5, max_attempts => 1);
select enqueue('q', '{"deep": {"er": []}}');
select dead_letter_many(array_agg(job_id), array_agg(token)) from claim('q', 'w', 2);
select alter_queue('q', max_attempts => 8);
select redrive_queue('letters');
select results_eq(
  $$ select payload, headers, priority, attempt, max_attempts, state, last_error, dedup_key is null
     from jobs where queue = 'q' order by headers is null $$,
  $$ values (jsonb 'null', jsonb '{"h": 2}', 0, 0, 8, 'ready', null::text, true),
       ('{"deep": {"er": []}}', null, 0, 0, 8, 'ready', null, true) $$,
  'payload and headers, as a new job under the settings of today');
select cancel(job_id) from jobs;

-- All or none.
select create_queue('gone', dead_letter_queue => 'letters');
select pg_temp.letter('stays');
select enqueue('gone', '"lost"');
select dead_letter(job_id, token) from claim('gone', 'w');
select drop_queue('gone');
select throws_ok(
  $$ select redrive_queue('letters') $$, 'JQ001', null, 'the queue of a letter is gone');
select throws_ok(
  $$ select redrive_queue('letters', dry_run => true) $$, 'JQ001', null, 'a dry run says so too');
select is((select count(*) from jobs where queue = 'letters'), 2::bigint, 'no letter is replayed');
select is((select count(*) from jobs where queue = 'q'), 0::bigint, 'not even the good one');
select is((select count(*) from redrive_queue('letters', 1)), 1::bigint, 'n goes round it');
select create_queue('gone');
select is((select count(*) from redrive_queue('letters')), 1::bigint, 'so does a new queue');
select cancel(job_id) from jobs;
select pg_temp.letter('small');
select pg_temp.letter('too large');
select alter_queue('q', max_payload => 8);
select throws_ok(
  $$ select redrive_queue('letters') $$, 'JQ007', null, 'a queue that takes smaller payloads now');
select is(
  (select count(*) from jobs where queue = 'letters'), 2::bigint, 'then too none is replayed');
select is((select count(*) from jobs), 2::bigint, 'none');
select alter_queue('q', reset => '{max_payload}');
select is((select count(*) from redrive_queue('letters')), 2::bigint, 'until it takes them again');

select job_id as bad from enqueue('letters',
  '{"schema": "pgq_sql.dead-letter.v1", "queue": "q", "payload": 1, "headers": []}') \gset
select throws_ok(format('select redrive_queue(''letters'', dry_run => %L)', dry), '22023', null,
  'a letter that somebody made up, with headers that no job can have; dry run: ' || dry)
from unnest(array[false, true]) dry;
create function pg_temp.detail(call text) returns text language plpgsql as $$
declare
  told text;
begin
  execute call;
  return null;
exception when others then
  get stacked diagnostics told = pg_exception_detail;
  return told;
end $$;
select is(
  pg_temp.detail('select redrive_queue(''letters'')'), 'letter ' || :bad, 'the error names it');
select cancel(:bad);
select job_id as bad from enqueue('letters',
  '{"schema": "pgq_sql.dead-letter.v1", "queue": "nowhere", "payload": 1}') \gset
select is(
  pg_temp.detail('select redrive_queue(''letters'')'), format('letter %s: queue "nowhere"', :bad),
  'and says more, if there is more to say');
select cancel(:bad);

-- Never lost, even if its dead letter queue is gone, which no call allows.
select create_queue('void');
select create_queue('sending', dead_letter_queue => 'void');
update queue set current = false where name = 'void';
select enqueue('sending');
select dead_letter(job_id, token) from claim('sending', 'w');
select is(
  (select count(*) from dead_jobs where queue = 'sending'), 1::bigint,
  'without its dead letter queue a job is among the dead');

-- Nor if it cannot become a letter: to build one takes more stack than to read its payload.
select create_queue('deep', dead_letter_queue => 'letters');
select purge_queue('letters');
do $$
declare
  p jsonb := '1';
begin
  loop
    p := jsonb_build_array(p);
  end loop;
exception when statement_too_complex then
  perform enqueue('deep', p);
end $$;
select enqueue('deep', '"flat"');
select is(
  (select array_agg(outcome) from
    (select array_agg(job_id) as i, array_agg(token) as t from claim('deep', 'w', 2)) x,
    dead_letter_many(x.i, x.t, array['too deep', null])),
  '{dead,dead}', 'a payload that is nested too deeply dies like any other');
select is(
  (select error from dead_jobs where queue = 'deep'), 'too deep', 'and is among the dead');
select is(
  (select payload ->> 'payload' from jobs where queue = 'letters'), 'flat',
  'the one that died with it is a letter');

-- Refused.
select throws_ok($$ select create_queue('x', dead_letter_queue => 'x') $$, 'JQ001', null,
  'a queue cannot be made to take its own letters');
select throws_ok($$ select create_queue('x', dead_letter_queue => 'nowhere') $$, 'JQ001', null,
  'nor with an unknown dead letter queue');
select throws_ok($$ select create_queue('q', dead_letter_queue => 'nowhere') $$, 'JQ001', null,
  'not even one that is there');
select is((select count(*) from queues where queue = 'x'), 0::bigint, 'none was made');
select throws_ok($$ select redrive_queue('nowhere') $$, 'JQ001', null, 'an unknown queue');
select throws_ok(format('select redrive_queue(%s)', arguments), '22023', null,
  format('redrive_queue(%s) is refused', arguments))
from unnest(array['null', '''letters'', -1', '''letters'', dry_run => null']) arguments;

select * from finish();
rollback;
