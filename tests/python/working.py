"""Running workers in tests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from pgq_sql import Client, Job, Report, RunningJob, Worker
from servers import Connection, wait_until

PATIENCE = 20.0
"""Seconds after which a condition has failed; nothing takes nearly that long."""


@contextmanager
def running(worker: Worker) -> Iterator[Future[Report]]:
    """Run a worker in a thread; stop it in the end, and raise what it raised."""
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(worker.run)
        try:
            yield future
        finally:
            worker.stop()
            # Also if the test has failed: perhaps because of what the worker raised.
            future.result(PATIENCE)


class Record:
    """A handler that notes its jobs and returns."""

    def __init__(self) -> None:
        self.jobs: list[RunningJob] = []

    def __call__(self, job: RunningJob) -> None:
        self.jobs.append(job)

    @property
    def payloads(self) -> list[Any]:
        return [job.payload for job in self.jobs]

    def wait(self, count: int) -> None:
        """Until it has been called so often."""
        wait_until(lambda: len(self.jobs) >= count, PATIENCE, message=f"{count} jobs")


class Gate(Record):
    """A handler that waits for `open`, or until its lease is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()

    def __call__(self, job: RunningJob) -> None:
        super().__call__(job)
        while not (self.open.wait(0.01) or job.lost.is_set()):
            pass


def states(conn: Connection) -> list[tuple[object, ...]]:
    """State and attempts of the live jobs."""
    return conn.execute("select state, attempt from pgq_sql.jobs order by job_id").fetchall()


def listening(conn: Connection) -> list[int]:
    """The sessions that hold the idle lock of a queue: an idle worker's listener."""
    rows = conn.execute(
        "select distinct pid from pg_locks where locktype = 'advisory' and mode = 'ShareLock'"
        " and database = (select oid from pg_database where datname = current_database())"
    ).fetchall()
    return [int(str(pid)) for (pid,) in rows]


def steal(client: Client, job: Job) -> None:
    """Take a job away from the worker that runs it."""
    assert client.release(job.job_id, job.token) == "released"


def kill(conn: Connection) -> int:
    """End all sessions of clients and workers; the answer is how many there were."""
    return len(
        conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name = 'pgq_sql'"
        ).fetchall()
    )


def messages(records: list[logging.LogRecord], level: int) -> list[str]:
    """What the worker logged at a level."""
    return [
        record.getMessage()
        for record in records
        if record.levelno == level and record.name == "pgq_sql.worker"
    ]
