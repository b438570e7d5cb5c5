-- _now: the one clock. Leases, due times and marks compare with nothing else, so tests can replace
-- this function and thereby move time.
--
-- Locks:  none.
-- Raises: nothing.
-- Notes:  clock_timestamp, not now(): now() stands still in a long transaction, and a lease counted
--         from it would be short by the transaction's age.
--         In SQL, parsed when it is created: callers inline it, and no search_path can touch it.
create or replace function _now()
returns timestamptz
language sql
volatile
return clock_timestamp();

comment on function _now is 'Database clock: the only one that decides anything. Private.';
