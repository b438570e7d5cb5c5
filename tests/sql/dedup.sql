-- dedup_key: one live job of a queue has it. `ignore` keeps that job, `replace` puts the new one in
-- its place.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
select plan(78);
select create_queue('q', max_attempts => 3), create_queue('other');

-- What a refused call says in DETAIL.
create function pg_temp.detail_of(call text) returns text language plpgsql as $$
declare
  told text;
begin
  execute call;
  return 'not refused';
exception when others then
  get stacked diagnostics told = pg_exception_detail;
  return sqlstate || ' ' || told;
end
$$;
-- The only job of the queue as one row.
create function pg_temp.only_job() returns setof jobs language sql as
  $$ select * from pgq_sql.jobs where queue = 'q' $$;
-- Starts anew with one job that has the key, in the given state; answers its id.
create function pg_temp.holder(state text) returns bigint language plpgsql as $$
declare
  id bigint;
  token bigint;
begin
  perform pgq_sql.purge_queue('q');
  delete from pgq_sql.job;
  select job_id into id from pgq_sql.enqueue('q', '"old"', dedup_key => 'k', headers => '{"h": 1}',
    delay => case when state = 'scheduled' then '1 h'::interval end);
  if state = 'suspended' then
    perform pgq_sql.suspend(id);
  elsif state in ('running', 'retrying', 'lease expired') then
    select c.token into token from pgq_sql.claim('q', 'w') c;
    if state = 'retrying' then
      perform pgq_sql.retry(id, token, 'boom', '1 h');
    elsif state = 'lease expired' then
      update pgq_sql.job set lease_until = pgq_sql._now() - interval '1 s';
    end if;
  end if;
  return id;
end
$$;

-- ignore
select job_id as first from enqueue('q', '"a"', dedup_key => 'k') \gset
select is((select dedup_key from get_job(:first)), 'k', 'the key shows');
select last_value as ids from job_id_seq \gset
select results_eq(
  $$ select job_id, outcome from enqueue('q', '"b"', priority => 9, dedup_key => 'k') $$,
  format($$ values (%s::bigint, 'existing') $$, :first),
  'ignore is the default: it answers the job that is there');
select results_eq(
  $$ select job_id, outcome from enqueue('q', dedup_key => 'k', dedup_mode => 'ignore') $$,
  format($$ values (%s::bigint, 'existing') $$, :first), 'and so it does by name');
select is((select last_value from job_id_seq), :ids::bigint, 'no id was drawn for it');
select results_eq(
  $$ select payload, priority from pg_temp.only_job() $$, $$ values (jsonb '"a"', 0) $$,
  'the job is as it was');
select is((select outcome from enqueue('q', dedup_key => 'K')), 'inserted', 'keys have a case');
select is(
  (select outcome from enqueue('other', dedup_key => 'k')), 'inserted',
  'keys of two queues never meet');
select is(
  (select outcome from enqueue('q')), 'inserted', 'a job without a key is no concern of it');

create function pg_temp.met(state text) returns text language plpgsql as $$
declare
  id constant bigint := pg_temp.holder(state);
  answer record;
begin
  answer := pgq_sql.enqueue('q', dedup_key => 'k');
  return answer.outcome || case when answer.job_id = id then ', the same' else ', another' end;
end
$$;
select is(pg_temp.met(state), 'existing, the same', 'ignore meets a job that is ' || state)
from unnest(array['ready', 'scheduled', 'suspended', 'retrying', 'running', 'lease expired']) state;

-- replace
select pg_temp.holder('ready') as id \gset
select enqueue('q', '"next"');
select run_at as due from get_job(:id) \gset
select last_value as ids from job_id_seq \gset
select results_eq(
  $$ select job_id, outcome
     from enqueue('q', '"new"', dedup_key => 'k', dedup_mode => 'replace', max_attempts => 7) $$,
  format($$ values (%s::bigint, 'replaced') $$, :id), 'replace keeps the id');
