-- revoke_access: takes a capability back from a role.
--
-- Locks:  as _apply_grants.
-- Raises: 22023 for nulls, an unknown capability, a role that does not exist, and the owner;
--         25001 if the transaction is not READ COMMITTED: what others have revoked would come back.
-- Notes:  With its last capability the role also loses the use of the schema, and can be dropped.
--         Only the owner may call this.
create or replace function revoke_access(role name, capability text)
returns void
language plpgsql
volatile
security definer
set search_path from current
as $$
begin
  perform _need_read_committed('revoke_access');
  perform _check_access(role, capability);
  lock table access_grant in share row exclusive mode;
  delete from access_grant a
  using pg_roles r
  where r.rolname = revoke_access.role
    and a.role = r.oid
    and a.capability = revoke_access.capability;
  perform _apply_grants();
end
$$;

comment on function revoke_access is
  'Takes a capability back from a role; nothing happens if it had it not. Owner only. Errors: '
  '22023, 25001 (not READ COMMITTED).';
