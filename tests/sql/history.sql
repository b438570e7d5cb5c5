-- keep_done: what becomes history, what of it is kept, for how long, and how its days come and go.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
select plan(71);

-- The clock stands at noon of tomorrow (UTC), so that no test runs into midnight; at('1 day') is
-- noon of the day after.
create function pg_temp.noon() returns timestamptz language sql as
  $$ select date_trunc('day', now(), 'UTC') + interval '36 hours' $$;
create function pg_temp.at(later interval) returns void language sql as $$
  select set_config(
    'test.ahead', (pg_temp.noon() + extract(epoch from later) * interval '1 s'
      - clock_timestamp())::text, true)
$$;
select pg_temp.at('0');

-- The days that have a partition, as days after noon().
create function pg_temp.days() returns int[] language sql as $$
  select coalesce(array_agg(d.day - (pg_temp.noon() at time zone 'UTC')::date order by d.day), '{}')
  from (
    select to_date(substring(c.relname from '^done_job_(\d{8})$'), 'YYYYMMDD') as day
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'pgq_sql.done_job'::regclass
  ) d where d.day is not null
$$;
select is(pg_temp.days(), '{}', 'without history there are no days');

select create_queue('none');
select is(pg_temp.days(), '{}', 'a queue that keeps none needs none');
select create_queue('q', keep_done => '1 day', retry_delay => '0', max_payload => 100);
select is(pg_temp.days(), '{1}', 'one that does has the day of its first job at once');

-- Enqueue and claim one job; the answer is its id and token.
create function pg_temp.held(
  queue text, out job bigint, out token bigint, payload jsonb default '{}',
  dedup_key text default null
)
language sql
as $$
  select pgq_sql.enqueue(queue, payload, dedup_key => dedup_key, headers => '{"h": 1}');
  select job_id, token from pgq_sql.claim(queue, 'w');
$$;

-- What is kept.
create temp table j as select * from pg_temp.held('q', '"acked"', 'k');
select retry(job, token, 'boom') from j;
update j set token = c.token from claim('q', 'w2') c;
select heartbeat(job, token, progress => '50') from j;
create temp table live as select * from jobs;
select is((select ack(job, token, '{"answer": 42}') from j), 'acked', 'a job is acked');
select is((select count(*) from jobs), 0::bigint, 'it lives no more');
select results_eq(
  $$ select outcome, result, attempt, worker, last_error, progress, redrives from done_jobs $$,
  $$ values ('acked', jsonb '{"answer": 42}', 2, 'w2', 'boom', jsonb '50', 0) $$,
  'history has what became of it');
select results_eq(
  $$ select job_id, queue, priority, run_at, enqueued_at, expires_at, max_attempts, token,
       dedup_key, headers, payload from done_jobs $$,
  $$ select job_id, queue, priority, run_at, enqueued_at, expires_at, max_attempts, token,
       dedup_key, headers, payload from live $$,
  'and what it was');
select ok(
  (select done_at between _now() - interval '10 s' and _now() from done_jobs), 'done_at is now');
select is(
  (select keep_until - done_at from done_jobs), interval '24:00', 'it is kept for keep_done');
select results_eq(
  $$ select state, result, reason, ended_at from get_job((select job from j)) $$,
  $$ select 'done', result, null::text, done_at from done_jobs $$, 'get_job finds it');
select is((select ack(job, token) from j), 'gone', 'a second ack finds no job');
select is((select count(*) from done_jobs), 1::bigint, 'and adds nothing');
select is(
  (select outcome from enqueue('q', dedup_key => 'k')), 'inserted', 'its dedup key is free');
select cancel(job_id) from jobs;

select ack(job, token) from pg_temp.held('q', '"no result"');
select ack(job, token, 'null') from pg_temp.held('q', '"null result"');
select results_eq(
  $$ select payload, result from done_jobs where payload::text like '%result%' order by job_id $$,
  $$ values (jsonb '"no result"', null::jsonb), ('"null result"', 'null') $$,
  'no result is not the result null');

-- ack_many: each result to its job, whatever the order; stale ones leave nothing.
select enqueue_many('q', array['1', '2', '3', '4']::jsonb[]);
create temp table many as select job_id, token, payload from claim('q', 'w', 4);
select results_eq(
  $$ select a.ordinal, a.outcome
     from (select array_agg(job_id order by payload desc) || -1::bigint as ids,
             array_agg(token + (payload = '3')::int order by payload desc) || 1::bigint as tokens
           from many) m,
       ack_many(m.ids, m.tokens, array['"r4"', '"r3"', null, '"r1"', '"r"']::jsonb[]) a $$,
  $$ values (1::bigint, 'acked'), (2, 'lost'), (3, 'acked'), (4, 'acked'), (5, 'gone') $$,
  'ack_many');
select results_eq(
  $$ select payload, result from done_jobs
     where jsonb_typeof(payload) = 'number' order by job_id $$,
  $$ values (jsonb '1', jsonb '"r1"'), ('2', null), ('4', '"r4"') $$,
  'each result to its job, none for a stale one');