select is((select last_value from job_id_seq), :ids::bigint, 'and draws no other');
select results_eq(
  format($$ select payload, headers, max_attempts, run_at, attempt, state from get_job(%s) $$, :id),
  format($$ values (jsonb '"new"', null::jsonb, 7, timestamptz %L, 0, 'ready') $$, :'due'),
  'contents and options are new, the run time is the old one');
select results_eq(
  $$ select payload from claim('q', 'w', 10) $$, $$ values (jsonb '"new"'), ('"next"') $$,
  'so it keeps its place');

select pg_temp.holder('ready') as id \gset
select run_at as due from get_job(:id) \gset
select is(
  (select outcome from enqueue('q', priority => 3, dedup_key => 'k', dedup_mode => 'replace')),
  'replaced', 'replace with another priority');
select ok(
  (select job_id = :id and priority = 3 and run_at > :'due' from pg_temp.only_job()),
  'the job moves there, to its end');
select is(
  (select outcome from enqueue('q', delay => '1 h', dedup_key => 'k', dedup_mode => 'replace')),
  'replaced', 'replace with a run time');
select results_eq(
  $$ select job_id, state, priority from pg_temp.only_job() $$,
  format($$ values (%s::bigint, 'scheduled', 0) $$, :id), 'the job is due then');

select pg_temp.holder('scheduled') as id \gset
select run_at as due from get_job(:id) \gset
select enqueue('q', '"new"', dedup_key => 'k', dedup_mode => 'replace');
select results_eq(
  $$ select job_id, payload, state, run_at from pg_temp.only_job() $$,
  format($$ values (%s::bigint, jsonb '"new"', 'scheduled', timestamptz %L) $$, :id, :'due'),
  'a scheduled job stays scheduled');
select enqueue('q', delay => '0', dedup_key => 'k', dedup_mode => 'replace');
select is((select job_id from claim('q', 'w')), :id::bigint, 'unless it is to run now');

select pg_temp.holder('suspended') as id \gset
select is(
  (select outcome from enqueue('q', '"new"', dedup_key => 'k', dedup_mode => 'replace')),
  'replaced', 'replace of a suspended job');
select results_eq(
  $$ select job_id, payload, state from pg_temp.only_job() $$,
  format($$ values (%s::bigint, jsonb '"new"', 'suspended') $$, :id), 'it stays suspended');
select is_empty($$ select from claim('q', 'w') $$, 'and is not claimed');
select enqueue('q', delay => '1 h', dedup_key => 'k', dedup_mode => 'replace');
select ok(
  (select state = 'suspended' and run_at > _now() + interval '59 min' from pg_temp.only_job()),
  'also with a run time, which counts from resume on');
select is(resume(:id), 'resumed', 'it can be resumed');
select is((select state from pg_temp.only_job()), 'scheduled', 'and then waits for its run time');

select pg_temp.holder('retrying') as id \gset
select run_at as due from get_job(:id) \gset
select is(
  (select outcome from enqueue('q', '"new"', dedup_key => 'k', dedup_mode => 'replace')),
  'replaced', 'replace of a job that waits for its retry');
select results_eq(
  $$ select job_id, payload, state, run_at, attempt, token, last_error from pg_temp.only_job() $$,
  format($$ values (%s::bigint, jsonb '"new"', 'scheduled', timestamptz %L, 0, 1::bigint,
    null::text) $$,
    :id, :'due'),
  'its attempts begin anew, its token does not');
select enqueue('q', delay => '0', dedup_key => 'k', dedup_mode => 'replace');
select results_eq(
  $$ select attempt, token from claim('q', 'w') $$, $$ values (1, 2::bigint) $$,
  'so the next claim has a higher one');
select is(ack(:id, 1), 'lost', 'and the old lease stays locked out');

