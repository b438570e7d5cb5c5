"""How long an idle consumer takes to get a job, against the least that LISTEN can do."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue

from contenders import OURS, PAYLOAD
from pgq_sql import Client, RunningJob, Worker
from result import Run
from scenario import Scenario, Size
from server import Connection, Server

PATIENCE = 10.0
BARE_INSERT = f"""
with new as (insert into bare (payload) values ({PAYLOAD}) returning id)
select pg_notify('bare', '') from new
"""


@dataclass(frozen=True, kw_only=True)
class Latency(Scenario):
    """One idle consumer, one job at a time: enqueue called to job in hand.

    Ours and a bare INSERT with NOTIFY, LISTEN, SELECT take turns, in one database.
    """

    jobs: int = 100
    worker_jobs: int = 50
    figures: tuple[str, ...] = ("p50_ms", "p95_ms", "p99_ms")

    def round(self, server: Server, size: Size, _number: int, /) -> dict[str, Run]:
        """Measure all three."""
        with server.fresh(OURS) as conn:
            conn.execute(
                "create table bare (id bigint generated always as identity primary key,"
                " payload jsonb not null)"
            )
            conn.execute("checkpoint")
            ours, bare = _Ours(server), _Bare(server)
            producer = server.connect()
            times: dict[str, list[float]] = {"ours": [], "bare": []}
            with producer, ours.conn, bare.conn, ThreadPoolExecutor(1) as thread:
                for _ in range(max(3, round(self.jobs * size.part))):
                    for name, consumer in (("ours", ours), ("bare", bare)):
                        times[name].append(_once(producer, consumer, thread))
            times["ours, Worker"] = _worker(
                server.dsn, conn, max(3, round(self.worker_jobs * size.part))
            )
        return {name: Run(percentiles(ones)) for name, ones in times.items()}


class _Consumer:
    """A session that waits for one job after another."""

    insert: str

    def __init__(self, server: Server) -> None:
        self.conn = server.connect()

    def begin(self) -> None:
        """Make known that it is idle, and look a last time."""
        raise NotImplementedError

    def take(self) -> bool:
        """Fetch the job, if there is one."""
        raise NotImplementedError

    def end(self) -> None:
        """Do what is to be done with it afterwards."""
        raise NotImplementedError

    def wait(self, ready: threading.Event) -> float:
        """Sleep until a job is there; the answer is the time at which it was in hand."""
        self.begin()
        ready.set()
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            if list(self.conn.notifies(timeout=1, stop_after=1)) and self.take():
                taken = time.perf_counter()
                self.end()
                return taken
        raise RuntimeError("no job came")


class _Ours(_Consumer):
    insert = OURS.enqueue

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._jobs: list[tuple[object, ...]] = []
        self._listening = False

    def begin(self) -> None:
        row = self.conn.execute("select pgq_sql.wait_begin('bench')").fetchone()
        assert row is not None
        if not self._listening:
            self.conn.execute(f'listen "{row[0]}"'.encode())
            self._listening = True
        assert not self.take()

    def take(self) -> bool:
        self._jobs = self.conn.execute(
            "select job_id, token, payload from pgq_sql.claim('bench', 'w')"
        ).fetchall()
        return bool(self._jobs)

    def end(self) -> None:
        self.conn.execute("select pgq_sql.wait_end('bench')")
        for job in self._jobs:
            self.conn.execute("select pgq_sql.ack(%s, %s)", job[:2])


class _Bare(_Consumer):
    insert = BARE_INSERT

    def begin(self) -> None:
        self.conn.execute("listen bare")

    def take(self) -> bool:
        return bool(self.conn.execute("select id, payload from bare limit 1").fetchall())

    def end(self) -> None:
        self.conn.execute("delete from bare")


def _once(producer: Connection, consumer: _Consumer, thread: ThreadPoolExecutor) -> float:
    ready = threading.Event()
    taken = thread.submit(consumer.wait, ready)
    if not ready.wait(PATIENCE):
        raise RuntimeError("the consumer did not get ready")
    # Until it sleeps indeed: so short a time can only be let pass.
    time.sleep(0.01)
    began = time.perf_counter()
    producer.execute(consumer.insert.encode())
    return taken.result() - began


def _worker(dsn: str, conn: Connection, jobs: int) -> list[float]:
    """The same through the Worker class: enqueue called to handler begun."""
    begun: SimpleQueue[float] = SimpleQueue()

    def handler(_job: RunningJob) -> None:
        begun.put(time.perf_counter())

    times: list[float] = []
    with Client(dsn) as client, ThreadPoolExecutor(1) as thread:
        worker = Worker(client, {"bench": handler}, concurrency=1)
        running = thread.submit(worker.run)
        try:
            for _ in range(jobs):
                _until(lambda: _idle(conn))
                began = time.perf_counter()
                conn.execute(OURS.enqueue.encode())
                times.append(begun.get(timeout=PATIENCE) - began)
        finally:
            worker.stop()
            running.result()
    return times


def _idle(conn: Connection) -> bool:
    """Whether a consumer holds the idle lock."""
    row = conn.execute(
        "select count(*) from pg_locks l join pg_database d on d.oid = l.database"
        " where d.datname = current_database() and locktype = 'advisory' and mode = 'ShareLock'"
    ).fetchone()
    return row is not None and row[0] == 1


def _until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > ends:
            raise RuntimeError("the worker did not become idle")
        time.sleep(0.01)
    # Its first looks follow each other closely; it is idle when they do no more.
    time.sleep(0.1)


def percentiles(seconds: Iterable[float]) -> dict[str, float]:
    """Of times: the figures to show."""
    ones = sorted(one * 1000 for one in seconds)
    return {
        "p50_ms": statistics.median(ones),
        "p95_ms": ones[int(len(ones) * 0.95)],
        "p99_ms": ones[int(len(ones) * 0.99)],
    }
