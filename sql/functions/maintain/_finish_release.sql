-- _finish_release: what each installation, upgrade and downgrade ends with.
--
-- Locks:  as _apply_grants.
-- Raises: nothing.
create or replace function _finish_release()
returns void
language plpgsql
volatile
set search_path from current
as $$
begin
  perform _apply_grants();
  delete from routine r;
  insert into routine (signature, hash) select r.signature, r.hash from _routines() r;
end
$$;

comment on function _finish_release is
  'Gives recorded access again, and remembers the functions for doctor. Private; each upgrade '
  'calls it.';
