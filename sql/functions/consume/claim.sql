-- claim: takes up to n ready jobs of a queue under a lease, in run order: priority, run time, id.
-- Each job goes to one claimant at a time.
--
-- Locks:  the claimed rows, skipping those that others hold.
-- Raises: JQ001 no such queue; 22023 null queue, empty worker label or bad visibility_timeout.
-- Notes:  Settle each job with (job_id, token) before lease_until. n <= 0 or null claims nothing.
--         The scan of each lane starts at its mark, so it does not meet the jobs already done. The
--         candidates are an array of row addresses and the planner is pinned: it cannot become
--         anything but range scans of job_claim, whatever the statistics say. A row that changed
--         since this statement's snapshot is left for the next claim.
--         Under READ COMMITTED a claim also keeps house (_keep_house). In other isolation levels an
--         old snapshot would write marks past jobs that it does not see; such callers need somebody
--         else to claim or to call sweep.
create or replace function claim(
  queue text,
  worker text,
  n integer default 1,
  visibility_timeout interval default null
)
returns setof claimed_job
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
  clock timestamptz := _now();
  keeps_house constant boolean := current_setting('transaction_isolation') = 'read committed';
  house record;
  taken bigint;
begin
  select q.id, q.version, q.visibility_timeout, q.max_attempts, h.* into house
  from queue q
  cross join lateral (
    select
      array_agg(l.id order by l.id desc) as lanes,
      array_agg(case when m.head <= clock then m.head else '-infinity' end order by l.id desc)
        as heads,
      array_agg(case when m.head <= clock then m.head_id else 0 end order by l.id desc)
        as head_ids,
      bool_or(m.busy) as busy,
      coalesce(max(m.made_at) not between clock - interval '50 ms' and clock, true) as stale,
      bool_or((m.tail, m.tail_id) < (m.head, m.head_id)
        and not m.sweep_at between clock and clock + interval '1 hour') as due
    from (
      select distinct i.id from lane i where i.id between q.id << 16 and (q.id << 16) + 65535
    ) l
    left join lateral (
      select k.head, k.head_id, k.tail, k.tail_id, k.made_at, k.sweep_at, k.busy
      from mark k where k.lane_id = l.id order by k.seq desc limit 1
    ) m on true
  ) h
  where q.name = claim.queue and q.current;

  if not coalesce(house.id > 0 and octet_length(worker) between 1 and 200
    and visibility_timeout is null, false)
  then
    perform _find_queue(queue);
    perform _check_lease('visibility_timeout', visibility_timeout);
    visibility_timeout := _exact(visibility_timeout);
    if not coalesce(octet_length(worker) between 1 and 200, false) then
      raise exception 'worker must be a label of 1 to 200 bytes'
        using errcode = '22023', hint = 'For example host and process id.';
    end if;
  end if;
  if n is null or n <= 0 then
    return;
  end if;

  if keeps_house and (house.due
    or current_setting(concat('pgq_sql.tended_', 'queue'::regclass::oid, '_', house.id), true)
      is distinct from date_trunc('second', clock)::text)
  then
    perform _keep_house(house.id, clock);
    clock := _now();
  end if;

  return query
  with claimed as (
    update job j
    set token = j.token + 1,
      attempt = j.attempt + 1,
      worker = claim.worker,
      lease_until = clock + coalesce(
        claim.visibility_timeout,
        j.visibility_timeout,
        case when j.settings = house.version then house.visibility_timeout
          else (select q.visibility_timeout from queue q where q.version = j.settings) end)
    where j.ctid = any (array(
      select ready.ctid
      from unnest(house.lanes, house.heads, house.head_ids) lane (id, head, head_id)
      cross join lateral (
        select r.ctid
        from job r
        where r.lane_id = lane.id
          and (r.run_at, r.id) >= (lane.head, lane.head_id)
          and r.run_at <= clock
          and r.lease_until is null
          and (r.expires_at is null or r.expires_at > clock)
        order by r.run_at, r.id
        limit n
        for update skip locked
      ) ready
      limit n
    ))
    returning j.id, j.token, j.payload, j.headers, j.attempt, j.max_attempts, j.settings, j.lane_id,
      j.run_at, j.enqueued_at, j.lease_until, j.last_error
  )
  select
    c.id, c.token, claim.queue, c.payload, c.headers, c.attempt,
    coalesce(
      c.max_attempts,
      case when c.settings = house.version then house.max_attempts
        else (select q.max_attempts from queue q where q.version = c.settings) end),
    ((c.lane_id & 65535) - 32768)::integer, c.run_at, c.enqueued_at, c.lease_until, clock,
    c.last_error
  from claimed c
  order by c.lane_id desc, c.run_at, c.id;
  get diagnostics taken = row_count;

  if keeps_house and house.stale and (taken > 0 or house.busy) then
    perform _advance_marks(house.id);
  end if;
end
$$;

comment on function claim is
  'Takes up to n ready jobs of the queue under a lease of visibility_timeout (default: the '
  'job''s), highest priority first, then by run time and id. worker: a label of 1 to 200 bytes. '
  'Answers claimed_job rows in that order; none if nothing is ready or n <= 0. Each claim raises '
  'the job''s token and attempt. Errors: JQ001, 22023.';
