-- _check_access: refuses a capability or role that is not there.
--
-- Locks:  none.
-- Raises: 22023.
-- Notes:  current_user is the owner here: the callers are SECURITY DEFINER.
create or replace function _check_access(role name, capability text)
returns void
language plpgsql
stable
set search_path from current
as $$
begin
  if role is null or capability is null then
    raise exception 'role and capability must not be null' using errcode = '22023';
  end if;
  if capability not in ('producer', 'worker', 'observer', 'admin') then
    raise exception 'no such capability'
      using errcode = '22023',
        detail = format('capability "%s"', left(capability, 200)),
        hint = 'It is producer, worker, observer or admin.';
  end if;
  if not exists (select from pg_roles r where r.rolname = role) then
    raise exception 'no such role'
      using errcode = '22023',
        detail = format('role "%s"', role),
        hint = 'Make it with CREATE ROLE first; names are case-sensitive here.';
  end if;
  if role = current_user then
    raise exception 'the owner may do everything already'
      using errcode = '22023', detail = format('role "%s"', role);
  end if;
end
$$;

comment on function _check_access is 'Refuses an unknown capability or role (22023). Private.';
