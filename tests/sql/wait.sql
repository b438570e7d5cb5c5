-- wait_begin, wait_end, next_run_at: what a consumer's loop needs.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
select plan(14);
select create_queue('q');
select create_queue('other');

select matches(wait_begin('q'), '^pgq_\d+_\d+$', 'wait_begin answers a channel of ids');
select isnt(wait_begin('other'), wait_begin('q'), 'each queue has its own');
select lives_ok($$ select wait_end('q') $$, 'wait_end, once');
select lives_ok($$ select wait_end('q') $$, 'and for the second wait_begin');
select throws_ok($$ select wait_end('q') $$, 'JQ004', null, 'a third is refused');
select lives_ok($$ select wait_end('other') $$, 'another queue is another matter');
select throws_ok($$ select wait_begin('nowhere') $$, 'JQ001', null, 'wait_begin: unknown queue');
select throws_ok($$ select wait_end('nowhere') $$, 'JQ001', null, 'wait_end: unknown queue');

select is(next_run_at('q'), null, 'an empty queue has no next run');
select enqueue('q', delay => '1 h', priority => 9);
select enqueue('q', delay => '1 min');
select ok(next_run_at('q') between _now() + '59 s' and _now() + '1 min', 'the earliest of all lanes');
select enqueue('q');
select ok(next_run_at('q') <= _now(), 'a ready job is due now');
select claim('q', 'w');
select ok(next_run_at('q') > _now(), 'a running job is not counted');
select is(next_run_at('other'), null, 'nor another queue''s');
select throws_ok($$ select next_run_at('nowhere') $$, 'JQ001', null, 'next_run_at: unknown queue');

select * from finish();
rollback;
