-- mark: per lane, from where claims and sweeps have to look. Append-only; the highest seq counts.
--
-- Claimed and deleted jobs stay at the front of the claim index until a vacuum may remove them, and
-- while anyone holds a snapshot it may not. A claim that walks them all slows down with every job
-- done. So claims start at `head`: nothing claimable comes before it in the order (run_at, id).
-- Sweeps start at `tail`: nothing alive does, and no transaction is open that could still commit
-- such a job. The ids count, because all jobs of one bulk load have the same run_at.
--
-- A log and not one row per lane: a row updated twenty times a second becomes itself a chain of
-- dead versions that every claim walks. A mark is a lower bound, so an old one is slow, never
-- wrong.
create table mark (
  lane_id bigint not null,
  seq bigint generated always as identity,
  head timestamptz not null,
  head_id bigint not null,
  tail timestamptz not null,
  tail_id bigint not null,
  made_at timestamptz not null,
  sweep_at timestamptz not null,
  busy boolean not null,
  primary key (lane_id, seq)
) with (
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 500
);

comment on table mark is
  'Per lane: where claims and sweeps start. Append-only. Written by claim and sweep, pruned by '
  'sweep.';
comment on column mark.lane_id is 'The lane.';
comment on column mark.seq is 'The highest one of a lane counts.';
comment on column mark.head is
  'Nothing claimable has a smaller run_at, late commits excepted: sweeps look for those.';
comment on column mark.head_id is 'Nor the same run_at and a smaller id.';
comment on column mark.tail is
  'No live job has a smaller run_at, and no open producer can add one.';
comment on column mark.tail_id is 'Nor the same run_at and a smaller id.';
comment on column mark.made_at is 'Database clock; claims append a new mark at most every 50 ms.';
comment on column mark.sweep_at is
  'When claims are to sweep the lane again: after a second, or twenty times what it took.';
comment on column mark.busy is
  'Whether jobs were passed. An idle lane gets one closing mark and then none.';
