-- redrive, discard_dead: which dead jobs come back, as what, and which go for good.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
\ir support/wake.sql
select plan(71);
select create_queue('q', max_attempts => 2, retry_delay => '0');
select create_queue('other');

-- Enqueue a job and let it die; the answer is its id.
create function pg_temp.dead(queue text, payload jsonb default '{}') returns bigint language sql
as $$
  select pgq_sql.enqueue(queue, payload);
  select pgq_sql.dead_letter(job_id, token, 'boom') from pgq_sql.claim(queue, 'w');
  select max(job_id) from pgq_sql.dead_jobs;
$$;

-- One job, with everything that a caller can give, that had a full life.
select enqueue('q', '{"a": 1}', priority => -7, delay => '1 s', max_attempts => 3,
  visibility_timeout => '1 min', expires_in => '1 h', retry_backoff => 'fixed', retry_factor => 3,
  retry_delay => '0', retry_max_delay => '2 s', retry_jitter => '[1,1]', dedup_key => 'k',
  headers => '{"h": 1}');
create temp table alive as select * from jobs;
select job_id as job from alive \gset
select set_config('test.ahead', '2 s', true);
select retry(job_id, token, 'first') from claim('q', 'w');
create temp table held as select job_id, token from claim('q', 'w');
select heartbeat(job_id, token, progress => '{"done": 50}') from held;
select dead_letter(job_id, token, 'boom') from held;
select outcome from enqueue('q', '"next"', dedup_key => 'k') \gset
select is(:'outcome'::text, 'inserted', 'a dead job''s key is free');
select set_config('test.ahead', '2 h', true);
select pg_temp.woken();

select results_eq(
  format('select * from redrive(array[%s], dry_run => true)', :job),
  format($$ values (1::bigint, %s::bigint, 'redriven') $$, :job), 'a dry run says what would be');
select is((select count(*) from dead_jobs), 1::bigint, 'and does nothing');
select is((select count(*) from jobs where job_id = :job), 0::bigint, 'nothing at all');
select is(pg_temp.woken(), '', 'and wakes nobody');

select results_eq(
  format('select * from redrive(array[%s])', :job),
  format($$ values (1::bigint, %s::bigint, 'redriven') $$, :job), 'a dead job comes back');
