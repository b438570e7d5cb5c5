-- heartbeat_many: renews many leases, each on its own merits.
--
-- Locks:  the rows, in id order.
-- Raises: 22023 for arrays with nulls or of unequal length, and for bad durations.
-- Notes:  A HOT update: neither lease_until nor progress is in any index.
create or replace function heartbeat_many(
  job_ids bigint[],
  tokens bigint[],
  extends interval[] default null,
  progresses jsonb[] default null
)
returns table (
  ordinal bigint,
  job_id bigint,
  outcome text,
  lease_until timestamptz,
  observed_at timestamptz
)
language plpgsql
volatile
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set jit = off
as $$
#variable_conflict use_column
declare
  clock constant timestamptz := _now();
  batch record;
  done bigint[];
  ends timestamptz[];
  too_large bigint[];
begin
  perform _check_items(job_ids, tokens, array[_dims(extends), _dims(progresses)]);
  perform _check_lease('extend', e) from unnest(extends) e;
  too_large := array(
    select u.id from unnest(job_ids, progresses) u (id, progress)
    where octet_length(u.progress::text) > 65536);
  batch := _in_id_order(job_ids);
  if batch.repeated then
    perform _lock_in_order(batch.ids);
    for i in 1..cardinality(job_ids) loop
      return query
      select i::bigint, h.job_id, h.outcome, h.lease_until, h.observed_at
      from heartbeat_many(job_ids[i:i], tokens[i:i], extends[i:i], progresses[i:i]) h;
    end loop;
    return;
  end if;

  with updated as (
    update job j
    set lease_until = clock + coalesce(
      _exact(extends[batch.places[width_bucket(j.id, batch.ids)]]),
      j.visibility_timeout,
      (select q.visibility_timeout from queue q where q.version = j.settings)),
      progress = coalesce(
        progresses[batch.places[width_bucket(j.id, batch.ids)]], j.progress)
    where j.id = any (batch.ids)
      and j.token = tokens[batch.places[width_bucket(j.id, batch.ids)]]
      and j.lease_until > clock
      and j.id <> all (too_large)
    returning j.id, j.lease_until
  )
  select coalesce(array_agg(u.id order by u.id), '{}'), array_agg(u.lease_until order by u.id)
  into done, ends
  from updated u;

  return query
  select u.ordinal, u.job_id,
    case when done[width_bucket(u.job_id, done)] = u.job_id then 'extended'
      when u.job_id = any (too_large) then 'progress too large'
      else _absent(u.job_id) end,
    case when done[width_bucket(u.job_id, done)] = u.job_id
      then ends[width_bucket(u.job_id, done)] end,
    clock
  from unnest(job_ids) with ordinality u(job_id, ordinal);
end
$$;

comment on function heartbeat_many is
  'Renews many leases. extends has one element per job, a null one meaning the job''s visibility '
  'timeout; progresses likewise, null leaving it as it is. Answers one row per item in input '
  'order: (ordinal from 1, job_id, outcome, lease_until and observed_at as in heartbeat). A stale '
  'item does not touch the others, nor one with progress above 65536 bytes: ''progress too '
  'large'', not renewed. Errors: 22023.';
