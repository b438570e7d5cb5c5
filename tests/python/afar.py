"""Running either kind of worker at the end of a line that is not to be relied on."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from pgq_sql import (
    AsyncClient,
    AsyncRunningJob,
    AsyncWorker,
    Client,
    Consumer,
    Report,
    RunningJob,
    Worker,
)
from proxy import Proxy
from servers import Connection, wait_until

AnyJob: TypeAlias = RunningJob | AsyncRunningJob

PATIENCE = 60.0
EFFECT = "insert into effects select %s"

both = pytest.mark.parametrize("kind", ["sync", "async"])


class Work:
    """The handler of either worker: notes its jobs, waits while it may not go on, does its work.

    With `transaction` that is a row of `effects`, in one transaction with the ack; `act` is called
    in any case, and may raise.
    """

    def __init__(
        self, *, transaction: bool = False, act: Callable[[AnyJob], object] = bool
    ) -> None:
        self._transaction = transaction
        self._act = act
        self.go = threading.Event()
        self.go.set()
        self.jobs: list[AnyJob] = []
        self.told: list[AnyJob] = []
        """Those that it was told were lost, while it waited."""

    def sync(self, job: RunningJob) -> object:
        self.jobs.append(job)
        while not self.go.wait(0.01):
            if job.lost.is_set():
                self.told.append(job)
                return None
        if self._transaction:
            with job.transaction() as conn:
                conn.execute(EFFECT, [job.job_id])
        return self._act(job)

    async def coroutine(self, job: AsyncRunningJob) -> object:
        self.jobs.append(job)
        try:
            while not self.go.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.told.append(job)
            raise
        if self._transaction:
            async with job.transaction() as conn:
                await conn.execute(EFFECT, [job.job_id])
        return self._act(job)

    @property
    def runs(self) -> Counter[int]:
        """How often each job was run."""
        return Counter(job.job_id for job in self.jobs)

    def wait(self, count: int) -> None:
        """Until it was called so often."""
        wait_until(lambda: len(self.jobs) >= count, PATIENCE, message=f"{count} runs")


@dataclass
class AtWork:
    """A worker in a thread of its own."""

    worker: Worker | AsyncWorker
    end: Future[Report]

    @property
    def report(self) -> Report:
        return self.worker.report

    def wait(self, **counts: int) -> None:
        """Until its report says so."""
        wait_until(
            lambda: all(getattr(self.report, name) >= count for name, count in counts.items()),
            PATIENCE,
            message=str(counts),
        )


@contextmanager
def at_work(
    kind: str, dsn: str, work: Work, *, timeout: timedelta | None = None, **options: Any
) -> Iterator[AtWork]:
    """Run a worker of that kind on the queue q; in the end stop it, and raise what it raised.

    `timeout` is the handler's.
    """
    made: Future[Worker | AsyncWorker] = Future()

    def run_threads() -> Report:
        with Client(dsn) as client:
            worker = Worker(client, {"q": Consumer(work.sync, timeout=timeout)}, **options)
            made.set_result(worker)
            return worker.run()

    async def run_loop() -> Report:
        async with AsyncClient(dsn) as client:
            worker = AsyncWorker(
                client, {"q": Consumer(work.coroutine, timeout=timeout)}, **options
            )
            made.set_result(worker)
            return await worker.run()

    with ThreadPoolExecutor(1) as executor:
        end = executor.submit(run_threads if kind == "sync" else lambda: asyncio.run(run_loop()))
        running = AtWork(made.result(PATIENCE), end)
        try:
            yield running
        finally:
            running.worker.stop()
            end.result(PATIENCE)


@contextmanager
def mended(proxy: Proxy) -> Iterator[None]:
    """In the end make the line good again, so that the worker can end, whatever holds it up."""
    try:
        yield
    finally:
        proxy.disarm()
        proxy.hear()
        proxy.cut()


def all_done(conn: Connection) -> None:
    """Wait until no job is left."""
    wait_until(lambda: not _rows(conn, "select from pgq_sql.jobs limit 1"), PATIENCE)


def effects(conn: Connection) -> Counter[int]:
    """How often each job had its effect."""
    return Counter(int(str(job_id)) for (job_id,) in _rows(conn, "select job_id from effects"))


def _rows(conn: Connection, query: Any) -> list[tuple[object, ...]]:
    return conn.execute(query).fetchall()
