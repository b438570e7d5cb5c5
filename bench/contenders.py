"""What each contender does, as SQL.

In statements `:n` is the batch size, `:ids` and `:tokens` what a claim has answered; pgbench knows
such variables, and `positional` writes them as libpq wants them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PAYLOAD = """'{"id": 1, "t": 1234567890123, "to": "user@example.com", "k": "w"}'"""
LANE = (1 << 16) + 32768
"""The default lane of a database's first queue."""


@dataclass(frozen=True)
class Contender:
    """A queue: how it is made and filled, and the statements that use it."""

    name: str
    setup: str
    fill: str
    """Loads %s jobs, in bulk."""
    enqueue: str
    enqueue_many: str
    claim: str
    """Claims up to :n jobs and fetches them: one row with ids, tokens and payloads."""
    ack: str
    claim_one: str
    """As somebody would write it who takes one job at a time: id, payload, perhaps token."""
    ack_one: str
    unclaimed: str
    """How many of the jobs %s nobody has claimed."""
    table: str

    def script(self, *parts: str, n: int) -> str:
        """The statements of these names, in turn, for pgbench."""
        script = ""
        for part in parts:
            one = f"{part}_one" if n == 1 and part in ("claim", "ack") else part
            script += sized(getattr(self, one), n).strip()
            script += " \\gset\n" if part == "claim" else ";\n"
        return script


def sized(statement: str, n: int) -> str:
    """The statement with its :n written out: with LIMIT $1 the planner would have to guess."""
    return re.sub(r":n\b", str(n), statement)


def positional(statement: str) -> str:
    """The statement with $1, $2 for its variables, in order of appearance."""
    names: list[str] = []

    def place(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return re.sub(r"(?<!:):([a-z]+)", place, statement)


# Filled by a bare INSERT, as the floor is: what is measured begins after that.
JOBS = f"""
insert into pgq_sql.job (lane_id, run_at, enqueued_at, settings, payload)
select {LANE}, now(), now(), 1, {PAYLOAD} from generate_series(1, %s)
"""

OURS = Contender(
    "ours",
    setup="select pgq_sql.create_queue('bench')",
    fill=JOBS,
    enqueue=f"select job_id from pgq_sql.enqueue('bench', {PAYLOAD})",
    enqueue_many=f"""
select job_id
from pgq_sql.enqueue_many('bench', array_fill({PAYLOAD}::jsonb, array[:n::integer]))
""",
    claim="""
select coalesce(array_agg(job_id), '{}') as ids, coalesce(array_agg(token), '{}') as tokens,
  array_agg(payload) as payloads
from pgq_sql.claim('bench', 'w', :n)
""",
    ack="select count(*) from pgq_sql.ack_many(:ids, :tokens)",
    claim_one="select job_id as id, token, payload from pgq_sql.claim('bench', 'w')",
    ack_one="select pgq_sql.ack(:id, :token)",
    unclaimed="select count(*) from pgq_sql.job where id = any (%s) and lease_until is null",
    table="pgq_sql.job",
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
    enqueue=f"insert into plain (queue, payload) values ('bench', {PAYLOAD}) returning id",
    enqueue_many=f"""
insert into plain (queue, payload)
select 'bench', {PAYLOAD} from generate_series(1, :n::integer) returning id
""",
    claim="""
with claimed as (
  update plain set attempts = attempts + 1, locked_at = now(), locked_by = 'w'
  where id in (
    select id from plain
    where queue = 'bench' and locked_at is null and run_at <= now()
    order by priority desc, run_at, id
    limit :n
    for update skip locked)
  returning id, payload)
select coalesce(array_agg(id), '{}') as ids, '{}'::bigint[] as tokens,
  array_agg(payload) as payloads
from claimed
""",
    ack="delete from plain where id = any (:ids)",
    claim_one="""
update plain set attempts = attempts + 1, locked_at = now(), locked_by = 'w'
where id = (
  select id from plain
  where queue = 'bench' and locked_at is null and run_at <= now()
  order by priority desc, run_at, id
  limit 1
  for update skip locked)
returning id, payload
""",
    ack_one="delete from plain where id = :id",
    unclaimed="select count(*) from plain where id = any (%s) and locked_at is null",
    table="plain",
)

# Jobs are claimed by ranges of ids, to each client its own: no search, no lock, no fence.
FLOOR = Contender(
    "floor",
    setup="select pgq_sql.create_queue('bench'); create sequence floor_next;",
    fill=JOBS,
    enqueue=f"""
insert into pgq_sql.job (lane_id, run_at, enqueued_at, settings, payload)
values ({LANE}, now(), now(), 1, {PAYLOAD}) returning id
""",
    enqueue_many=f"""
insert into pgq_sql.job (lane_id, run_at, enqueued_at, settings, payload)
select {LANE}, now(), now(), 1, {PAYLOAD} from generate_series(1, :n::integer) returning id
""",
    claim="""
with claimed as (
  update pgq_sql.job
  set token = token + 1, attempt = attempt + 1, lease_until = now() + '30 s', worker = 'w'
  from (select (nextval('floor_next') - 1) * :n as first) turn
  where id > turn.first and id <= turn.first + :n
  returning id, payload)
select coalesce(array_agg(id), '{}') as ids, '{}'::bigint[] as tokens,
  array_agg(payload) as payloads
from claimed
""",
    ack="delete from pgq_sql.job where id = any (:ids)",
    claim_one="""
update pgq_sql.job
set token = token + 1, attempt = attempt + 1, lease_until = now() + '30 s', worker = 'w'
where id = (select nextval('floor_next'))
returning id, payload
""",
    ack_one="delete from pgq_sql.job where id = :id",
    unclaimed=OURS.unclaimed,
    table="pgq_sql.job",
)

CONTENDERS = (OURS, PLAIN, FLOOR)
