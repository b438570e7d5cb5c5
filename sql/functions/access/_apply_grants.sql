-- _apply_grants: makes the privileges in this schema what access_grant and _capabilities say, and
-- nothing more. Each upgrade ends with it (_finish_release).
--
-- Locks:  access_grant against other writers; catalog rows.
-- Raises: nothing.
-- Notes:  A replaced function keeps its old privileges, a new one is open to PUBLIC, and default
--         privileges may have opened it to others: so everything is first taken back from everyone
--         but the owner, and from those they passed it on to. Roles that no longer exist are
--         forgotten. Dynamic, because GRANT takes no parameters; the names come from the catalog
--         and are quoted.
create or replace function _apply_grants()
returns void
language plpgsql
volatile
set search_path from current
as $$
declare
  here constant oid := (select n.oid from pg_namespace n where n.nspname = current_schema());
  statement text;
begin
  lock table access_grant in share row exclusive mode;
  delete from access_grant a where not exists (select from pg_roles r where r.oid = a.role);

  for statement in
    select format('revoke all on %s from %s cascade', o.name,
      case g.grantee when 0 then 'public' else g.grantee::regrole::text end) as statement
    from (
      select format('function %s', p.oid::regprocedure) as name, p.proowner as owner,
        coalesce(p.proacl, acldefault('f', p.proowner)) as acl
      from pg_proc p where p.pronamespace = here
      union all
      select format('%s %s',
          case c.relkind when 'S' then 'sequence' else 'table' end, c.oid::regclass),
        c.relowner, c.relacl
      from pg_class c where c.relnamespace = here and c.relkind in ('r', 'p', 'v', 'S')
      union all
      select format('schema %I', n.nspname), n.nspowner, n.nspacl
      from pg_namespace n where n.oid = here
    ) o
    cross join lateral (select distinct x.grantee from aclexplode(o.acl) x) g
    where g.grantee <> o.owner
    union all
    select distinct
      case c.kind when 'view' then format('grant select on %I to %s', c.name, a.role)
        else format('grant execute on function %I to %s', c.name, a.role) end
    from access_grant a
    join _capabilities() c on c.capability = a.capability
    union all
    select distinct format('grant usage on schema %I to %s', current_schema(), a.role)
    from access_grant a
    order by 1 desc  -- revoke, then grant
  loop
    execute statement;
  end loop;
end
$$;

comment on function _apply_grants is
  'Makes the privileges in this schema what access_grant and _capabilities say. Private; '
  '_finish_release calls it.';
