"""What fails is made good by the next claims alone: nobody calls sweep, and no daemon runs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest

from servers import wait_until
from test_concurrency import scalar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Connect
    from servers import Connection

TAKE = "select job_id, attempt, last_error from pgq_sql.claim('q', 'next', 10)"
SOON = 3.0
"""Seconds within which what is due comes: sweeps run once a second."""


@pytest.fixture
def queue(conn: Connection) -> Connection:
    conn.execute("select pgq_sql.create_queue('q', visibility_timeout => '1 s', max_attempts => 2)")
    return conn


def enqueue(conn: Connection, count: int) -> set[object]:
    many = "select job_id from pgq_sql.enqueue_many('q', array_fill('{}'::jsonb, array[%s::int]))"
    return {job_id for (job_id,) in conn.execute(many, [count])}


def comes_back(conn: Connection, ids: set[object], within: float = SOON) -> None:
    """The next claims bring these jobs, each in its second run."""
    found: dict[object, object] = {}

    def claims() -> bool:
        found.update({job_id: (attempt, error) for job_id, attempt, error in conn.execute(TAKE)})
        return found.keys() >= ids

    wait_until(claims, within, message="the jobs of the dead worker")
    assert found == dict.fromkeys(ids, (2, "lease expired"))


WORKER = """
import sys, time, psycopg
with psycopg.connect(sys.argv[1], autocommit=True) as conn:
    print(len(conn.execute("select pgq_sql.claim('q', 'killed', 3)").fetchall()), flush=True)
    time.sleep(60)
"""


@contextmanager
def process(dsn: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", WORKER, dsn], stdout=-1, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def test_a_killed_process_leaves_its_jobs_to_the_next(
    queue: Connection, database: str, connect: Connect
) -> None:
    ids = enqueue(queue, 3)
    with process(database) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "3\n"
        worker.kill()
        assert worker.wait() == -signal.SIGKILL

    assert queue.execute(TAKE).fetchall() == []  # their leases still run
    comes_back(connect(), ids, within=1 + SOON)


def test_a_session_ended_after_its_claim_leaves_its_jobs_to_the_next(
    queue: Connection, connect: Connect
) -> None:
    ids = enqueue(queue, 3)
    worker = connect()
    assert len(worker.execute(TAKE).fetchall()) == 3

    queue.execute("select pg_terminate_backend(%s, 5000)", [worker.info.backend_pid])

    comes_back(queue, ids, within=1 + SOON)


def test_a_session_ended_within_its_claim_has_claimed_nothing(
    queue: Connection, connect: Connect
) -> None:
    ids = enqueue(queue, 3)
    worker = connect(autocommit=False)
    assert len(worker.execute(TAKE).fetchall()) == 3

    queue.execute("select pg_terminate_backend(%s, 5000)", [worker.info.backend_pid])

    # At once, and in their first run.
    assert {(i, attempt) for i, attempt, _ in queue.execute(TAKE)} == {(i, 1) for i in ids}
    with pytest.raises(psycopg.OperationalError):
        worker.execute("select")


def test_jobs_whose_last_lease_runs_out_are_dead(queue: Connection) -> None:
    ids = enqueue(queue, 3)
    for attempt in (1, 2):
        taken: set[object] = set()

        def all_taken(attempt: int = attempt, taken: set[object] = taken) -> bool:
            rows = queue.execute(TAKE).fetchall()
            assert {told for _, told, _ in rows} <= {attempt}
            taken.update(job_id for job_id, _, _ in rows)
            return taken == ids

        wait_until(all_taken, 1 + SOON)

    def dead() -> set[tuple[object, ...]]:
        assert queue.execute(TAKE).fetchall() == []
        return set(queue.execute("select id, reason, attempt, error from pgq_sql.dead_job"))

    wanted = {(i, "max attempts exceeded", 2, "lease expired") for i in ids}
    wait_until(lambda: dead() == wanted, 1 + SOON)
    assert scalar(queue, "select count(*) from pgq_sql.job") == 0


def test_jobs_committed_after_the_mark_come_within_seconds(
    queue: Connection, connect: Connect
) -> None:
    producer = connect(autocommit=False)
    late = enqueue(producer, 3)
    stamp = scalar(producer, "select max(run_at) from pgq_sql.job")
    passed = "select exists (select from pgq_sql.mark where head > %s)"

    def others_work() -> None:
        enqueue(queue, 1)
        queue.execute("select pgq_sql.claim('q', 'other', 1, '1 min')")

    def mark_has_passed() -> object:
        others_work()
        return scalar(queue, passed, stamp)

    wait_until(mark_has_passed, 2 + SOON, message="a mark above the open producer's jobs")
    producer.commit()
    began = time.monotonic()
    found: set[object] = set()

    def found_late() -> bool:
        found.update(job_id for job_id, _, _ in queue.execute(TAKE))
        return found >= late

    wait_until(found_late, SOON, message="the late jobs")
    assert time.monotonic() - began < SOON
