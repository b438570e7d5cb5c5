-- _sweep_history: drops the days of done_job that are over, and makes the next ones.
--
-- Locks:  done_job, against readers and writers, only if it is to be had at once, until the
--         transaction ends; for new days as _add_done_day.
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
  keep interval;
  part name;
  dropped bigint := 0::bigint;
begin
  for keep in
    select distinct q.keep_done from queue q where q.current and q.keep_done is not null
  loop
    perform _add_done_day(clock + keep), _add_done_day(clock + keep + interval '24 hours');
  end loop;
  for part in
    select c.relname
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'done_job'::regclass
      and c.relname ~ '^done_job_\d{8,}$'
      and c.relname < _done_day(clock)
    order by c.relname
  loop
    begin
      lock table done_job in access exclusive mode nowait;
      execute format('drop table %I', part);
      dropped := dropped + 1;
    exception when lock_not_available then
      exit;
    end;
  end loop;
  return dropped;
end
$$;

comment on function _sweep_history is
  'Drops days of history that are over, makes the next ones; answers how many went. Private.';
