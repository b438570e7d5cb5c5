"""How long an idle worker takes until the handler of a new job is called."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import psycopg
from psycopg.conninfo import make_conninfo

from calls import DOCUMENT
from contenders import PAYLOAD
from latency import BARE_INSERT, percentiles
from pgq_sql import Client
from result import Run
from scenario import Scenario, Size
from server import Connection, Server
from workers import LISTENER, PATIENCE, PGQUEUER_ONE, Running, Subject, running

WARMING = 3
"""Jobs that do not count: plans are made, and connections opened."""
PRODUCER = "producer"
QUIET = "100 ms"
"""A worker that has asked nothing for so long sleeps; its first looks follow each other closely."""
IDLE = f"""
select count(*) > 0 and bool_and(state = 'idle' and clock_timestamp() - state_change > '{QUIET}')
from pg_stat_activity
where datname = current_database() and backend_type = 'client backend'
  and application_name <> '{PRODUCER}'
"""

Enqueue = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Pickup(Scenario):
    """From the call that enqueues, in this process, to the handler called in the worker's.

    All workers wait at once, each in a database of its own, and get their jobs in turn.
    """

    subjects: tuple[Subject, ...]
    jobs: int = 200
    figures: tuple[str, ...] = ("p50_ms", "p95_ms", "p99_ms")

    def round(self, server: Server, size: Size, _number: int, /) -> dict[str, Run]:
        """Measure those that are installed."""
        jobs = max(3, round(self.jobs * size.part))
        with ExitStack() as stack:
            waiting = [
                stack.enter_context(_waiting(replace(server, name=f"{server.name}_{place}"), one))
                for place, one in enumerate(self.subjects)
                if one.installed
            ]
            times = [[one.once() for one in waiting] for _ in range(WARMING + jobs)][WARMING:]
        return {
            one.name: Run(percentiles(seconds))
            for one, seconds in zip(waiting, zip(*times, strict=True), strict=True)
        }


@dataclass(frozen=True)
class _Waiting:
    """A worker with nothing to do, and its producer."""

    name: str
    worker: Running
    watcher: Connection
    enqueue: Enqueue

    def once(self) -> float:
        """Give it a job when it sleeps."""
        ends = time.monotonic() + PATIENCE
        while not self._sleeps():
            if time.monotonic() > ends:
                raise RuntimeError(f"{self.name} did not become idle")
            time.sleep(0.01)
        began = time.monotonic()
        self.enqueue()
        return self.worker.told()[0] - began

    def _sleeps(self) -> bool:
        row = self.watcher.execute(IDLE.encode()).fetchone()
        return row is not None and bool(row[0])


@contextmanager
def _waiting(server: Server, subject: Subject) -> Iterator[_Waiting]:
    dsn = make_conninfo(server.dsn, application_name=PRODUCER)
    with (
        server.fresh(subject) as watcher,
        running(subject, server.dsn, 0) as worker,
        _producer(dsn, subject) as enqueue,
    ):
        watcher.execute(f"set application_name = {PRODUCER}".encode())
        yield _Waiting(subject.name, worker, watcher, enqueue)


@contextmanager
def _producer(dsn: str, subject: Subject) -> Iterator[Enqueue]:
    """Each by its own client, none of which sends more than one statement."""
    if subject is PGQUEUER_ONE:
        from pgqueuer.db import SyncPsycopgDriver
        from pgqueuer.queries import SyncQueries

        with psycopg.connect(dsn, autocommit=True) as conn:
            queries = SyncQueries(SyncPsycopgDriver(conn))
            yield lambda: queries.enqueue("bench", PAYLOAD.strip("'").encode())
    elif subject is LISTENER:
        with psycopg.connect(dsn, autocommit=True) as conn:
            yield lambda: conn.execute(BARE_INSERT.encode())
    else:
        with Client(dsn) as client:
            yield lambda: client.enqueue("bench", DOCUMENT)