select pg_temp.holder('running') as id \gset
select job_id as successor from enqueue('q', '"new"', dedup_key => 'k', dedup_mode => 'replace')
where outcome = 'inserted' \gset
select isnt(:successor::bigint, :id::bigint, 'a running job gets a successor');
select results_eq(
  $$ select payload, state from pg_temp.only_job() order by job_id $$,
  $$ values (jsonb '"old"', 'running'), ('"new"', 'ready') $$, 'and is left alone');
select is(
  (select job_id from enqueue('q', dedup_key => 'k')), :successor::bigint,
  'the successor has the key');
select is(ack(:id, 1), 'acked', 'the running job ends');
select is(
  (select outcome from enqueue('q', dedup_key => 'k')), 'existing',
  'which does not free the key');
select is(
  (select outcome from enqueue('q', dedup_key => 'k', dedup_mode => 'replace')), 'replaced',
  'the successor can be replaced as any job');
select cancel(:successor);
select is(
  (select outcome from enqueue('q', dedup_key => 'k')), 'inserted', 'its end frees the key');

select pg_temp.holder('running') as id \gset
select job_id as successor from enqueue('q', dedup_key => 'k', dedup_mode => 'replace') \gset
select retry(:id, 1, delay => '0');
select is(
  (select outcome from enqueue('q', dedup_key => 'k')), 'existing',
  'a predecessor that comes back does not get its key back');
select is(cancel(:id), 'cancelled', 'it can be cancelled');
select is(
  (select job_id from enqueue('q', dedup_key => 'k')), :successor::bigint,
  'and still the successor has the key');

select pg_temp.holder('lease expired') as id \gset
select is(
  (select outcome from enqueue('q', dedup_key => 'k', dedup_mode => 'replace')), 'inserted',
  'a job whose lease ran out counts as running until it is swept');

-- When the key is free.
create function pg_temp.outcome_after(state text, way text) returns text language plpgsql as $$
declare
  id constant bigint := pg_temp.holder(state);
  left_over boolean;
begin
  execute replace(way, ':id', id::text);
  left_over := exists (select from pgq_sql.dedup d where d.job_id = id);
  return (pgq_sql.enqueue('q', dedup_key => 'k')).outcome
    || case when left_over then ', its row is there' else '' end;
end
$$;
select is(
  pg_temp.outcome_after(state, 'select ' || way), 'inserted', 'the key is free after ' || way)
from (values
  ('running', 'ack(:id, 1)'),
  ('running', 'ack_many(array[:id], array[1])'),
  ('running', 'dead_letter(:id, 1)'),
  ('running', 'cancel(:id)'),
  ('ready', 'cancel(:id)'),
  ('ready', 'pop(''q'')'),
  ('suspended', 'purge_queue(''q'')')
) v (state, way);
select is(
  pg_temp.outcome_after('running', 'update job set attempt = 3; select retry(:id, 1)'), 'inserted',
  'and after the last attempt');
select is(
  pg_temp.outcome_after('ready', 'update job set expires_at = _now(); select sweep()'), 'inserted',
  'and after it has expired');
select is(
  pg_temp.outcome_after('running', 'select release(:id, 1)'), 'existing, its row is there',
  'but not after release');
select is(
  pg_temp.outcome_after('running', 'select retry(:id, 1)'), 'existing, its row is there',
  'nor after retry');
select pg_temp.holder('running') as id \gset
select dead_letter(:id, 1);
select redrive(array[:id]);
select is((select dedup_key from pg_temp.only_job()), null, 'a redriven job has no key');

-- A row whose job is gone.
insert into dedup (queue_id, key, job_id) select id, 'stale', 0 from queue where name = 'q';
select is((select outcome from enqueue('q', dedup_key => 'stale')), 'inserted',
  'a key whose holder is gone is taken over');
select is((select outcome from enqueue('q', dedup_key => 'stale')), 'existing', 'once');
savepoint before;
select enqueue('q', dedup_key => 'undone');
rollback to before;
select is((select outcome from enqueue('q', dedup_key => 'undone')), 'inserted',
  'a job that was rolled back has no key');

