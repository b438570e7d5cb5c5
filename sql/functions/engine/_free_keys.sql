-- _free_keys: lets go of the dedup keys that jobs held which have been removed; null for none.
--
-- Locks:  rows of dedup, skipping those that a producer is passing on to a successor.
-- Raises: nothing.
create or replace function _free_keys(held dedup[])
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
  if cardinality(held) > 0 then
    delete from dedup d
    where d.ctid = any (array(
      select x.ctid
      from unnest(held) h
      cross join lateral (
        select k.ctid from dedup k
        where k.queue_id = h.queue_id and k.key = h.key and k.job_id = h.job_id
        for update skip locked
      ) x
    ));
  end if;
end
$$;

comment on function _free_keys is 'Removes the dedup keys of removed jobs. Private.';
