-- _routines: the functions as they are now: signature, and a hash of body and attributes.
--
-- Locks:  none.
-- Raises: nothing.
-- Notes:  A body in SQL is stored as a tree that each version of PostgreSQL writes in its own way:
--         of those only the attributes count.
create or replace function _routines()
returns setof routine
language plpgsql
stable
set search_path from current
set quote_all_identifiers = off
as $$
begin
  return query
  select p.oid::regprocedure::text,
    md5(concat_ws('|', p.prosrc, p.prosecdef, p.provolatile, p.proconfig))
  from pg_proc p
  where p.pronamespace = (
    select c.relnamespace from pg_class c where c.oid = 'routine'::regclass);
end
$$;

comment on function _routines is 'The functions as they are now, hashed. Private.';
