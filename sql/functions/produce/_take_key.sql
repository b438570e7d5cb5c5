-- _take_key: makes a job about to be inserted the holder of a dedup key, or says who holds it.
--
-- Locks:  the key: another transaction that has taken it is waited for.
-- Raises: nothing.
-- Notes:  Answers null if the key is the caller's now: insert the job and call _give_key. A holder
--         that is gone does not count: its row is taken over.
create or replace function _take_key(queue_id bigint, key text)
returns bigint
language plpgsql
volatile
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  holder bigint;
begin
  loop
    insert into dedup (queue_id, key, job_id) values (_take_key.queue_id, _take_key.key, 0)
    on conflict do nothing;
    if found then
      return null;
    end if;
    select d.job_id into holder
    from dedup d where d.queue_id = _take_key.queue_id and d.key = _take_key.key;
    if found then
      if exists (select from job j where j.id = holder) then
        return holder;
      end if;
      update dedup d
      set job_id = 0
      where d.queue_id = _take_key.queue_id and d.key = _take_key.key and d.job_id = holder;
      if found then
        return null;
      end if;
    end if;
  end loop;
end
$$;

comment on function _take_key is
  'Takes a dedup key of a queue: null if the caller has it now, else the live job that holds it. '
  'Private.';