select results_eq(
  $$ select a.outcome from many m,
       ack_many(array[m.job_id, m.job_id], array[m.token, m.token], array['"a"', '"b"']::jsonb[]) a
     where m.payload = '3' $$,
  $$ values ('acked'), ('gone') $$, 'a job named twice is acked once');
select is(
  (select count(*) from done_jobs where payload = '3'), 1::bigint, 'and kept once');

-- pop, cancel.
select enqueue('q', '"popped"');
select pop('q');
select results_eq(
  $$ select outcome, worker, attempt, result from done_jobs where payload = '"popped"' $$,
  $$ values ('acked', 'pop', 1, null::jsonb) $$, 'a popped job is history');
select enqueue('q', '"never ran"');
select is(
  (select cancel(job_id) from jobs where payload = '"never ran"'), 'cancelled', 'cancel');
select is((select cancel(job) from pg_temp.held('q', '"ran"')), 'cancelled', 'cancel, running');
select results_eq(
  $$ select d.payload, d.outcome, d.attempt, d.result, g.state
     from done_jobs d, get_job(d.job_id) g where d.payload::text like '"% ran"'
       or d.payload = '"ran"' order by d.job_id $$,
  $$ values (jsonb '"never ran"', 'cancelled', 0, null::jsonb, 'cancelled'),
       ('"ran"', 'cancelled', 1, null, 'cancelled') $$,
  'cancelled jobs are history too');
select dead_letter(job, token) from pg_temp.held('q', '"dead"');
select is(
  (select count(*) from done_jobs where payload = '"dead"'), 0::bigint, 'dead jobs are not');
select enqueue('q', '"rolled back"');
savepoint before;
select ack(job_id, token) from claim('q', 'w');
rollback to before;
select is(
  (select count(*) from done_jobs where payload = '"rolled back"'), 0::bigint,
  'nor is what was rolled back');
select cancel(job_id) from jobs;

-- Queues without.
select is(
  (select ack(job, token, to_jsonb(repeat('x', 2000000))) from pg_temp.held('none')), 'acked',
  'a result is dropped where there is no history, whatever its size');
select is(
  (select ack(job, token, to_jsonb(repeat('x', 2000000)))
   from pg_temp.held('none', dedup_key => 'k')), 'acked', 'with a dedup key too');
select enqueue('none');
select pop('none');
select enqueue('none');
select cancel(job_id) from jobs;
select is(
  (select count(*) from done_jobs where queue = 'none'), 0::bigint, 'and no job is kept');

-- A result has the bound of a payload.
truncate j; insert into j select * from pg_temp.held('q', '"large"');
select throws_ok(
  format('select ack(%s, %s, %L)', job, token, to_jsonb(repeat('x', 99))), 'JQ007', null,
  'a result of one byte too many is refused')
from j;
select is(
  (select outcome from j, ack_many(array[job], array[token], array[to_jsonb(repeat('x', 99))])),
  'result too large', 'in a batch too');
select is((select state from jobs), 'running', 'the job still runs');
select is(
  (select count(*) from done_jobs where payload = '"large"'), 0::bigint, 'it is no history');
select is(
  (select ack(job, token, to_jsonb(repeat('x', 98))) from j), 'acked', 'one that fits is taken');
select enqueue_many('q', array['"b"', '"b"']::jsonb[]);
truncate j; insert into j select job_id, token from claim('q', 'w', 2);
select results_eq(
  format($$ select outcome from ack_many(%L || array[-1::bigint], %L || array[1::bigint],
       array[%3$L, '1', '1']::jsonb[]) $$,
    array_agg(job order by job), array_agg(token order by job), to_jsonb(repeat('x', 99))),
  $$ values ('result too large'), ('acked'), ('gone') $$,
  'one large result does not stop the others')
from j;
select is(ack(job, token), 'acked', 'and its job can still be ended') from j order by job limit 1;

-- Days come and go.
create function pg_temp.swept() returns bigint language sql as
  $$ select count from pgq_sql.sweep() where task = 'history' $$;
create temp table first_day as select count(*) as n from done_jobs;
select is(pg_temp.days(), '{1,2}', 'all that on one day, and claims have made the next');
select is(pg_temp.swept(), 0::bigint, 'sweep has no day to drop');
select is(pg_temp.days(), '{1,2}', 'and none to make');
select pg_temp.at('23 hours');
select is(
  (select count(*) from done_jobs), (select n from first_day), 'all is there for keep_done');
select pg_temp.at('25 hours');
select is((select count(*) from done_jobs), 0::bigint, 'and not longer');
select is_empty(
  $$ select d.* from done_job d, get_job(d.id) $$, 'not for get_job either');
select is(pg_temp.swept(), 0::bigint, 'its day is not over');
select is((select count(*) from done_job), (select n from first_day), 'so it is in the table');
select pg_temp.at('3 days');
select enqueue('q', '"later"');
select alter_queue('q', keep_done => '0');
select ack(job_id, token) from claim('q', 'w');
select is(pg_temp.days(), '{1,2,3,4}', 'a day that nobody made is made by the job that needs it');
select alter_queue('q', keep_done => '1 day');
select is(pg_temp.swept(), 2::bigint, 'sweep drops the days that are over');
select is(pg_temp.days(), '{3,4,5}', 'and no other');
select results_eq(
  $$ select payload from done_jobs $$, $$ values (jsonb '"later"') $$, 'the job is there');
