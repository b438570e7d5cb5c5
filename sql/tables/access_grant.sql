-- access_grant: what grant_access gave, so that an upgrade can give it again to new functions and
-- take it back from those that a capability lost. A regrole follows a renamed role, and is written
-- as a name by pg_dump, so it also survives a restore elsewhere.
create table access_grant (
  role regrole not null,
  capability text not null check (capability in ('producer', 'worker', 'observer', 'admin')),
  primary key (role, capability)
);

comment on table access_grant is
  'Capabilities given to roles. Written by grant_access and revoke_access, applied by '
  '_apply_grants.';
comment on column access_grant.role is 'An existing role.';
comment on column access_grant.capability is 'producer, worker, observer or admin.';
