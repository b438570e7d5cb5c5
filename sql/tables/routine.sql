-- routine: what the functions of this release looked like when they were installed, so that doctor
-- can tell if somebody has changed one since.
create table routine (
  signature text primary key,
  hash text not null
);

comment on table routine is
  'The functions as they were installed. Written by each installation and upgrade, read by doctor.';
comment on column routine.signature is 'Name and argument types.';
comment on column routine.hash is 'MD5 of body and attributes.';
