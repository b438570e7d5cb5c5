-- get_job, list_jobs, count_jobs, queue_stats: what they show of live, dead and done jobs.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
select plan(72);
select create_queue('q', keep_done => '1 day', max_attempts => 3), create_queue('other');

-- Takes the highest job of q; answers its token.
create function pg_temp.take(worker text default 'w') returns bigint language sql as
  $$ select token from pgq_sql.claim('q', worker) $$;

-- One job of each state, in this order of ids.
select job_id as done from enqueue('q', '{"kind": "done"}', priority => 9) \gset
select pg_temp.take('first');
select heartbeat(:done, 1, progress => '"half"');
select ack(:done, 1, '{"sum": 3}');
select job_id as cancelled from enqueue('q', '{"kind": "cancelled"}') \gset
select cancel(:cancelled);
select job_id as dead from enqueue('q', '{"kind": "dead"}', priority => 9, dedup_key => 'd',
  headers => '{"h": 1}') \gset
select pg_temp.take('second');
select dead_letter(:dead, 1, 'broken');
select job_id as running from enqueue('q', '{"kind": "running", "n": [1, 2]}', priority => 9,
  dedup_key => 'r', expires_in => '1 day') \gset
select pg_temp.take('third');
select job_id as suspended from enqueue('q', '{"kind": "suspended"}', max_attempts => 8) \gset
select suspend(:suspended);
select job_id as scheduled from enqueue('q', '{"kind": "scheduled"}', delay => '1 h') \gset
select job_id as ready from enqueue('q', '{"kind": "ready"}', priority => -4) \gset
select job_id as elsewhere from enqueue('other', '{"kind": "ready"}') \gset
create temp table j (place, id) as
  values (1, :done::bigint), (2, :cancelled), (3, :dead), (4, :running), (5, :suspended),
    (6, :scheduled), (7, :ready), (8, :elsewhere);
-- Places in j of the ids that a query answers, in its order.
create function pg_temp.places(call text) returns text language plpgsql as $$
declare
  told text;
