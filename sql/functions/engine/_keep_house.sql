-- _keep_house: the housekeeping that claims do: bounded, and by each session once a second unless a
-- lane is due. It sees to the lanes that had work since their last sweep, and what is due anyway.
--
-- Locks:  an advisory lock on (queue, second) until the transaction ends, so that one caller at a
--         time does it, and a caller that stays open holds up only its own second.
-- Raises: nothing.
-- Notes:  Marks first: the sweep looks below them. So a job whose claimant died comes back with the
--         first claim after its lease, however long nobody has claimed. The session remembers, for
--         each queue, when it last tried. So an idle queue is looked after too, at the cost of a
--         few index probes a second, and writes nothing.
create or replace function _keep_house(queue_id bigint, clock timestamptz)
returns void
language plpgsql
volatile
set search_path from current
as $$
begin
  perform set_config(
    concat('pgq_sql.tended_', 'queue'::regclass::oid, '_', queue_id),
    date_trunc('second', clock)::text, false);
  if pg_try_advisory_xact_lock(
    hashint8(queue_id # ('mark'::regclass::bigint << 31)),
    (date_part('epoch', clock)::bigint & 2147483647)::integer)
  then
    perform _advance_marks(queue_id);
    perform _sweep_queue(queue_id, 1000);
  end if;
end
$$;

comment on function _keep_house is 'Bounded sweep of one queue, by one caller at a time. Private.';
