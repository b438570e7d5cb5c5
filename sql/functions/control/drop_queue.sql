-- drop_queue: removes a queue, with force also its live jobs, running ones included.
--
-- Locks:  as _change_queues; its rows of dedup, by key; with force the rows of its jobs, in id
--         order; then its rows of lane and mark.
-- Raises: JQ001 no such queue; JQ004 it has jobs, or is the dead letter queue of another; 22023 for
--         nulls; 25001 if the transaction is not READ COMMITTED.
-- Notes:  Dead and done jobs stay for as long as its settings said. What a producer commits that
--         was open meanwhile belongs to no queue any more: sweep puts it among the dead, reason
--         'queue dropped'. The old settings stay in table queue, for these rows.
create or replace function drop_queue(queue text, force boolean default false)
returns bigint
language plpgsql
volatile
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  target queue;
  other text;
  dropped bigint := 0::bigint;
begin
  if force is null then
    raise exception 'force must not be null' using errcode = '22023';
  end if;
  perform _change_queues(linking => true);
  target := _find_queue(queue);
  select q.name into other from queue q where q.dead_letter_queue_id = target.id and q.current;
  if found then
    raise exception 'the queue takes the dead letters of another'
      using errcode = 'JQ004',
        detail = format('queue "%s", dead letters of "%s"', queue, other),
        hint = 'Give that one another dead_letter_queue with alter_queue first.';
  end if;
  if not force and exists (
    select from job j
    where j.lane_id between target.id << 16 and (target.id << 16) + 65535 and j.lane_id > 0)
  then
    raise exception 'the queue has jobs'
      using errcode = 'JQ004',
        detail = format('queue "%s"', queue),
        hint = 'Let them finish, or drop it with force => true.';
  end if;
  update queue q set current = false where q.version = target.version;
  delete from dedup d where d.queue_id = target.id;
  if force then
    delete from job j
    where j.id = any (array(
      select x.id
      from job x
      where x.lane_id between target.id << 16 and (target.id << 16) + 65535 and x.lane_id > 0
      order by x.id
      for update
    ));
    get diagnostics dropped = row_count;
  end if;
  delete from lane l where l.id between target.id << 16 and (target.id << 16) + 65535;
  delete from mark m where m.lane_id between target.id << 16 and (target.id << 16) + 65535;
  return dropped;
end
$$;

comment on function drop_queue is
  'Removes a queue. With force its live jobs go too, running ones included; without, it must have '
  'none. Dead and done jobs stay for their time. Answers how many jobs went. Errors: JQ001, '
  'JQ004, 22023; 25001 above READ COMMITTED.';
