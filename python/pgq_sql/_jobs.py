"""What a handler is given: a job, or a batch of them, in the hands of a worker."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from ._conninfo import AnyConnection, Connection
from ._joining import Joinable
from ._line import Line
from ._outage import UNREACHABLE
from ._watch import Call, Patience
from .client import Client
from .errors import Closed, InvalidState, LeaseLost
from .models import Job


class Lost:
    """As `threading.Event`, which costs more to make than all else of a job: few are waited for."""

    __slots__ = ("_event", "_set")

    def __init__(self) -> None:
        self._set = False
        self._event: threading.Event | None = None

    def __bool__(self) -> bool:
        return self._set

    def __repr__(self) -> str:
        return f"<lost: {self._set}>"

    def is_set(self) -> bool:
        """Whether it is."""
        return self._set

    def set(self) -> None:
        """Wake all who wait."""
        self._set = True
        if self._event is not None:
            self._event.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is set, or so many seconds; answers whether it is."""
        with _making:
            event = self._event = self._event or threading.Event()
        # Looked at only now, so that a set() which has not seen the event is seen here.
        return self._set or event.wait(timeout)


_making = threading.Lock()


@dataclass(slots=True, eq=False)
class Course:
    """How far a job's `transaction` has come."""

    line: Line | None = None
    ending: bool = False
    """Its ack is being committed, or has been: that the claim is gone is no surprise."""
    ended: bool = False
    """Its ack has been committed."""


@contextmanager
def ending(courses: Collection[Course]) -> Iterator[None]:
    """Around the commit."""
    for course in courses:
        course.ending = True
    try:
        yield
    except BaseException as error:
        # Where only the answer got lost it may have been done: then its end is told `gone`.
        if not isinstance(error, UNREACHABLE):
            for course in courses:
                course.ending = False
        raise
    for course in courses:
        course.ended = True


ClientKind = TypeVar("ClientKind")


class Hand(NamedTuple, Generic[ClientKind]):
    """What a job's transaction needs of its worker."""

    client: ClientKind
    patience: Patience


@dataclass(frozen=True, slots=True)
class HeldJob(Job):
    """A job in the hands of a worker."""

    lost: Lost = field(default_factory=Lost, compare=False, repr=False)
    """Set when the lease is lost or the handler's time is over: what it answers counts no more."""
    _course: Course = field(default_factory=Course, compare=False, repr=False)

    @property
    def key(self) -> tuple[int, int]:
        """The claim: the same job may be claimed again while an old handler still runs."""
        return self.job_id, self.token


@dataclass(frozen=True, slots=True)
class RunningJob(HeldJob):
    """A job in the hands of a handler that runs in a thread."""

    _hand: Hand[Client] | None = field(default=None, compare=False, repr=False)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction in which what the block does commits together with the job's ack, or not.

        It begins with `require_lease`, so that no other run can commit too: LeaseLost or
        JobNotFound. An exception of the block rolls it back, and the job is retried unless the
        handler catches it. What the handler does or raises after it cannot undo the ack.
        """
        client, patience = in_worker(self._hand)
        with (
            client._borrow() as conn,
            cuttable([self], conn, patience) as call,
            ExitStack() as end,
            conn.transaction(),
        ):
            client.require_lease(self.job_id, self.token, conn=conn)
            with theirs(call, conn):
                yield conn
            end.enter_context(ending([self._course]))
            refuse_unless_acked([self], [client.ack(self.job_id, self.token, conn=conn)])

    def ack(self, *, conn: Joinable) -> None:
        """Ack in a transaction of the caller's: LeaseLost if the claim is not held any more.

        It commits with what else is done there, also through SQLAlchemy or Django. Make it the
        last thing; then commit and return, or roll back and raise.
        """
        client, _ = in_worker(self._hand)
        refuse_unless_acked([self], [client.ack(self.job_id, self.token, conn=conn)])
        self._course.ending = True


class Batch(tuple[RunningJob, ...]):
    """Jobs of one queue in the hands of a batch handler that runs in a thread."""

    __slots__ = ()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction in which what the block does commits together with all acks, or not.

        If one lease is lost, LeaseLost rolls all back. An exception of the block does so too, and
        the jobs are retried unless the handler catches it.
        """
        client, patience = in_worker(self[0]._hand)
        with (
            client._borrow() as conn,
            cuttable(self, conn, patience) as call,
            ExitStack() as end,
            conn.transaction(),
        ):
            with theirs(call, conn):
                yield conn
            end.enter_context(ending([job._course for job in self]))
            # Its row locks fence off every other run, as require_lease does for a single job.
            answers = client.ack_many(*claims(self), conn=conn)
            refuse_unless_acked(self, [answer.outcome for answer in answers])


def in_worker(hand: Hand[ClientKind] | None) -> Hand[ClientKind]:
    """The client of the worker that runs the job, and its patience."""
    if hand is None:
        raise Closed("no worker runs this job", hint="Only its handler can use it so.")
    return hand


@contextmanager
def cuttable(jobs: Collection[HeldJob], conn: AnyConnection, patience: Patience) -> Iterator[Call]:
    """If the handler's time is over, its transaction must not hold up how the jobs end."""
    if any(job._course.line is not None for job in jobs):
        # Their row locks would wait for each other, and PostgreSQL would see no deadlock.
        raise InvalidState("the job has a transaction already", hint="Do all in one.")
    with patience.with_(conn) as call:
        for job in jobs:
            job._course.line = call.line
        try:
            # Looked at only now, so that whoever sets it meanwhile finds the line.
            if lost := next((job for job in jobs if job.lost), None):
                raise _lease_lost(lost, "The handler was told by job.lost.")
            yield call
        finally:
            for job in jobs:
                job._course.line = None


@contextmanager
def theirs(call: Call, conn: AnyConnection) -> Iterator[None]:
    """Around the handler's own statements, which may take as long as they like."""
    call.pause()
    try:
        yield
    except psycopg.Rollback as error:
        # psycopg would swallow it, and the handler go on as if all was done.
        raise InvalidState(
            "the transaction was rolled back", hint="To end the handler too, raise Retry."
        ) from error
    finally:
        call.go_on()
    if conn.info.transaction_status == TransactionStatus.IDLE:
        raise InvalidState(
            "the transaction was ended by the handler's own statement",
            hint="The block ends it, together with the job.",
        )


def claims(jobs: Iterable[HeldJob]) -> tuple[list[int], list[int]]:
    """Their ids and tokens."""
    ids, tokens = [], []
    for job in jobs:
        ids.append(job.job_id)
        tokens.append(job.token)
    return ids, tokens


def refuse_unless_acked(jobs: Iterable[HeldJob], answers: Iterable[str]) -> None:
    """Roll the transaction back if a lease has run out in it."""
    for job, answer in zip(jobs, answers, strict=True):
        if answer != "acked":
            raise _lease_lost(job, "It ran out during the transaction, which is rolled back.")


def _lease_lost(job: HeldJob, hint: str) -> LeaseLost:
    return LeaseLost("the lease is lost", detail=f"job {job.job_id}, token {job.token}", hint=hint)
