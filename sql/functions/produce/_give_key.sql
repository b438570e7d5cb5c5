-- _give_key: enters the job that holds a dedup key.
--
-- Locks:  the key's row.
-- Raises: nothing.
create or replace function _give_key(queue_id bigint, key text, job_id bigint)
returns void
language plpgsql
volatile
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  update dedup d
  set job_id = _give_key.job_id
  where d.queue_id = _give_key.queue_id and d.key = _give_key.key collate "C";
end
$$;

comment on function _give_key is 'Enters the holder of a dedup key. Private.';
