"""No job is lost, doubled or stranded, whatever transactions do; and the check would notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stress import Plan, Stress

if TYPE_CHECKING:
    from servers import Connection

CLEAN = {"lost": 0, "unexpected": 0, "doubled": 0, "stranded": 0}

NO_SWEEP = ("_keep_house", "perform _sweep_queue(queue_id, 100);", "null;")
# Time for the slot to end between the reading of the clock and the lock.
SLOW_LOCK = (
    "_announce",
    "    perform\n      pg_advisory_xact_lock_shared(lane_key, -1)",
    "    perform pg_sleep(case when random() < 0.3 then 0.25 else 0 end);\n"
    "    perform\n      pg_advisory_xact_lock_shared(lane_key, -1)",
)


def patch(conn: Connection, function: str, old: str, new: str) -> None:
    """Replaces text in the body of an installed function."""
    (text,) = conn.execute(
        "select pg_get_functiondef(oid) from pg_proc"
        " where proname = %s and pronamespace = 'pgq_sql'::regnamespace",
        [function],
    ).fetchone()
    assert old in text, f"{function} no longer contains {old!r}"
    conn.execute("set search_path = pgq_sql, pg_temp")
    conn.execute(text.replace(old, new))
    conn.execute("reset search_path")


@pytest.mark.parametrize("seed", [1, 2])
def test_marks_strand_no_job_even_without_sweeps(
    database: str, conn: Connection, seed: int
) -> None:
    patch(conn, *NO_SWEEP)

    outcome = Stress(database, Plan(seed)).run()

    assert outcome.faults() == CLEAN
    assert len(outcome.acked) > 100


def test_a_producer_descheduled_before_its_lock_strands_no_job(
    database: str, conn: Connection
) -> None:
    patch(conn, *NO_SWEEP)
    patch(conn, *SLOW_LOCK)

    assert Stress(database, Plan(3)).run().faults() == CLEAN


def test_claimers_with_old_snapshots_strand_no_job(database: str, conn: Connection) -> None:
    patch(conn, *NO_SWEEP)
    plan = Plan(4, claim_isolation=("read committed", "repeatable read", "serializable"))

    assert Stress(database, plan).run().faults() == CLEAN


def test_jobs_of_a_producer_open_too_long_are_found_by_sweeps(database: str) -> None:
    plan = Plan(5, duration=6, longest_hold=4, patience=3)

    assert Stress(database, plan).run().faults() == CLEAN


PLANTED = {
    "the clock is read before the lock, and not again": (
        Plan(10),
        [
            SLOW_LOCK,
            ("_announce", "exit when clock >= slot and clock < slot + interval '100 ms';", "exit;"),
            ("_announce", "    clock := _now();\n", ""),
        ],
    ),
    "open producers are ignored": (
        Plan(11),
        [("_settled", "return greatest(since, slot);", "return greatest(since, over);")],
    ),
    "the mark is taken from claimed instead of visible rows": (
        Plan(12, claim_rollback=0.5),
        [
            (
                "_advance_marks",
                "    order by j.run_at, j.id\n    limit 1;",
                "    order by j.run_at, j.id\n    limit 1\n    for update skip locked;",
            )
        ],
    ),
    "marks are written with old snapshots": (
        Plan(13, claim_isolation=("read committed", "repeatable read")),
        [("claim", "current_setting('transaction_isolation') = 'read committed'", "true")],
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_noticed(database: str, conn: Connection, fault: str) -> None:
    plan, patches = PLANTED[fault]
    patch(conn, *NO_SWEEP)
    for one in patches:
        patch(conn, *one)

    assert Stress(database, plan).run().faults()["stranded"] > 0
