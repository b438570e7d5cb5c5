-- _add_done_day: makes the partition of done_job for a day (UTC), unless it is there.
--
-- Locks:  done_job against others who make one, until the transaction ends; not against anybody who
--         reads or writes history.
-- Raises: 55006 from PostgreSQL, if a query of the same session is reading done_job meanwhile.
-- Notes:  Made as a table of its own and then attached: `create table ... partition of` would lock
--         out all readers and writers. Sweeps make tomorrow's in time (_make_days), so that no ack
--         need do it. The bounds are written as text, which other date styles read back wrongly.
create or replace function _add_done_day(instant timestamptz)
returns void
language plpgsql
volatile
set search_path from current
set datestyle = 'ISO'
as $$
declare
  opens constant timestamptz := date_trunc('day', instant, 'UTC');
  part constant text := _done_day(instant);
  grantee oid;
begin
  if _has_done_day(instant) or not isfinite(instant) then
    return;
  end if;
  lock table done_job in share update exclusive mode;
  if _has_done_day(instant) then
    return;
  end if;
  execute format('create table %I (like done_job including all)', part);
  -- What default privileges gave, only grant_access may give.
  for grantee in
    select distinct g.grantee
    from pg_class c
    cross join lateral aclexplode(c.relacl) g
    where c.oid = part::regclass and g.grantee <> c.relowner
  loop
    execute format('revoke all on %I from %s', part,
      case grantee when 0 then 'public' else grantee::regrole::text end);
  end loop;
  execute format('alter table done_job attach partition %I for values from (%L) to (%L)',
    part, opens, opens + interval '24 hours');
end
$$;

comment on function _add_done_day is
  'Makes the partition of done_job that an instant belongs to, unless it is there. Private.';
