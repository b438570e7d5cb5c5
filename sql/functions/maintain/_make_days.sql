-- _make_days: makes the days of done_job that the next jobs of a queue (null: of all) will need, so
-- that no ack has to make one.
--
-- Locks:  as _add_done_day, only if it is to be had at once.
-- Raises: nothing.
-- Notes:  Somebody else may be making a day, or this very session may be reading history: then the
--         next call does it.
create or replace function _make_days(queue_id bigint default null)
returns void
language plpgsql
volatile
set search_path from current
as $$
declare
  clock constant timestamptz := _now();
  day timestamptz;
begin
  for day in
    select distinct clock + q.keep_done + e.early
    from queue q
    cross join (values (interval '0'), (interval '24 hours')) e (early)
    where q.current
      and q.id = coalesce(_make_days.queue_id, q.id)
      and isfinite(clock + q.keep_done)
      and not _has_done_day(clock + q.keep_done + e.early)
  loop
    lock table done_job in share update exclusive mode nowait;
    perform _add_done_day(day);
  end loop;
exception when lock_not_available or object_in_use then
  null;
end
$$;

comment on function _make_days is
  'Makes the partitions of done_job for today''s and tomorrow''s finished jobs. Private.';
