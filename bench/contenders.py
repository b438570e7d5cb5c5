"""What each contender does, as SQL for pgbench. `:n` is the batch size."""

from __future__ import annotations

from dataclasses import dataclass

PAYLOAD = """'{"id": 1, "t": 1234567890123, "to": "user@example.com", "k": "w"}'"""
LANE = (1 << 16) + 32768
"""The default lane of a database's first queue."""


@dataclass(frozen=True)
class Contender:
    """A queue: how it is made and filled, and the scripts that use it."""

    name: str
    setup: str
    fill: str
    """One statement; %s is the number of jobs."""
    enqueue: str
    enqueue_many: str
    claim_ack: str
    """Claim up to :n jobs and fetch them, in one transaction; ack them all, in another."""
    tables: tuple[str, ...]


OURS = Contender(
    "ours",
    setup="select pgq_sql.create_queue('bench')",
    fill=f"""
select count(*)
from pgq_sql.enqueue_many('bench', array_fill({PAYLOAD}::jsonb, array[%s]))
""",
    enqueue=f"""
select job_id from pgq_sql.enqueue('bench', {PAYLOAD});
""",
    enqueue_many=f"""
select job_id
from pgq_sql.enqueue_many('bench', array_fill({PAYLOAD}::jsonb, array[:n::integer]));
""",
    claim_ack="""
select coalesce(array_agg(job_id), '{}') as ids, coalesce(array_agg(token), '{}') as tokens,
  array_agg(payload) as payloads
from pgq_sql.claim('bench', 'w', :n) \\gset
select count(*) from pgq_sql.ack_many(:ids, :tokens);
""",
    tables=("pgq_sql.job",),
)

PLAIN = Contender(
    "plain",
    setup="""
create table plain (
  id bigint generated always as identity primary key,
  queue text not null,
  payload jsonb not null,
  priority integer not null default 0,
  run_at timestamptz not null default now(),
  created_at timestamptz not null default now(),
  locked_at timestamptz,
  locked_by text,
  attempts integer not null default 0,
  max_attempts integer not null default 5
);
create index on plain (queue, priority desc, run_at, id) where locked_at is null;
""",
    fill=f"""
insert into plain (queue, payload) select 'bench', {PAYLOAD} from generate_series(1, %s)
""",
    enqueue=f"""
insert into plain (queue, payload) values ('bench', {PAYLOAD}) returning id;
""",
    enqueue_many=f"""
insert into plain (queue, payload)
select 'bench', {PAYLOAD} from generate_series(1, :n::integer) returning id;
""",
    claim_ack="""
with claimed as (
  update plain set attempts = attempts + 1, locked_at = now(), locked_by = 'w'
  where id in (
    select id from plain
    where queue = 'bench' and locked_at is null and run_at <= now()
    order by priority desc, run_at, id
    limit :n
    for update skip locked)
  returning id, payload)
select coalesce(array_agg(id), '{}') as ids, array_agg(payload) as payloads from claimed \\gset
delete from plain where id = any (:ids);
""",
    tables=("plain",),
)

# Jobs are claimed by ranges of ids, to each client its own: no search, no lock, no fence.
FLOOR = Contender(
    "floor",
    setup="select pgq_sql.create_queue('bench'); create sequence floor_next;",
    fill=f"""
insert into pgq_sql.job (lane_id, run_at, enqueued_at, settings, payload)
select {LANE}, now(), now(), 1, {PAYLOAD} from generate_series(1, %s)
""",
    enqueue=f"""
insert into pgq_sql.job (lane_id, run_at, enqueued_at, settings, payload)
values ({LANE}, now(), now(), 1, {PAYLOAD}) returning id;
""",
    enqueue_many=f"""
insert into pgq_sql.job (lane_id, run_at, enqueued_at, settings, payload)
select {LANE}, now(), now(), 1, {PAYLOAD} from generate_series(1, :n::integer) returning id;
""",
    claim_ack="""
with claimed as (
  update pgq_sql.job
  set token = token + 1, attempt = attempt + 1, lease_until = now() + '30 s', worker = 'w'
  from (select (nextval('floor_next') - 1) * :n as first) turn
  where id > turn.first and id <= turn.first + :n
  returning id, payload)
select coalesce(array_agg(id), '{}') as ids, array_agg(payload) as payloads from claimed \\gset
delete from pgq_sql.job where id = any (:ids);
""",
    tables=("pgq_sql.job",),
)

CONTENDERS = (OURS, PLAIN, FLOOR)
