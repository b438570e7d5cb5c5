-- ack: ends a job as done; its row goes, or becomes history if its queue keeps any.
--
-- Locks:  the job's row; as _keep.
-- Raises: 22023 for nulls; JQ007 result too large.
-- Notes:  A stale claim is an answer, not an error: look at it. In the caller's transaction the ack
--         commits together with whatever else the caller did.
create or replace function ack(job_id bigint, token bigint, result jsonb default null)
returns text
language plpgsql
volatile
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
declare
  ended job[];
begin
  if result is not null and cardinality(_too_large(array[job_id], array[result])) > 0 then
    raise exception 'result is too large'
      using errcode = 'JQ007',
        detail = format('job %s', job_id),
        hint = 'It may have as many bytes as a payload of the queue. Store it elsewhere.';
  end if;
  delete from job j
  where j.id = ack.job_id and j.token = ack.token and j.lease_until > _now()
  returning case when num_nonnulls(j.keep_done, j.dedup_key) > 0 then array[j] end into ended;
  if found then
    if ended is not null then
      perform _keep(ended, 'acked', array[job_id], array[result]);
    end if;
    return 'acked';
  end if;
  if job_id is null or token is null then
    raise exception 'job_id and token must not be null' using errcode = '22023';
  end if;
  return _absent(job_id);
end
$$;

comment on function ack is
  'Ends a job as done. result: any JSON value, kept if the queue keeps done jobs. Answers '
  '''acked'' (the row is gone), ''lost'' (another claim holds the job or the lease ran out; '
  'nothing changed) or ''gone'' (no such job any more). Errors: 22023, JQ007.';
