"""Sessions that claim and ack flat out, and note each cycle.

They speak to libpq, which lets other threads run meanwhile, so that little of Python is measured.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain

from psycopg import pq

from contenders import Contender, positional, sized
from server import Connection, Server


class Prepared:
    """A prepared statement of a session; it answers one row of text."""

    def __init__(self, conn: Connection, name: str, statement: str) -> None:
        self._conn = conn.pgconn
        self._name = name.encode()
        statement = positional(statement)
        _check(self._conn.prepare(self._name, statement.encode()))
        self.takes = sum(f"${i}" in statement for i in (1, 2))

    def __call__(self, *values: bytes) -> tuple[bytes, ...]:
        """Run it; the answer is its first row."""
        answer = _check(self._conn.exec_prepared(self._name, values[: self.takes]))
        if not answer.ntuples:
            return ()
        return tuple(answer.get_value(0, i) or b"" for i in range(answer.nfields))


class Claimer:
    """One session with its plans, and what it did: when, how long claim took, how many jobs."""

    def __init__(self, server: Server, contender: Contender, n: int) -> None:
        self._conn = server.connect()
        self._claim = Prepared(self._conn, "claim", sized(contender.claim, n))
        self._claim_one = Prepared(self._conn, "claim_one", sized(contender.claim, 1))
        self._ack = Prepared(self._conn, "ack", contender.ack)
        self.ended = array("d")
        self.claim_ms = array("d")
        self.jobs = array("d")

    def cycle(self, *, one: bool = False) -> None:
        """Claim, fetch, ack; one job, if so said."""
        began = time.perf_counter()
        ids, tokens, _ = self._claim_one() if one else self._claim()
        claimed = time.perf_counter()
        count = 0 if ids == b"{}" else ids.count(b",") + 1
        if count:
            self._ack(ids, tokens)
        self.ended.append(time.perf_counter())
        self.claim_ms.append((claimed - began) * 1000)
        self.jobs.append(count)

    def forget(self) -> None:
        """Start noting anew."""
        del self.ended[:], self.claim_ms[:], self.jobs[:]

    def close(self) -> None:
        """End the session."""
        self._conn.close()


class Crew:
    """Claimers and others, each in a thread of its own until the work is over."""

    def __init__(self, claimers: list[Claimer]) -> None:
        self.claimers = claimers
        self._over = threading.Event()
        self._threads = ThreadPoolExecutor(len(claimers) + 2)
        self._running: list[Future[None]] = []
        self.began = time.perf_counter()

    def start(self, *others: Callable[[threading.Event], None]) -> None:
        """Begin, and take the time from now on. The others stop at the event."""
        self.began = time.perf_counter()
        for work in (*(self._repeat(claimer) for claimer in self.claimers), *others):
            self._running.append(self._threads.submit(work, self._over))

    def watch(self, until: Callable[[], object], patience: float) -> None:
        """Sleep until something is true or the time is over; raise what a thread has raised."""
        ends = time.perf_counter() + patience
        while not until() and time.perf_counter() < ends:
            for future in self._running:
                if future.done():
                    future.result()
            time.sleep(0.005)

    def stop(self) -> None:
        """Let everyone finish; raise what a thread has raised."""
        self._over.set()
        self._threads.shutdown()
        for claimer in self.claimers:
            claimer.close()
        for future in self._running:
            future.result()

    def cycles(self) -> list[tuple[float, float, float]]:
        """All cycles: seconds since the start at which they ended, ms of the claim, jobs."""
        ones = (zip(c.ended, c.claim_ms, c.jobs, strict=True) for c in self.claimers)
        return sorted((at - self.began, ms, jobs) for at, ms, jobs in chain.from_iterable(ones))

    @staticmethod
    def _repeat(claimer: Claimer) -> Callable[[threading.Event], None]:
        def work(over: threading.Event) -> None:
            while not over.is_set():
                claimer.cycle()

        return work


def _check(answer: pq.abc.PGresult) -> pq.abc.PGresult:
    if answer.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise RuntimeError(answer.error_message.decode())
    return answer
