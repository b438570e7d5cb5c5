"""Whether a worker's memory grows with the jobs it has done."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from contenders import OURS, sized
from result import Run
from scenario import Scenario, Size
from server import Connection, Server
from workers import Subject, running

TENTHS = 10


@dataclass(frozen=True, kw_only=True)
class Memory(Scenario):
    """One worker; another process enqueues so that the backlog stays small."""

    subjects: tuple[Subject, ...]
    jobs: int = 1_000_000
    figures: tuple[str, ...] = ("rss_first", "rss_last", "rss_grown")

    def round(self, server: Server, size: Size, _number: int, /) -> dict[str, Run]:
        """Measure those there are, each on a database of its own."""
        return {
            subject.name: self._run(server, subject, round(self.jobs * size.part))
            for subject in self.subjects
            if subject.installed
        }

    def _run(self, server: Server, subject: Subject, jobs: int) -> Run:
        batch = max(1, round(jobs / 1000))
        jobs, backlog = batch * 1000, batch * 10
        enqueue = sized(OURS.enqueue_many, batch).encode()
        sizes: list[list[float]] = [[] for _ in range(TENTHS)]
        with server.fresh(OURS) as conn, running(subject, server.dsn, jobs) as worker:
            conn.execute(enqueue)
            worker.told()  # the worker's start is not part of the first tenth
            made = batch
            while (left := _count(conn)) or made < jobs:
                if made < jobs and left < backlog:
                    conn.execute(enqueue)
                    made += batch
                else:
                    time.sleep(0.005)
                tenth = (made - left) * TENTHS // jobs
                sizes[min(tenth, TENTHS - 1)].append(_resident(worker.pid))
            worker.told()
        means = [statistics.fmean(tenth) for tenth in sizes]
        return Run(
            {
                "rss_first": means[0],
                "rss_last": means[-1],
                "rss_grown": means[-1] / means[0],
            },
            {"rss": means},
        )


def _count(conn: Connection) -> int:
    row = conn.execute(f"select count(*) from {OURS.table}".encode()).fetchone()
    assert row is not None
    return int(str(row[0]))


def _resident(pid: int) -> float:
    """MiB in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
