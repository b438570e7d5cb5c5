"""No job is lost, doubled or stranded, whatever transactions do. test_marks has each race alone.

Short runs, and each planted fault must show in a few: `make stress` is the long random form.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from stress import ISOLATION, Plan, Stress
from stress_plants import FAULTS

if TYPE_CHECKING:
    from servers import Server

CLEAN = {"lost": 0, "unexpected": 0, "doubled": 0, "stranded": 0}
ALONE = Plan(1, duration=3, sweeps=False)
SWEPT = Plan(1, duration=3, abandon=0.2, visibility_timeout=0.2)
MANY_CLOSE_TOGETHER = replace(ALONE, slow_spots=True, longest_hold=0.02, producers=3)

PLANS: dict[str, Plan] = {
    "marks alone": ALONE,
    "old snapshots": replace(ALONE, claim_isolation=ISOLATION, holders=1),
    "slow spots": MANY_CLOSE_TOGETHER,
    "heartbeats while others settle": Plan(
        1, duration=2, renewers=6, work=0.02, longest_hold=0.05, priorities=tuple(range(8))
    ),
    "sweeps, kills, late producers": replace(
        SWEPT, killers=1, holders=1, sweepers=1, longest_hold=4.0, max_attempts=3
    ),
}
# Under these the faults show soon, and an engine without them shows nothing.
CATCHERS: dict[str, Plan] = {
    "the clock is read before the slot's lock": MANY_CLOSE_TOGETHER,
    "the mark is taken from jobs that can be locked": replace(ALONE, claim_rollback=0.4),
    "old snapshots write marks": replace(ALONE, claim_isolation=("repeatable read",)),
    "the bound is the newest finished transaction": ALONE,
    "open producers are ignored": ALONE,
    "a tail passes open producers": replace(SWEPT, duration=6, longest_hold=4.0),
    "claims take what runs": replace(ALONE, retry=0, release=0),
    "an expired lease is dropped": SWEPT,
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_nothing_is_lost_doubled_or_stranded(database: str, plan: Plan) -> None:
    ledger = Stress(database, plan).run()

    assert ledger.faults() == CLEAN
    assert len(ledger.acked) > 30


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(server: Server, template: str, fault: str) -> None:
    # What goes wrong depends on who comes first: one run may show nothing.
    for seed in range(10):
        with server.database(template) as name:
            plan = replace(CATCHERS[fault], seed=seed, stop_at_fault=True)
            ledger = Stress(server.dsn(name, server.owner), plan, *FAULTS[fault]).run()
        if any(ledger.faults().values()):
            return
    pytest.fail("not noticed in ten runs")
