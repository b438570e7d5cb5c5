-- _bury: ends jobs as dead: they become rows of dead_job, or letters in the dead letter queue of
-- their queue.
--
-- Locks:  the rows, which the caller has locked already; a producer's locks in the lanes of dead
--         letter queues (_announce); as _entomb.
-- Raises: nothing: what cannot become a letter becomes a row of dead_job. Claims bury what expired
--         in any queue, so an error here would stop them all.
-- Notes:  errors as in _entomb. The dead letter queue is the one that the queue has now, not when
--         the job was enqueued. A queue that others send letters to cannot be dropped; were it gone
--         all the same, the job would be among the dead.
create or replace function _bury(ids bigint[], reason text, errors text[] default null)
returns bigint
language plpgsql
volatile
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  boxes bigint[] := array[]::bigint[];
  box bigint;
  buried bigint := 0::bigint;
begin
  for box in
    select distinct x.box
    from (
      select (
        select q.dead_letter_queue_id from queue q where q.id = j.lane_id >> 16 and q.current
      ) as box
      from job j where j.id = any (ids)
    ) x
    where x.box is not null
    order by 1
  loop
    perform _announce((box << 16) + 32768);
    boxes := boxes || box;
  end loop;
  if cardinality(boxes) = 0 then
    return _entomb(ids, reason, errors, boxes);
  end if;

  begin
    buried := _entomb(ids, reason, errors, boxes);
  exception when program_limit_exceeded then
    -- Which of them it is, only trying tells.
    if cardinality(ids) = 1 then
      return _entomb(ids, reason, errors, array[]::bigint[]);
    end if;
    for i in 1..cardinality(ids) loop
      buried := buried + _bury(ids[i:i], reason, errors[i:i]);
    end loop;
    return buried;
  end;
  foreach box in array boxes loop
    perform _wake(box);
  end loop;
  return buried;
end
$$;

comment on function _bury is
  'Moves locked jobs to dead_job or into a dead letter queue; answers how many. Private.';
