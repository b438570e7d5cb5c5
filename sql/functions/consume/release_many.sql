-- release_many: gives many jobs back at no cost of an attempt, each on its own merits.
--
-- Locks:  the rows, in id order; a producer's locks in their lanes (_announce).
-- Raises: 22023 for arrays with nulls or of unequal length, and for bad delays.
-- Notes:  The token stays: it fences, and never falls. Only the attempt is given back.
create or replace function release_many(
  job_ids bigint[],
  tokens bigint[],
  delays interval[] default null
)
returns table (ordinal bigint, job_id bigint, outcome text)
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
  stamp timestamptz;
  done bigint[];
begin
  perform _check_items(job_ids, tokens, array[_dims(delays)]);
  perform _check_duration('delay', d) from unnest(delays) d;
  batch := _in_id_order(job_ids);
  if batch.repeated then
    perform _lock_in_order(batch.ids);
    for i in 1..cardinality(job_ids) loop
      return query
      select i::bigint, r.job_id, r.outcome
      from release_many(job_ids[i:i], tokens[i:i], delays[i:i]) r;
    end loop;
    return;
  end if;

  stamp := _reopen(batch.ids);
  with updated as (
    update job j
    set run_at = stamp
        + coalesce(_exact(delays[batch.places[width_bucket(j.id, batch.ids)]]), '0'),
      attempt = j.attempt - 1,
      lease_until = null,
      worker = null
    where j.id = any (batch.ids)
      and j.token = tokens[batch.places[width_bucket(j.id, batch.ids)]]
      and j.lease_until > clock
    returning j.id
  )
  select coalesce(array_agg(u.id order by u.id), '{}') into done from updated u;
  perform _wake_queues(done);

  return query
  select u.ordinal, u.job_id,
    case when done[width_bucket(u.job_id, done)] = u.job_id then 'released'
      else _absent(u.job_id) end
  from unnest(job_ids) with ordinality u(job_id, ordinal);
end
$$;

comment on function release_many is
  'Gives many jobs back at no cost of an attempt. delays has one element per job, a null one '
  'meaning at once. Answers one row per item in input order: (ordinal from 1, job_id, outcome as '
  'in release). A stale item does not touch the others. Errors: 22023.';
