-- _too_large: which of the given jobs would be kept with a result that is larger than a payload of
-- its queue may be.
--
-- Locks:  none.
-- Raises: nothing.
create or replace function _too_large(ids bigint[], results jsonb[])
returns bigint[]
language plpgsql
stable
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  return array(
    select u.id
    from unnest(ids, results) u (id, result)
    cross join lateral (
      select q.max_payload
      from job j
      join queue q on q.version = j.settings
      where j.id = u.id and j.keep_done is not null
      offset 0
    ) l
    where octet_length(u.result::text) > l.max_payload);
end
$$;

comment on function _too_large is
  'Ids of those jobs whose result exceeds its queue''s max_payload. Private.';
