"""The workers: they run a handler for each job of their queues, in threads or in an event loop."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any

import psycopg

from ._conninfo import Connection, complete
from ._consumers import Handlers, consumers, refuse_coroutines
from ._dispatcher import Dispatcher
from ._jobs import Batch, Hand, HeldJob, RunningJob
from ._log import log
from ._runner import Runner, Unit, WorkerSide
from ._tasks import AsyncBatch, AsyncHandlers, AsyncRunningJob, HandlerTasks, in_thread
from ._threads import HandlerThreads
from ._watch import Patience, Watch
from .client import AsyncClient, Client
from .errors import Closed, InvalidArgument


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker has done, in claims."""

    claimed: int = 0
    acked: int = 0
    retried: int = 0
    dead: int = 0
    released: int = 0
    """Given back at no cost: snoozed, or not finished when the worker ended."""
    lost: int = 0
    """Ended by somebody else, or by the lease."""
    left: int = 0
    """Left to their leases when the worker ended: nobody could be told their end."""


POLL_INTERVAL = timedelta(seconds=5)
DRAIN_TIMEOUT = timedelta(seconds=30)
CONNECTIONS = 3
"""What a worker needs to talk: for claims and acks, for renewals, for the listener's trial."""


class _Worker:
    """What both workers are told, and how they are stopped."""

    def __init__(
        self,
        client: Client,
        handlers: Mapping[str, object],
        *,
        concurrency: int,
        prefetch: int,
        worker: str | None,
        poll_interval: timedelta,
        drain_timeout: timedelta,
        listen: bool,
        listener_dsn: str | None,
    ) -> None:
        if not isinstance(client, Client):
            raise TypeError(f"a Worker needs a Client, not {type(client).__name__}")
        if not handlers:
            raise InvalidArgument("a worker needs a handler")
        if concurrency < 1 or prefetch < 0:
            raise InvalidArgument("concurrency must be at least 1, prefetch at least 0")
        for name, value in (("poll_interval", poll_interval), ("drain_timeout", drain_timeout)):
            if not isinstance(value, timedelta):
                raise TypeError(f"{name} must be timedelta, not {type(value).__name__}")
        if poll_interval <= timedelta(0) or drain_timeout < timedelta(0):
            raise InvalidArgument("poll_interval must be positive, drain_timeout not negative")
        self.worker = worker or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._client = client
        self._consumers = consumers(handlers)
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._poll_interval = poll_interval
        self._drain_timeout = drain_timeout
        self._listen = listen
        self._listener_dsn = None if listener_dsn is None else complete(listener_dsn)
        self._counts: Counter[str] = Counter()
        # Reentrant, because signal handlers call stop().
        self._lock = threading.RLock()
        self._dispatcher: Dispatcher | None = None
        self._stopping = self._now = self._closed = False

    @property
    def report(self) -> Report:
        """What it has done so far."""
        # Not all of the counts: a later schema may have answers that have no field here.
        return Report(**{field.name: self._counts[field.name] for field in fields(Report)})

    def stop(self, *, now: bool = False) -> None:
        """Let `run` end: claim no more, finish what runs, release the rest. `now`: at once."""
        with self._lock:
            self._stopping = True
            if now:
                self._now = True
            dispatcher = self._dispatcher
        # Not under the lock: a signal handler may come between whoever holds the dispatcher's.
        if dispatcher is not None:
            dispatcher.stop(self._now)

    def _begin(
        self,
        start_runner: Callable[[WorkerSide], Runner],
        job_kind: Callable[..., HeldJob],
        batch_kind: Callable[[Iterable[Any]], Unit],
        transactions: Client | AsyncClient,
    ) -> Dispatcher:
        with self._lock:
            if self._closed:
                raise Closed("the worker has been stopped", hint="Make a new Worker.")
            if self._dispatcher is not None:
                raise Closed("the worker is running already", hint="Make another Worker.")
            watch = Watch()
            patience = Patience(watch)
            # Its own, because handlers may have taken all of the client's for themselves.
            self._talk = self._client._apart(CONNECTIONS, patience.with_)
            self._dispatcher = Dispatcher(
                self._talk,
                self._consumers,
                start_runner,
                partial(job_kind, _hand=Hand(transactions, patience)),
                batch_kind,
                self._counts,
                worker=self.worker,
                concurrency=self._concurrency,
                prefetch=self._prefetch,
                poll_interval=self._poll_interval.total_seconds(),
                drain_timeout=self._drain_timeout.total_seconds(),
                watch=watch,
                patience=patience,
                connect_listener=self._connect_listener if self._listen else None,
            )
            if self._stopping:
                self._dispatcher.stop(self._now)
            queues = ", ".join(self._consumers)
            log.info("worker %s: queues %s; concurrency %d", self.worker, queues, self._concurrency)
            return self._dispatcher

    def _end(self) -> None:
        self._talk._source.close()
        with self._lock:
            self._dispatcher = None
            self._closed = self._stopping

    def _connect_listener(self) -> Connection:
        if self._listener_dsn is None:
            return self._talk._connect()
        return psycopg.connect(self._listener_dsn, autocommit=True)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def stop(_number: int, _frame: FrameType | None) -> None:
            self.stop(now=self._stopping)

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                # None: it was set by something that is not Python.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


