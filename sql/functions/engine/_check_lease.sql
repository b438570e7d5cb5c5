-- _check_lease: refuses a duration that cannot be the length of a lease; null passes.
--
-- Locks:  none.
-- Raises: 22023.
create or replace function _check_lease(what text, duration interval)
returns void
language plpgsql
immutable
set search_path from current
as $$
begin
  perform _check_duration(what, duration);
  if date_part('epoch', duration) < 0.001 then
    raise exception '% must be at least 1 ms', what
      using errcode = '22023', detail = format('%s = %s', what, duration);
  end if;
end
$$;

comment on function _check_lease is 'Refuses a duration that no lease may have (22023). Private.';
