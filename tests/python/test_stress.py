"""No job is lost, doubled or stranded, whatever transactions do. test_marks has each race alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stress import Plan, Stress
from test_marks import NO_SWEEP, patch

if TYPE_CHECKING:
    from servers import Connection

CLEAN = {"lost": 0, "unexpected": 0, "doubled": 0, "stranded": 0}


def test_marks_strand_no_job_even_without_sweeps(database: str, conn: Connection) -> None:
    patch(conn, *NO_SWEEP)

    outcome = Stress(database, Plan(1)).run()

    assert outcome.faults() == CLEAN
    assert len(outcome.acked) > 100


def test_claimers_with_old_snapshots_strand_no_job(database: str, conn: Connection) -> None:
    patch(conn, *NO_SWEEP)
    plan = Plan(2, claim_isolation=("read committed", "repeatable read", "serializable"))

    assert Stress(database, plan).run().faults() == CLEAN


def test_jobs_of_a_producer_open_too_long_are_found_by_sweeps(database: str) -> None:
    plan = Plan(3, duration=6, longest_hold=4, patience=3)

    outcome = Stress(database, plan).run()

    assert outcome.faults() == CLEAN
    assert outcome.slow
    assert not outcome.stranded


def test_a_planted_fault_is_noticed(database: str, conn: Connection) -> None:
    patch(conn, *NO_SWEEP)
    patch(conn, "_settled", "return greatest(since, slot);", "return greatest(since, over);")

    # A later mark of a slower claimer may undo the fault, so one run may show nothing.
    plans = (Plan(seed, duration=3, producers=8) for seed in range(4, 10))
    assert any(Stress(database, plan).run().faults()["stranded"] for plan in plans)