-- What is refused.
select throws_ok(
  format('select enqueue(''q'', %s)', argument), '22023', null, argument || ' is refused')
from unnest(array[
  'dedup_key => ''''',
  'dedup_key => repeat(''ä'', 501)',
  'dedup_key => ''k'', dedup_mode => ''merge''',
  'dedup_mode => ''replace'''
]) argument;
select lives_ok(
  $$ select enqueue('q', dedup_key => repeat('ä', 500)) $$, 'a key may have 1000 bytes');

-- enqueue_many
delete from job;
select job_id as id from enqueue('q', '"there"', dedup_key => 'b') \gset
select last_value as ids from job_id_seq \gset
select results_eq(
  $$ select ordinal, outcome, job_id = (select j.job_id from jobs j where j.dedup_key = 'b')
     from enqueue_many('q', array['1', '2', '3', '4', '5']::jsonb[],
       dedup_keys => array['a', 'b', null, 'a', null], priorities => array[1, 2, 3, 4, null]) $$,
  $$ values (1::bigint, 'inserted', false), (2, 'existing', true), (3, 'inserted', false),
       (4, 'existing', false), (5, 'inserted', false) $$,
  'each item has its own outcome, in input order; the first of two equal keys counts');
select is(
  (select last_value from job_id_seq), :ids + 3::bigint,
  'only what was inserted has drawn an id');
select results_eq(
  $$ select payload, priority, dedup_key collate "default" from pg_temp.only_job()
     order by job_id $$,
  $$ values (jsonb '"there"', 0, 'b'), ('1', 1, 'a'), ('3', 3, null), ('5', 0, null) $$,
  'that is what is there');
select results_eq(
  $$ select ordinal, outcome
     from enqueue_many('q', array['6', '7', '8']::jsonb[], dedup_keys => array['b', 'c', 'c'],
       dedup_mode => 'replace', headers => array[null, null, '{"h": 8}']::jsonb[]) $$,
  $$ values (1::bigint, 'replaced'), (2, 'inserted'), (3, 'replaced') $$,
  'replace: the last of two equal keys counts');
select results_eq(
  $$ select dedup_key collate "default", payload, headers from pg_temp.only_job()
     where dedup_key in ('b', 'c') order by dedup_key $$,
  $$ values ('b', jsonb '6', null::jsonb), ('c', '8', '{"h": 8}') $$, 'with its contents');
select is(
  pg_temp.detail_of($$ select enqueue_many('q', array['1', '2']::jsonb[],
    dedup_keys => array['x', '']) $$),
  '22023 item 2: 0 bytes', 'the item with a bad key is named');
select is(
  pg_temp.detail_of($$ select enqueue_many('q', array['1', '2']::jsonb[],
    dedup_keys => array['x', 'y'], priorities => array[1, 40000]) $$),
  '22023 item 2: priority = 40000', 'and one that is bad otherwise');
select throws_ok(format('select enqueue_many(''q'', array[''1'']::jsonb[], %s)', argument),
  '22023', null, argument || ' is refused')
from unnest(array[
  'dedup_keys => array[''x'', ''y'']',
  'dedup_keys => array[''x''], dedup_mode => ''merge''',
  'dedup_keys => array[null], dedup_mode => ''merge''',
  'dedup_mode => ''replace'''
]) argument;
select is(
  (select count(*) from dedup where key in ('x', 'y')), 0::bigint, 'nothing is left of them');

-- A job that has waited keeps its place, but its expiry counts from now.
select enqueue('q', '"first"', dedup_key => 'waited');
select set_config('test.ahead', '1 hour', true);
select enqueue('q', '"second"', dedup_key => 'waited', dedup_mode => 'replace',
  expires_in => '1 minute');
select sweep();
select is((select count(*) from jobs where payload = '"second"'), 1::bigint,
  'a replaced job does not expire at once');

select * from finish();
rollback;
