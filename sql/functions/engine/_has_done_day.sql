-- _has_done_day: whether done_job has the partition for an instant. A temporary table of that name
-- is none.
--
-- Locks:  none.
-- Raises: nothing.
create or replace function _has_done_day(instant timestamptz)
returns boolean
language sql
stable
return to_regclass(
  concat_ws('.', quote_ident(current_schema()), _done_day(instant))) is not null;

comment on function _has_done_day is
  'Whether the partition of done_job for an instant is there. Private.';
