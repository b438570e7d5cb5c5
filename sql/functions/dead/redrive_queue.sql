-- redrive_queue: replays the dead letters that wait in a dead letter queue: each becomes a new job
-- in the queue in which it died.
--
-- Locks:  the letters, skipping those that others hold; as enqueue in the queues of origin.
-- Raises: JQ001 no such queue; 22023 for nulls and n < 0; as _check_letter, also in a dry run.
-- Notes:  All or none. Takes letters that are ready, in run order. Jobs that are no letters are
--         left alone. Payload and headers come back, with the queue's settings of today; the old
--         job's own settings, priority and dedup key are not in the letter. The letter is removed,
--         even where its queue keeps history.
create or replace function redrive_queue(
  dead_letter_queue text,
  n integer default null,
  dry_run boolean default false
)
returns table (ordinal bigint, letter_id bigint, queue text, job_id bigint)
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
  target constant queue := _find_queue(dead_letter_queue);
  clock constant timestamptz := _now();
  letter record;
  payload jsonb;
  headers jsonb;
begin
  if dry_run is null then
    raise exception 'dry_run must not be null' using errcode = '22023';
  end if;
  if n < 0 then
    raise exception 'n must not be negative' using errcode = '22023';
  end if;
  ordinal := 0;
  for letter in
    select x.id, x.payload
    from (
      select distinct l.id
      from lane l
      where l.id between target.id << 16 and (target.id << 16) + 65535
      order by l.id desc
    ) lane
    cross join lateral (
      select j.id, j.payload
      from job j
      where j.lane_id = lane.id
        and j.lane_id > 0
        and j.run_at <= clock
        and j.lease_until is null
        and j.payload ->> 'schema' = 'pgq_sql.dead-letter.v1'
        and jsonb_typeof(j.payload -> 'queue') = 'string'
        and j.payload ? 'payload'
      order by j.run_at, j.id
      limit n
      for update skip locked
    ) x
    limit n
  loop
    ordinal := ordinal + 1;
    letter_id := letter.id;
    queue := letter.payload ->> 'queue';
    job_id := null;
    payload := letter.payload -> 'payload';
    headers := nullif(letter.payload -> 'headers', 'null');
    perform _check_letter(letter.id, queue, payload, headers);
    if not dry_run then
      delete from job j where j.id = letter.id;
      job_id := (enqueue(queue, payload, headers => headers)).job_id;
    end if;
    return next;
  end loop;
end
$$;

comment on function redrive_queue is
  'Replays the first n (null: all) ready dead letters of a dead letter queue, all or none: each '
  'becomes a new job in the queue that it names. With dry_run nothing changes. Answers one row '
  'per letter: (ordinal from 1, letter_id, queue, job_id of the new job, null in a dry run). '
  'Errors: JQ001, JQ007, 22023, DETAIL naming the letter that cannot be replayed.';
