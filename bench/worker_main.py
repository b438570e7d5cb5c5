"""One worker in a process of its own: `worker_main.py NAME DSN JOBS`.

Its handlers do nothing but count. For the first and the last of so many jobs, or for each where
JOBS is 0, it writes the time of the call, and the processor time that the process has used.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from urllib.parse import urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

BARE_BATCH = 1000
"""Of 100, 300, 1000 and 3000 the fastest."""
HANDLER_BATCH = 100
CONCURRENCY = 30
"""Of procrastinate, as its documentation shows; neither 4 nor 100 is faster."""

Call = Callable[[], None]


class Tally:
    """Counts calls, also those from several threads."""

    def __init__(self, jobs: int) -> None:
        self._told = {0, jobs - 1}
        self._every = jobs == 0
        self._count = itertools.count()

    def __call__(self) -> None:
        """Count one."""
        if next(self._count) in self._told or self._every:
            # In one call: lines of threads must not mix.
            os.write(1, f"{time.monotonic()} {time.process_time()}\n".encode())


def bare(dsn: str, call: Call) -> None:
    """Claim and ack with no worker, on one connection; psycopg prepares both."""
    claim = f"select job_id, token, payload from pgq_sql.claim('bench', 'w', {BARE_BATCH})"
    ack = b"select * from pgq_sql.ack_many(%s::bigint[], %s::bigint[])"
    with psycopg.connect(dsn, autocommit=True) as conn:
        while jobs := conn.execute(claim.encode(), binary=True).fetchall():
            for _ in jobs:
                call()
            ends = [job[0] for job in jobs], [job[1] for job in jobs]
            conn.execute(ack, ends, binary=True).fetchall()


def bare_listener(dsn: str, call: Call) -> None:
    """The least that LISTEN can do: for each notification, look."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("listen bare")
        while True:
            for _ in conn.execute("select id, payload from bare").fetchall():
                call()
            conn.execute("delete from bare")
            for _ in conn.notifies(stop_after=1):
                pass


def ours(dsn: str, call: Call) -> None:
    """An AsyncWorker as it comes."""
    from pgq_sql import AsyncClient, AsyncRunningJob, AsyncWorker

    async def handler(_job: AsyncRunningJob) -> None:
        call()

    async def run() -> None:
        async with AsyncClient(dsn) as client:
            await AsyncWorker(client, {"bench": handler}).run(signals=True)

    asyncio.run(run())


def ours_batches(dsn: str, call: Call) -> None:
    """The same with a handler that takes batches."""
    from pgq_sql import AsyncBatch, AsyncClient, AsyncWorker, BatchConsumer

    async def handler(batch: AsyncBatch) -> None:
        for _ in batch:
            call()

    async def run() -> None:
        async with AsyncClient(dsn) as client:
            consumer = BatchConsumer(handler, size=HANDLER_BATCH)
            await AsyncWorker(client, {"bench": consumer}).run(signals=True)

    asyncio.run(run())


def ours_threads(dsn: str, call: Call) -> None:
    """A Worker as it comes."""
    from pgq_sql import Client, RunningJob, Worker

    def handler(_job: RunningJob) -> None:
        call()

    with Client(dsn) as client:
        Worker(client, {"bench": handler}).run(signals=True)


def pgqueuer(dsn: str, call: Call, *, managers: int, batch_size: int) -> None:
    """The driver and the loop that its documentation calls the fastest."""
    import asyncpg
    import uvloop
    from pgqueuer import PgQueuer
    from pgqueuer.models import Job

    # The one form of connection string that asyncpg reads.
    uri = f"postgresql://?{urlencode(conninfo_to_dict(dsn))}"

    async def handler(_job: Job) -> None:
        call()

    async def run() -> None:
        running = []
        for _ in range(managers):
            manager = PgQueuer.from_asyncpg_connection(await asyncpg.connect(uri))
            manager.entrypoint("bench")(handler)
            running.append(manager.run(batch_size=batch_size))
        await asyncio.gather(*running)

    uvloop.run(run())


def procrastinate(dsn: str, call: Call) -> None:
    """An async task; finished jobs are deleted, which costs less than keeping them."""
    import uvloop
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=dsn))

    @app.task(name="bench")
    async def handler(**_payload: object) -> None:
        call()

    async def run() -> None:
        async with app.open_async():
            await app.run_worker_async(concurrency=CONCURRENCY, delete_jobs="always")

    uvloop.run(run())


WORKERS: dict[str, Callable[[str, Call], None]] = {
    "bare": bare,
    "bare listener": bare_listener,
    "ours": ours,
    "ours, batches": ours_batches,
    "ours, threads": ours_threads,
    # As in its own benchmark.
    "pgqueuer": partial(pgqueuer, managers=5, batch_size=10),
    # Of 1 to 8 managers and batches of 10 to 2,000 the fastest.
    "pgqueuer, tuned": partial(pgqueuer, managers=2, batch_size=1000),
    "pgqueuer, one": partial(pgqueuer, managers=1, batch_size=10),
    "procrastinate": procrastinate,
}


if __name__ == "__main__":
    name, dsn, jobs = sys.argv[1:]
    WORKERS[name](dsn, Tally(int(jobs)))
