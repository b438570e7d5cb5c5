-- _take_key: makes a job about to be inserted the holder of a dedup key, or says who holds it.
--
-- Locks:  the key: another transaction that has taken it is waited for. With to_replace the key's
--         row also if a job holds it, before that job: so no two producers replace it at once, and
--         a batch can take all its keys, in order, before it locks a job.
-- Raises: 40001 above READ COMMITTED, if the key was taken since the snapshot.
-- Notes:  Answers null if the key is the caller's now: insert the job and call _give_key. A holder
--         that is gone does not count: its row is taken over.
create or replace function _take_key(queue_id bigint, key text, to_replace boolean)
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
    if to_replace then
      select d.job_id into holder
      from dedup d where d.queue_id = _take_key.queue_id and d.key = _take_key.key collate "C"
      for update;
    else
      select d.job_id into holder
      from dedup d where d.queue_id = _take_key.queue_id and d.key = _take_key.key collate "C";
    end if;
    if found then
      if exists (select from job j where j.id = holder) then
        return holder;
      end if;
      update dedup d
      set job_id = 0
      where d.queue_id = _take_key.queue_id
        and d.key = _take_key.key collate "C"
        and d.job_id = holder;
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
