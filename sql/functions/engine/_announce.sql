-- _announce: makes this transaction known as a producer of a lane, and answers a clock reading that
-- is a safe run_at there.
--
-- Locks:  two shared advisory locks, held until the transaction ends: (lane, -1), taken by every
--         open producer of the lane, and (lane, slot), the 100 ms in which this one began.
--         Producers never wait for each other.
-- Raises: nothing.
-- Notes:  Commit order is not run_at order. A job of a transaction that is still open may lie below
--         a mark by the time it commits, and no claim would see it. So marks stop at the first slot
--         whose lock is held (_settled, which computes the same keys). The lock comes first and the
--         clock is read under it; if the slot ended meanwhile, a mark may have passed it already,
--         hence the loop.
--         One slot per transaction and lane is enough, since the oldest holds the mark back. The
--         setting that remembers it is transaction-local: a rolled-back savepoint undoes both.
--         The keys are hashed with the oid of this schema's own table, so that neither another
--         installation nor an application's own locks meet them. Two lanes with one key are
--         harmless: a producer of one then holds back the marks of both.
create or replace function _announce(lane_id bigint)
returns timestamptz
language plpgsql
volatile
set search_path from current
as $$
declare
  lane_key constant integer := hashint8(lane_id # ('lane'::regclass::bigint << 31));
  known constant text := current_setting('pgq_sql.lanes', true);
  clock timestamptz := _now();
  slot timestamptz;
begin
  if known like '%,' || lane_key || ',%' then
    return clock;
  end if;
  loop
    slot := date_bin('100 ms', clock, '2000-01-01 00:00:00+00');
    perform
      pg_advisory_xact_lock_shared(lane_key, -1),
      pg_advisory_xact_lock_shared(
        lane_key, (round(date_part('epoch', slot) * 10)::bigint & 2147483647)::integer),
      set_config('pgq_sql.lanes', concat(known, ',', lane_key, ','), true);
    clock := _now();
    exit when clock >= slot and clock < slot + interval '100 ms';
  end loop;
  return clock;
end
$$;

comment on function _announce is
  'Announces this transaction as a producer of the lane; answers a run_at that no mark has '
  'passed. Private.';
