"""Flat out with pgbench: so many sessions run the same statements over and over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from contenders import CONTENDERS, OURS, Contender
from result import Run
from scenario import Scenario, Size
from server import Connection, Server

Part = Literal["enqueue", "enqueue_many", "claim", "ack"]


@dataclass(frozen=True, kw_only=True)
class Steady(Scenario):
    """Some statements of each contender, in turn, by several sessions."""

    parts: tuple[Part, ...]
    clients: int
    n: int = 1
    backlog: int = 0
    """Jobs in the queue at the start. Where they are used up: for five seconds."""
    seconds: float = 0
    """If other than for most."""
    figures: tuple[str, ...] = ("jobs_per_second", "cpu_us")

    def round(self, server: Server, size: Size, _number: int, /) -> dict[str, Run]:
        """Measure all contenders, each on a database of its own."""
        return {contender.name: self._run(server, size, contender) for contender in CONTENDERS}

    def _run(self, server: Server, size: Size, contender: Contender) -> Run:
        seconds = self.seconds * size.part or size.seconds
        backlog = self.backlog
        if "enqueue" not in self.parts and "enqueue_many" not in self.parts:
            backlog = round(self.backlog * seconds / 5)
        with server.fresh(contender, backlog) as conn:
            spy = _Spy(server) if contender is OURS else None
            server.settle(conn, contender)
            before, worked = server.counters(conn, contender), server.cpu_seconds(conn)
            done = server.pgbench(contender.script(*self.parts, n=self.n), self.clients, seconds)
            after, worked = server.counters(conn, contender), server.cpu_seconds(conn) - worked
            left = _count(conn, contender)
            heard = spy.heard() if spy else 0
        produced = done.transactions * self.n if self.parts[0] != "claim" else 0
        jobs = backlog + produced - left if "claim" in self.parts else produced
        if left == 0 and backlog:
            raise RuntimeError("the backlog ran out: claims found nothing")
        updates = after.updates - before.updates
        figures = {
            "jobs_per_second": jobs / done.seconds,
            "cpu_us": worked / jobs * 1_000_000,
            "wal_bytes": (after.wal_bytes - before.wal_bytes) / jobs,
            "wal_records": (after.wal_records - before.wal_records) / jobs,
            "wal_pages": (after.wal_pages - before.wal_pages) / jobs,
            "commits": (after.commits - before.commits) / jobs,
            "notifications": heard,
        }
        if updates:
            figures["hot_share"] = (after.hot_updates - before.hot_updates) / updates
        if "claim" in self.parts:
            # From the mean time of the two statements alone, whatever else the script does.
            spent = sum(done.milliseconds[self.parts.index(part)] for part in ("claim", "ack"))
            figures["claim_ack_per_second"] = self.clients * self.n / spent * 1000
        return Run(figures)


class _Spy:
    """Listens on the queue's channel and is not idle: it hears what is sent for nobody."""

    def __init__(self, server: Server) -> None:
        self._conn = server.connect()
        row = self._conn.execute("select pgq_sql.wait_begin('bench')").fetchone()
        assert row is not None
        self._conn.execute("select pgq_sql.wait_end('bench')")
        self._conn.execute(f'listen "{row[0]}"'.encode())

    def heard(self) -> int:
        """How many notifications have come."""
        count = sum(1 for _ in self._conn.notifies(timeout=0.1))
        self._conn.close()
        return count


def _count(conn: Connection, contender: Contender) -> int:
    row = conn.execute(f"select count(*) from {contender.table}".encode()).fetchone()
    assert row is not None
    return int(str(row[0]))
