-- cancel, promote, suspend, resume, reprioritize: each answers in each state, and does as it says.
begin;
set local search_path = pgq_sql, tap, public;
\ir support/clock.sql
select plan(75);
select create_queue('q'), create_queue('kept', keep_done => '1 day');

-- Starts anew with one job in the given state; answers its id.
create function pg_temp.job_that_is(state text) returns bigint language plpgsql as $$
declare
  id bigint;
  token bigint;
begin
  delete from pgq_sql.job;
  select job_id into id
  from pgq_sql.enqueue('q', delay => case when state = 'scheduled' then '1 h'::interval end);
  if state = 'suspended' then
    perform pgq_sql.suspend(id);
  elsif state in ('running', 'retrying', 'lease expired') then
    select c.token into token from pgq_sql.claim('q', 'w') c;
    if state = 'retrying' then
      perform pgq_sql.retry(id, token, 'boom', '1 h');
    elsif state = 'lease expired' then
      update pgq_sql.job set lease_until = pgq_sql._now() - interval '1 s';
    end if;
  elsif state = 'gone' then
    delete from pgq_sql.job;
  end if;
  return id;
end
$$;
-- What a call answers about a job in a state, and the state afterwards.
create function pg_temp.told(call text, state text) returns text language plpgsql as $$
declare
  id constant bigint := pg_temp.job_that_is(state);
  answer text;
begin
  execute format('select pgq_sql.%s', replace(call, ':id', id::text)) into answer;
  return concat_ws(', then ', answer, (select j.state from pgq_sql.get_job(id) j));
end
$$;

select is(
  pg_temp.told(call, state), wanted, format('%s of a job that is %s', call, state))
from (values
  ('cancel(:id)', 'ready', 'cancelled'),
  ('cancel(:id)', 'scheduled', 'cancelled'),
  ('cancel(:id)', 'retrying', 'cancelled'),
  ('cancel(:id)', 'suspended', 'cancelled'),
  ('cancel(:id)', 'running', 'cancelled'),
  ('cancel(:id)', 'lease expired', 'cancelled'),
  ('cancel(:id)', 'gone', 'gone'),
  ('promote(:id)', 'ready', 'ready, then ready'),
  ('promote(:id)', 'scheduled', 'promoted, then ready'),
  ('promote(:id)', 'retrying', 'promoted, then ready'),
  ('promote(:id)', 'suspended', 'suspended, then suspended'),
  ('promote(:id)', 'running', 'running, then running'),
  ('promote(:id)', 'lease expired', 'running, then ready'),
  ('promote(:id)', 'gone', 'gone'),
  ('suspend(:id)', 'ready', 'suspended, then suspended'),
  ('suspend(:id)', 'scheduled', 'suspended, then suspended'),
  ('suspend(:id)', 'retrying', 'suspended, then suspended'),
  ('suspend(:id)', 'suspended', 'suspended, then suspended'),
  ('suspend(:id)', 'running', 'running, then running'),
  ('suspend(:id)', 'lease expired', 'running, then ready'),
  ('suspend(:id)', 'gone', 'gone'),
  ('resume(:id)', 'ready', 'ready, then ready'),
  ('resume(:id)', 'scheduled', 'scheduled, then scheduled'),
  ('resume(:id)', 'retrying', 'scheduled, then scheduled'),
  ('resume(:id)', 'suspended', 'resumed, then ready'),
  ('resume(:id)', 'running', 'running, then running'),
  ('resume(:id)', 'lease expired', 'running, then ready'),
  ('resume(:id)', 'gone', 'gone'),
  ('reprioritize(:id, 5)', 'ready', 'reprioritized, then ready'),
  ('reprioritize(:id, 0)', 'ready', 'ready, then ready'),
  ('reprioritize(:id, 5)', 'scheduled', 'reprioritized, then scheduled'),
  ('reprioritize(:id, 0)', 'scheduled', 'scheduled, then scheduled'),
  ('reprioritize(:id, 5)', 'retrying', 'reprioritized, then scheduled'),
  ('reprioritize(:id, 5)', 'suspended', 'reprioritized, then suspended'),
  ('reprioritize(:id, 0)', 'suspended', 'suspended, then suspended'),
  ('reprioritize(:id, 5)', 'running', 'running, then running'),
  ('reprioritize(:id, 5)', 'lease expired', 'running, then ready'),
  ('reprioritize(:id, 5)', 'gone', 'gone')
) v (call, state, wanted);

select throws_ok(format('select %s', call), '22023', null, call || ' is refused')
from unnest(array[
  'cancel(null)',
  'promote(null)',
  'suspend(null)',
  'resume(null)',
  'reprioritize(null, 1)',
  'reprioritize(1, null)',
  'reprioritize(1, 32768)',
  'reprioritize(1, -32769)'
]) call;

