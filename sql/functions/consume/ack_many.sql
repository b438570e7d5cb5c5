-- ack_many: ends many jobs as done, each on its own merits, in one statement.
--
-- Locks:  the rows, in id order; as _keep.
-- Raises: 22023 for arrays with nulls or of unequal length.
-- Notes:  The delete judges and removes in one step: locking the rows first cost a second WAL
--         record a job. It follows a row that was extended meanwhile to its newest version.
--         _in_id_order says why it is `id = any (ids)` and width_bucket; here ids are sorted only
--         if they do not come so, as they mostly do. One statement locks them all: a second one,
--         for what the first has missed, would lock out of order and deadlock with heartbeats.
--         What is left after it is stale, or named twice, and is settled one by one.
--         Jobs that become history pass through an array: 1 GB together, at most.
create or replace function ack_many(
  job_ids bigint[],
  tokens bigint[],
  results jsonb[] default null
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
  ids bigint[] := job_ids;
  fences bigint[] := tokens;
  words jsonb[] := results;
  too_large bigint[] := array[]::bigint[];
  done bigint[];
  done_tokens bigint[];
  ended job[];
  held dedup[];
  place integer;
begin
  if not coalesce(
    array_dims(ids) = array_dims(fences)
    and array_ndims(ids) = 1
    and array_lower(ids, 1) = 1
    and num_nonnulls(array_position(ids, null), array_position(fences, null), results) = 0,
    false)
  then
    perform _check_items(job_ids, tokens, array[_dims(results)]);
  end if;

  if ids <> array(select u.id from unnest(ids) u (id) order by u.id) then
    select array_agg(u.id order by u.id, u.token), array_agg(u.token order by u.id, u.token),
      array_agg(u.result order by u.id, u.token)
    into ids, fences, words
    from unnest(job_ids, tokens, results) u (id, token, result);
  end if;

  if words is not null then
    too_large := _too_large(ids, words);
    fences := array(
      select case when u.id <> all (too_large) then u.token end
      from unnest(ids, fences) with ordinality u (id, token, place) order by u.place);
  end if;

  with removed as (
    delete from job j
    where j.id = any (ids)
      and fences[width_bucket(j.id, ids)] = j.token
      and j.lease_until > _now()
    returning j.id, j.token,
      case when j.keep_done is not null then j end as ended,
      case when j.keep_done is null and j.dedup_key is not null
        then row(j.lane_id >> 16, j.dedup_key, j.id)::dedup end as key
  )
  select array_agg(r.id), array_agg(r.token), array_agg(r.ended) filter (where (r.ended).id > 0),
    array_agg(r.key) filter (where (r.key).job_id > 0)
  into done, done_tokens, ended, held
  from removed r;
  if held is not null then
    perform _free_keys(held);
  end if;
  if ended is not null then
    perform _keep(ended, 'acked', ids, words);
  end if;
  if cardinality(done) = cardinality(job_ids) then
    return query
    select u.ordinal, u.job_id, 'acked' from unnest(job_ids) with ordinality u(job_id, ordinal);
    return;
  end if;

  for i in 1..cardinality(job_ids) loop
    place := array_position(done, job_ids[i]);
    if done_tokens[place] = tokens[i] then
      done_tokens[place] := null;
      return query select i::bigint, job_ids[i], 'acked';
    elsif job_ids[i] = any (too_large) then
      return query select i::bigint, job_ids[i], 'result too large';
    else
      return query select i::bigint, job_ids[i], ack(job_ids[i], tokens[i], results[i]);
    end if;
  end loop;
end
$$;

comment on function ack_many is
  'Ends many jobs as done. results has one element per job. Answers one row per item in input '
  'order: (ordinal from 1, job_id, outcome as in ack). A stale item does not touch the others, '
  'nor one whose result is larger than a payload may be: ''result too large'', not ended. Errors: '
  '22023.';
