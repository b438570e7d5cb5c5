-- grant_access, revoke_access: each capability may do what the matrix says, and nothing else.
begin;
set local search_path = pgq_sql, tap, public;
create role "pgq test Producer";
create role pgq_test_worker;
create role pgq_test_observer;
create role pgq_test_admin;
create role pgq_test_stranger;
select plan(28 + (select count(*) * 5 from _capabilities())::int);
select create_queue('q');

select grant_access('pgq test Producer', 'producer');
select grant_access('pgq_test_worker', 'worker');
select grant_access('pgq_test_observer', 'observer');
select grant_access('pgq_test_admin', 'admin');
select grant_access('pgq_test_admin', 'admin');

create function pg_temp.may(role name, object name, kind text) returns boolean language sql as $$
  select case kind
    when 'view' then has_table_privilege(role, format('pgq_sql.%I', object), 'select')
    else has_function_privilege(role, p.oid, 'execute') end
  from (select oid from pg_proc
        where proname = object and pronamespace = 'pgq_sql'::regnamespace
        union all select 0 where kind = 'view') p
$$;
select is(
  pg_temp.may(r.role, c.name, c.kind),
  exists (select from _capabilities() x where x.name = c.name and x.capability = r.capability),
  format('%s: %s %s', r.capability, c.kind, c.name))
from _capabilities() c,
  (values ('pgq test Producer'::name, 'producer'), ('pgq_test_worker', 'worker'),
    ('pgq_test_observer', 'observer'), ('pgq_test_admin', 'admin'),
    ('pgq_test_stranger', 'none')) r (role, capability);

-- Nobody reaches a table.
select is_empty(
  format($$ select c.relname from pg_class c
    where c.relnamespace = 'pgq_sql'::regnamespace and c.relkind in ('r', 'S')
      and (has_table_privilege(%L, c.oid, 'select, insert, update, delete, truncate')) $$, role),
  role || ' reaches no table')
from unnest(array['pgq test Producer', 'pgq_test_worker', 'pgq_test_observer', 'pgq_test_admin',
  'pgq_test_stranger']) role;

-- What it means.
create table public.orders (id int);
create function public.order_placed() returns trigger language plpgsql as $$
begin
  perform pgq_sql.enqueue('q', jsonb_build_object('order', new.id));
  return null;
end $$;
create trigger placed after insert on public.orders
  for each row execute function public.order_placed();
grant insert on public.orders to "pgq test Producer";
set local role "pgq test Producer";
set local search_path = public;
insert into orders values (7);
reset role;
set local search_path = pgq_sql, tap, public;
select is((select payload from jobs), '{"order": 7}', 'a producer''s trigger enqueues');

-- A query run as a role, from a session that may look at the result.
create function pg_temp.as_role(role name, query text) returns text language plpgsql as $$
begin
  execute format('set local role %I', role);
  execute query;
  reset role;
  return 'done';
exception when others then
  return sqlstate;
end $$;
select is(pg_temp.as_role(role, query), answer, format('%s: %s', role, query))
from (values
  ('pgq test Producer', 'select pgq_sql.enqueue(''q'')', 'done'),
  ('pgq test Producer', 'select pgq_sql.claim(''q'', ''w'')', '42501'),
  ('pgq test Producer', 'select * from pgq_sql.jobs', '42501'),
  ('pgq_test_worker', 'select pgq_sql.claim(''q'', ''w'')', 'done'),
  ('pgq_test_worker', 'select pgq_sql.create_queue(''x'')', '42501'),
  ('pgq_test_worker', 'select pgq_sql.enqueue(''q'')', '42501'),
  ('pgq_test_observer', 'select * from pgq_sql.jobs', 'done'),
  ('pgq_test_observer', 'select * from pgq_sql.job', '42501'),
  ('pgq_test_observer', 'select pgq_sql.sweep()', '42501'),
  ('pgq_test_admin', 'select pgq_sql.create_queue(''x'')', 'done'),
  ('pgq_test_admin', 'select pgq_sql.grant_access(''pgq_test_admin'', ''worker'')', '42501'),
  ('pgq_test_stranger', 'select pgq_sql.schema_version()', '42501')
) v (role, query, answer);

select throws_ok(
  $$ select grant_access('pgq_test_worker', 'god') $$, '22023', null, 'unknown capability');
select throws_ok(
  $$ select grant_access('pgq no such role', 'worker') $$, '22023', null, 'unknown role');

select revoke_access('pgq_test_worker', 'worker');
select revoke_access('pgq_test_worker', 'worker');
select is(pg_temp.as_role('pgq_test_worker', 'select pgq_sql.claim(''q'', ''w'')'), '42501',
  'what is revoked is gone');
select lives_ok('drop role pgq_test_worker', 'and the role can be dropped');
select ok(
  has_function_privilege('pgq_test_admin', 'pgq_sql.sweep(int)', 'execute'), 'others keep theirs');

select throws_ok(
  $$ select grant_access(pg_get_userbyid(nspowner), 'worker') from pg_namespace
     where nspname = 'pgq_sql' $$, '22023', null, 'the owner needs no capability');

-- Whatever came in by another door goes with the next change.
grant usage on schema pgq_sql to pgq_test_stranger;
grant execute on function pgq_sql.ack to pgq_test_stranger;
grant select on pgq_sql.job to pgq_test_stranger;
select grant_access('pgq_test_admin', 'observer');
select is(
  pg_temp.as_role('pgq_test_stranger', 'select pgq_sql.ack(1, 1)'), '42501',
  'a grant that is not recorded is taken back');
select is(
  has_table_privilege('pgq_test_stranger', 'pgq_sql.job', 'select'), false, 'from tables too');

alter role pgq_test_observer rename to pgq_test_watcher;
select grant_access('pgq_test_admin', 'producer');
select is(
  pg_temp.as_role('pgq_test_watcher', 'select * from pgq_sql.jobs'), 'done',
  'a capability follows a renamed role');
drop owned by pgq_test_watcher;
drop role pgq_test_watcher;
create role pgq_test_watcher;
select grant_access('pgq_test_admin', 'worker');
select is(
  pg_temp.as_role('pgq_test_watcher', 'select * from pgq_sql.jobs'), '42501',
  'and does not go to another of that name');

select * from finish();
rollback;
