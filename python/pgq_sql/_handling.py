"""Handlers: what they are given, what they may raise, and the threads they run in."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from ._conninfo import Connection
from .client import Client
from .errors import Closed, LeaseLost, translated
from .models import Job

Handler: TypeAlias = "Callable[[RunningJob], object]"
Verb: TypeAlias = Literal["ack", "retry", "dead_letter", "release"]

ERROR_LIMIT = 4000
"""Characters of error text that are kept with a job."""
MESSAGE_LIMIT = 1000
FRAMES = 6


class Retry(Exception):
    """Raise it in a handler: run the job again after `delay`, or after its backoff."""

    def __init__(self, delay: timedelta | None = None, reason: str = "retry") -> None:
        super().__init__(reason)
        self.delay = None if delay is None else _not_negative(delay)


class DeadLetter(Exception):
    """Raise it in a handler: the job will never succeed; keep it among the dead."""

    def __init__(self, reason: str = "failed") -> None:
        super().__init__(reason)


class Snooze(Exception):
    """Raise it in a handler: not now, but after `delay`; costs no attempt."""

    def __init__(self, delay: timedelta) -> None:
        super().__init__(f"snoozed for {delay}")
        self.delay = _not_negative(delay)


@dataclass(frozen=True, slots=True)
class HeldJob(Job):
    """A job in the hands of a worker."""

    lost: threading.Event = field(default_factory=threading.Event, compare=False, repr=False)
    """Set when the lease is lost. What the handler answers after that counts for nothing."""
    _phase: list[Literal["ending", "ended"]] = field(
        default_factory=list, compare=False, repr=False
    )

    @property
    def key(self) -> tuple[int, int]:
        """The claim: the same job may be claimed again while an old handler still runs."""
        return self.job_id, self.token

    @property
    def ending(self) -> bool:
        """Whether its ack is being committed by `transaction`, or has been."""
        return bool(self._phase)

    @property
    def ended(self) -> bool:
        """Whether `transaction` has committed its ack."""
        return "ended" in self._phase

    @contextmanager
    def _end(self) -> Iterator[None]:
        """Around the commit: what renewals hear meanwhile does not mean that it is lost."""
        self._phase.append("ending")
        try:
            yield
        except BaseException:
            self._phase.clear()
            raise
        self._phase.append("ended")


@dataclass(frozen=True, slots=True)
class RunningJob(HeldJob):
    """A job in the hands of a handler that runs in a thread."""

    _client: Client | None = field(default=None, compare=False, repr=False)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction in which what the block does commits together with the job's ack, or not.

        It begins with `require_lease`, so that no other run can commit too: LeaseLost or
        JobNotFound. An exception of the block rolls it back, and the job is retried unless the
        handler catches it. What the handler does or raises after it cannot undo the ack.
        """
        client = in_worker(self._client)
        with client._borrow() as conn, translated(), ExitStack() as end, conn.transaction():
            client.require_lease(self.job_id, self.token, conn=conn)
            yield conn
            end.enter_context(self._end())
            refuse_unless_acked(client.ack(self.job_id, self.token, conn=conn), self)


ClientKind = TypeVar("ClientKind")


def in_worker(client: ClientKind | None) -> ClientKind:
    """The client of the worker that runs the job."""
    if client is None:
        raise Closed("no worker runs this job", hint="Only its handler can use it so.")
    return client


def refuse_unless_acked(answer: str, job: HeldJob) -> None:
    """Roll the transaction back if the lease has run out in it."""
    if answer != "acked":
        raise LeaseLost(
            "the lease is lost",
            detail=f"job {job.job_id}, token {job.token}",
            hint="It ran out during the transaction, which is rolled back.",
        )


@dataclass(slots=True, eq=False)
class Settlement:
    """How a claim is to end."""

    job: HeldJob
    verb: Verb
    error: str | None = None
    delay: timedelta | None = None
    result: object = None
    answer: str | None = None
    sent: bool = False
    """It was sent and no answer came: it may have been carried out."""
    refused: int = 0

    @property
    def headline(self) -> str:
        """The first line of the error."""
        return (self.error or "").partition("\n")[0]


def settle(handler: Callable[[Any], object], job: HeldJob) -> Settlement:
    """Run the handler; whatever it raises ends the job's run, not the thread."""
    try:
        result = handler(job)
    except BaseException as error:
        return judged(job, error)
    return acked(job, result)


