-- _announce: makes this transaction known as a producer of a lane, and answers a clock reading that
-- is a safe run_at there.
--
-- Locks:  two shared advisory locks, held until the transaction ends: one on the lane, which every
--         open producer of it holds, and one on (lane, slot), the 100 ms in which this one began.
--         Producers never wait for each other.
-- Raises: nothing.
-- Notes:  Commit order is not run_at order. A job of a transaction that is still open may lie below
--         a mark by the time it commits, and no claim would see it. So marks stop at the first slot
--         whose lock is held (_settled). The lock comes first and the clock is read under it; if
--         the slot ended meanwhile, a mark may have passed it already, hence the loop.
--         One slot per transaction and lane is enough, since the oldest holds the mark back. The
--         setting that remembers it is transaction-local: a rolled-back savepoint undoes both.
--         enqueue does the same in its one statement for a transaction that is still in its first
--         slot: there the slot of now() is the one slot, and nothing need be remembered.
create or replace function _announce(lane_id bigint)
returns timestamptz
language plpgsql
volatile
set search_path from current
as $$
declare
  lane_key constant bigint := _lane_key(lane_id);
  known constant text := current_setting('pgq_sql.lanes', true);
  clock timestamptz := _now();
  slot timestamptz;
begin
  if known like '%,' || lane_key || ',%' then
    return clock;
  end if;
  loop
    slot := _slot(clock);
    perform
      pg_advisory_xact_lock_shared(lane_key),
      pg_advisory_xact_lock_shared(_slot_key(lane_id, slot)),
      set_config('pgq_sql.lanes', concat(known, ',', lane_key, ','), true);
    clock := _now();
    exit when _slot(clock) = slot;
  end loop;
  return clock;
end
$$;

comment on function _announce is
  'Announces this transaction as a producer of the lane; answers a run_at that no mark has '
  'passed. Private.';
