-- _later: instant plus duration, infinity where that is past the last instant PostgreSQL knows.
--
-- Locks:  none.
-- Raises: nothing.
create or replace function _later(instant timestamptz, duration interval)
returns timestamptz
language plpgsql
immutable
set search_path from current
as $$
begin
  if duration is null then
    return null;
  end if;
  if duration > timestamptz '294276-12-31 00:00:00+00' - instant then
    return timestamptz 'infinity';
  end if;
  return instant + duration;
end
$$;

comment on function _later is
  'instant + duration, saturating at infinity; null for a null duration. Private.';
