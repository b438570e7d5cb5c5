"""What claims do on the side: they wait for nobody, forget no queue, and keep up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg
import pytest

from servers import wait_until
from test_concurrency import scalar

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Connect
    from servers import Connection

CLAIM = "select count(*) from pgq_sql.claim(%s, 'w', %s)"
SWEEP = "select count(*) from pgq_sql.sweep()"


@pytest.fixture
def queue(conn: Connection) -> Connection:
    conn.execute("select pgq_sql.create_queue('q'), pgq_sql.create_queue('other')")
    return conn


def age_marks(conn: Connection) -> None:
    """As if nothing had happened for a minute: sweeps are due and old marks may go."""
    conn.execute(
        "update pgq_sql.mark set made_at = made_at - interval '1 min', sweep_at = '-infinity'"
    )


@pytest.mark.parametrize(
    "opener",
    [lambda c: scalar(c, CLAIM, "q", 1), lambda c: scalar(c, SWEEP)],
    ids=["claim", "sweep"],
)
def test_an_open_claim_or_sweep_makes_nobody_wait(
    queue: Connection, connect: Connect, opener: Callable[[Connection], object]
) -> None:
    queue.execute("select pgq_sql.enqueue_many('q', array_fill('{}'::jsonb, array[9]))")
    for _ in range(3):
        scalar(queue, CLAIM, "q", 1)
        queue.execute("select pg_sleep(0.15)")
    age_marks(queue)
    first, second = connect(autocommit=False), connect()
    second.execute("set lock_timeout = '1s'")
    opener(first)  # prunes marks, and stays open
    queue.execute(
        "insert into pgq_sql.mark (lane_id, head, head_id, tail, tail_id, made_at, sweep_at, busy)"
        " select lane_id, head, head_id, tail, tail_id, made_at, '-infinity', busy"
        " from pgq_sql.mark order by seq desc limit 1"
    )
    for _ in range(3):
        second.execute("select pg_sleep(1.01)")  # into another second
        scalar(second, CLAIM, "q", 1)
    scalar(second, SWEEP)
    first.rollback()


def test_two_queues_polled_in_the_same_second_are_both_looked_after(queue: Connection) -> None:
    for name in ("q", "other"):
        queue.execute("select pgq_sql.enqueue(%s, visibility_timeout => '300 ms')", [name])
        # Under an old snapshot a claim writes no mark: only housekeeping will find its end.
        with queue.transaction():
            queue.execute("set transaction isolation level repeatable read")
            assert scalar(queue, CLAIM, name, 1) == 1
    came: set[str] = set()

    def poll() -> bool:
        came.update(name for name in ("q", "other") if scalar(queue, CLAIM, name, 1))
        return came == {"q", "other"}

    wait_until(poll, 8)


def test_jobs_committed_late_come_by_the_thousand(queue: Connection, connect: Connect) -> None:
    producer = connect(autocommit=False)
    many = "select count(*) from pgq_sql.enqueue_many('q', array_fill('{}'::jsonb, array[5000]))"
    assert scalar(producer, many) == 5000
    # Other work lets the head pass the open producer, which takes it two seconds.
    began = time.monotonic()
    while time.monotonic() < began + 2.6:
        queue.execute("select pgq_sql.enqueue('q')")
        queue.execute("select pg_sleep(0.1)")
        scalar(queue, CLAIM, "q", 100)
    producer.commit()
    took = 0

    def take() -> bool:
        nonlocal took
        found = scalar(queue, CLAIM, "q", 1000)
        assert isinstance(found, int)
        took += found
        return took >= 5000

    wait_until(take, 8)


def test_marks_are_pruned_by_claims_alone(queue: Connection) -> None:
    queue.execute("select pgq_sql.enqueue_many('q', array_fill('{}'::jsonb, array[20]))")
    for _ in range(4):
        scalar(queue, CLAIM, "q", 1)
        queue.execute("select pg_sleep(0.11)")
    assert scalar(queue, "select count(*) > 2 from pgq_sql.mark")
    age_marks(queue)
    queue.execute("select pg_sleep(1.01)")
    scalar(queue, CLAIM, "q", 1)
    assert scalar(queue, "select count(*) <= 3 from pgq_sql.mark")


def test_an_idle_queue_writes_nothing(queue: Connection) -> None:
    queue.execute("select pgq_sql.enqueue('q')")
    queue.execute("select pgq_sql.ack(job_id, token) from pgq_sql.claim('q', 'w')")
    for _ in range(3):  # the closing mark
        queue.execute("select pg_sleep(0.5)")
        scalar(queue, CLAIM, "q", 1)
    before = scalar(queue, "select max(seq) from pgq_sql.mark")
    for _ in range(3):
        queue.execute("select pg_sleep(0.6)")
        with queue.transaction():
            scalar(queue, CLAIM, "q", 1)
            assert scalar(queue, "select pg_current_xact_id_if_assigned()") is None
    assert scalar(queue, "select max(seq) from pgq_sql.mark") == before


def test_a_clock_set_back_before_the_queue_was_made(queue: Connection) -> None:
    queue.execute("update pgq_sql.queue set created_at = created_at + interval '1 hour'")
    queue.execute("select pgq_sql.enqueue('q', visibility_timeout => '200 ms')")
    assert scalar(queue, CLAIM, "q", 1) == 1
    wait_until(lambda: scalar(queue, CLAIM, "q", 1), 8)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_days_are_24_hours_in_every_time_zone(queue: Connection, zone: str) -> None:
    queue.execute("select set_config('timezone', %s, false)", [zone])
    queue.execute("select pgq_sql.enqueue('q', delay => '120 days')")
    delay = "select run_at - enqueued_at = interval '2880 h' from pgq_sql.jobs"
    assert scalar(queue, delay)


def test_arrays_that_do_not_count_from_one_are_refused(queue: Connection) -> None:
    for call in (
        "ack_many('[0:1]={1,2}', '[0:1]={1,1}')",
        "ack_many('{1,2}', '[0:1]={1,1}')",
        "retry_many('{1,2}', '{1,1}', errors => '[0:1]={a,b}')",
        "release_many('{1,2}', '{1,1}', delays => array[array['1 s', '2 s']]::interval[])",
    ):
        with pytest.raises(psycopg.Error) as refused:
            queue.execute(f"select pgq_sql.{call}".encode())
        assert refused.value.sqlstate == "22023"


def test_a_quiet_queue_is_not_notified_by_sweeps(conn: Connection, connect: Connect) -> None:
    conn.execute("select pgq_sql.create_queue('quiet', notify => false)")
    conn.execute("select pgq_sql.enqueue('quiet', visibility_timeout => '250 ms')")
    scalar(conn, CLAIM, "quiet", 1)
    listener = connect()
    channel = scalar(listener, "select pgq_sql.wait_begin('quiet')")
    listener.execute(f'listen "{channel}"'.encode())
    wait_until(lambda: scalar(conn, "select lease_until < clock_timestamp() from pgq_sql.job"))
    assert scalar(conn, "select count from pgq_sql.sweep() where task = 'recovered'") == 1
    assert list(listener.notifies(timeout=0.2)) == []
