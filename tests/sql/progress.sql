-- heartbeat with progress: what a handler says shows wherever its job is.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
select plan(25);
select create_queue('q', keep_done => '1 day');
select enqueue_many('q', array['1', '2', '3']::jsonb[]);
create temp table j as
  select row_number() over (order by job_id)::int as n, job_id, token from claim('q', 'w', 3);
select job_id as one, token from j where n = 1 \gset
select job_id as two from j where n = 2 \gset
select job_id as three from j where n = 3 \gset

select is((select progress from get_job(:one)), null, 'no progress at first');
select results_eq(
  format($$ select outcome, lease_until - observed_at
     from heartbeat(%s, 1, progress => '{"done": 1}') $$, :one),
  $$ values ('extended', interval '30 s') $$, 'it comes with the heartbeat');
select is((select progress from get_job(:one)), '{"done": 1}', 'and shows');
select is((select progress from jobs where job_id = :one), '{"done": 1}', 'in the view too');
select heartbeat(:one, 1);
select is((select progress from get_job(:one)), '{"done": 1}', 'a heartbeat without leaves it');
select is(
  (select outcome from heartbeat(:one, 2, progress => '"stale"')), 'lost', 'a stale heartbeat');
select is((select progress from get_job(:one)), '{"done": 1}', 'has nothing to say');
select heartbeat(:one, 1, progress => 'null');
select is((select progress from get_job(:one)), 'null', 'JSON''s null is a value');
select is(
  (select outcome from heartbeat(:one, 1, progress => to_jsonb(repeat('x', 65534)))), 'extended',
  '65536 bytes are accepted');
select throws_ok(
  format($$ select heartbeat(%s, 1, '1 h', to_jsonb(repeat('x', 65535))) $$, :one),
  'JQ007', null, 'one more is not');
select ok(
  (select lease_until < _now() + interval '31 s' from get_job(:one)),
  'nor is the lease extended then');
select throws_ok(
  format($$ select heartbeat(%s, 1, progress => '1e65536') $$, :one), 'JQ007', null,
  'it counts as it would be printed');

select results_eq(
  format($$ select ordinal, job_id, outcome from heartbeat_many(
       array[%2$s, %1$s, -1, %3$s], array[1, 1, 1, 9],
       progresses => array['"two"', null, '"none"', '"stale"']::jsonb[]) $$, :one, :two, :three),
  format($$ values (1::bigint, %2$s::bigint, 'extended'), (2, %1$s, 'extended'), (3, -1, 'gone'),
       (4, %3$s, 'lost') $$, :one, :two, :three),
  'many: each on its own merits');
select results_eq(
  $$ select left(progress::text, 5) from jobs order by job_id $$,
  $$ values ('"xxxx'), ('"two"'), (null) $$, 'each has its own progress');
select results_eq(
  format($$ select outcome from heartbeat_many(array[%1$s, %1$s], array[1, 1],
    progresses => array['"a"', '"b"']::jsonb[]) $$, :one),
  $$ values ('extended'), ('extended') $$, 'a job may be named twice');
select is((select progress from get_job(:one)), '"b"', 'its last word counts');
select results_eq(
  format($$ select outcome, lease_until is null from heartbeat_many(array[%s, %s], array[1, 1],
    progresses => array['"c"', to_jsonb(repeat('x', 65535))]) $$, :one, :two),
  $$ values ('extended', false), ('progress too large', true) $$,
  'one that is too large does not stop the others');
select is((select progress from get_job(:two)), '"two"', 'and leaves its job as it was');
select throws_ok(format('select heartbeat_many(array[%s], array[1], %s)', :one, argument),
  '22023', null, argument || ' is refused')
from unnest(array[
  'progresses => array[''1'', ''2'']::jsonb[]',
  'progresses => ''{}''',
  'progresses => ''[0:0]={1}''::jsonb[]'
]) argument;

select retry(:one, 1, 'boom', '0');
select is(
  (select progress from get_job(:one)), '"c"', 'the next run finds the progress of the one before');
select job_id as again from claim('q', 'w') \gset
select is(ack(:one, 2), 'acked', 'that run ends');
select is((select progress from get_job(:one) where state = 'done'), '"c"', 'history has it');
select dead_letter(:two, 1);
select is((select progress from get_job(:two) where state = 'dead'), '"two"', 'so have the dead');

select * from finish();
rollback;
