-- schema_version: the release this schema is at.
--
-- Locks:  none.
-- Raises: nothing.
-- Notes:  What the functions are, not what the ledger says: the two are installed together. Not
--         called version: an unqualified name would always mean PostgreSQL's own.
create or replace function schema_version()
returns text
language plpgsql
immutable
security definer
set search_path from current
as $$
begin
  return '0001';
end
$$;

comment on function schema_version is 'Release of this schema, such as 0001.';
