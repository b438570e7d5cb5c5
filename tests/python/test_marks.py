"""Marks pass no job that a claim may still have to find: each race by hand, and with the fault.

A scenario answers whether the job in question was claimed in the end, with sweeps switched off.
Each is run on the schema as it is, where it must be, and with a planted fault, where it must not
be: so the scenario tests what it says.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Connect
    from servers import Connection

    Scenario = Callable[[Connect], bool]

QUEUE = "q"
NO_SWEEP = ("_keep_house", "    perform _sweep_queue(queue_id, 1000);\n", "")


def patch(conn: Connection, function: str, old: str, new: str) -> None:
    """Replaces text in the body of an installed function."""
    row = conn.execute(
        "select pg_get_functiondef(oid) from pg_proc"
        " where proname = %s and pronamespace = 'pgq_sql'::regnamespace",
        [function],
    ).fetchone()
    assert row is not None
    text = str(row[0])
    assert old in text, f"{function} no longer contains {old!r}"
    conn.execute("set search_path = pgq_sql, pg_temp")
    conn.execute(text.replace(old, new).encode())
    conn.execute("reset search_path")


def enqueue(conn: Connection, delay: str | None = None) -> int:
    """A call with options goes another way: see enqueue.sql."""
    query = "select job_id from pgq_sql.enqueue(%s, delay => %s)"
    row = conn.execute(query, [QUEUE, delay]).fetchone()
    assert row is not None
    assert isinstance(row[0], int)
    return row[0]


def claim(conn: Connection, n: int = 1) -> list[object]:
    rows = conn.execute("select job_id from pgq_sql.claim(%s, 'w', %s)", [QUEUE, n]).fetchall()
    return [job_id for (job_id,) in rows]


def let_slots_end(conn: Connection) -> None:
    """Until the clock is in another slot of 100 ms, and claims may write a new mark."""
    conn.execute("select pg_sleep(0.25)")


def move_the_mark(conn: Connection) -> None:
    """Work goes on: another job comes, is claimed, and the mark follows."""
    let_slots_end(conn)
    other = enqueue(conn)
    let_slots_end(conn)
    assert other in claim(conn, 1000)
    let_slots_end(conn)
    claim(conn)


def producer_still_open(connect: Connect) -> bool:
    """A job is stamped, others pass it, and only then does it commit."""
    producer, other = connect(autocommit=False), connect()
    job = enqueue(producer)
    move_the_mark(other)
    producer.commit()
    return job in claim(other, 1000)


def producer_after_a_rolled_back_savepoint(connect: Connect) -> bool:
    """The savepoint's rollback drops its locks: the next enqueue must announce itself again."""
    producer, other = connect(autocommit=False), connect()
    producer.execute("savepoint s")
    enqueue(producer)
    producer.execute("rollback to savepoint s")
    job = enqueue(producer)
    move_the_mark(other)
    producer.commit()
    return job in claim(other, 1000)


def producer_slow_to_lock(connect: Connect, delay: str | None = None) -> bool:
    """The producer is descheduled between its first look at the clock and its lock."""
    producer, other = connect(autocommit=False), connect()
    producer.execute("set test.slow = 'once'")
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(enqueue(producer, delay)))
    thread.start()
    move_the_mark(other)
    thread.join()
    move_the_mark(other)
    producer.commit()
    return found[0] in claim(other, 1000)


def producer_with_options_slow_to_lock(connect: Connect) -> bool:
    """The same for a call that _announce sees to."""
    return producer_slow_to_lock(connect, "0")


def claim_rolled_back(connect: Connect) -> bool:
    """A claim is open while others claim what comes after its job; then it is rolled back."""
    claimer, other = connect(autocommit=False), connect()
    move_the_mark(other)
    job = enqueue(other)
    assert claim(claimer) == [job]
    move_the_mark(other)
    claimer.rollback()
    return job in claim(other, 1000)


def claim_with_an_old_snapshot(connect: Connect) -> bool:
    """A claim in REPEATABLE READ does not see what was committed since; no mark may pass that."""
    claimer, other = connect(autocommit=False), connect()
    seen = enqueue(other)
    claimer.execute("set transaction isolation level repeatable read")
    claimer.execute("select count(*) from pgq_sql.job")
    job = enqueue(other)
    let_slots_end(other)
    assert claim(claimer) == [seen]
    let_slots_end(other)
    assert claim(claimer) == []
    claimer.commit()
    return job in claim(other, 1000)


SLOW_LOCK = (
    "enqueue",
    "and pg_try_advisory_xact_lock_shared(",
    "and case when current_setting('test.slow', true) = 'once'"
    " then (pg_sleep(1.2), set_config('test.slow', '', false)) is not null else true end"
    " and pg_try_advisory_xact_lock_shared(",
)
SLOW_LOCK_WITH_OPTIONS = (
    "_announce",
    "    perform\n",
    "    if current_setting('test.slow', true) = 'once' then\n"
    "      perform set_config('test.slow', '', false), pg_sleep(1.2);\n    end if;\n    perform\n",
)
SCENARIOS: dict[Scenario, list[tuple[str, str, str]]] = {
    producer_still_open: [],
    producer_after_a_rolled_back_savepoint: [],
    producer_slow_to_lock: [SLOW_LOCK],
    producer_with_options_slow_to_lock: [SLOW_LOCK_WITH_OPTIONS],
    claim_rolled_back: [],
    claim_with_an_old_snapshot: [],
}

FAULTS: dict[str, tuple[Scenario, tuple[str, str, str]]] = {
    "open producers are ignored": (
        producer_still_open,
        ("_settled", "return greatest(since, slot);", "return greatest(since, over);"),
    ),
    "the bound is the newest finished transaction": (
        producer_still_open,
        (
            "_settled",
            "return greatest(since, slot);",
            "return case when txid_snapshot_xmax(txid_current_snapshot()) > 0 then over end;",
        ),
    ),
    "the clock is read before the lock": (
        producer_slow_to_lock,
        ("enqueue", "where _slot(s.clock) = _slot(current_timestamp)", ""),
    ),
    "the clock is not read again under the lock": (
        producer_with_options_slow_to_lock,
        (
            "_announce",
            "    clock := _now();\n    exit when _slot(clock) = slot;",
            "    exit;",
        ),
    ),
    "the mark is taken from jobs that can be locked": (
        claim_rolled_back,
        (
            "_advance_marks",
            "    order by j.run_at, j.id\n    limit 1;",
            "    order by j.run_at, j.id\n    limit 1\n    for update skip locked;",
        ),
    ),
    "old snapshots write marks": (
        claim_with_an_old_snapshot,
        ("_keep_house", "current_setting('transaction_isolation') <> 'read committed'", "false"),
    ),
}


@pytest.fixture
def queue(conn: Connection) -> Connection:
    """A queue whose claims do not sweep."""
    conn.execute("select pgq_sql.create_queue(%s, visibility_timeout => '10 min')", [QUEUE])
    patch(conn, *NO_SWEEP)
    return conn


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_job_is_claimed(queue: Connection, connect: Connect, scenario: Scenario) -> None:
    for one in SCENARIOS[scenario]:
        patch(queue, *one)

    assert scenario(connect)


@pytest.mark.parametrize("fault", FAULTS)
def test_with_the_fault_it_is_not(queue: Connection, connect: Connect, fault: str) -> None:
    scenario, planted = FAULTS[fault]
    for one in [*SCENARIOS[scenario], planted]:
        patch(queue, *one)

    assert not scenario(connect)
