-- _done_day: the name of the partition of done_job for the day (UTC) of an instant.
--
-- Locks:  none.
-- Raises: nothing.
create or replace function _done_day(instant timestamptz)
returns text
language sql
stable
return 'done_job_' || to_char(instant at time zone 'UTC', 'YYYYMMDD');

comment on function _done_day is 'Name of the partition of done_job for an instant. Private.';
