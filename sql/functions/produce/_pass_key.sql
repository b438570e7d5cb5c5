-- _pass_key: takes a dedup key away from a job that runs, for its successor.
--
-- Locks:  the key's row, until the transaction ends: another producer with this key waits; the job
--         that runs does not (_keep skips it).
-- Raises: nothing.
create or replace function _pass_key(queue_id bigint, key text, holder bigint)
returns boolean
language plpgsql
volatile
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  if not exists (select from job j where j.id = holder) then
    return false;
  end if;
  update dedup d
  set job_id = 0
  where d.queue_id = _pass_key.queue_id and d.key = _pass_key.key collate "C" and d.job_id = holder;
  return found;
end
$$;

comment on function _pass_key is
  'Takes a dedup key from a running job; false if the job or its key has gone meanwhile. Private.';
