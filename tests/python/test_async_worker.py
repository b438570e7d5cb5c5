"""The worker for coroutines: how handlers end, how they are cancelled, how it stops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from pgq_sql import (
    AsyncClient,
    AsyncRunningJob,
    AsyncWorker,
    DeadLetter,
    Report,
    Retry,
    Snooze,
)
from servers import Connection
from test_concurrency import scalar
from working import PATIENCE

STATES = "select job_id, state, last_error from pgq_sql.all_jobs order by job_id"
DONE = "select job_id, result from pgq_sql.done_jobs order by job_id"

Handler = Callable[[AsyncRunningJob], Awaitable[object]]


def work(
    database: str,
    handler: Handler,
    payloads: list[object],
    act: Callable[[AsyncWorker], Awaitable[object]] | None = None,
    **options: Any,
) -> Report:
    """Let a worker do these jobs: until it is idle, or while somebody acts."""

    async def main() -> Report:
        async with AsyncClient(database) as client:
            await client.create_queue("q", retry_delay=timedelta(0), keep_done=timedelta(days=1))
            await client.enqueue_many("q", payloads)
            worker = AsyncWorker(client, {"q": handler}, **options)
            if act is None:
                return await worker.run(until_idle=True)
            running = asyncio.create_task(worker.run())
            await act(worker)
            with contextlib.suppress(asyncio.CancelledError):
                await running
            return worker.report

    return asyncio.run(main())


def test_how_handlers_end(database: str, conn: Connection) -> None:
    async def handle(job: AsyncRunningJob) -> object:
        await asyncio.sleep(0)
        match job.payload:
            case "retry" if job.attempt == 1:
                raise Retry(reason="again")
            case "error" if job.attempt == 1:
                raise ValueError("boom")
            case "dead":
                raise DeadLetter("no")
            case "snooze":
                raise Snooze(timedelta(hours=1))
        return {"did": job.payload}

    report = work(database, handle, ["fine", "retry", "error", "dead", "snooze"])
    assert report == Report(claimed=7, acked=3, retried=2, dead=1, released=1)
    rows = conn.execute(STATES).fetchall()
    assert [state for _, state, _ in rows] == ["done", "done", "done", "dead", "scheduled"]
    assert str(rows[2][2]).startswith("ValueError: boom\n")
    assert "in handle" in str(rows[2][2])
    assert conn.execute(DONE).fetchone() == (1, {"did": "fine"})


def test_a_result_that_cannot_be_kept_does_not_undo_the_work(
    database: str, conn: Connection
) -> None:
    async def handle(job: AsyncRunningJob) -> object:
        return object() if job.payload == "odd" else "x" * 2_000_000 if job.payload else "kept"

    report = work(database, handle, ["odd", "large", None])
    assert report == Report(claimed=3, acked=3)
    assert conn.execute(DONE).fetchall() == [(1, None), (2, None), (3, "kept")]


@pytest.mark.parametrize("concurrency", [1, 7, 50])
def test_no_more_at_once_than_allowed(database: str, conn: Connection, concurrency: int) -> None:
    running: set[int] = set()
    most = 0

    async def handle(job: AsyncRunningJob) -> None:
        nonlocal most
        running.add(job.job_id)
        most = max(most, len(running))
        await asyncio.sleep(0.001)
        running.remove(job.job_id)

    report = work(database, handle, list(range(200)), concurrency=concurrency)
    assert report == Report(claimed=200, acked=200)
    assert most <= concurrency
    assert most > concurrency // 2


def test_a_handler_whose_lease_is_lost_is_cancelled(database: str, conn: Connection) -> None:
    ends: list[str] = []
    began = threading.Event()

    async def handle(job: AsyncRunningJob) -> None:
        if job.attempt > 1:
            ends.append("second run")
            return
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ends.append("cancelled" if job.lost.is_set() else "cancelled, not lost")
            raise

    async def act(worker: AsyncWorker) -> None:
        assert await asyncio.to_thread(began.wait, PATIENCE)
        conn.execute("select pgq_sql.cancel(1)")
        async with asyncio.timeout(PATIENCE):
            while not ends:
                await asyncio.sleep(0.01)
        worker.stop()

    async def short(client: AsyncClient) -> None:
        await client.create_queue("q", visibility_timeout=timedelta(seconds=3))

    async def prepare() -> None:
        async with AsyncClient(database) as client:
            await short(client)

    asyncio.run(prepare())
    report = work(database, handle, ["x"], act)
    assert ends == ["cancelled"]
    assert report == Report(claimed=1, lost=1)


def test_a_handler_that_cancels_itself_is_a_retry(database: str, conn: Connection) -> None:
    async def handle(job: AsyncRunningJob) -> None:
        if job.attempt == 1:
            raise asyncio.CancelledError

    assert work(database, handle, ["x"]) == Report(claimed=2, acked=1, retried=1)


class TestStop:
    """No new claims; what runs may end, in time; the rest goes back at no cost."""

    def test_it_lets_handlers_end(self, database: str, conn: Connection) -> None:
        began = asyncio.Event()

        async def handle(_: AsyncRunningJob) -> None:
            began.set()
            await asyncio.sleep(0.2)

        async def act(worker: AsyncWorker) -> None:
            await asyncio.wait_for(began.wait(), PATIENCE)
            worker.stop()

        report = work(database, handle, [1, 2, 3], act, concurrency=1)
        assert report.acked == 1
        assert report.left == 0
        assert scalar(conn, "select count(*) from pgq_sql.jobs where state = 'ready'") == 2
        assert scalar(conn, "select max(attempt) from pgq_sql.jobs") == 0

    @pytest.mark.parametrize("how", ["drain_timeout", "now", "cancel"])
    def test_it_cancels_those_that_do_not(self, database: str, conn: Connection, how: str) -> None:
        began = asyncio.Event()
        ends: list[str] = []

        async def handle(_: AsyncRunningJob) -> None:
            began.set()
            try:
                await asyncio.sleep(60)
            finally:
                ends.append("ended")

        async def main() -> Report:
            async with AsyncClient(database) as client:
                await client.create_queue("q")
                await client.enqueue("q")
                worker = AsyncWorker(client, {"q": handle}, drain_timeout=timedelta(seconds=0.1))
                running = asyncio.create_task(worker.run())
                await asyncio.wait_for(began.wait(), PATIENCE)
                if how == "cancel":
                    running.cancel()
                else:
                    worker.stop(now=how == "now")
                await asyncio.wait([running])
                for _ in range(3):
                    await asyncio.sleep(0)
                return worker.report

        report = asyncio.run(main())
        assert ends == ["ended"]
        assert report.acked == 0
        if how == "drain_timeout":
            assert report == Report(claimed=1, released=1)
            assert scalar(conn, "select attempt from pgq_sql.jobs") == 0

    def test_a_signal(self, database: str) -> None:
        async def handle(_: AsyncRunningJob) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.05)

        async def main() -> Report:
            async with AsyncClient(database) as client:
                await client.create_queue("q")
                await client.enqueue("q")
                worker = AsyncWorker(client, {"q": handle})
                return await asyncio.wait_for(worker.run(signals=True), PATIENCE)

        assert asyncio.run(main()).acked == 1


def test_a_signal_while_nothing_happens(database: str) -> None:
    """The loop sleeps, and a thread of the worker may be the one that gets the signal."""
    program = (
        "import asyncio, pgq_sql\n"
        "async def main():\n"
        "    async with pgq_sql.AsyncClient('postgresql://127.0.0.1:1/x') as client:\n"
        "        worker = pgq_sql.AsyncWorker(client, {'q': main})\n"
        "        await worker.run(signals=True)\n"
        "asyncio.run(main())\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program], stderr=subprocess.PIPE
    )
    assert running.stderr is not None
    with running, running.stderr as told:
        assert b"trying again" in told.readline()  # so it runs, and has its signal handlers
        running.send_signal(signal.SIGTERM)
        try:
            assert running.wait(PATIENCE) == 0
        finally:
            running.kill()


def test_a_handler_that_holds_the_loop_up_keeps_its_lease(database: str, conn: Connection) -> None:
    hold = threading.Event()

    async def prepare() -> None:
        async with AsyncClient(database) as client:
            await client.create_queue("q", visibility_timeout=timedelta(seconds=2))

    async def handle(_: AsyncRunningJob) -> None:
        hold.wait(3)  # not awaited: no other task of the loop can run

    asyncio.run(prepare())
    assert work(database, handle, ["x"]) == Report(claimed=1, acked=1)


def test_what_cannot_be_a_handler(database: str) -> None:
    async def main() -> None:
        async with AsyncClient(database) as client:
            wrong: Any = {"q": 1}
            with pytest.raises(TypeError):
                AsyncWorker(client, wrong)
            with pytest.raises(ValueError, match="needs a handler"):
                AsyncWorker(client, {})

    asyncio.run(main())
