-- _absent: what to answer about a job that the caller does not hold.
--
-- Locks:  none.
-- Raises: nothing.
create or replace function _absent(job_id bigint)
returns text
language plpgsql
stable
set search_path from current
set enable_seqscan = off
set jit = off
as $$
begin
  if exists (select from job j where j.id = _absent.job_id) then
    return 'lost';
  end if;
  return 'gone';
end
$$;

comment on function _absent is '''lost'' if the job lives, else ''gone''. Private.';
