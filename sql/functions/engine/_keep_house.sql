-- _keep_house: the housekeeping that claims do: new marks every 50 ms, and sweeps, bounded, once a
-- second or when a lane is due.
--
-- Locks:  for the sweep an advisory lock on (queue, second) until the transaction ends, so that one
--         caller at a time does it, and a caller that stays open holds up only its own second.
-- Raises: nothing.
-- Notes:  Marks first: the sweep looks below them. So a job whose claimant died comes back with the
--         first claim after its lease, however long nobody has claimed. Each session remembers for
--         itself when it last tried (_tended); an idle queue is looked after too, at the cost of a
--         few index probes, and writes nothing.
--         Only under READ COMMITTED: an old snapshot would write marks past jobs that it does not
--         see. Other callers need somebody else to claim, or to call sweep.
create or replace function _keep_house(queue_id bigint)
returns void
language plpgsql
volatile
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  clock constant timestamptz := _now();
  before constant double precision := _tended(queue_id);
  until constant double precision := date_part('epoch', clock) + 0.05;
begin
  perform set_config(
    concat('pgq_sql.tended_', 'queue'::regclass::oid, '_', queue_id), until::text, false);
  if current_setting('transaction_isolation') <> 'read committed' then
    return;
  end if;
  perform _advance_marks(queue_id);
  if (floor(before) <> floor(until) or exists (
      select
      from lane l
      cross join lateral (
        select k.head, k.head_id, k.tail, k.tail_id, k.sweep_at
        from mark k where k.lane_id = l.id order by k.seq desc limit 1
      ) m
      where l.id between _keep_house.queue_id << 16 and (_keep_house.queue_id << 16) + 65535
        and (m.tail, m.tail_id) < (m.head, m.head_id)
        and not m.sweep_at between clock and clock + interval '1 hour'))
    and pg_try_advisory_xact_lock(
      hashfloat8extended(floor(until), queue_id # ('mark'::regclass::bigint << 31)))
  then
    perform _sweep_queue(queue_id, 1000);
  end if;
end
$$;

comment on function _keep_house is
  'New marks and a bounded sweep of one queue, by one caller at a time. Private.';
