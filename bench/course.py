"""Time courses: jobs come in at a fixed rate, two sessions claim flat out, something is held open.

While a queue keeps up, it consumes what comes in and no more. So what shows its state is how many
cycles of claim and ack it has time for, those that found nothing included, and how long a claim
takes. Once it does not keep up, its backlog grows and jobs a second fall.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from claimers import Claimer, Crew, Prepared
from contenders import OURS, PLAIN, Contender
from result import Run
from scenario import Scenario, Size
from server import Connection, Server

IN_PER_SECOND = 3000
TOGETHER = 30
"""Jobs of one enqueue_many: a hundred such a second."""
LATE = 10
"""Jobs of the transaction that stays open."""
PATIENCE = 15.0
"""Seconds for these to be found after the commit."""

Cycle = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class Course(Scenario):
    """One thing held open from a fresh install on."""

    held: Literal["nothing", "snapshot", "writer", "producer"]
    seconds: float = 60
    batch: int = 10
    compared: bool = True
    """With plain, too. In ten minutes it would only fall further behind."""
    figures: tuple[str, ...] = (
        *("cycles_first", "cycles_last", "full_cycles_first", "full_cycles_last"),
        *("cycles_kept", "jobs_last", "jobs_kept"),
        *("claim_ms_first", "claim_ms_last", "p95_ms_first", "p95_ms_last", "backlog_end"),
    )

    def round(self, server: Server, size: Size, number: int, /) -> dict[str, Run]:
        """Measure ours; plain, which is here to compare only, in the first round."""
        contenders = (OURS, PLAIN) if number == 0 and self.compared else (OURS,)
        return {one.name: self._run(server, self.seconds * size.part, one) for one in contenders}

    def _run(self, server: Server, seconds: float, contender: Contender) -> Run:
        with server.fresh(contender) as conn:
            conn.execute("create table elsewhere (x integer)")
            conn.execute("checkpoint")
            crew = Crew([Claimer(server, contender, self.batch) for _ in range(2)])
            feeder = Feeder(server, contender)
            with server.connect() as holder:
                late = self._hold(holder, contender)
                crew.start(feeder.feed)
                crew.watch(lambda: False, seconds)
                holder.execute("commit")
                committed = time.perf_counter()
            found = _all_claimed(conn, contender, late)
            crew.watch(found, PATIENCE)
            waited = time.perf_counter() - committed
            crew.stop()
        figures, series = course(crew.cycles(), feeder.counts(crew.began), seconds)
        if late:
            figures["late_seconds"] = waited
        return Run(figures, series)

    def _hold(self, holder: Connection, contender: Contender) -> list[int]:
        """Open the transaction; the answer is the ids of the jobs it has made."""
        if self.held == "snapshot":
            holder.execute("begin isolation level repeatable read, read only")
            holder.execute("select count(*) from pg_class")
            return []
        holder.execute("begin")
        if self.held == "writer":
            holder.execute("insert into elsewhere values (1)")
        if self.held == "producer":
            statement = contender.enqueue_many.replace(":n", str(LATE))
            return [int(str(row[0])) for row in holder.execute(statement.encode()).fetchall()]
        return []


class Feeder:
    """Makes jobs at a fixed rate; when it was held up, it catches up."""

    def __init__(self, server: Server, contender: Contender) -> None:
        self._conn = server.connect()
        self._enqueue = Prepared(self._conn, "enqueue", contender.enqueue_many)
        self._made: list[float] = []

    def feed(self, over: threading.Event) -> None:
        """Until the event."""
        due = time.perf_counter()
        with self._conn:
            while not over.wait(max(0.0, due - time.perf_counter())):
                self._enqueue(str(TOGETHER).encode())
                self._made.append(time.perf_counter())
                due += TOGETHER / IN_PER_SECOND

    def counts(self, began: float) -> list[float]:
        """When jobs were made, once for each."""
        return [at - began for at in self._made for _ in range(TOGETHER)]


def course(
    cycles: list[Cycle], made: list[float], seconds: float
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Figures of the first and the last stretch, and of every second."""
    whole = max(1, int(seconds))
    ticks: list[list[Cycle]] = [[] for _ in range(whole)]
    for one in cycles:
        if one[0] < whole:
            ticks[int(one[0])].append(one)
    came = [0] * whole
    for at in made:
        if at < whole:
            came[int(at)] += 1
    jobs = [sum(one[2] for one in tick) for tick in ticks]
    backlog: list[float] = []
    for inwards, outwards in zip(came, jobs, strict=True):
        backlog.append((backlog[-1] if backlog else 0) + inwards - outwards)
    stretch = min(10, max(1, whole // 3))
    figures: dict[str, float] = {}
    for name, part in (("first", ticks[:stretch]), ("last", ticks[-stretch:])):
        found = [one for tick in part for one in tick if one[2]]
        times = sorted(one[1] for one in found) or [0.0]
        figures[f"cycles_{name}"] = sum(map(len, part)) / stretch
        figures[f"full_cycles_{name}"] = len(found) / stretch
        figures[f"jobs_{name}"] = sum(one[2] for one in found) / stretch
        figures[f"claim_ms_{name}"] = statistics.fmean(times)
        figures[f"p95_ms_{name}"] = times[int(len(times) * 0.95)]
    figures["cycles_kept"] = figures["cycles_last"] / figures["cycles_first"]
    figures["jobs_kept"] = figures["jobs_last"] / figures["jobs_first"]
    figures["input_kept"] = sum(jobs[-stretch:]) / sum(came[-stretch:])
    figures["backlog_end"] = backlog[-1]
    series = {
        "cycles": [float(len(tick)) for tick in ticks],
        "jobs": jobs,
        "claim_ms": [statistics.fmean([one[1] for one in tick if one[2]] or [0]) for tick in ticks],
        "backlog": backlog,
    }
    return figures, series


def _all_claimed(conn: Connection, contender: Contender, ids: list[int]) -> Callable[[], bool]:
    statement = (contender.unclaimed % "'{%s}'::bigint[]" % ",".join(map(str, ids))).encode()

    def found() -> bool:
        row = conn.execute(statement).fetchone()
        return row is not None and row[0] == 0

    return found
