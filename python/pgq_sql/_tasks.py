"""Handlers that are coroutines, in the event loop of the caller."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self, TypeAlias

from psycopg import AsyncConnection

from ._consumers import AnyConsumer, BatchConsumer, Consumer
from ._jobs import Hand, HeldJob, claims, cuttable, ending, in_worker, refuse_unless_acked, theirs
from ._joining import AsyncJoinable
from ._runner import Unit, WorkerSide
from ._settlements import Settlement, ended, failed
from .client import AsyncClient


@dataclass(frozen=True, slots=True)
class AsyncRunningJob(HeldJob):
    """A job in the hands of a handler that is a coroutine."""

    _hand: Hand[AsyncClient] | None = field(default=None, compare=False, repr=False)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A transaction in which what the block does commits together with the job's ack, or not.

        All is as in `RunningJob.transaction`.
        """
        client, patience = in_worker(self._hand)
        async with client._borrow() as conn:
            with cuttable([self], conn, patience) as call, ExitStack() as end:
                async with conn.transaction():
                    await client.require_lease(self.job_id, self.token, conn=conn)
                    with theirs(call, conn):
                        yield conn
                    end.enter_context(ending([self._course]))
                    answer = await client.ack(self.job_id, self.token, conn=conn)
                    refuse_unless_acked([self], [answer])

    async def ack(self, *, conn: AsyncJoinable) -> None:
        """Ack in a transaction of the caller's, as `RunningJob.ack`."""
        client, _ = in_worker(self._hand)
        refuse_unless_acked([self], [await client.ack(self.job_id, self.token, conn=conn)])
        self._course.ending = True


class AsyncBatch(tuple[AsyncRunningJob, ...]):
    """Jobs of one queue in the hands of a batch handler that is a coroutine."""

    __slots__ = ()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A transaction in which what the block does commits together with all acks, or not.

        All is as in `Batch.transaction`.
        """
        client, patience = in_worker(self[0]._hand)
        async with client._borrow() as conn:
            with cuttable(self, conn, patience) as call, ExitStack() as end:
                async with conn.transaction():
                    with theirs(call, conn):
                        yield conn
                    end.enter_context(ending([job._course for job in self]))
                    answers = await client.ack_many(*claims(self), conn=conn)
                    refuse_unless_acked(self, [answer.outcome for answer in answers])


AsyncHandler: TypeAlias = Callable[[AsyncRunningJob], Awaitable[object]]
AsyncBatchHandler: TypeAlias = Callable[[AsyncBatch], Awaitable[object]]
AsyncHandlers: TypeAlias = Mapping[
    str, AsyncHandler | Consumer[AsyncHandler] | BatchConsumer[AsyncBatchHandler]
]
"""What an AsyncWorker takes: each queue's handler."""


CANCEL_PATIENCE = 5.0
"""Seconds for cancelled handlers to end, when the worker does."""


class HandlerTasks:
    """At most so many tasks, begun in the order of submission.

    The dispatcher, in a thread of its own, submits and cancels; all else is the loop's.
    """

    _worker: WorkerSide

    def __init__(self, size: int, consumers: Mapping[str, AnyConsumer]) -> None:
        self._size = size
        self._consumers = consumers
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Unit] = deque()
        self._running: dict[tuple[int, int], asyncio.Task[list[Settlement]]] = {}
        self._cancelled: set[tuple[int, int]] = set()
        self._over: list[Unit] = []
        self._ends: list[Settlement] = []

    def start(self, worker: WorkerSide) -> Self:
        """Answer to this worker from now on."""
        self._worker = worker
        return self

    def submit(self, units: Iterable[Unit]) -> None:
        """Run these, in this order, when there is room."""
        self._waiting.extend(units)
        self._soon(self._begin)

    def take_back(self) -> list[Unit]:
        """Those that have not begun; they will not run."""
        units: list[Unit] = []
        while self._waiting:
            try:
                units.append(self._waiting.popleft())
            except IndexError:  # the loop was faster
                break
        return units

    def cancel(self, unit: Unit) -> None:
        """Cancel its task."""
        self._soon(self._cancel, unit[0].key)

    def _soon(self, function: Callable[..., None], *arguments: object) -> None:
        # A loop that was closed meanwhile runs nothing any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def close(self, patience: float) -> None:
        """Nothing to do in the dispatcher's thread: see `gone`."""

    async def gone(self) -> None:
        """Until what was cancelled has ended, if it does so soon."""
        if self._running:
            await asyncio.wait(self._running.values(), timeout=CANCEL_PATIENCE)

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._size:
            try:
                unit = self._waiting.popleft()
            except IndexError:  # taken back
                return
            task = self._task(self._settlements(unit))
            self._running[unit[0].key] = task
            task.add_done_callback(partial(self._ended, unit))

    def _task(self, work: Coroutine[Any, Any, list[Settlement]]) -> asyncio.Task[list[Settlement]]:
        if sys.version_info >= (3, 12) and self._loop.get_task_factory() is None:
            # Begun at once: a handler that waits for nothing then costs no turn of the loop.
            return asyncio.Task(work, loop=self._loop, eager_start=True)
        return self._loop.create_task(work)

    def _ended(self, unit: Unit, task: asyncio.Task[list[Settlement]]) -> None:
        key = unit[0].key
        del self._running[key]
        self._cancelled.discard(key)
        if not self._over:
            # Once for all that end in this turn of the loop: each time costs more than a handler.
            self._loop.call_soon(self._tell)
        self._over.append(unit)
        # Cancelled before it began: then nothing of it has run.
        self._ends += _released(unit) if task.cancelled() else task.result()
        self._begin()

    def _tell(self) -> None:
        over, ends = self._over, self._ends
        self._over, self._ends = [], []
        self._worker.finished(over, ends)

    def _cancel(self, key: tuple[int, int]) -> None:
        if task := self._running.get(key):
            self._cancelled.add(key)
            task.cancel()

    async def _settlements(self, unit: Unit) -> list[Settlement]:
        if any(job.lost.is_set() for job in unit):
            # Lost while it waited here: somebody else may be running it.
            return _released(unit)
        consumer = self._consumers[unit[0].queue]
        self._worker.begins(unit)
        try:
            answer = consumer.handler(unit if isinstance(consumer, BatchConsumer) else unit[0])
            if inspect.isawaitable(answer):
                answer = await answer
            return ended(consumer, unit, answer)
        except asyncio.CancelledError as error:
            if unit[0].key in self._cancelled:
                return _released(unit)
            return failed(consumer, unit, error)
        except BaseException as error:
            return failed(consumer, unit, error)


def _released(unit: Unit) -> list[Settlement]:
    return [Settlement(job, "release") for job in unit]


def in_thread(function: Callable[[], None], name: str) -> asyncio.Future[None]:
    """Run it in a thread of its own: those of the loop are few, and the application's."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        error: BaseException | None = None
        try:
            function()
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(settle, error)

    def settle(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done