select is((select count(*) from dead_jobs), 0::bigint, 'it is dead no more');
select results_eq(
  format('select queue, priority, enqueued_at, max_attempts, visibility_timeout, retry_backoff,
    retry_factor, retry_delay, retry_max_delay, retry_jitter, keep_done, headers, payload
    from jobs where job_id = %s', :job),
  $$ select queue, priority, enqueued_at, max_attempts, visibility_timeout, retry_backoff,
    retry_factor, retry_delay, retry_max_delay, retry_jitter, keep_done, headers, payload
    from alive $$,
  'under its id, with all that its producer gave');
select results_eq(
  format('select state, attempt, redrives, last_error, worker, lease_until, progress, dedup_key
    from jobs where job_id = %s', :job),
  $$ values ('ready', 0, 1, 'boom', null::text, null::timestamptz, null::jsonb,
    null::text collate "C") $$,
  'ready, with no attempt used, one redrive, its last error, and without its key');
select is(
  (select expires_at - run_at from jobs where job_id = :job), interval '1 h',
  'its expiry counts anew');
select ok(
  (select run_at between _now() - interval '10 s' and _now() from jobs where job_id = :job),
  'from now');
select is(
  (select token from jobs where job_id = :job), (select token from held), 'its token stays');
select is((select ack(job_id, token) from held), 'lost', 'yet the old lease is no lease any more');
select is(pg_temp.woken(), 'q', 'idle consumers are woken');
select is(
  (select outcome from enqueue('q', dedup_key => 'k')), 'existing', 'the key is another job''s');
select results_eq(
  $$ select job_id, payload, attempt, max_attempts, last_error from claim('q', 'w', 9) $$,
  format($$ select job_id, payload, 1, 2, null::text from jobs where dedup_key = 'k'
    union all select %s, jsonb '{"a": 1}', 1, 3, 'boom' $$, :job),
  'it is claimed in its turn, with all its attempts');
select is((select ack(job_id, token) from held), 'lost', 'then too the old token is worth nothing');
select cmp_ok(
  (select token from jobs where job_id = :job), '>', (select token from held),
  'because the token has risen');

-- Again: redrives count up, and are kept among the dead and the done.
select dead_letter(job_id, token, 'again') from jobs where job_id = :job;
select is((select redrives from dead_jobs), 1, 'the second death knows of the first redrive');
select redrive(array[:job]);
select is((select redrives from jobs where job_id = :job), 2, 'redrives count up');
select cancel(job_id) from jobs;

-- A queue's settings: those of the job's time; history and expiry of the queue too.
select create_queue('kept', keep_done => '1 day', expires_in => '1 h', max_attempts => 1);
select pg_temp.dead('kept') as job \gset
select alter_queue('kept', expires_in => '5 h', keep_done => '0', max_attempts => 9);
select redrive(queue => 'kept');
select results_eq(
  $$ select expires_at - run_at, keep_done, max_attempts from jobs where queue = 'kept' $$,
  $$ values (interval '1 h', interval '1 day', 1) $$, 'a job keeps the settings of its time');
select pop('kept');
select is((select redrives from done_jobs), 1, 'redrives are told in history');
select is((select count(*) from jobs), 0::bigint, 'a redriven job ends like any other');

-- The other ways to die.
select enqueue('q', '"spent"', max_attempts => 1);
select retry(job_id, token) from claim('q', 'w');
select enqueue('q', '"lease"', max_attempts => 1);
select claim('q', 'w');
select enqueue('q', '"expired"', expires_in => '1 s', delay => '1 h');
select set_config('test.ahead', '4 h', true);
select sweep();
select results_eq(
  $$ select reason, error from dead_jobs order by job_id $$,
  $$ values ('max attempts exceeded', null::text), ('max attempts exceeded', 'lease expired'),
    ('expired', null) $$, 'however a job died');
select is((select count(*) from redrive(queue => 'q')), 3::bigint, 'it comes back');
select results_eq(
  $$ select payload from claim('q', 'w', 10) $$,
  $$ values (jsonb '"spent"'), ('"lease"'), ('"expired"') $$, 'and can be claimed, in id order');
select cancel(job_id) from jobs;

-- Many, by id.
create temp table d as
  select i as n, pg_temp.dead(case when i > 3 then 'other' else 'q' end, to_jsonb(i)) as id
  from generate_series(1, 5) i;
create function pg_temp.ids(variadic numbers int[]) returns bigint[] language sql as
  $$ select array_agg(id order by place)
     from unnest(numbers) with ordinality x(n, place) join d using (n) $$;
create function pg_temp.dead_now() returns int[] language sql as
  $$ select coalesce(array_agg(n order by n), '{}') from d join pgq_sql.dead_job using (id) $$;
select is(pg_temp.dead_now(), '{1,2,3,4,5}', 'five dead jobs of two queues');
select pg_temp.woken();
select results_eq(
  $$ select ordinal, job_id, outcome from redrive(pg_temp.ids(4, 1, 4)) $$,
  $$ select * from unnest(array[1, 2, 3]::bigint[], pg_temp.ids(4, 1, 4),
       array['redriven', 'redriven', 'redriven']) $$,
  'one row per item, in input order, of any queue, and named twice');
select is(pg_temp.dead_now(), '{2,3,5}', 'those named are back');
select is((select count(*) from jobs), 2::bigint, 'once each');
select is(pg_temp.woken(), 'q other', 'consumers of both queues are woken');
select is_empty($$ select * from redrive('{}') $$, 'none named, none back');

-- All or none.
select throws_ok(
  format('select redrive(%L)', pg_temp.ids(2, 1)), 'JQ003', null,
  'one that lives refuses the others');
select throws_ok(
  format('select redrive(%L)', pg_temp.ids(2) || -1::bigint), 'JQ003', null,
  'so does one that never was');
select throws_ok(
  format('select redrive(%L, dry_run => true)', pg_temp.ids(2, 1)), 'JQ003', null,
  'in a dry run too');
select throws_ok(
  format('select discard_dead(%L)', pg_temp.ids(2, 1)), 'JQ003', null, 'and when discarding');
select drop_queue('other', force => true);
select throws_ok(
  format('select redrive(%L)', pg_temp.ids(2, 5)), 'JQ001', null,
  'one whose queue is gone refuses the others');
select throws_ok(
  format('select redrive(%L, dry_run => true)', pg_temp.ids(5)), 'JQ001', null,
  'in a dry run too');
select throws_ok(
  $$ select redrive(queue => 'other') $$, 'JQ001', null, 'a whole dropped queue is refused');
select is(pg_temp.dead_now(), '{2,3,5}', 'nothing came back');
select is(discard_dead(pg_temp.ids(5)), 1::bigint, 'what has no queue can be discarded');
select cancel(job_id) from jobs;

-- By queue: those that died first.
insert into d select 6, pg_temp.dead('q', '6');
update dead_job set dead_at = dead_at - interval '1 h' where id = (pg_temp.ids(6))[1];
update dead_job set dead_at = dead_at - interval '1 min' where id = (pg_temp.ids(3))[1];
select is_empty($$ select * from redrive(queue => 'q', n => 0) $$, 'none of a queue');
select is(
  (select array_agg(job_id) from redrive(queue => 'q', n => 2, dry_run => true)),
  pg_temp.ids(3, 6), 'two, tried');
select is(pg_temp.dead_now(), '{2,3,6}', 'a dry run does nothing');
select results_eq(
  $$ select * from redrive(queue => 'q', n => 2) $$,
  $$ select * from unnest('{1,2}'::bigint[], pg_temp.ids(3, 6), '{redriven,redriven}'::text[]) $$,
  'the two that died first, in id order');
select is(pg_temp.dead_now(), '{2}', 'the third stays');
select is((select count(*) from redrive(queue => 'q', n => 9)), 1::bigint, 'as many as there are');
select is_empty($$ select * from redrive(queue => 'q') $$, 'and then none');
select results_eq(
  $$ select payload from claim('q', 'w', 9) $$, $$ values (jsonb '3'), ('6'), ('2') $$,
  'they run in the order in which they came back');
select dead_letter(job_id, token) from jobs;

-- Discard.
select is(pg_temp.dead_now(), '{2,3,6}', 'three dead jobs');
update dead_job set dead_at = dead_at - interval '1 h' where id = (pg_temp.ids(6))[1];
select is(discard_dead('{}'), 0::bigint, 'none');
select is(discard_dead(queue => 'q', n => 0), 0::bigint, 'none of a queue');
select is(discard_dead(queue => 'q', n => 1), 1::bigint, 'the one that died first');
select is(pg_temp.dead_now(), '{2,3}', 'is gone for good');
select is(discard_dead(pg_temp.ids(3, 3)), 1::bigint, 'by id, named twice, counted once');
select pg_temp.dead('kept');
select is(discard_dead(queue => 'q'), 1::bigint, 'a whole queue');
select results_eq(
  $$ select count(*) from dead_jobs $$, $$ values (1::bigint) $$, 'and no other queue''s');
select is((select count(*) from jobs), 0::bigint, 'nothing of them lives');

select throws_ok(format('select %s', call), '22023', null, call || ' is refused')
from unnest(array[
  'redrive()',
  'redrive(array[1], queue => ''q'')',
  'redrive(array[1, null])',
  'redrive(queue => ''q'', n => -1)',
  'redrive(array[1], n => 1)',
  'redrive(queue => ''q'', dry_run => null)',
  'discard_dead()',
  'discard_dead(array[1], queue => ''q'')',
  'discard_dead(array[1, null])',
  'discard_dead(queue => ''q'', n => -1)',
  'discard_dead(array[1], n => 1)'
]) call;
select throws_ok(
  format('select %s(queue => ''nowhere'')', f), 'JQ001', null, f || ': unknown queue')
from unnest(array['redrive', 'discard_dead']) f;

select * from finish();
rollback;
