-- ack_many: ends many jobs as done, each on its own merits, in one statement.
--
-- Locks:  the rows, in id order.
-- Raises: 22023 for arrays with nulls or of unequal length.
-- Notes:  The delete judges and removes in one step: locking the rows first cost a second WAL
--         record a job. It follows a row that was extended meanwhile to its newest version.
create or replace function ack_many(job_ids bigint[], tokens bigint[])
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
  done bigint[];
begin
  perform _check_items(job_ids, tokens);
  batch := _in_id_order(job_ids);
  if batch.repeated then
    perform _lock_in_order(batch.ids);
    for i in 1..cardinality(job_ids) loop
      return query
      select i::bigint, a.job_id, a.outcome
      from ack_many(job_ids[i:i], tokens[i:i]) a;
    end loop;
    return;
  end if;

  with removed as (
    delete from job j
    where j.id = any (batch.ids)
      and j.token = tokens[batch.places[width_bucket(j.id, batch.ids)]]
      and j.lease_until > clock
    returning j.id
  )
  select coalesce(array_agg(r.id order by r.id), '{}') into done from removed r;

  return query
  select u.ordinal, u.job_id,
    case when done[width_bucket(u.job_id, done)] = u.job_id then 'acked' else _absent(u.job_id) end
  from unnest(job_ids) with ordinality u(job_id, ordinal);
end
$$;

comment on function ack_many is
  'Ends many jobs as done. Answers one row per item in input order: (ordinal from 1, job_id, '
  'outcome as in ack). A stale item does not touch the others. Errors: 22023.';
