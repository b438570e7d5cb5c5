"""One round trip: the ends of some claims, and new claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from ._conninfo import Connection
from ._jobs import HeldJob, claims
from ._looks import Source
from ._settlements import Settlement, Verb
from ._sync.caller import Row
from ._watch import Patience
from .client import Client
from .errors import translated
from .models import JOB_COLUMNS

DUE_IN = """\
select extract(epoch from
  {schema}.next_run_at(queue => %(queue)s::text) - clock_timestamp())::float8"""


@dataclass(slots=True, eq=False)
class Ask:
    """A look into a queue: for up to `n` jobs, perhaps for when the next one is due."""

    source: Source
    n: int
    due: bool
    jobs: list[HeldJob] = field(default_factory=list)
    due_in: float | None = None
    answered: bool = False


class Exchange:
    """Speaks to the database for the dispatcher.

    What was answered, and committed, is written into the settlements and asks, also if an
    exception comes out.
    """

    def __init__(
        self, client: Client, worker: str, make_job: Callable[..., HeldJob], patience: Patience
    ) -> None:
        self._client = client
        self._patience = patience
        self._make_job = make_job
        self._worker = worker
        self._due_in = client._statements.fill(DUE_IN)

    def storable(self, result: object) -> bool:
        """Whether it is JSON, for the client's `dumps`."""
        try:
            self._client._statements.call("ack", {"result": result})
        except Exception:
            return False
        return True

    def run(
        self,
        settlements: Sequence[Settlement],
        asks: Sequence[Ask],
        at_most: float = math.inf,
    ) -> None:
        """Settle, then ask; wait at most so many seconds for each answer.

        Acks and claims share one transaction and one commit. The other verbs, rarer, have
        their own: a transaction that locks rows by two statements could deadlock with a renewal.
        """
        for one in settlements:
            if one.job._course.ended:
                one.answer = "acked"
        left = [one for one in settlements if one.answer is None]
        for verb in ("retry", "dead_letter", "release"):
            self._settle(verb, [one for one in left if one.verb == verb], at_most)
        acks = [one for one in left if one.verb == "ack"]
        if acks or asks:
            self._ack_and_claim(acks, asks, at_most)

    def check(self, queues: Iterable[str]) -> None:
        """VersionMismatch or QueueNotFound if the schema or the queues are not there."""
        with self._connection() as conn:
            self._client.check(conn=conn)
            for name in queues:
                self._client.next_run_at(name, conn=conn)

    @contextmanager
    def _connection(self, at_most: float = math.inf) -> Iterator[Connection]:
        with (
            translated(),
            self._client._borrow() as conn,
            self._patience.with_(conn, at_most),
        ):
            yield conn

    def _settle(self, verb: Verb, group: Sequence[Settlement], at_most: float) -> None:
        if not group:
            return
        with self._connection(at_most) as conn:
            rows = self._send(conn, verb, group).fetchall()
        _answer(group, rows)

    def _ack_and_claim(
        self, acks: Sequence[Settlement], asks: Sequence[Ask], at_most: float
    ) -> None:
        cursors: list[psycopg.Cursor[Row]] = []
        with self._connection(at_most) as conn:
            with _one_trip(conn):
                if acks:
                    cursors.append(self._send(conn, "ack", acks))
                cursors += [self._claim(conn, ask) for ask in asks]
                cursors += [self._ask_due(conn, ask) for ask in asks if ask.due]
            answers = [cursor.fetchall() for cursor in cursors]
        # Nothing counts before the commit, which is behind us only now.
        rest = iter(answers)
        if acks:
            _answer(acks, next(rest))
        for ask in asks:
            ask.jobs = [self._make_job(*row[:JOB_COLUMNS]) for row in next(rest)]
            ask.answered = True
        for ask in asks:
            if ask.due:
                ((ask.due_in,),) = next(rest)

    def _send(
        self, conn: Connection, verb: Verb, group: Sequence[Settlement]
    ) -> psycopg.Cursor[Row]:
        ids, tokens = claims(one.job for one in group)
        arguments: dict[str, object] = {"job_ids": ids, "tokens": tokens}
        if verb == "ack" and any(one.result is not None for one in group):
            arguments["results"] = [one.result for one in group]
        if verb in ("retry", "dead_letter"):
            arguments["errors"] = [one.error for one in group]
        if verb in ("retry", "release"):
            arguments["delays"] = [one.delay for one in group]
        return self._client._execute(conn, f"{verb}_many", **arguments)

    def _claim(self, conn: Connection, ask: Ask) -> psycopg.Cursor[Row]:
        return self._client._execute(
            conn, "claim", queue=ask.source.name, worker=self._worker, n=ask.n
        )

    def _ask_due(self, conn: Connection, ask: Ask) -> psycopg.Cursor[Row]:
        return self._client._run(conn, self._due_in, {"queue": ask.source.name})


def _answer(group: Sequence[Settlement], rows: Iterable[Row]) -> None:
    for settlement, (_, _, outcome) in zip(group, rows, strict=True):
        settlement.answer = outcome


@contextmanager
def _one_trip(conn: Connection) -> Iterator[None]:
    """Send several statements at once, as one transaction.

    Of several errors the first is raised; those that follow from it would only be noise. The
    connection is not used again: psycopg believes that it has prepared statements on it which
    the server, skipping the rest of the pipeline, has never seen.
    """
    if not psycopg.Pipeline.is_supported():
        # libpq before 14: each statement is a round trip, and a transaction of its own.
        yield
        return
    first: psycopg.Error | None = None
    try:
        with conn.pipeline():
            try:
                yield
            except psycopg.Error as error:
                first = error
    except psycopg.Error as error:
        first = first or error
    if first is not None:
        conn.close()
        raise first
