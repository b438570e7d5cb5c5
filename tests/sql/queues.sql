-- create_queue: what it makes, what it leaves alone, what it refuses.
begin;
set local search_path = pgq_sql, tap, public;
select plan(31);

select is(create_queue('emails'), true, 'a new queue is made');
select is(create_queue('emails', max_attempts => 9), false, 'a second time it is there');
select is(
  (select max_attempts from queues where queue = 'emails'), 5,
  'a queue that is there is left unchanged');

select results_eq(
  $$ select max_attempts, visibility_timeout, retry_backoff, retry_factor, retry_delay,
       retry_max_delay, retry_jitter, expires_in, keep_dead, notify, max_payload
     from queues where queue = 'emails' $$,
  $$ values (5, interval '30 s', 'exponential', 2::float8, interval '500 ms', interval '5 min',
       numrange '[0.8,1.2]', null::interval, interval '14 days', true, 1048576) $$,
  'the defaults are those of the contract');

select is(
  create_queue('own', max_attempts => 1, visibility_timeout => '1 ms', retry_backoff => 'fixed',
    retry_factor => 1, retry_delay => '0', retry_max_delay => '0', retry_jitter => '[1,1]',
    expires_in => '1 day', keep_dead => '0', notify => false, max_payload => 1),
  true, 'the smallest settings are accepted');
select results_eq(
  $$ select max_attempts, visibility_timeout, retry_backoff, retry_factor, retry_delay,
       retry_max_delay, retry_jitter, expires_in, keep_dead, notify, max_payload
     from queues where queue = 'own' $$,
  $$ values (1, interval '1 ms', 'fixed', 1::float8, interval '0', interval '0',
       numrange '[1,1]', interval '1 day', interval '0', false, 1) $$,
  'the settings given are the settings stored');

select is(create_queue(name), true, format('the name %s is valid', left(name, 20)))
from unnest(array['a', repeat('x', 100), 'A.b-c_d:e/f9', 'pgq']) name;

select throws_ok(
  format('select create_queue(%L)', name), '22023', null,
  format('the name %s is refused', coalesce(left(name, 20), 'null')))
from unnest(array[null, '', repeat('x', 101), 'a b', 'a''b', 'a"b', 'a%s', 'é', E'a\n', 'pgq.x']) name;

select throws_ok(
  format('select create_queue(''bad'', %s)', setting), '22023', null, setting || ' is refused')
from unnest(array[
  'max_attempts => 0',
  'visibility_timeout => ''0''',
  'retry_backoff => ''random''',
  'retry_factor => 0.5',
  'retry_delay => ''-1 s''',
  'retry_max_delay => ''-1 s''',
  'retry_jitter => ''[-1,1]''',
  'keep_dead => ''-1 s''',
  'max_payload => 0'
]) setting;
select throws_ok(
  $$ select create_queue('bad', options => '{"colour": 1}') $$, 'JQ005', null,
  'an unknown option is refused');
select is((select count(*) from queues where queue = 'bad'), 0::bigint, 'nothing was half made');

select * from finish();
rollback;
