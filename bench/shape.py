"""Ours against itself: what else lies in the queue, and what the planner knows of it."""

from __future__ import annotations

from dataclasses import dataclass

from claimers import Claimer, Crew
from contenders import LANE, OURS, PAYLOAD, sized
from result import Run
from scenario import Scenario, Size
from server import Connection, Server

RATE = "claim_ack_per_second"


@dataclass(frozen=True)
class Content:
    """What is in the queue."""

    name: str
    ready: int = 1_000
    tomorrow: int = 0
    waiting: int = 0
    """At run_at infinity."""
    priorities: int = 1


@dataclass(frozen=True, kw_only=True)
class Contents(Scenario):
    """Two sessions enqueue, claim and ack ten jobs in turn, so that the content stays as it is.

    Only the time of claim and ack counts.
    """

    contents: tuple[Content, ...]
    n: int = 10
    figures: tuple[str, ...] = (RATE, "claim_ms", "ack_ms")

    def round(self, server: Server, size: Size, number: int, /) -> dict[str, Run]:
        """Measure each content, on a database of its own, each round beginning with another."""
        first = number % len(self.contents)
        turns = (*self.contents[first:], *self.contents[:first])
        return {content.name: self._run(server, size, content) for content in turns}

    def _run(self, server: Server, size: Size, content: Content) -> Run:
        enqueue_many = f"""
select count(*) from pgq_sql.enqueue_many('bench', array_fill({PAYLOAD}::jsonb, array[:n::integer]),
  priorities => array(
    select (random() * {content.priorities - 1})::integer from generate_series(1, :n::integer)))
"""
        script = f"{enqueue_many.strip()};\n{OURS.script('claim', 'ack', n=self.n)}"
        with server.fresh(OURS) as conn:
            lanes = f"select {LANE} + p from generate_series(1, {content.priorities - 1}) p"
            conn.execute(f"insert into pgq_sql.lane {lanes}".encode())
            _load(conn, min(content.ready, 1_000), "now()", content.priorities)
            _load(conn, round((content.ready - 1_000) * size.part), "now()", content.priorities)
            _load(conn, round(content.tomorrow * size.part), "now() + interval '1 day'")
            _load(conn, round(content.waiting * size.part), "'infinity'")
            server.settle(conn, OURS)
            _, claim, ack = server.pgbench(sized(script, self.n), 2, size.seconds).milliseconds
        return Run({RATE: 2 * self.n / (claim + ack) * 1000, "claim_ms": claim, "ack_ms": ack})


@dataclass(frozen=True, kw_only=True)
class Statistics(Scenario):
    """Sessions with plans from before a bulk load, or statistics from before it. No autovacuum."""

    jobs: int = 300_000
    n: int = 10
    figures: tuple[str, ...] = ("jobs_per_second", "first_second")

    def round(self, server: Server, size: Size, _number: int, /) -> dict[str, Run]:
        """Measure each order of events, on a database of its own."""
        return {name: self._run(server, size, name) for name in ORDERS}

    def _run(self, server: Server, size: Size, name: str) -> Run:
        loaded = round(self.jobs * min(1, size.seconds / 5))
        with server.fresh(OURS) as conn:
            for table in ("job", "lane", "mark", "queue"):
                conn.execute(f"alter table pgq_sql.{table} set (autovacuum_enabled = off)".encode())
            claimers: list[Claimer] = []
            for step in ORDERS[name]:
                if step == "load":
                    _load(conn, loaded)
                    # Whoever reads a row first marks it as committed: not to be measured here.
                    conn.execute("select count(*) from pgq_sql.job")
                elif step == "load ten":
                    # Eight of each session's warming-up, and ten that stay.
                    _load(conn, 10 + 2 * 8)
                elif step == "analyze":
                    conn.execute("vacuum analyze pgq_sql.job")
                else:
                    claimers = [Claimer(server, OURS, self.n) for _ in range(2)]
                    for claimer in claimers if step == "connect and claim" else ():
                        # A plan is cached after five executions.
                        for _ in range(8):
                            claimer.cycle(one=True)
                        claimer.forget()
            conn.execute("checkpoint")
            crew = Crew(claimers)
            crew.start()
            crew.watch(lambda: False, size.seconds)
            crew.stop()
        cycles = crew.cycles()
        if sum(jobs for *_, jobs in cycles) > 0.95 * loaded:
            raise RuntimeError("the jobs ran out")
        return Run(
            {
                "jobs_per_second": sum(jobs for *_, jobs in cycles) / cycles[-1][0],
                "first_second": sum(jobs for at, _, jobs in cycles if at < 1),
            }
        )


ORDERS = {
    "analyzed": ("load", "analyze", "connect"),
    "opened while empty": ("connect and claim", "load"),
    "opened with ten rows": ("load ten", "connect and claim", "load"),
    "statistics of an empty table": ("analyze", "load", "connect"),
}


def _load(conn: Connection, count: int, run_at: str = "now()", priorities: int = 1) -> None:
    """Load jobs in bulk, past enqueue."""
    conn.execute(
        f"""
insert into pgq_sql.job (lane_id, run_at, enqueued_at, settings, payload)
select {LANE} + g % {priorities}, {run_at}, now(), 1, {PAYLOAD} from generate_series(1, {count}) g
""".encode()
    )