class Worker(_Worker):
    """Runs `handlers[queue](job)` for each job of its queues, in `concurrency` threads.

    A handler that returns acks its job. It raises `Retry`, `DeadLetter` or `Snooze` for another
    end; any other exception is a retry, and its text is kept with the job. Leases are renewed
    while it runs; `job.lost` is set when one is lost.

    Jobs are found by LISTEN, and by polling: at first every few milliseconds, then less often
    down to every `poll_interval`. No failure of the database ends the worker.

    `prefetch` bounds what is claimed ahead of the threads, where handlers are so fast that it
    pays. `worker` labels the claims. `drain_timeout` is given to handlers when the worker
    stops. `listener_dsn` is for poolers that LISTEN cannot pass; `listen=False` polls only.
    """

    def __init__(
        self,
        client: Client,
        handlers: Handlers,
        *,
        concurrency: int = 8,
        prefetch: int = 100,
        worker: str | None = None,
        poll_interval: timedelta = POLL_INTERVAL,
        drain_timeout: timedelta = DRAIN_TIMEOUT,
        listen: bool = True,
        listener_dsn: str | None = None,
    ) -> None:
        super().__init__(
            client,
            handlers,
            concurrency=concurrency,
            prefetch=prefetch,
            worker=worker,
            poll_interval=poll_interval,
            drain_timeout=drain_timeout,
            listen=listen,
            listener_dsn=listener_dsn,
        )
        refuse_coroutines(self._consumers)

    def run(self, *, signals: bool = False, until_idle: bool = False) -> Report:
        """Work until `stop`.

        `signals`: SIGTERM and SIGINT stop it, a second one at once; only in the main thread.
        `until_idle`: or until no job is ready. What is due later is left alone.
        """
        with self._signals() if signals else nullcontext():
            # A transaction may be open in each thread, beside what the worker itself says.
            transactions = self._client._twin(self._concurrency)
            dispatcher = self._begin(
                partial(HandlerThreads, self._concurrency, self._consumers),
                RunningJob,
                Batch,
                transactions,
            )
            try:
                dispatcher.run(until_idle)
            finally:
                self._end()
                transactions._source.close()
        return self.report


class AsyncWorker(_Worker):
    """`Worker` for handlers that are coroutines: at most `concurrency` of them at once.

    They run in the event loop that awaits `run`. The conversation with the database does not: it
    has threads of its own, so that a handler which holds the loop up costs no lease. A handler
    whose lease is lost, or which is not finished when the worker ends, is cancelled.

    All else is as in `Worker`, whose options these are.
    """

    def __init__(
        self,
        client: AsyncClient,
        handlers: AsyncHandlers,
        *,
        concurrency: int = 100,
        prefetch: int = 1000,
        worker: str | None = None,
        poll_interval: timedelta = POLL_INTERVAL,
        drain_timeout: timedelta = DRAIN_TIMEOUT,
        listen: bool = True,
        listener_dsn: str | None = None,
    ) -> None:
        if not isinstance(client, AsyncClient):
            raise TypeError(f"an AsyncWorker needs an AsyncClient, not {type(client).__name__}")
        self._source = client
        super().__init__(
            client._blocking(),
            handlers,
            concurrency=concurrency,
            prefetch=prefetch,
            worker=worker,
            poll_interval=poll_interval,
            drain_timeout=drain_timeout,
            listen=listen,
            listener_dsn=listener_dsn,
        )

    async def run(self, *, signals: bool = False, until_idle: bool = False) -> Report:
        """Work until `stop`; if this is cancelled, as after `stop(now=True)`.

        `signals` and `until_idle` as in `Worker.run`.
        """
        with self._loop_signals() if signals else nullcontext():
            transactions = self._source._twin(self._concurrency)
            tasks = HandlerTasks(self._concurrency, self._consumers)
            dispatcher = self._begin(tasks.start, AsyncRunningJob, AsyncBatch, transactions)
            running = in_thread(partial(dispatcher.run, until_idle), "pgq-dispatcher")
            try:
                await self._ended(running)
            finally:
                self._end()
                await tasks.gone()
                await transactions._source.close()
        return self.report

    async def _ended(self, running: asyncio.Future[None]) -> None:
        """Wait for the dispatcher, however often that is cancelled."""
        cancelled: asyncio.CancelledError | None = None
        while not running.done():
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError as error:
                cancelled = error
                self.stop(now=True)
        running.result()
        if cancelled is not None:
            raise cancelled

    @contextmanager
    def _loop_signals(self) -> Iterator[None]:
        # The loop must wake for them: another thread may have got the signal while it sleeps.
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        for number in before:
            loop.add_signal_handler(number, lambda: self.stop(now=self._stopping))
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                # asyncio.run has one of its own for Ctrl-C.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
