-- _apply_grants: makes the privileges in this schema what access_grant and _capabilities say, and
-- nothing more. Each upgrade ends with it.
--
-- Locks:  access_grant against other writers; catalog rows.
-- Raises: nothing.
-- Notes:  A replaced function keeps its old privileges, and a new one is open to PUBLIC: so all are
--         taken back first, from PUBLIC, from every role that has a capability and from `former`,
--         which has just lost one. Roles that no longer exist are forgotten. Dynamic, because GRANT
--         takes no parameters; the names come from the catalog and are quoted.
create or replace function _apply_grants(former name default null)
returns void
language plpgsql
volatile
set search_path from current
as $$
declare
  here constant oid := (select n.oid from pg_namespace n where n.nspname = current_schema());
  holders text;
  target text;
  given record;
begin
  lock table access_grant in share row exclusive mode;
  delete from access_grant a
  where not exists (select from pg_roles r where r.rolname = a.role_name);
  select concat_ws(', ', 'public', string_agg(distinct quote_ident(h.role), ', ')) into holders
  from (select a.role_name as role from access_grant a union select former) h
  where h.role is not null;

  for target in
    select format('function %s', p.oid::regprocedure)
    from pg_proc p
    where p.pronamespace = here
    union all
    select format('table %s', c.oid::regclass)
    from pg_class c
    where c.relnamespace = here and c.relkind in ('r', 'v')
    union all
    select format('schema %I', current_schema())
  loop
    execute format('revoke all on %s from %s', target, holders);
  end loop;

  for given in
    select distinct a.role_name as role,
      case c.kind when 'view' then format('select on %I', c.name)
        else format('execute on function %I', c.name) end as what
    from access_grant a
    join _capabilities() c on c.capability = a.capability
    union
    select a.role_name, format('usage on schema %I', current_schema()) from access_grant a
  loop
    execute format('grant %s to %I', given.what, given.role);
  end loop;
end
$$;

comment on function _apply_grants is
  'Makes the privileges in this schema what access_grant and _capabilities say. Private; each '
  'upgrade calls it.';
