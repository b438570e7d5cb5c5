"""Answers that the network swallows: what was carried out counts once, what was not is redone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from afar import PATIENCE, AnyJob, Work, all_done, at_work, both, effects
from pgq_sql import (
    AsyncClient,
    Client,
    DeadLetter,
    Enqueued,
    Retry,
    Snooze,
)
from proxy import Proxy
from servers import Connection, wait_until
from working import states

SECOND = timedelta(seconds=1)

either_way = pytest.mark.parametrize("carried_out", [True, False])


@pytest.fixture
def client(database: str, conn: Connection) -> Iterator[Client]:
    """Goes straight to the database."""
    conn.execute("create table effects (job_id bigint)")
    with Client(database) as client:
        client.create_queue(
            "q", visibility_timeout=60 * SECOND, retry_delay=timedelta(0), max_attempts=3
        )
        yield client


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    wait_until(lambda: set(threading.enumerate()) <= before, message="the end of all threads")


def first_run(error: Exception) -> Callable[[AnyJob], None]:
    def act(job: AnyJob) -> None:
        if job.attempt == 1:
            raise error

    return act


class TestEnds:
    """The other ends of a run than an ack; `test_network` has that."""

    @both
    @either_way
    @pytest.mark.parametrize("error", [ValueError(), Retry()], ids=["error", "Retry"])
    def test_retry(
        self,
        client: Client,
        conn: Connection,
        proxy: Proxy,
        kind: str,
        error: Exception,
        *,
        carried_out: bool,
    ) -> None:
        """It costs one attempt, not two."""
        client.enqueue("q")
        trap = proxy.trap("retry_many", carried_out=carried_out)
        work = Work(act=first_run(error))
        with at_work(kind, proxy.dsn, work) as worker:
            trap.wait()
            worker.wait(acked=1)
        assert [job.attempt for job in work.jobs] == [1, 2]
        report = worker.report
        assert (report.claimed, report.retried, report.acked, report.lost) == (2, 1, 1, 0)
        all_done(conn)

    @both
    @either_way
    def test_last_retry(
        self, client: Client, conn: Connection, proxy: Proxy, kind: str, *, carried_out: bool
    ) -> None:
        """After it the job is dead, and counted as such."""
        client.enqueue("q", max_attempts=1)
        trap = proxy.trap("retry_many", carried_out=carried_out)
        with at_work(kind, proxy.dsn, Work(act=first_run(ValueError("no")))) as worker:
            trap.wait()
            worker.wait(dead=1)
        report = worker.report
        assert (report.claimed, report.retried, report.lost) == (1, 0, 0)
        assert conn.execute("select reason from pgq_sql.dead_jobs").fetchall() == [
            ("max attempts exceeded",)
        ]

    @both
    @either_way
    def test_dead_letter(
        self, client: Client, conn: Connection, proxy: Proxy, kind: str, *, carried_out: bool
    ) -> None:
        client.enqueue("q")
        trap = proxy.trap("dead_letter_many", carried_out=carried_out)
        with at_work(kind, proxy.dsn, Work(act=first_run(DeadLetter("no")))) as worker:
            trap.wait()
            worker.wait(dead=1)
        assert (worker.report.claimed, worker.report.lost) == (1, 0)
        rows = conn.execute("select error from pgq_sql.dead_jobs").fetchall()
        assert rows == [("no",)]

    @both
    @either_way
    def test_snooze(
        self, client: Client, conn: Connection, proxy: Proxy, kind: str, *, carried_out: bool
    ) -> None:
        client.enqueue("q")
        trap = proxy.trap("release_many", carried_out=carried_out)
        with at_work(kind, proxy.dsn, Work(act=first_run(Snooze(timedelta(hours=1))))) as worker:
            trap.wait()
            worker.wait(released=1)
        assert (worker.report.claimed, worker.report.lost) == (1, 0)
        assert states(conn) == [("scheduled", 0)]


class TestTransaction:
    """`job.transaction()`: business effect and ack commit together."""

    @both
    def test_the_commit_was_carried_out(
        self, client: Client, conn: Connection, proxy: Proxy, kind: str
    ) -> None:
        """The effect is there once, the job is gone, and nothing runs again."""
        client.enqueue_many("q", list(range(3)))
        trap = proxy.trap("COMMIT", carried_out=True, times=3)
        work = Work(transaction=True)
        with at_work(kind, proxy.dsn, work) as worker:
            for _ in range(3):
                trap.wait()
            all_done(conn)
            wait_until(lambda: worker.report.acked + worker.report.lost == 3, PATIENCE)
        assert (worker.report.claimed, worker.report.retried) == (3, 0)
        assert set(work.runs.values()) == {1}
        assert sorted(effects(conn).values()) == [1, 1, 1]

    @both
    @pytest.mark.parametrize("text", ["require_lease", "insert into effects", ".ack(", "COMMIT"])
    def test_the_commit_did_not_come_through(
        self, client: Client, conn: Connection, proxy: Proxy, kind: str, text: str
    ) -> None:
        """Neither effect nor ack: the job runs again."""
        client.enqueue_many("q", list(range(3)))
        trap = proxy.trap(text, carried_out=False, times=2)
        work = Work(transaction=True)
        with at_work(kind, proxy.dsn, work) as worker:
            trap.wait()
            trap.wait()
            worker.wait(acked=3)
        report = worker.report
        assert (report.claimed, report.retried, report.lost) == (5, 2, 0)
        assert sorted(effects(conn).values()) == [1, 1, 1]
        all_done(conn)


def produce(kind: str, dsn: str, count: int, **options: Any) -> list[Enqueued | Exception]:
    """Enqueue some jobs, each by a call of its own; what was answered, or raised."""

    def keep(error: Exception) -> Exception:
        # Anything but what psycopg says would be an error of the test.
        assert isinstance(error, psycopg.OperationalError)
        return error

    async def produce_async() -> list[Enqueued | Exception]:
        answers: list[Enqueued | Exception] = []
        async with AsyncClient(dsn) as client:
            for number in range(count):
                try:
                    answers.append(await client.enqueue("q", number, **options))
                except Exception as error:
                    answers.append(keep(error))
        return answers

    if kind == "async":
        return asyncio.run(produce_async())
    answers: list[Enqueued | Exception] = []
    with Client(dsn) as client:
        for number in range(count):
            try:
                answers.append(client.enqueue("q", number, **options))
            except Exception as error:
                answers.append(keep(error))
    return answers


@pytest.mark.usefixtures("client")
class TestEnqueue:
    @both
    @either_way
    def test_alone(self, conn: Connection, proxy: Proxy, kind: str, *, carried_out: bool) -> None:
        """The caller learns that nothing is known; the next call has a new connection."""
        proxy.trap(".enqueue(", carried_out=carried_out)
        first, second = produce(kind, proxy.dsn, 2)
        assert isinstance(first, psycopg.OperationalError)
        assert isinstance(second, Enqueued)
        assert len(states(conn)) == (2 if carried_out else 1)

    @both
    @either_way
    def test_with_a_dedup_key(
        self, conn: Connection, proxy: Proxy, kind: str, *, carried_out: bool
    ) -> None:
        """With a key the call can be made again, whatever became of the first."""
        proxy.trap(".enqueue(", carried_out=carried_out)
        first, second = produce(kind, proxy.dsn, 2, dedup_key="k")
        assert isinstance(first, psycopg.OperationalError)
        assert isinstance(second, Enqueued)
        assert second.outcome == ("existing" if carried_out else "inserted")
        assert len(states(conn)) == 1

    @either_way
    def test_in_the_callers_transaction(
        self, client: Client, conn: Connection, proxy: Proxy, *, carried_out: bool
    ) -> None:
        """Business row and job are both there, or both not."""
        trap = proxy.trap("COMMIT", carried_out=carried_out)
        with closing(psycopg.connect(proxy.dsn)) as mine:
            mine.execute("insert into effects values (0)")
            client.enqueue("q", conn=mine)
            with pytest.raises(psycopg.OperationalError):
                mine.commit()
        trap.wait()
        there = 1 if carried_out else 0
        assert len(states(conn)) == there
        assert len(effects(conn)) == there
