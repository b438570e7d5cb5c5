"""Handlers that are not done in time: they are told, and their jobs end without them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from pgq_sql import (
    AsyncRunningJob,
    Batch,
    BatchConsumer,
    Client,
    Consumer,
    DeadLetter,
    Report,
    RunningJob,
    Worker,
    _watch,
)
from servers import Connection, wait_until
from test_concurrency import scalar
from test_consumers import EFFECTS, ERRORS, NOW, run_async
from working import PATIENCE, Record, running

LIMIT = timedelta(seconds=2)
"""Where a second run has to be in time: long enough for a machine that does much else."""
TOO_SLOW = "TimeoutError: the handler was not done after 2 s"


def waiting(conn: Connection) -> object:
    """How many sessions wait for a lock."""
    return scalar(
        conn,
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock'",
    )


@pytest.fixture
def client(database: str, conn: Connection) -> Iterator[Client]:
    conn.execute("create table effects (n integer)")
    with Client(database) as client:
        client.create_queue("q", retry_delay=NOW, max_attempts=3, keep_done=timedelta(days=1))
        yield client


class TestTimeout:
    def test_a_thread_is_told_and_its_job_runs_again(
        self, client: Client, conn: Connection
    ) -> None:
        told: list[bool] = []

        def handle(job: RunningJob) -> None:
            if job.attempt == 1:
                told.append(job.lost.wait(PATIENCE))
                # Whatever it does now counts for nothing.
                raise DeadLetter("too late")

        client.enqueue("q")
        consumer = Consumer(handle, timeout=LIMIT)
        report = Worker(client, {"q": consumer}).run(until_idle=True)
        assert told == [True]
        assert report == Report(claimed=2, acked=1, retried=1)
        assert scalar(conn, ERRORS) == TOO_SLOW

    def test_a_thread_keeps_its_place(self, client: Client) -> None:
        gate, entered = threading.Event(), Record()

        def handle(job: RunningJob) -> None:
            entered(job)
            assert gate.wait(PATIENCE)

        client.enqueue_many("q", [1, 2, 3])
        worker = Worker(client, {"q": Consumer(handle, timeout=LIMIT)}, concurrency=2, prefetch=0)
        with running(worker):
            wait_until(lambda: worker.report.retried == 2, PATIENCE)
            # Two places, and both are taken by handlers that nobody waits for.
            assert len(entered.jobs) == 2
            gate.set()
            wait_until(lambda: worker.report.acked == 3, PATIENCE)

    def test_a_coroutine_is_cancelled(
        self, client: Client, database: str, conn: Connection
    ) -> None:
        cancelled: list[int] = []

        async def handle(job: AsyncRunningJob) -> None:
            if job.attempt == 1:
                try:
                    await asyncio.sleep(PATIENCE)
                except asyncio.CancelledError:
                    cancelled.append(job.payload)
                    raise

        client.enqueue_many("q", [1, 2])
        consumer = Consumer(handle, timeout=LIMIT)
        report = run_async(database, {"q": consumer})
        assert report == Report(claimed=4, acked=2, retried=2)
        assert sorted(cancelled) == [1, 2]
        assert scalar(conn, ERRORS) == TOO_SLOW

    def test_who_is_in_time_is_left_alone(self, client: Client) -> None:
        client.enqueue_many("q", list(range(20)))
        consumer = Consumer(Record(), timeout=timedelta(seconds=60))
        assert Worker(client, {"q": consumer}).run(until_idle=True) == Report(20, 20)

    def test_can_mean_death(self, client: Client) -> None:
        client.enqueue("q")
        consumer = Consumer(
            lambda job: job.lost.wait(PATIENCE),
            timeout=timedelta(milliseconds=20),
            dead_letter_on=(TimeoutError,),
        )
        assert Worker(client, {"q": consumer}).run(until_idle=True).dead == 1

    def test_of_a_whole_batch(self, client: Client) -> None:
        def handle(batch: Batch) -> None:
            if batch[0].attempt == 1:
                assert all(job.lost.wait(PATIENCE) for job in batch)

        client.enqueue_many("q", [1, 2, 3])
        consumer = BatchConsumer(handle, timeout=LIMIT)
        report = Worker(client, {"q": consumer}, concurrency=1).run(until_idle=True)
        assert report == Report(claimed=6, acked=3, retried=3)

    @pytest.mark.parametrize("idle", [True, False])
    def test_of_a_transaction(self, client: Client, conn: Connection, idle: bool) -> None:
        """It is rolled back at once, so that it does not hold up how its job ends."""
        refused: list[BaseException] = []

        def handle(job: RunningJob) -> None:
            try:
                with job.transaction() as mine:
                    mine.execute("insert into effects values (%s)", [job.attempt])
                    if job.attempt == 1:
                        if idle:
                            wait_until(lambda: worker.report.retried >= 1, PATIENCE)
                        mine.execute("select pg_sleep(60)")
            except psycopg.OperationalError as error:
                refused.append(error)
                raise

        client.enqueue("q")
        consumer = Consumer(handle, timeout=LIMIT)
        worker = Worker(client, {"q": consumer}, concurrency=1)
        report = worker.run(until_idle=True)
        assert len(refused) == 1
        assert report == Report(claimed=2, acked=1, retried=1)
        assert scalar(conn, EFFECTS) == [2]

    def test_that_the_database_cannot_note(
        self, client: Client, conn: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Somebody holds the row of the job: the others do not wait for him for ever."""
        monkeypatch.setattr(_watch.Patience.__init__, "__defaults__", (1.0,))
        client.create_queue("r")
        quick = Record()

        def handle(_: RunningJob) -> None:
            conn.execute("begin")
            conn.execute("select from pgq_sql.job for update")

        client.enqueue("q")
        worker = Worker(client, {"q": handle, "r": quick}, concurrency=2)
        with running(worker):
            wait_until(lambda: worker.report.lost == 1, PATIENCE)
            client.enqueue("r")
            wait_until(lambda: worker.report.acked == 1, PATIENCE)
            assert quick.payloads == [{}]
            # Given up means given up: no statement of it still waits for the row.
            wait_until(lambda: waiting(conn) == 0, PATIENCE)
            conn.execute("rollback")
