"""How fast one process works a queue off, with handlers that do nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass

from result import Run
from scenario import Scenario, Size
from server import Connection, Server
from workers import PATIENCE, Subject, running

SLOWEST = 50
"""Jobs a second that any worker does."""


@dataclass(frozen=True, kw_only=True)
class Drain(Scenario):
    """From the first call of a handler until no job is left: what comes before is not counted."""

    subjects: tuple[Subject, ...]
    jobs: int = 50_000
    fewer: tuple[str, ...] = ()
    """Those that get a tenth of the jobs."""
    figures: tuple[str, ...] = ("jobs_per_second", "client_us", "cpu_us")

    def round(self, server: Server, size: Size, _number: int, /) -> dict[str, Run]:
        """Measure those that are installed, each on a database of its own."""
        return {
            subject.name: self._run(server, subject, size)
            for subject in self.subjects
            if subject.installed
        }

    def _run(self, server: Server, subject: Subject, size: Size) -> Run:
        jobs = round(self.jobs * size.part / (10 if subject.name in self.fewer else 1))
        with server.fresh(subject, jobs) as conn:
            server.settle(conn, subject)
            before = server.cpu_seconds(conn)
            with running(subject, server.dsn, jobs) as worker:
                began, idled = worker.told()
                ended, worked = worker.told(PATIENCE + jobs / SLOWEST)
                settled = _settled(conn, subject, ended)
            spent = server.cpu_seconds(conn) - before
        return Run(
            {
                "jobs_per_second": jobs / (settled - began),
                "client_us": (worked - idled) / jobs * 1_000_000,
                "cpu_us": spent / jobs * 1_000_000,
            }
        )


def _settled(conn: Connection, subject: Subject, since: float) -> float:
    """When no job was left."""
    while conn.execute(f"select 1 from {subject.table} limit 1".encode()).fetchone():
        if time.monotonic() - since > PATIENCE:
            raise RuntimeError(f"{subject.name}: jobs are left")
        time.sleep(0.001)
    return time.monotonic()
