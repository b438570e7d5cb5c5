-- access_grant: what grant_access gave, so that an upgrade can give it again to new functions and
-- take it back from those that a capability lost. By name: names survive a dump and restore.
create table access_grant (
  role_name name not null,
  capability text not null check (capability in ('producer', 'worker', 'observer', 'admin')),
  primary key (role_name, capability)
);

comment on table access_grant is
  'Capabilities given to roles. Written by grant_access and revoke_access, applied by '
  '_apply_grants.';
comment on column access_grant.role_name is 'An existing role.';
comment on column access_grant.capability is 'producer, worker, observer or admin.';
