-- retry_many: gives many failed jobs back, each on its own merits.
--
-- Locks:  the rows, in id order; a producer's locks in their lanes (_announce).
-- Raises: 22023 for arrays with nulls or of unequal length, and for bad delays.
-- Notes:  All rows are locked at first: those at their last attempt go another way than the rest,
--         and in two rounds they would meet a heartbeat of the same jobs in the wrong order. The
--         run_at is new, so the job joins the end of its lane: claims do not look behind the mark.
create or replace function retry_many(
  job_ids bigint[],
  tokens bigint[],
  errors text[] default null,
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
  spent bigint[];
  last_words text[];
  stamp timestamptz;
  done bigint[];
begin
  perform _check_items(job_ids, tokens, array[_dims(errors), _dims(delays)]);
  perform _check_duration('delay', d) from unnest(delays) d;
  batch := _in_id_order(job_ids);
  if batch.repeated then
    perform _lock_in_order(batch.ids);
    for i in 1..cardinality(job_ids) loop
      return query
      select i::bigint, r.job_id, r.outcome
      from retry_many(job_ids[i:i], tokens[i:i], errors[i:i], delays[i:i]) r;
    end loop;
    return;
  end if;

  select
    array_agg(x.id order by x.id) filter (where x.spent),
    array_agg(x.error order by x.id) filter (where x.spent)
  into spent, last_words
  from (
    select j.id, errors[batch.places[width_bucket(j.id, batch.ids)]] as error,
      j.attempt >= coalesce(
        j.max_attempts,
        (select q.max_attempts from queue q where q.version = j.settings)) as spent
    from job j
    where j.id = any (batch.ids)
      and j.token = tokens[batch.places[width_bucket(j.id, batch.ids)]]
      and j.lease_until > clock
    order by j.id
    for update of j
  ) x;
  if spent is not null then
    perform _bury(spent, 'max attempts exceeded', last_words);
  end if;

  stamp := _reopen(batch.ids);
  with updated as (
    update job j
    set run_at = stamp + coalesce(
        _exact(delays[batch.places[width_bucket(j.id, batch.ids)]]),
        _backoff(
          j.attempt,
          coalesce(j.retry_backoff, q.retry_backoff),
          coalesce(j.retry_factor, q.retry_factor),
          coalesce(j.retry_delay, q.retry_delay),
          coalesce(j.retry_max_delay, q.retry_max_delay),
          coalesce(j.retry_jitter, q.retry_jitter))),
      lease_until = null,
      worker = null,
      last_error = coalesce(
        left(errors[batch.places[width_bucket(j.id, batch.ids)]], 8192), j.last_error)
    from queue q
    where q.version = j.settings
      and j.id = any (batch.ids)
      and j.token = tokens[batch.places[width_bucket(j.id, batch.ids)]]
      and j.lease_until > clock
    returning j.id
  )
  select coalesce(array_agg(u.id order by u.id), '{}') into done from updated u;
  perform _wake_queues(done);

  return query
  select u.ordinal, u.job_id,
    case
      when done[width_bucket(u.job_id, done)] = u.job_id then 'retried'
      when u.job_id = any (spent) then 'dead'
      else _absent(u.job_id)
    end
  from unnest(job_ids) with ordinality u(job_id, ordinal);
end
$$;

comment on function retry_many is
  'Gives many failed jobs back. errors and delays have one element per job, a null one meaning '
  'none and the job''s backoff. Answers one row per item in input order: (ordinal from 1, job_id, '
  'outcome as in retry). A stale item does not touch the others. Errors: 22023.';
