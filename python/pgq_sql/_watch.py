"""Acting when a time has come, also while all other threads wait for the database."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from ._conninfo import Connection
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
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="pgq-watch", daemon=True)
        self._thread.start()

    def add(self, act: Callable[[float], float]) -> None:
        """Call this from now on; it must not wait for anything."""
        with self._changed:
            self._acts.append(act)

    def by(self, when: float) -> None:
        """There is something to do at this time, on the monotonic clock."""
        if when < self._wakes_at:
            with self._changed:
                self._wakes_at = min(self._wakes_at, when)
                self._changed.notify()

    def close(self, patience: float) -> None:
        """Act no more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(patience)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (left := self._wakes_at - time.monotonic()) > 0:
                    self._changed.wait(None if left == math.inf else left)
                if self._closed:
                    return
                # Before the acts look, so that what comes while they do is not missed.
                self._wakes_at = math.inf
            now = time.monotonic()
            for act in self._acts:
                self.by(act(now))


@dataclass(slots=True, eq=False)
class _Call:
    line: Line
    ends: float


class Patience:
    """Gives up connections on which no answer comes.

    TCP tells when a network or a machine is gone. It does not when what answers it is alive: a
    proxy, or a pooler, that has lost its server. Nor does it end the wait for a lock.
    """

    def __init__(self, watch: Watch, seconds: float = PATIENCE) -> None:
        self._watch = watch
        self._seconds = seconds
        self._calls: set[_Call] = set()
        self._lock = threading.Lock()
        watch.add(self._give_up)

    @contextmanager
    def with_(self, conn: Connection) -> Iterator[None]:
        """Around a call; Unanswered if it took too long."""
        with Line(conn) as line:
            call = _Call(line, time.monotonic() + self._seconds)
            with self._lock:
                self._calls.add(call)
            self._watch.by(call.ends)
            try:
                yield
            except psycopg.OperationalError as error:
                if line.is_cut:
                    raise Unanswered(f"no answer within {self._seconds:g} s") from error
                raise
            finally:
                with self._lock:
                    self._calls.discard(call)

    def _give_up(self, now: float) -> float:
        with self._lock:
            for call in self._calls:
                if call.ends <= now:
                    call.line.cut()
            return min((call.ends for call in self._calls if call.ends > now), default=math.inf)
