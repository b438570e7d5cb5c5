-- _dims: array_dims that tells an empty array from none: '[1:]' against null.
--
-- Locks:  none.
-- Raises: nothing.
create or replace function _dims(items anyarray)
returns text
language plpgsql
immutable
set search_path from current
as $$
begin
  return case when items is not null then coalesce(array_dims(items), '[1:]') end;
end
$$;

comment on function _dims is 'Dimensions of an array, ''[1:]'' for an empty one. Private.';
