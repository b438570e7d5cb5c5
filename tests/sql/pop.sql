-- pop: takes jobs and ends them at once.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
select plan(17);
select create_queue('q'), create_queue('kept', keep_done => '1 day');

select is_empty($$ select * from pop('q') $$, 'an empty queue answers no row');
select enqueue('q', '"low"', priority => -1);
select enqueue('q', '"first"', headers => '{"h": 1}', max_attempts => 2);
select enqueue('q', '"second"');
select enqueue('q', '"high"', priority => 9);
select enqueue('q', '"later"', delay => '1 h', priority => 99);
select is_empty(format('select * from pop(''q'', %s)', n), format('n = %s takes nothing', n))
from unnest(array['0', '-1', 'null']) n;
select is((select count(*) from jobs), 5::bigint, 'and leaves everything');
select is((select payload from pop('q')), '"high"', 'one job, the first');
savepoint before;
select results_eq(
  $$ select queue, payload, headers, attempt, max_attempts, priority, token,
       lease_until > observed_at
     from pop('q') $$,
  $$ values ('q', jsonb '"first"', jsonb '{"h": 1}', 1, 2, 0, 1::bigint, true) $$,
  'it answers the whole job');
rollback to before;
select results_eq(
  $$ select payload from pop('q', 10) $$, $$ values (jsonb '"first"'), ('"second"'), ('"low"') $$,
  'many in run order; what was rolled back is still there, what is not due stays');
select is((select payload from jobs), '"later"', 'nothing else is left of them');
select is_empty($$ select from dead_jobs union all select from done_jobs $$, 'nowhere');

select enqueue('kept', '1', dedup_key => 'k');
select pop('kept');
select results_eq(
  $$ select outcome, payload, attempt, worker, result from done_jobs $$,
  $$ values ('acked', jsonb '1', 1, 'pop', null::jsonb) $$,
  'a queue that keeps done jobs keeps them');
select is((select outcome from enqueue('kept', dedup_key => 'k')), 'inserted', 'the key is free');
select pause_queue('kept');
select is_empty($$ select from pop('kept') $$, 'a paused queue gives nothing');
select resume_queue('kept');
select is((select count(*) from pop('kept', 5)), 1::bigint, 'until it goes on');

select throws_ok($$ select pop('nowhere') $$, 'JQ001', null, 'an unknown queue is refused');
select throws_ok($$ select pop(null) $$, '22023', null, 'no queue is refused');
select throws_ok($$ select pop('nowhere', 0) $$, 'JQ001', null, 'even if nothing is wanted');

select * from finish();
rollback;
