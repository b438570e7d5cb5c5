"""Handlers that are ordinary functions, in threads."""

from __future__ import annotations

import inspect
import queue
import threading
import time
from collections.abc import Iterable, Mapping

from ._consumers import AnyConsumer, BatchConsumer
from ._runner import Unit, WorkerSide
from ._settlements import Settlement, ended, failed


class HandlerThreads:
    """A fixed number of threads that run handlers, in the order of submission."""

    def __init__(self, size: int, consumers: Mapping[str, AnyConsumer], worker: WorkerSide) -> None:
        self._consumers = consumers
        self._worker = worker
        self._waiting: queue.SimpleQueue[Unit | None] = queue.SimpleQueue()
        # Daemons: a handler that never returns must not keep the process.
        self._threads = [
            threading.Thread(target=self._run, name=f"pgq-handler-{number}", daemon=True)
            for number in range(1, size + 1)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, units: Iterable[Unit]) -> None:
        """Run these, in this order, when a thread is free."""
        for unit in units:
            self._waiting.put(unit)

    def take_back(self) -> list[Unit]:
        """Those that have not begun; they will not run."""
        units: list[Unit] = []
        while True:
            try:
                unit = self._waiting.get_nowait()
            except queue.Empty:
                return units
            if unit is not None:
                units.append(unit)

    def cancel(self, unit: Unit) -> None:
        """A thread cannot be made to stop: the handler may look at `job.lost`."""

    def close(self, patience: float) -> None:
        """Run no more; wait so many seconds for what runs."""
        for _ in self._threads:
            self._waiting.put(None)
        ends = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))

    def _run(self) -> None:
        while (unit := self._waiting.get()) is not None:
            self._worker.finished([unit], self._settlements(unit))

    def _settlements(self, unit: Unit) -> list[Settlement]:
        if any(job.lost.is_set() for job in unit):
            # Lost while it waited here: somebody else may be running it.
            return [Settlement(job, "release") for job in unit]
        consumer = self._consumers[unit[0].queue]
        self._worker.begins(unit)
        try:
            answer = consumer.handler(unit if isinstance(consumer, BatchConsumer) else unit[0])
            if inspect.iscoroutine(answer):
                answer.close()
                raise TypeError("a coroutine function needs an AsyncWorker")
            return ended(consumer, unit, answer)
        except BaseException as error:
            return failed(consumer, unit, error)