-- cancel
select pg_temp.job_that_is('running') as id \gset
select cancel(:id);
select is(ack(:id, 1), 'gone', 'the ack of a cancelled job');
select is((select outcome from heartbeat(:id, 1)), 'gone', 'its heartbeat');
select is(retry(:id, 1), 'gone', 'its retry');
select is_empty($$ select from dead_jobs $$, 'it is not dead');
select is_empty($$ select from done_jobs $$, 'nor history, if the queue keeps none');
select job_id as id from enqueue('kept', '"a"', headers => '{"h": 1}') \gset
select cancel(:id);
select results_eq(
  format($$ select queue collate "default", state, payload, headers, attempt, result,
       ended_at is not null from get_job(%s) $$, :id),
  $$ values ('kept', 'cancelled', jsonb '"a"', jsonb '{"h": 1}', 0, null::jsonb, true) $$,
  'else it is kept as cancelled');
select is(cancel(:id), 'gone', 'and cannot be cancelled again');

-- promote
select pg_temp.job_that_is('scheduled') as id \gset
select promote(:id);
select is((select job_id from claim('q', 'w')), :id::bigint, 'a promoted job is claimed');
select pg_temp.job_that_is('retrying') as id \gset
select promote(:id);
select results_eq(
  $$ select attempt, last_error from claim('q', 'w') $$, $$ values (2, 'boom') $$,
  'a retry that was promoted is the next attempt');

-- suspend and resume
select pg_temp.job_that_is('scheduled') as id \gset
select run_at as due from get_job(:id) \gset
select suspend(:id);
select is(
  (select run_at from get_job(:id)), :'due'::timestamptz,
  'a suspended job still shows its run time');
select is(next_run_at('q'), null, 'but nobody waits for it');
select set_config('test.ahead', '10 years', true);
select is_empty($$ select from claim('q', 'w') $$, 'it is never claimed');
select sweep();
select is((select state from get_job(:id)), 'suspended', 'nor swept');
select is(resume(:id), 'resumed', 'until it is resumed');
select ok(
  (select run_at between _now() - interval '1 min' and _now() from get_job(:id)),
  'with a fresh run time if the old one is past: claims do not look back');
select is((select job_id from claim('q', 'w')), :id::bigint, 'then it is claimed');
select set_config('test.ahead', '', true);

select pg_temp.job_that_is('scheduled') as id \gset
select run_at as due from get_job(:id) \gset
select suspend(:id);
select resume(:id);
select results_eq(
  format($$ select state, run_at from get_job(%s) $$, :id),
  format($$ values ('scheduled', timestamptz %L) $$, :'due'),
  'a run time to come stands after resume');
select pg_temp.job_that_is('retrying') as id \gset
select suspend(:id);
select is(promote(:id), 'suspended', 'a suspended job is not promoted');
select resume(:id);
select is(promote(:id), 'promoted', 'after resume it is');
select is((select attempt from claim('q', 'w')), 2, 'its attempts have gone on');
delete from job;
select job_id as id from enqueue('q', expires_in => '1 min') \gset
select suspend(:id);
select set_config('test.ahead', '61 s', true);
select sweep();
select is(
  (select reason from get_job(:id)), 'expired', 'expiry counts on while a job is suspended');
select ok((select isfinite(run_at) from dead_jobs where job_id = :id), 'its run time is kept');
select create_queue('kept', keep_done => '1 day');
select job_id as id from enqueue('kept') \gset
select suspend(:id), cancel(:id);
select ok((select isfinite(run_at) from done_jobs where job_id = :id), 'in history too');
select set_config('test.ahead', '', true);

-- reprioritize
delete from job;
select enqueue('q', '"a"');
select job_id as id from enqueue('q', '"b"') \gset
select enqueue('q', '"c"', priority => 7);
select reprioritize(:id, 7);
select results_eq(
  $$ select payload, priority from claim('q', 'w', 10) $$,
  $$ values (jsonb '"c"', 7), ('"b"', 7), ('"a"', 0) $$,
  'the job joins the end of its new priority');
delete from job;
select job_id as id from enqueue('q', delay => '1 h') \gset
select run_at as due from get_job(:id) \gset
select reprioritize(:id, -32768);
select results_eq(
  format($$ select priority, run_at from get_job(%s) $$, :id),
  format($$ values (-32768, timestamptz %L) $$, :'due'), 'a run time to come stands');
select is(promote(:id), 'promoted', 'it can be promoted there');
select is((select priority from claim('q', 'w')), -32768, 'and claimed');
delete from job;
select job_id as id from enqueue('q', delay => '1 h') \gset
select suspend(:id);
select reprioritize(:id, 32767);
select is(resume(:id), 'resumed', 'a suspended job keeps its run time when it moves');
select results_eq(
  format($$ select priority, state from get_job(%s) $$, :id),
  $$ values (32767, 'scheduled') $$, 'and is scheduled there');

select * from finish();
rollback;
