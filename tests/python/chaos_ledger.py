"""What the chaos tests count, in the database itself, and what must come of it.

Producers note a job in the transaction that enqueues it, handlers note their effects. The
functions that settle are wrapped: each answer is noted, and whether the claim was a live one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg
from psycopg.rows import dict_row

if TYPE_CHECKING:
    from collections.abc import Collection

    from servers import Connection

TABLES = """
create schema chaos;
create schema unwatched;
create table chaos.wanted (job_id bigint, queue text);
create table chaos.effect (
  job_id bigint, token bigint, queue text, pid integer, at timestamptz default clock_timestamp()
);
create table chaos.refused (job_id bigint, token bigint, pid integer);
create table chaos.answer (
  verb text, job_id bigint, token bigint, outcome text, live boolean, still_live boolean,
  worker text default current_setting('application_name'),
  at timestamptz default clock_timestamp()
);
create function chaos.live(job_id bigint, token bigint) returns boolean language sql volatile as $$
  select exists (
    select from pgq_sql.job j
    where j.id = live.job_id and j.token = live.token and j.lease_until > clock_timestamp())
$$;
"""

# The rows are locked first, as the function would, so that what is noted stays true until then.
MANY = """
alter function pgq_sql.{name} set schema unwatched;
create function pgq_sql.{name}({arguments}) returns {result} language plpgsql as $$
#variable_conflict use_column
declare
  before boolean[];
  answer record;
begin
  perform from pgq_sql.job j where j.id = any (job_ids) order by j.id for update;
  before := array(
    select chaos.live(u.id, u.token)
    from unnest(job_ids, tokens) with ordinality u (id, token, place) order by u.place);
  for answer in select * from unwatched.{name}({names}) loop
    insert into chaos.answer (verb, job_id, token, outcome, live, still_live)
    values ('{verb}', answer.job_id, tokens[answer.ordinal], answer.outcome,
      before[answer.ordinal], chaos.live(answer.job_id, tokens[answer.ordinal]));
    ordinal := answer.ordinal;
    job_id := answer.job_id;
    outcome := answer.outcome;
    return next;
  end loop;
end
$$;
"""

ONE = """
alter function pgq_sql.ack set schema unwatched;
create function pgq_sql.ack(job_id bigint, token bigint, result jsonb default null)
returns text language plpgsql as $$
declare
  before boolean;
  answer text;
begin
  perform from pgq_sql.job j where j.id = ack.job_id for update;
  before := chaos.live(job_id, token);
  answer := unwatched.ack(job_id, token, result);
  insert into chaos.answer (verb, job_id, token, outcome, live, still_live)
  values ('ack', ack.job_id, ack.token, answer, before, chaos.live(ack.job_id, ack.token));
  return answer;
end
$$;
"""

SIGNATURE = """
select pg_get_function_arguments(oid), pg_get_function_result(oid),
  array_to_string(proargnames[1:pronargs], ', ')
from pg_proc where proname = %s and pronamespace = 'pgq_sql'::regnamespace
"""

REFUSALS = ("lost", "gone")


def watch(conn: Connection) -> None:
    """Make the ledger, and wrap the functions that settle."""
    conn.execute(TABLES)
    for verb in ("ack", "retry", "dead_letter", "release"):
        name = f"{verb}_many"
        ((arguments, result, names),) = conn.execute(SIGNATURE, [name]).fetchall()
        wrapped = MANY.format(name=name, verb=verb, arguments=arguments, result=result, names=names)
        conn.execute(wrapped.encode())
    conn.execute(ONE)


@dataclass
class Tally:
    """What came of a run."""

    faults: Counter[str] = field(default_factory=Counter)
    """What was done to workers and server, and how often."""
    sessions: int = 0
    """So many sessions were ended."""
    jobs: int = 0
    effects: int = 0
    dead: int = 0
    left: int = 0
    """Jobs that are still in the queue."""
    lost: int = 0
    """Jobs that were committed, and of which there is no trace."""
    doubled: int = 0
    """Effects beyond the first of what was to happen exactly once."""
    unexpected: int = 0
    """Effects of jobs that were never committed."""
    refused: int = 0
    """Ends of claims that were no longer live, answered with lost or gone."""
    refused_after_stop: int = 0
    """Of these, those of workers that had been stopped past their leases."""
    rolled_back: int = 0
    """Transactions of handlers that were refused, with the ack in them."""
    accepted: int = 0
    """Ends of claims that were no longer live, and counted all the same."""
    turned_away: int = 0
    """Ends of live claims that were refused."""
    ended: list[str] = field(default_factory=list)
    """Workers that ended by themselves, or badly."""
    mute: list[str] = field(default_factory=list)
    """Workers that did not work again after the last fault."""

    def wrong(self) -> dict[str, object]:
        """What must not be."""
        names = ("left", "lost", "doubled", "unexpected", "accepted", "turned_away")
        return {
            name: getattr(self, name) for name in (*names, "ended", "mute") if getattr(self, name)
        }

    def lines(self) -> list[str]:
        """For a report."""
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        return [
            f"faults: {faults} ({self.sessions} sessions)",
            f"jobs {self.jobs}, effects {self.effects}, dead {self.dead}, left {self.left}",
            f"lost {self.lost}, doubled {self.doubled}, unexpected {self.unexpected}",
            f"stale ends refused {self.refused} (by workers stopped past their leases"
            f" {self.refused_after_stop}), with their transactions {self.rolled_back},"
            f" accepted {self.accepted}; live ends refused {self.turned_away}",
            f"workers ended by themselves {self.ended or 0}, not back {self.mute or 0}",
        ]


COUNTS = """
select
  (select count(*) from chaos.wanted) as jobs,
  (select count(*) from chaos.effect) as effects,
  (select count(*) from pgq_sql.dead_job) as dead,
  (select count(*) from pgq_sql.job) as left,
  (select count(*) from chaos.wanted w
    where not exists (select from chaos.effect e where e.job_id = w.job_id)
      and not exists (select from pgq_sql.dead_job d where d.id = w.job_id)
      and not exists (select from pgq_sql.job j where j.id = w.job_id)) as lost,
  (select count(*) - count(distinct e.job_id) from chaos.effect e
    where e.queue = 'exact') as doubled,
  (select count(*) from chaos.effect e
    where not exists (select from chaos.wanted w where w.job_id = e.job_id)) as unexpected,
  (select count(*) from chaos.answer
    where not live and outcome = any (%(refusals)s)) as refused,
  (select count(*) from chaos.answer
    where not live and outcome = any (%(refusals)s)
      and worker = any (%(stopped)s)) as refused_after_stop,
  (select count(*) from chaos.refused) as rolled_back,
  (select count(*) from chaos.answer
    where not live and outcome <> all (%(refusals)s)) as accepted,
  (select count(*) from chaos.answer
    where live and still_live and outcome = any (%(refusals)s)) as turned_away
"""


def count(conn: Connection, tally: Tally, stopped: Collection[str]) -> None:
    """Read the ledger."""
    with psycopg.Cursor(conn, row_factory=dict_row) as cursor:
        cursor.execute(COUNTS, {"refusals": list(REFUSALS), "stopped": list(stopped)})
        for name, value in (cursor.fetchone() or {}).items():
            setattr(tally, name, value)