def acked(job: HeldJob, result: object) -> Settlement:
    """The handler has returned."""
    return Settlement(job, "ack", result=None if job.ended else result)


def judged(job: HeldJob, error: BaseException) -> Settlement:
    """What a handler's exception means for its job."""
    if job.ended:
        return Settlement(job, "ack", error=error_text(error))
    match error:
        case Retry():
            return Settlement(job, "retry", reason_text(error), error.delay)
        case DeadLetter():
            return Settlement(job, "dead_letter", reason_text(error))
        case Snooze():
            return Settlement(job, "release", delay=error.delay)
    return Settlement(job, "retry", error_text(error))


def error_text(error: BaseException) -> str:
    """What to keep of an exception: type, message, cause, last frames."""
    lines = [_headline(error), *_cause(error)]
    if error.__traceback__ is not None:
        # The first frame is that of whoever called the handler.
        frames = traceback.extract_tb(error.__traceback__.tb_next, limit=-FRAMES)
        lines += [line.rstrip() for line in frames.format()]
    return _storable(lines)


def reason_text(wish: Retry | DeadLetter) -> str:
    """What to keep of a wish: the reason it gives, and the cause it was raised from."""
    return _storable([_message(wish), *_cause(wish)])


def _cause(error: BaseException) -> list[str]:
    return [] if error.__cause__ is None else [f"caused by {_headline(error.__cause__)}"]


def _storable(lines: Iterable[str]) -> str:
    # PostgreSQL stores neither NUL nor lone surrogates, and the text is not ours to refuse.
    text = "\n".join(lines)[:ERROR_LIMIT].replace("\0", "\\0")
    return text.encode("utf-8", "backslashreplace").decode()


def _headline(error: BaseException) -> str:
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    message = _message(error)
    return f"{module}{kind.__qualname__}" + (f": {message}" if message else "")


def _message(error: BaseException) -> str:
    try:
        return str(error)[:MESSAGE_LIMIT]
    except BaseException:
        return "(its text cannot be had)"


def _not_negative(delay: timedelta) -> timedelta:
    if not isinstance(delay, timedelta):
        raise TypeError(f"delay must be timedelta, not {type(delay).__name__}")
    if delay < timedelta(0):
        raise ValueError("delay must not be negative")
    return delay


class Runner(Protocol):
    """Runs handlers; tells how each job is to end."""

    def submit(self, jobs: Iterable[HeldJob]) -> None:
        """Run these, in this order, when it can."""

    def take_back(self) -> list[HeldJob]:
        """The jobs whose handler has not begun; they will not run."""
        ...

    def cancel(self, job: HeldJob) -> None:
        """Its lease is lost: what its handler still does is in vain."""

    def close(self, patience: float) -> None:
        """Run no more; wait so many seconds for what runs."""


class HandlerThreads:
    """A fixed number of threads that run handlers, in the order of submission."""

    def __init__(
        self,
        size: int,
        handlers: Mapping[str, Callable[[Any], object]],
        done: Callable[[Settlement], None],
    ) -> None:
        self._handlers = handlers
        self._done = done
        self._waiting: queue.SimpleQueue[HeldJob | None] = queue.SimpleQueue()
        # Daemons: a handler that never returns must not keep the process.
        self._threads = [
            threading.Thread(target=self._run, name=f"pgq-handler-{number}", daemon=True)
            for number in range(1, size + 1)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, jobs: Iterable[HeldJob]) -> None:
        for job in jobs:
            self._waiting.put(job)

    def take_back(self) -> list[HeldJob]:
        jobs: list[HeldJob] = []
        while True:
            try:
                job = self._waiting.get_nowait()
            except queue.Empty:
                return jobs
            if job is not None:
                jobs.append(job)

    def cancel(self, job: HeldJob) -> None:
        """A thread cannot be made to stop: the handler may look at `job.lost`."""

    def close(self, patience: float) -> None:
        for _ in self._threads:
            self._waiting.put(None)
        ends = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))

    def _run(self) -> None:
        while (job := self._waiting.get()) is not None:
            # Lost while it waited here: somebody else may be running it.
            lost = job.lost.is_set()
            self._done(
                Settlement(job, "release") if lost else settle(self._handlers[job.queue], job)
            )
