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
--         A paused queue gives nothing, and is looked after all the same.
--         A session's claims also keep house (_keep_house), at most every 50 ms for each queue.
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
  target record;
begin
  select q.id, q.version, q.visibility_timeout, q.max_attempts, q.paused into target
  from queue q
  where q.name = claim.queue collate "C" and q.current;

  if not coalesce(target.id > 0 and octet_length(worker) between 1 and 200
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

  if n > 0 and not _tended(target.id) - date_part('epoch', clock) between 0 and 0.05 then
    perform _keep_house(target.id);
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
        case when j.settings = target.version then target.visibility_timeout
          else (select q.visibility_timeout from queue q where q.version = j.settings) end)
    where j.ctid = any (array(
      select ready.ctid
      from (
        select distinct l.id
        from lane l
        where l.id between target.id << 16 and (target.id << 16) + 65535
        order by l.id desc
      ) lane
      left join lateral (
        select k.head, k.head_id from mark k where k.lane_id = lane.id order by k.seq desc limit 1
      ) m on m.head <= clock
      cross join lateral (
        select r.ctid
        from job r
        where r.lane_id = lane.id
          and r.lane_id > 0
          and (r.run_at, r.id) >= (coalesce(m.head, '-infinity'), coalesce(m.head_id, 0))
          and r.run_at <= clock
          and r.lease_until is null
          and (r.expires_at is null or r.expires_at > clock)
        order by r.run_at, r.id
        limit n
        for update skip locked
      ) ready
      limit case when target.paused then 0 else greatest(n, 0) end
    ))
    returning j.id, j.token, j.payload, j.headers, j.attempt, j.max_attempts, j.settings, j.lane_id,
      j.run_at, j.enqueued_at, j.lease_until, j.last_error
  )
  select
    c.id, c.token, claim.queue, c.payload, c.headers, c.attempt,
    coalesce(
      c.max_attempts,
      case when c.settings = target.version then target.max_attempts
        else (select q.max_attempts from queue q where q.version = c.settings) end),
    ((c.lane_id & 65535) - 32768)::integer, c.run_at, c.enqueued_at, c.lease_until, clock,
    c.last_error
  from claimed c
  order by c.lane_id desc, c.run_at, c.id;
end
$$;

comment on function claim is
  'Takes up to n ready jobs of the queue under a lease of visibility_timeout (default: the '
  'job''s), highest priority first, then by run time and id; none while the queue is paused. '
  'worker: a label of 1 to 200 bytes. Answers claimed_job rows in that order; none if nothing is '
  'ready or n <= 0. Each claim raises the job''s token and attempt. Errors: JQ001, 22023.';
