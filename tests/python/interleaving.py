"""Two sessions at the same things, in a given order, and what must have come of it.

A step is what stands after `select` in a session whose search_path is the schema. A database is
fresh in each test, so the first job has the id 1, and the token of its first claim is 1.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg

from servers import ROOT, wait_for_lock
from test_concurrency import Call, scalar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from servers import Connection, Server

EMPTY = """
do $$
declare
  part regclass;
begin
  for part in
    select inhrelid from pg_inherits
    where inhparent = 'pgq_sql.done_job'::regclass
      and inhrelid <> 'pgq_sql.done_job_forever'::regclass
  loop
    execute format('drop table %s', part);
  end loop;
  truncate pgq_sql.queue, pgq_sql.lane, pgq_sql.mark, pgq_sql.job, pgq_sql.dead_job,
    pgq_sql.done_job, pgq_sql.dedup restart identity;
end
$$
"""

CLOCK = ROOT / "tests" / "sql" / "support" / "clock.sql"

Place = tuple[int, str, int, int]
"""A job's id, state, attempt and token."""


class Late(str):
    """See late."""

    __slots__ = ()


def late(step: str) -> str:
    """The step, for a session whose clock is two hours ahead."""
    return Late(step)


@dataclass(frozen=True)
class Race:
    """The first session does `one` and stays open; the second does `other` meanwhile."""

    given: Sequence[str]
    one: str
    other: str
    hears: object
    """What the second is told, or the SQLSTATE that it gets."""
    ends: Sequence[Place]
    """Where all jobs are in the end."""
    commits: bool = True
    """Whether the first commits then, or rolls back."""
    waits: bool = False
    """Whether the second has to wait for that."""
    then: Mapping[str, object] = field(default_factory=dict)
    """More steps after both, and what they answer."""
    isolation: str = "read committed"
    """Of the second."""

    def __str__(self) -> str:
        return (
            f"{short(self.one)}-{'commits' if self.commits else 'rolls_back'}-{short(self.other)}"
            f"{'' if self.isolation == 'read committed' else '-' + self.isolation}"
        )


class Stage:
    """A database with the test clock, and the sessions of a test.

    One database serves the tests of a module, and its sessions are used again: what `fresh` does
    takes a tenth of the time of a new one.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._open: list[Connection] = []
        self._idle: list[Connection] = []
        self._speakers: dict[type[str], Connection] = {}
        self.conn = self.session()
        self.conn.execute(CLOCK.read_bytes())

    def fresh(self, *steps: str) -> Stage:
        """Begin anew with nothing but what the steps make."""
        for conn in self._open:
            if conn.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                conn.close()
        self._open = [conn for conn in self._open if not conn.closed]
        self._idle = list(self._open)
        self._speakers = {}
        self.conn = self.session()
        self.conn.execute(EMPTY)
        self.say(*steps)
        return self

    def close(self) -> None:
        for conn in self._open:
            conn.close()

    def session(self, step: str = "", isolation: str = "read committed") -> Connection:
        """A session that nobody has used in this test, and that may say the step."""
        if self._idle:
            conn = self._idle.pop()
        else:
            conn = psycopg.connect(self._dsn, autocommit=True, application_name="interleaving")
            self._open.append(conn)
        conn.execute("reset all")
        conn.execute("set search_path = pgq_sql")
        conn.execute("select set_config('default_transaction_isolation', %s, false)", [isolation])
        if isinstance(step, Late):
            conn.execute("set test.ahead = '2 hours'")
        return conn

    def say(self, *steps: str) -> object:
        """Do these one after the other, in a third session; the last one's answer."""
        answer: object = None
        for step in steps:
            answer = say(self._speaker(step), step)
        return answer

    def _speaker(self, step: str) -> Connection:
        kind = type(step)
        if kind not in self._speakers:
            self._speakers[kind] = self.session(step)
        return self._speakers[kind]

    def race(self, race: Race) -> None:
        """Play it and check all that it says."""
        self.say(*race.given)
        first, second = self.session(race.one), self.session(race.other, race.isolation)
        heard = meet(
            self.conn,
            (first, race.one),
            (second, race.other),
            commits=race.commits,
            waits=race.waits,
        )
        assert heard == race.hears
        assert {step: self.say(step) for step in race.then} == dict(race.then)
        steps = (race.one, race.other, *race.given, *race.then)
        assert self.places(late=any(isinstance(step, Late) for step in steps)) == list(race.ends)

    def places(self, *, late: bool = False) -> list[tuple[object, ...]]:
        """Every job as all_jobs shows it; one that is in two tables is there twice."""
        conn = self._speaker(Late() if late else "")
        tables = "select id from job union all select id from dead_job"
        ids = conn.execute(f"{tables} union all select id from done_job order by 1".encode())
        stored = [job_id for (job_id,) in ids]
        shown = conn.execute(
            "select job_id, state, attempt, token from all_jobs order by job_id, state"
        ).fetchall()
        assert [job_id for job_id, *_ in shown] == stored
        return shown

    def held(self) -> list[tuple[object, ...]]:
        """Every dedup key whose job lives, and that job."""
        return self.conn.execute(
            "select d.key, d.job_id from pgq_sql.dedup d"
            " join pgq_sql.job j on j.id = d.job_id order by d.key"
        ).fetchall()


@contextmanager
def staged(server: Server, template: str) -> Iterator[Stage]:
    """A stage on a database of its own."""
    with server.database(template) as name:
        stage = Stage(server.dsn(name, server.owner))
        try:
            yield stage
        finally:
            stage.close()


def short(step: str) -> str:
    """The function that a step calls."""
    late = "late_" if isinstance(step, Late) else ""
    return late + step.split("(")[0].split(" ")[-1]


def say(conn: Connection, step: str) -> object:
    """The first value that a step answers, or the SQLSTATE that it raises."""
    try:
        return scalar(conn, f"select {step}")
    except psycopg.Error as error:
        return error.sqlstate


def meet(
    watcher: Connection,
    one: tuple[Connection, str],
    other: tuple[Connection, str],
    *,
    commits: bool,
    waits: bool,
) -> object:
    """The second's answer to its step, done while the first's transaction is open."""
    (first, first_step), (second, step) = one, other
    with first.transaction(force_rollback=not commits):
        scalar(first, f"select {first_step}")
        if not waits:
            # With lock_timeout it would fail in a way that some functions catch.
            second.execute("set statement_timeout = '5s'")
            return say(second, step)
        call = Call(second, f"select {step}")
        wait_for_lock(watcher, second.info.backend_pid)
    return call.end()
