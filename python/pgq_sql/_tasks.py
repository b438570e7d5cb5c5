"""Handlers that are coroutines, in the event loop of the caller."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TypeAlias

from ._handling import RunningJob, Settlement, judged

AsyncHandler: TypeAlias = "Callable[[RunningJob], Awaitable[object]]"


class HandlerTasks:
    """At most so many tasks, begun in the order of submission.

    The dispatcher, in a thread of its own, submits and cancels; all else is the loop's.
    """

    def __init__(
        self, size: int, handlers: Mapping[str, AsyncHandler], done: Callable[[Settlement], None]
    ) -> None:
        self._size = size
        self._handlers = handlers
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[RunningJob] = deque()
        self._running: dict[tuple[int, int], asyncio.Task[Settlement]] = {}
        self._cancelled: set[tuple[int, int]] = set()

    def submit(self, jobs: Iterable[RunningJob]) -> None:
        self._waiting.extend(jobs)
        self._loop.call_soon_threadsafe(self._begin)

    def take_back(self) -> list[RunningJob]:
        jobs: list[RunningJob] = []
        while self._waiting:
            try:
                jobs.append(self._waiting.popleft())
            except IndexError:  # the loop was faster
                break
        return jobs

    def cancel(self, job: RunningJob) -> None:
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

    def _ended(self, job: RunningJob, task: asyncio.Task[Settlement]) -> None:
        del self._running[job.key]
        self._cancelled.discard(job.key)
        self._begin()
        # Cancelled before it began: then nothing of it has run.
        self._done(Settlement(job, "release") if task.cancelled() else task.result())

    def _cancel(self, key: tuple[int, int]) -> None:
        if task := self._running.get(key):
            self._cancelled.add(key)
            task.cancel()

    async def _settle(self, job: RunningJob) -> Settlement:
        if job.lost.is_set():
            # While it waited here: somebody else may be running it.
            return Settlement(job, "release")
        try:
            result = await self._handlers[job.queue](job)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and job.key in self._cancelled:
                return Settlement(job, "release")
            return judged(job, error)
        return Settlement(job, "ack", result=result)
