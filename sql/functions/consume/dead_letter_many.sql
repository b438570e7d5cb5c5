-- dead_letter_many: ends many jobs as dead, each on its own merits.
--
-- Locks:  the rows, in id order; as _bury.
-- Raises: 22023 for arrays with nulls or of unequal length.
create or replace function dead_letter_many(
  job_ids bigint[],
  tokens bigint[],
  errors text[] default null
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
  done bigint[];
  last_words text[];
begin
  perform _check_items(job_ids, tokens, array[_dims(errors)]);
  batch := _in_id_order(job_ids);
  if batch.repeated then
    perform _lock_in_order(batch.ids);
    for i in 1..cardinality(job_ids) loop
      return query
      select i::bigint, d.job_id, d.outcome
      from dead_letter_many(job_ids[i:i], tokens[i:i], errors[i:i]) d;
    end loop;
    return;
  end if;

  select coalesce(array_agg(x.id order by x.id), '{}'), array_agg(x.error order by x.id)
  into done, last_words
  from (
    select j.id, coalesce(errors[batch.places[width_bucket(j.id, batch.ids)]], 'failed') as error
    from job j
    where j.id = any (batch.ids)
      and j.token = tokens[batch.places[width_bucket(j.id, batch.ids)]]
      and j.lease_until > clock
    order by j.id
    for update of j
  ) x;
  perform _bury(done, 'failed', last_words);

  return query
  select u.ordinal, u.job_id,
    case when done[width_bucket(u.job_id, done)] = u.job_id then 'dead' else _absent(u.job_id) end
  from unnest(job_ids) with ordinality u(job_id, ordinal);
end
$$;

comment on function dead_letter_many is
  'Ends many jobs as dead. errors has one element per job, a null one meaning ''failed''. Answers '
  'one row per item in input order: (ordinal from 1, job_id, outcome as in dead_letter). A stale '
  'item does not touch the others. Errors: 22023.';
