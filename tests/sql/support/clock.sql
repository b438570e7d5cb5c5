-- A clock that a test can set forward: select set_config('test.ahead', '31 s', true);
-- It goes with the test's transaction, and is never installed.
create or replace function pgq_sql._now()
returns timestamptz
language plpgsql
volatile
set search_path = pgq_sql, pg_temp
as $$
begin
  return clock_timestamp()
    + coalesce(nullif(current_setting('test.ahead', true), ''), '0')::interval;
end
$$;
