"""Handlers that are coroutines, in the event loop of the caller."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from psycopg import AsyncConnection

from ._handling import HeldJob, Settlement, acked, in_worker, judged, refuse_unless_acked
from .client import AsyncClient
from .errors import translated

AsyncHandler: TypeAlias = "Callable[[AsyncRunningJob], Awaitable[object]]"


@dataclass(frozen=True, slots=True)
class AsyncRunningJob(HeldJob):
    """A job in the hands of a handler that is a coroutine."""

    _client: AsyncClient | None = field(default=None, compare=False, repr=False)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A transaction in which what the block does commits together with the job's ack, or not.

        All is as in `RunningJob.transaction`.
        """
        client = in_worker(self._client)
        async with client._borrow() as conn:
            with translated(), ExitStack() as end:
                async with conn.transaction():
                    await client.require_lease(self.job_id, self.token, conn=conn)
                    yield conn
                    end.enter_context(self._end())
                    answer = await client.ack(self.job_id, self.token, conn=conn)
                    refuse_unless_acked(answer, self)


class HandlerTasks:
    """At most so many tasks, begun in the order of submission.

    The dispatcher, in a thread of its own, submits and cancels; all else is the loop's.
    """

    def __init__(
        self,
        size: int,
        handlers: Mapping[str, Callable[[Any], Awaitable[object]]],
        done: Callable[[Settlement], None],
    ) -> None:
        self._size = size
        self._handlers = handlers
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[HeldJob] = deque()
        self._running: dict[tuple[int, int], asyncio.Task[Settlement]] = {}
        self._cancelled: set[tuple[int, int]] = set()

    def submit(self, jobs: Iterable[HeldJob]) -> None:
        self._waiting.extend(jobs)
        self._loop.call_soon_threadsafe(self._begin)

    def take_back(self) -> list[HeldJob]:
        jobs: list[HeldJob] = []
        while self._waiting:
            try:
                jobs.append(self._waiting.popleft())
            except IndexError:  # the loop was faster
                break
        return jobs

    def cancel(self, job: HeldJob) -> None:
        self._loop.call_soon_threadsafe(self._cancel, job.key)

    def close(self, patience: float) -> None:
        """Nothing to wait for: the loop ends what is cancelled."""

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._size:
            try:
                job = self._waiting.popleft()
            except IndexError:  # taken back
                return
            task = self._loop.create_task(self._settle(job))
            self._running[job.key] = task
            task.add_done_callback(partial(self._ended, job))

    def _ended(self, job: HeldJob, task: asyncio.Task[Settlement]) -> None:
        del self._running[job.key]
        self._cancelled.discard(job.key)
        self._begin()
        # Cancelled before it began: then nothing of it has run.
        self._done(Settlement(job, "release") if task.cancelled() else task.result())

    def _cancel(self, key: tuple[int, int]) -> None:
        if task := self._running.get(key):
            self._cancelled.add(key)
            task.cancel()

    async def _settle(self, job: HeldJob) -> Settlement:
        if job.lost.is_set():
            # While it waited here: somebody else may be running it.
            return Settlement(job, "release")
        try:
            result = await self._handlers[job.queue](job)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and job.key in self._cancelled:
                return Settlement(job, "release")
            return judged(job, error)
        return acked(job, result)
