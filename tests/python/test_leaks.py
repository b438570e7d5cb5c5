"""A worker that has ended leaves nothing: no thread, no connection, no file, no task."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from pgq_sql import AsyncClient, AsyncRunningJob, AsyncWorker, Client, Report, RunningJob, Worker
from pgq_sql._dispatcher import Dispatcher
from proxy import Proxy
from servers import Connection, wait_until
from working import listening, messages, running

# Whatever is waited for comes in far less, also on a machine that does much else.
PATIENCE = 60.0

pytestmark = pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="cannot see its own files")


def files() -> dict[int, str]:
    """What this process has open."""
    found = {}
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # the folder itself, which listing it opened
            found[int(name)] = os.readlink(f"/dev/fd/{name}")
    return found


def threads() -> list[str]:
    """The threads of workers."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pgq-")]


@contextmanager
def nothing_left() -> Iterator[None]:
    """Whatever was opened and started in the block has ended, without the garbage collector."""
    before = files()
    gc.collect()
    gc.disable()
    try:
        yield
        deadline = time.monotonic() + PATIENCE
        # A thread whose end was not waited for takes a moment, and has its files until then.
        while (left := opened(before)) or threads():
            assert time.monotonic() < deadline, f"left: {threads()}, {left}"
            time.sleep(0.005)
    finally:
        gc.enable()


def opened(before: dict[int, str]) -> dict[int, str]:
    return {fd: target for fd, target in files().items() if before.get(fd) != target}


@pytest.fixture
def queue(database: str, conn: Connection) -> str:
    """A queue with jobs for a worker; the answer is where."""
    conn.execute("select pgq_sql.create_queue('q', visibility_timeout => '1 min')")
    conn.execute("select pgq_sql.enqueue_many('q', array_fill('1'::jsonb, array[20]))")
    return database


def in_threads(
    dsn: str,
    handler: Callable[[RunningJob], object],
    act: Callable[[Worker], object] | None = None,
    **options: Any,
) -> Report:
    """A Worker that runs until nothing is left to do, or while somebody acts."""
    with Client(dsn) as client:
        worker = Worker(client, {"q": handler}, concurrency=4, **options)
        if act is None:
            return worker.run(until_idle=True)
        with running(worker):
            act(worker)
        return worker.report


def in_loop(
    dsn: str,
    handler: Callable[[AsyncRunningJob], Awaitable[object]],
    act: Callable[[AsyncWorker, asyncio.Task[Report]], Awaitable[object]] | None = None,
    patience: float = PATIENCE,
    **options: Any,
) -> Report:
    """An AsyncWorker that runs until nothing is left, or while somebody acts; leaves no task."""

    async def main() -> Report:
        async with AsyncClient(dsn) as client:
            worker = AsyncWorker(client, {"q": handler}, **options)
            if act is None:
                await worker.run(until_idle=True)
            else:
                task = asyncio.create_task(worker.run())
                await act(worker, task)
                worker.stop()
                with suppress(asyncio.CancelledError):
                    await asyncio.wait_for(task, PATIENCE)
            await until(lambda: asyncio.all_tasks() == {asyncio.current_task()}, patience)
        return worker.report

    return asyncio.run(main())


async def until(condition: Callable[[], object], patience: float = PATIENCE) -> None:
    async with asyncio.timeout(patience):
        while not condition():
            await asyncio.sleep(0.005)