select is((select count(*) from done_job), 1::bigint, 'and none of the old ones');
select pg_temp.at('4 days 11:59');
select pg_temp.swept();
select is((select count(*) from done_job), 1::bigint, 'a day lasts until midnight');
select pg_temp.at('4 days 12:01');
select is(pg_temp.swept(), 1::bigint, 'then it goes');
select is((select count(*) from done_job), 0::bigint, 'with all that it held');

-- Who reads history in the same session holds up its days, not the sweep.
select ack(job, token) from pg_temp.held('q', '"read"');
declare reader cursor for select * from done_jobs;
fetch reader;
select pg_temp.at('8 days');
select is(pg_temp.swept(), 0::bigint, 'no day goes or comes that is being read');
select is(pg_temp.days(), '{5,6,7}', 'none');
close reader;
select cmp_ok(pg_temp.swept(), '>', 0::bigint, 'they go with the next sweep');
select is(pg_temp.days(), '{9,10}', 'and come');

-- A change is for jobs that come after it, and days are made for both.
select enqueue('q', '"short"');
select alter_queue('q', keep_done => '10 days');
select is(pg_temp.days(), '{9,10,18}', 'a change makes the new day');
select enqueue('q', '"long"');
select ack(job_id, token) from claim('q', 'w', 2);
select results_eq(
  $$ select payload, keep_until - done_at from done_jobs order by job_id $$,
  $$ values (jsonb '"short"', interval '24:00'), ('"long"', '240:00') $$,
  'a job is kept as its queue said when it was enqueued');
select alter_queue('q', keep_done => '0');
select ack(job, token) from pg_temp.held('q', '"none"');
select is((select count(*) from done_jobs), 2::bigint, 'without history what was kept stays');
select pg_temp.at('19 days 13:00');
select pg_temp.swept();
select is(pg_temp.days(), '{}', 'until the last day is over');

-- A day has no gap before the next one.
select create_queue('midnight', keep_done => '1 day');
select pg_temp.at('30 days 11:59:58');
select ack(job, token) from pg_temp.held('midnight');
select pg_temp.at('30 days 12:00:00');
select ack(job, token) from pg_temp.held('midnight');
select is(pg_temp.days() @> '{31,32}', true, 'each half of a night has its day');
select is((select count(*) from done_jobs where queue = 'midnight'), 2::bigint, 'and its jobs');

-- The longest, and forever.
select create_queue('long', keep_done => '9007199254740 ms', keep_dead => '9007199254740 ms');
select ack(job, token) from pg_temp.held('long');
select pg_temp.swept();
select is(
  (select count(*) from done_jobs where queue = 'long'), 1::bigint, 'the longest is 285 years');
select throws_ok(
  $$ select create_queue('bad', keep_done => '9007199254741 ms') $$, '22023', null, 'not more');

select current_setting('server_version_num')::int >= 170000 as has_infinity \gset
\if :has_infinity
select create_queue('forever', keep_done => 'infinity', keep_dead => 'infinity');
select ack(job, token) from pg_temp.held('forever', '"forever"');
select dead_letter(job, token) from pg_temp.held('forever', '"forever"');
select pg_temp.at('200000 days');
select pg_temp.swept();
select results_eq(
  $$ select payload, keep_until from done_jobs $$,
  $$ values (jsonb '"forever"', timestamptz 'infinity') $$, 'infinity keeps forever');
select results_eq(
  $$ select payload from dead_jobs where queue = 'forever' $$,
  $$ values (jsonb '"forever"') $$, 'dead jobs too');
select throws_ok(
  format('select create_queue(''bad'', %s => ''-infinity'')', setting), '22023', null,
  setting || ' cannot be -infinity')
from unnest(array['keep_done', 'keep_dead']) setting;
select throws_ok(
  format('select create_queue(''bad'', %s => ''infinity'')', setting), '22023', null,
  setting || ' cannot be infinity')
from unnest(array['expires_in', 'visibility_timeout', 'retry_delay']) setting;
\else
select skip('intervals are finite before PostgreSQL 17', 7);
\endif

-- History is read through views: the table is nobody's, and neither are its days.
create role pgq_test_historian;
grant usage on schema pgq_sql to pgq_test_historian;
grant select on done_job, done_job_forever to pgq_test_historian;
select grant_access('pgq_test_historian', 'observer');
select is_empty(
  $$ select c.relname from pg_class c
     where c.relnamespace = 'pgq_sql'::regnamespace and c.relname like 'done_job%'
       and c.relkind in ('r', 'p')
       and has_table_privilege('pgq_test_historian', c.oid, 'select') $$,
  'an observer reads no table of it');
set local role pgq_test_historian;
select pgq_sql.done_jobs.job_id from pgq_sql.done_jobs limit 1 \gset
reset role;
select cmp_ok(:job_id, '>', 0, 'but the view');

select * from finish();
rollback;
