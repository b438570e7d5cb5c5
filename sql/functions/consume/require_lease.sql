-- require_lease: goes on only if the caller still holds the lease, and lets nobody take it before
-- the caller's transaction ends.
--
-- Locks:  the job's row until the transaction ends, against its removal and against claims and
--         sweeps, which leave a locked row alone; not against heartbeats.
-- Raises: JQ002 lease lost; JQ003 no such job; 22023 for nulls.
-- Notes:  For effects and an ack that commit together: call it first, then write, then ack. The
--         lease may run out meanwhile; the lock holds off sweeps and claims, but the ack is then
--         'lost', so look at its answer, or extend the lease, here or in another session. If two
--         sessions do this with one lease, one of them ends with 40P01 at its ack.
create or replace function require_lease(job_id bigint, token bigint)
returns void
language plpgsql
volatile
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
begin
  if job_id is null or token is null then
    raise exception 'job_id and token must not be null' using errcode = '22023';
  end if;
  perform
  from job j
  where j.id = require_lease.job_id
    and j.token = require_lease.token
    and j.lease_until > _now()
  for key share;
  if found then
    return;
  end if;
  if _absent(job_id) = 'gone' then
    raise exception 'no such job'
      using errcode = 'JQ003',
        detail = format('job %s', job_id),
        hint = 'It was finished, cancelled or died. Undo what was done for it.';
  end if;
  raise exception 'the lease is lost'
    using errcode = 'JQ002',
      detail = format('job %s, token %s', job_id, token),
      hint = 'Another claim holds the job or the lease ran out. Undo what was done for it.';
end
$$;

comment on function require_lease is
  'Returns if the caller holds the job''s lease, and keeps it from others until the transaction '
  'ends. Errors: JQ002 (another claim holds it, or it ran out), JQ003, 22023.';