class TestThreads:
    def test_until_idle(self, queue: str) -> None:
        with nothing_left():
            assert in_threads(queue, lambda _: None).acked == 20

    def test_stop(self, queue: str) -> None:
        with nothing_left():
            in_threads(queue, lambda _: None, lambda worker: worker.stop())

    def test_stop_while_it_listens(self, queue: str, conn: Connection) -> None:
        def act(worker: Worker) -> None:
            wait_until(lambda: worker.report.acked == 20 and listening(conn), PATIENCE)

        with nothing_left():
            in_threads(queue, lambda _: None, act)

    def test_failing_handlers(self, queue: str) -> None:
        def handle(job: RunningJob) -> None:
            with job.transaction() as conn:
                conn.execute("select no such thing")

        with nothing_left():
            assert in_threads(queue, handle).retried == 20

    @pytest.mark.parametrize("how", ["stop", "at once"])
    def test_a_handler_that_hangs(self, queue: str, how: str) -> None:
        """Its thread, and the connection that it holds, end when it does."""
        late, began = threading.Event(), threading.Event()

        def handle(job: RunningJob) -> None:
            with suppress(Exception), job.transaction():
                began.set()
                late.wait(PATIENCE)

        def act(worker: Worker) -> None:
            began.wait(PATIENCE)
            worker.stop(now=how == "at once")

        handlers = {f"pgq-handler-{number}" for number in range(1, 5)}
        with nothing_left():
            try:
                report = in_threads(queue, handle, act, drain_timeout=timedelta(seconds=0.05))
                assert (report.left if how == "at once" else report.released) > 0
                wait_until(lambda: set(threads()) <= handlers, PATIENCE)
                assert threads()
            finally:
                late.set()

    def test_no_database_from_the_start(self, caplog: pytest.LogCaptureFixture) -> None:
        def act(worker: Worker) -> None:
            wait_until(lambda: caplog.records, PATIENCE)

        with nothing_left():
            in_threads("postgresql://127.0.0.1:1/x", lambda _: None, act)

    @pytest.mark.usefixtures("queue")
    def test_database_away(self, proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
        gate = threading.Event()
        begun: list[int] = []

        def handle(job: RunningJob) -> None:
            begun.append(job.job_id)
            gate.wait(PATIENCE)

        def act(_: Worker) -> None:
            # All threads are in a handler: no other begins before the database is away.
            wait_until(lambda: len(begun) == 4, PATIENCE)
            proxy.refuse()
            assert proxy.cut() > 0
            gate.set()
            wait_until(lambda: messages(caplog.records, logging.WARNING), PATIENCE)

        with nothing_left():
            report = in_threads(proxy.dsn, handle, act, drain_timeout=timedelta(seconds=0.5))
        assert (report.claimed > 0, report.acked) == (True, 0)

    @pytest.mark.usefixtures("queue")
    def test_a_deaf_network(self, proxy: Proxy) -> None:
        gate = threading.Event()
        begun: list[int] = []

        def handle(job: RunningJob) -> None:
            begun.append(job.job_id)
            gate.wait(PATIENCE)

        def act(worker: Worker) -> None:
            wait_until(lambda: begun, PATIENCE)
            proxy.go_deaf()
            worker.stop(now=True)

        with nothing_left():
            try:
                in_threads(proxy.to(connect_timeout=2), handle, act)
            finally:
                gate.set()

    def test_no_such_queue(self, queue: str) -> None:
        with nothing_left(), pytest.raises(Exception, match="nowhere"), Client(queue) as client:
            Worker(client, {"nowhere": lambda _: None}).run(until_idle=True)

    def test_an_exception_in_the_loop(self, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Dispatcher, "_sleep", interrupt)
        with nothing_left(), pytest.raises(KeyboardInterrupt):
            in_threads(queue, lambda _: None)

    def test_fifty_one_after_another(self, queue: str) -> None:
        seen = set()
        for _ in range(50):
            in_threads(queue, lambda _: None)
            wait_until(lambda: not threads(), PATIENCE)
            seen.add((len(files()), threading.active_count()))
        assert len(seen) == 1, seen

    def test_twenty_at_once(self, queue: str) -> None:
        with nothing_left(), ThreadPoolExecutor(20) as pool, Client(queue) as client:
            workers = [Worker(client, {"q": lambda _: None}, concurrency=1) for _ in range(20)]
            ends = [pool.submit(worker.run) for worker in workers]
            wait_until(lambda: sum(one.report.acked for one in workers) == 20, PATIENCE)
            for worker in workers:
                worker.stop()
            for end in ends:
                end.result(PATIENCE)


class TestCoroutines:
    def test_until_idle(self, queue: str) -> None:
        async def handle(job: AsyncRunningJob) -> None:
            await asyncio.sleep(0)

        with nothing_left():
            assert in_loop(queue, handle).acked == 20

    @pytest.mark.parametrize("how", ["stop", "at once", "cancel"])
    def test_stop(self, queue: str, how: str) -> None:
        """With handlers that hold a connection, and clean up when they are cancelled."""
        begun: list[int] = []

        async def handle(job: AsyncRunningJob) -> None:
            async with job.transaction() as conn:
                begun.append(job.job_id)
                await conn.execute("select 1")
                await asyncio.Event().wait()

        async def act(worker: AsyncWorker, task: asyncio.Task[Report]) -> None:
            await until(lambda: begun)
            if how == "cancel":
                task.cancel()
            else:
                worker.stop(now=how == "at once")

        with nothing_left():
            in_loop(queue, handle, act, 10, concurrency=4, drain_timeout=timedelta(seconds=0.05))

    def test_a_handler_that_hangs(self, queue: str) -> None:
        """It does not even hear that it is cancelled: it ends when it likes."""
        begun: list[int] = []

        async def main() -> None:
            late = asyncio.Event()

            async def handle(job: AsyncRunningJob) -> None:
                with suppress(Exception):
                    async with job.transaction():
                        begun.append(job.job_id)
                        while not late.is_set():
                            with suppress(asyncio.CancelledError):
                                await late.wait()

            async with AsyncClient(queue) as client:
                worker = AsyncWorker(
                    client, {"q": handle}, concurrency=3, drain_timeout=timedelta(seconds=0.05)
                )
                task = asyncio.create_task(worker.run())
                await until(lambda: len(begun) == 3)
                worker.stop()
                await asyncio.wait_for(task, PATIENCE)
                late.set()
                await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})

        with nothing_left():
            asyncio.run(main())

    @pytest.mark.usefixtures("queue")
    def test_database_away(self, proxy: Proxy) -> None:
        begun: list[int] = []

        async def handle(job: AsyncRunningJob) -> None:
            begun.append(job.job_id)
            await asyncio.sleep(0.01)

        async def act(worker: AsyncWorker, task: asyncio.Task[Report]) -> None:
            await until(lambda: begun)
            await asyncio.to_thread(proxy.refuse)
            await asyncio.to_thread(proxy.cut)

        with nothing_left():
            in_loop(proxy.dsn, handle, act, drain_timeout=timedelta(seconds=0.2))

    def test_fifty_one_after_another(self, queue: str) -> None:
        async def handle(job: AsyncRunningJob) -> None:
            await asyncio.sleep(0)

        async def main() -> None:
            seen = set()
            async with AsyncClient(queue) as client:
                await client.check()
                for _ in range(50):
                    await AsyncWorker(client, {"q": handle}).run(until_idle=True)
                    await until(lambda: not threads())
                    loops = sum(t.name.startswith("asyncio_") for t in threading.enumerate())
                    seen.add((len(files()), threading.active_count() - loops))
                    assert asyncio.all_tasks() == {asyncio.current_task()}
            assert len(seen) == 1, seen

        with nothing_left():
            asyncio.run(main())

    def test_threads_of_the_loop_are_left_to_the_application(self, queue: str) -> None:
        async def handle(job: AsyncRunningJob) -> None:
            await asyncio.sleep(0)

        async def main() -> None:
            free = threading.Event()
            loop = asyncio.get_running_loop()
            with ThreadPoolExecutor(1) as executor:
                loop.set_default_executor(executor)
                busy = loop.run_in_executor(None, free.wait, PATIENCE)
                async with AsyncClient(queue) as client:
                    worker = AsyncWorker(client, {"q": handle})
                    task = asyncio.create_task(worker.run())
                    try:
                        await until(lambda: worker.report.acked == 20, 10)
                    finally:
                        free.set()
                        await busy
                        worker.stop()
                        await task

        asyncio.run(main())


warns = partial(pytest.warns, ResourceWarning, match="was deleted while still open")


class TestClientsThatNobodyCloses:
    """A warning, as for a file; the connection is closed all the same."""

    def test_a_client(self, database: str) -> None:
        def used() -> Client:
            client = Client(database)
            client.schema_version()
            return client

        with nothing_left(), warns():
            collect([used()])

    def test_an_async_client(self, database: str) -> None:
        async def used() -> AsyncClient:
            client = AsyncClient(database)
            await client.schema_version()
            return client

        with nothing_left(), warns():
            collect([asyncio.run(used())])

    def test_one_that_was_never_used(self) -> None:
        client = Client("postgresql://x/y")
        collect([client, AsyncClient("postgresql://x/y"), Worker(client, {"q": lambda _: None})])


def collect(things: list[Any]) -> None:
    things.clear()
    gc.collect()
