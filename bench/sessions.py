"""Many sessions claim from one queue, and every claim is checked."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from contenders import OURS, sized
from result import Run
from scenario import Scenario, Size
from server import Server

# A job that two sessions had at once is gone, or has a newer token, for one of them. Dividing by
# zero ends that client of pgbench, and so the run.
CHECKED = f"""
{OURS.claim.strip()} \\gset
select 1 / (count(*) = cardinality(:ids::bigint[]))::integer
from pgq_sql.ack_many(:ids, :tokens)
where outcome = 'acked';
"""

WARMING = 2
"""Seconds that do not count: a hundred sessions need one to make their plans."""


@dataclass(frozen=True, kw_only=True)
class Sessions(Scenario):
    """Many against few. An error or a job claimed twice ends the run."""

    n: int
    backlog: int
    """For five seconds, and the warming-up."""
    sizes: tuple[int, ...] = (100, 8)
    figures: tuple[str, ...] = ("jobs_per_second", "errors", "double_claims")

    def round(self, server: Server, size: Size, _number: int, /) -> dict[str, Run]:
        """Measure each, on a database of its own."""
        return {f"{clients} sessions": self._run(server, size, clients) for clients in self.sizes}

    def _run(self, server: Server, size: Size, clients: int) -> Run:
        warming = round(WARMING * size.part)
        backlog = round(self.backlog * (size.seconds + warming) / 7)
        with server.fresh(OURS, backlog) as conn:
            server.settle(conn, OURS)
            done = server.pgbench(sized(CHECKED, self.n), clients, size.seconds + warming)
            row = conn.execute(
                "select count(*), count(*) filter (where token > 0) from pgq_sql.job"
            ).fetchone()
        assert row is not None
        left, claimed = int(str(row[0])), int(str(row[1]))
        if left == 0:
            raise RuntimeError("the backlog ran out")
        return Run(
            {
                # A very short run tells no seconds.
                "jobs_per_second": statistics.fmean(
                    done.per_second[warming:] or [done.transactions / done.seconds]
                )
                * ((backlog - left) / done.transactions),
                # Otherwise pgbench has failed; every job is acked or was never claimed.
                "errors": 0,
                "double_claims": claimed,
            }
        )
