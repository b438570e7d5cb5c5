"""Acting when a time has come, also while all other threads wait for the database."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from ._bell import Bell
from ._conninfo import AnyConnection
from ._line import Line

PATIENCE = 15.0
"""Seconds within which the database must answer a worker's call, whose statements take ms."""


class Unanswered(psycopg.OperationalError):
    """The database has not answered for too long; the connection was given up."""


class Watch:
    """A thread that calls each `act(now)` when its time has come; the answer is the next time."""

    def __init__(self) -> None:
        self._acts: list[Callable[[float], float]] = []
        self._wakes_at = math.inf
        # hurried: for good; _hurry: until the thread has acted on it.
        self.hurried = self._hurry = self._closed = False
        self._lock = threading.Lock()
        self._bell = Bell()
        self._thread = threading.Thread(target=self._run, name="pgq-watch", daemon=True)
        self._thread.start()

    def add(self, act: Callable[[float], float]) -> None:
        """Call this from now on; it must not wait for anything."""
        with self._lock:
            self._acts.append(act)

    def by(self, when: float) -> None:
        """There is something to do at this time, on the monotonic clock."""
        if when < self._wakes_at:
            with self._lock:
                self._wakes_at = min(self._wakes_at, when)
            self._bell.ring()

    def hurry(self) -> None:
        """Whoever waits for the database is to wait no longer."""
        # Without the lock, which a signal handler may find held by what it interrupts.
        self.hurried = self._hurry = True
        self._bell.ring()

    def close(self, patience: float) -> None:
        """Act once more, for those who still wait for the database, and then no more."""
        self.hurried = self._closed = True
        self._bell.ring()
        self._thread.join(patience)

    def _run(self) -> None:
        while True:
            while (left := self._wakes_at - time.monotonic()) > 0:
                if self._closed or self._hurry:
                    break
                self._bell.wait(left)
            with self._lock:
                last, self._hurry = self._closed, False
                # Before the acts look, so that what comes while they do is not missed.
                self._wakes_at = math.inf
            now = time.monotonic()
            for act in self._acts:
                self.by(act(now))
            if last:
                return


class Call:
    """A connection in use, whose server must answer in time."""

    __slots__ = ("_seconds", "_watch", "ends", "line")

    def __init__(self, line: Line, watch: Watch, seconds: float) -> None:
        self.line = line
        self._watch = watch
        self._seconds = seconds
        self.go_on()

    def go_on(self) -> None:
        """The time runs, from now on."""
        self.ends = time.monotonic() + self._seconds
        self._watch.by(self.ends)

    def pause(self) -> None:
        """It runs no more: what is done now is not ours."""
        self.ends = math.inf


class Patience:
    """Gives up connections on which no answer comes.

    TCP tells when a network or a machine is gone. It does not when what answers it is alive: a
    proxy, or a pooler, that has lost its server. Nor does it end the wait for a lock.
    """

    def __init__(self, watch: Watch, seconds: float = PATIENCE) -> None:
        self._watch = watch
        self._seconds = seconds
        self._calls: set[Call] = set()
        self._lock = threading.Lock()
        watch.add(self._give_up)

    @contextmanager
    def with_(self, conn: AnyConnection, at_most: float = math.inf) -> Iterator[Call]:
        """Around a call; Unanswered if it took too long."""
        seconds = min(self._seconds, at_most)
        with Line(conn) as line:
            call = Call(line, self._watch, seconds)
            with self._lock:
                self._calls.add(call)
            self._watch.by(call.ends)
            if self._watch.hurried:
                # Maybe nobody looks any more.
                line.cut(at_once=True)
            try:
                yield call
            except psycopg.OperationalError as error:
                if line.is_cut and self._watch.hurried:
                    raise Unanswered("the worker ends") from error
                if line.is_cut:
                    raise Unanswered(f"no answer within {seconds:g} s") from error
                raise
            finally:
                with self._lock:
                    self._calls.discard(call)

    def _give_up(self, now: float) -> float:
        with self._lock:
            for call in self._calls:
                if call.ends <= now or self._watch.hurried:
                    call.line.cut(at_once=self._watch.hurried)
            return min((call.ends for call in self._calls if call.ends > now), default=math.inf)
