-- The _many forms: one row per item in input order, and no item stops another.
begin;
set local search_path = pgq_sql, tap, public;
select plan(23);
select create_queue('q', max_attempts => 2, retry_delay => '0');
select enqueue_many('q', array_fill('{}'::jsonb, array[10]));

create temp table j as select row_number() over (order by job_id) n, job_id, token
  from claim('q', 'w', 10);
create function pg_temp.ids(variadic numbers int[]) returns bigint[] language sql as
  $$ select array_agg(job_id order by place) from unnest(numbers) with ordinality x(n, place) join j using (n) $$;
create function pg_temp.tokens(variadic numbers int[]) returns bigint[] language sql as
  $$ select array_agg(token order by place) from unnest(numbers) with ordinality x(n, place) join j using (n) $$;

select results_eq(
  $$ select ordinal, job_id, outcome
     from ack_many(pg_temp.ids(2, 1) || -1::bigint, pg_temp.tokens(2, 1) || 1::bigint) $$,
  $$ select ordinal, job_id, outcome from (values
       (1::bigint, (pg_temp.ids(2))[1], 'acked'), (2, (pg_temp.ids(1))[1], 'acked'), (3, -1, 'gone')
     ) v (ordinal, job_id, outcome) $$,
  'ack_many answers in input order');
select results_eq(
  $$ select outcome from ack_many(pg_temp.ids(3, 4), array[-1, (pg_temp.tokens(4))[1]]) $$,
  $$ values ('lost'), ('acked') $$,
  'a stale token does not stop its neighbour');
select results_eq(
  $$ select outcome from release_many(pg_temp.ids(3, 5), pg_temp.tokens(3, 5),
       delays => array[null, '1 h']::interval[]) $$,
  $$ values ('released'), ('released') $$, 'release_many');
select results_eq(
  $$ select outcome from retry_many(pg_temp.ids(6, 5), pg_temp.tokens(6, 5),
       errors => array['e6', 'e5']) $$,
  $$ values ('retried'), ('lost') $$, 'retry_many');
select is(
  (select last_error from jobs where job_id = (pg_temp.ids(6))[1]), 'e6', 'each error to its job');
select results_eq(
  $$ select outcome from dead_letter_many(pg_temp.ids(8, 7), pg_temp.tokens(8, 7),
       errors => array[null, 'e7']) $$,
  $$ values ('dead'), ('dead') $$, 'dead_letter_many');
select results_eq(
  $$ select error from dead_jobs order by job_id $$, $$ values ('e7'), ('failed') $$,
  'each error to its dead job, null meaning failed');
select results_eq(
  $$ select outcome, lease_until is null, lease_until - observed_at
     from heartbeat_many(pg_temp.ids(9) || -1::bigint, pg_temp.tokens(9) || 1::bigint,
       array['1 min', null]::interval[]) $$,
  $$ values ('extended', false, interval '1 min'), ('gone', true, null) $$, 'heartbeat_many');
select is_empty($$ select * from ack_many('{}', '{}') $$, 'no items, no rows');

-- A job may be named twice, with its token and with another.
create function pg_temp.one() returns bigint language sql as
  $$ delete from pgq_sql.job; select pgq_sql.enqueue('q');
     select job_id from pgq_sql.claim('q', 'w') $$;
select results_eq(
  format($$ select ordinal, outcome from %s(array[%2$s, %2$s, %2$s]::bigint[], array[9, 1, 1]) $$,
    name, pg_temp.one()),
  format($$ values (1::bigint, %L), (2, %L), (3, %L) $$, stale, first, second),
  name || ': the right token does it, once')
from (values
  -- ack_many ends all that it can before it judges the rest.
  ('ack_many', 'gone', 'acked', 'gone'),
  ('retry_many', 'lost', 'retried', 'lost'),
  ('release_many', 'lost', 'released', 'lost'),
  ('dead_letter_many', 'lost', 'dead', 'gone'),
  ('heartbeat_many', 'lost', 'extended', 'extended')
) v (name, stale, first, second);
select throws_ok(format('select %s', call), '22023', null, call || ' is refused')
from unnest(array[
  'ack_many(null, null)',
  'ack_many(array[1], array[1, 2])',
  'ack_many(''{{1,2}}'', ''{{1,2}}'')',
  'retry_many(''{{1,2}}'', ''{{1,2}}'')',
  'heartbeat_many(''{{1,2}}'', ''{{1,2}}'')',
  'ack_many(''[2:3]={1,2}'', ''[2:3]={1,2}'')',
  'retry_many(array[1], array[1], array[''a'', ''b''])',
  'release_many(array[null]::bigint[], array[1])',
  'heartbeat_many(array[1], array[1], array[''-1 s'']::interval[])'
]) call;

select * from finish();
rollback;
