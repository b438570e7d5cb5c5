-- grant_access: gives a role a capability: the functions and views that _capabilities lists for it.
--
-- Locks:  as _apply_grants.
-- Raises: 22023 for nulls, an unknown capability, a role that does not exist, and the owner;
--         25001 if the transaction is not READ COMMITTED: what others have revoked would come back.
-- Notes:  Recorded, and applied again by each upgrade. Only the owner may call this.
create or replace function grant_access(role name, capability text)
returns void
language plpgsql
volatile
security definer
set search_path from current
as $$
begin
  perform _need_read_committed('grant_access');
  perform _check_access(role, capability);
  lock table access_grant in share row exclusive mode;
  insert into access_grant (role, capability)
  select r.oid, grant_access.capability from pg_roles r where r.rolname = grant_access.role
  on conflict do nothing;
  perform _apply_grants();
end
$$;

comment on function grant_access is
  'Gives an existing role a capability: producer (enqueue), worker (claim, settle, sweep), '
  'observer (look) or admin (queues, single jobs, dead letters, sweep, look). A role may have '
  'several. Owner only. Errors: 22023, 25001 (not READ COMMITTED).';