begin
  execute format(
    'select string_agg(j.place::text, '' '' order by x.ordinality)
     from pgq_sql.%s with ordinality x join j on j.id = x.job_id', call) into told;
  return told;
end
$$;

-- get_job
select results_eq(
  format($$ select queue collate "default", state, priority, attempt, max_attempts, token, worker,
       lease_until, last_error, redrives, payload, progress, result, reason, ended_at is not null
     from get_job(%s) $$, :done),
  $$ values ('q', 'done', 9, 1, 3, 1::bigint, 'first', null::timestamptz, null, 0,
    jsonb '{"kind": "done"}', jsonb '"half"', jsonb '{"sum": 3}', null, true) $$, 'a done job');
select results_eq(
  format($$ select state, attempt, worker, result, reason, ended_at is not null from get_job(%s) $$,
    :cancelled),
  $$ values ('cancelled', 0, null, null::jsonb, null, true) $$, 'a cancelled job');
select results_eq(
  format($$ select state, dedup_key collate "default", headers, attempt, worker, last_error, reason,
       result, ended_at is not null from get_job(%s) $$, :dead),
  $$ values ('dead', 'd', jsonb '{"h": 1}', 1, 'second', 'broken', 'failed', null::jsonb, true) $$,
  'a dead job');
select results_eq(
  format($$ select state, dedup_key collate "default", attempt, token, worker,
       lease_until > _now(), expires_at - run_at, reason, ended_at from get_job(%s) $$, :running),
  $$ values ('running', 'r', 1, 1::bigint, 'third', true, interval '1 day', null,
    null::timestamptz) $$, 'a running job');
select results_eq(
  format($$ select state, max_attempts, run_at = enqueued_at from get_job(%s) $$, :suspended),
  $$ values ('suspended', 8, true) $$, 'a suspended job');
select results_eq(
  format($$ select state, run_at - enqueued_at, lease_until from get_job(%s) $$, :scheduled),
  $$ values ('scheduled', interval '1 h', null::timestamptz) $$, 'a scheduled job');
select results_eq(
  format($$ select state, priority, attempt, expires_at from get_job(%s) $$, :ready),
  $$ values ('ready', -4, 0, null::timestamptz) $$, 'a ready job');
select is_empty($$ select from get_job(-1) $$, 'no row for a job that never was');
savepoint before;
select purge_queue('other');
select is_empty(
  format('select from get_job(%s)', :elsewhere), 'nor for one of which nothing is kept');
rollback to before;
select throws_ok($$ select get_job(null) $$, '22023', null, 'no id is refused');

-- list_jobs
select is(pg_temp.places(call), wanted, call)
from (values
  ('list_jobs()', '1 2 3 4 5 6 7 8'),
  ('list_jobs(queue => ''q'')', '1 2 3 4 5 6 7'),
  ('list_jobs(queue => ''other'')', '8'),
  ('list_jobs(state => ''done'')', '1'),
  ('list_jobs(state => ''cancelled'')', '2'),
  ('list_jobs(state => ''dead'')', '3'),
  ('list_jobs(state => ''running'')', '4'),
  ('list_jobs(state => ''suspended'')', '5'),
  ('list_jobs(state => ''scheduled'')', '6'),
  ('list_jobs(state => ''ready'')', '7 8'),
  ('list_jobs(worker => ''first'')', '1'),
  ('list_jobs(worker => ''third'')', '4'),
  ('list_jobs(worker => ''nobody'')', null),
  ('list_jobs(payload_has => ''{"kind": "ready"}'')', '7 8'),
  ('list_jobs(payload_has => ''{"n": [2]}'')', '4'),
  ('list_jobs(''q'', ''ready'', payload_has => ''{"kind": "ready"}'')', '7'),
  ('list_jobs(''other'', ''running'')', null),
  ('list_jobs(n => 3)', '1 2 3'),
  ('list_jobs(n => 0)', null),
  ('list_jobs(state => ''ready'', n => 1)', '7'),
  ('list_jobs(after => null, n => 1)', '1'),
  ('list_jobs(after => 9223372036854775807)', null)
) v (call, wanted);
select is(
  pg_temp.places(format('list_jobs(after => %s, n => 3)', :dead)), '4 5 6',
  'the next page begins after the last id of this one');
select is(
  pg_temp.places(format('list_jobs(after => %s, n => 3)', :scheduled)), '7 8', 'the last page');
select is(
  pg_temp.places(format('list_jobs(''q'', after => %s, n => 2)', :cancelled)), '3 4',
  'paging goes on through live, dead and done');
-- More than one step of ids that do not pass the filter.
savepoint before;
select count(*) from enqueue_many('other', array_fill('1'::jsonb, array[2100]));
select enqueue('other', '"last"');
select is(
  (select count(*) from list_jobs('other', n => 5000)), 2102::bigint, 'more than a thousand');
select is(
  (select count(distinct job_id) from list_jobs('other', n => 1500)), 1500::bigint, 'each once');
select is(
  (select payload from list_jobs(payload_has => '"last"', n => 1)), '"last"',
  'one that is far away is found');
rollback to before;
select throws_ok(format('select %s', call), state, null, call || ' is refused')
from (values
  ('list_jobs(n => null)', '22023'),
  ('list_jobs(n => -1)', '22023'),
  ('list_jobs(state => ''odd'')', '22023'),
  ('list_jobs(queue => ''nowhere'')', 'JQ001'),
  ('count_jobs(state => ''odd'')', '22023'),
  ('count_jobs(''nowhere'')', 'JQ001'),
  ('queue_stats(''nowhere'')', 'JQ001'),
  ('queue_stats(null)', '22023'),
  ('queue_stats(''q'', 0)', '22023'),
  ('queue_stats(''q'', null)', '22023')
) v (call, state);

-- count_jobs
select results_eq(
  $$ select queue, state, count from count_jobs() $$,
  $$ values ('other', 'ready', 1::bigint), ('q', 'cancelled', 1), ('q', 'dead', 1),
    ('q', 'done', 1), ('q', 'ready', 1), ('q', 'running', 1), ('q', 'scheduled', 1),
    ('q', 'suspended', 1) $$,
  'a row for each queue and state');
select results_eq(
  $$ select queue, state, count from count_jobs(state => 'ready') $$,
  $$ values ('other', 'ready', 1::bigint), ('q', 'ready', 1) $$, 'for one state');
select results_eq(
  $$ select state, count from count_jobs('q', 'dead') $$, $$ values ('dead', 1::bigint) $$,
  'for one queue and state');
select is_empty($$ select count_jobs('other', 'dead') $$, 'no row where there is none');

-- queue_stats
select results_eq(
  $$ select queue, paused, ready, scheduled, suspended, running, dead, oldest_ready > '0' as due,
       done_last_minute, dead_last_minute, exact from queue_stats('q') $$,
  $$ values ('q', false, 1::bigint, 1::bigint, 1::bigint, 1::bigint, 1::bigint, true, 2::bigint,
    1::bigint, true) $$, 'a queue with all of them');
select results_eq(
  $$ select ready, running, dead, done_last_minute, dead_last_minute, exact
     from queue_stats('other') $$,
  $$ values (1::bigint, 0::bigint, 0::bigint, null::bigint, 0::bigint, true) $$,
  'no rate of done jobs where none are kept');
select enqueue('other', delay => '10 s');
select set_config('test.ahead', '31 s', true);
select results_eq(
  $$ select ready, scheduled, oldest_ready between '31 s' and '41 s' from queue_stats('other') $$,
  $$ values (2::bigint, 0::bigint, true) $$, 'the oldest ready job is the one due first');
select results_eq(
  $$ select ready, running from queue_stats('q') $$, $$ values (2::bigint, 0::bigint) $$,
  'a job whose lease ran out is ready, swept or not');
select sweep();
select results_eq(
  $$ select ready, running from queue_stats('q') $$, $$ values (2::bigint, 0::bigint) $$,
  'and so afterwards');
select set_config('test.ahead', '61 s', true);
select results_eq(
  $$ select dead, dead_last_minute, done_last_minute from queue_stats('q') $$,
  $$ values (1::bigint, 0::bigint, 0::bigint) $$, 'rates are those of the last minute');
select create_queue('long', visibility_timeout => '1 h');
select enqueue('long');
select claim('long', 'w');
select set_config('test.ahead', '1 h 63 s', true);
select ok(
  (select ready = 1 and oldest_ready between '1 s' and '3 s' from queue_stats('long')),
  'a job that ran has been ready since its lease ran out');
select set_config('test.ahead', '61 s', true);
select pause_queue('q');
select is((select paused from queue_stats('q')), true, 'a paused queue says so');
select resume_queue('q');
select is((select paused from queue_stats('q')), false, 'and that it goes on');

select create_queue('big', keep_done => '1 day');
select is((select oldest_ready from queue_stats('big')), null, 'an empty queue has no oldest job');
select count(*) from enqueue_many('big', array_fill('1'::jsonb, array[7]));
select results_eq(
  $$ select ready, exact from queue_stats('big', 8) $$, $$ values (7::bigint, true) $$,
  'below the bound all is exact');
select results_eq(
  $$ select ready, exact from queue_stats('big', 5) $$, $$ values (5::bigint, false) $$,
  'a figure that reaches it is a lower limit');
create temp table taken as select * from claim('big', 'w', 6);
select results_eq(
  $$ select ready, running, exact from queue_stats('big', 100) $$,
  $$ values (1::bigint, 6::bigint, true) $$, 'running jobs are not ready');
select suspend(job_id) from jobs where queue = 'big' and state = 'ready';
select dead_letter(job_id, token) from (select * from taken order by job_id limit 3) x;
select results_eq(
  $$ select dead, dead_last_minute, exact from queue_stats('big', 2) $$,
  $$ values (2::bigint, 2::bigint, false) $$, 'the dead count up to it');
select ack(job_id, token) from (select * from taken order by job_id desc limit 3) x;
select discard_dead(queue => 'big');
select results_eq(
  $$ select done_last_minute, exact from queue_stats('big', 2) $$,
  $$ values (2::bigint, false) $$, 'so do the done');
select count(*) from enqueue_many('big', array_fill('1'::jsonb, array[3]),
  delays => array_fill('1 h'::interval, array[3]));
select results_eq(
  $$ select scheduled, suspended, exact from queue_stats('big', 4) $$,
  $$ values (3::bigint, 1::bigint, true) $$, 'scheduled and suspended ones are counted apart');
select results_eq(
  $$ select scheduled, exact from queue_stats('big', 3) $$, $$ values (3::bigint, false) $$,
  'each up to the bound');

-- What history keeps is shown until then.
select set_config('test.ahead', '1 day 1 h', true);
select is_empty(format('select from get_job(%s)', :done), 'history past keep_done is not shown');
select is(pg_temp.places('list_jobs(state => ''done'')'), null, 'nor listed');
select is_empty($$ select count_jobs(state => 'done') $$, 'nor counted');

select * from finish();
rollback;
