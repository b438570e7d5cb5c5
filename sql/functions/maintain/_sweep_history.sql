-- _sweep_history: drops the days of done_job that are over, and makes the next ones.
--
-- Locks:  done_job, against readers and writers, until the transaction ends; for new days as
--         _add_done_day; both only if it is to be had at once.
-- Raises: nothing.
-- Notes:  Only sweep does this, which nobody calls in a long transaction: the lock would keep acks
--         waiting that have history to write.
create or replace function _sweep_history()
returns bigint
language plpgsql
volatile
set search_path from current
as $$
declare
  clock constant timestamptz := _now();
  part name;
  dropped bigint := 0::bigint;
begin
  perform _make_days();
  for part in
    select c.relname
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'done_job'::regclass
      and c.relname ~ '^done_job_[0-9]{8,}$'
      and c.relname < _done_day(clock)
    order by c.relname
  loop
    begin
      lock table done_job in access exclusive mode nowait;
      execute format('drop table %I', part);
      dropped := dropped + 1;
    exception when lock_not_available or object_in_use then
      exit;
    end;
  end loop;
  return dropped;
end
$$;

comment on function _sweep_history is
  'Drops days of history that are over, makes the next ones; answers how many went. Private.';
