"""The worker and the database's answers: those that get lost, and refusals."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from conftest import AsRole
from pgq_sql import Client, Report, RunningJob, Worker
from pgq_sql._exchange import Ask, Exchange
from pgq_sql._settlements import Settlement
from servers import Connection, wait_until
from working import PATIENCE, Gate, Record, listening, messages, running, states

SECOND = timedelta(seconds=1)


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("q", visibility_timeout=SECOND, retry_delay=timedelta(0))
        yield client


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    wait_until(lambda: set(threading.enumerate()) <= before, message="the end of all threads")


def unreachable(*_: object) -> Any:
    raise psycopg.OperationalError("nobody home")


class Lossy:
    """Cuts the wire once, before or after the database has done what it was asked."""

    def __init__(self, before: bool) -> None:
        self.before = before
        self.cut = 0
        self.run = Exchange.run

    def __call__(
        self,
        exchange: Exchange,
        settlements: Sequence[Settlement],
        asks: Sequence[Ask],
        *rest: Any,
    ) -> None:
        if not settlements or self.cut:
            return self.run(exchange, settlements, asks, *rest)
        self.cut += 1
        if not self.before:
            # Nothing is claimed, so that nothing is left to a lease.
            self.run(exchange, settlements, [])
            for settlement in settlements:
                settlement.answer = None
        raise psycopg.OperationalError("the wire was cut")


def raising(error: Exception) -> Callable[[RunningJob], None]:
    def handle(job: RunningJob) -> None:
        if job.attempt == 1:
            raise error

    return handle


class TestAnswers:
    @pytest.mark.parametrize("before", [True, False])
    @pytest.mark.parametrize(
        ("handler", "expected"),
        [
            (Record(), Report(claimed=1, acked=1)),
            (raising(ValueError()), Report(claimed=2, retried=1, acked=1)),
        ],
        ids=["ack", "retry"],
    )
    def test_lost_answer(
        self,
        client: Client,
        monkeypatch: pytest.MonkeyPatch,
        handler: Callable[[RunningJob], object],
        expected: Report,
        *,
        before: bool,
    ) -> None:
        lossy = Lossy(before)
        monkeypatch.setattr(Exchange, "run", lambda *a: lossy(*a))
        client.enqueue("q")
        worker = Worker(client, {"q": handler})
        with running(worker):
            wait_until(lambda: worker.report.acked)
        assert lossy.cut == 1
        assert worker.report == expected
        assert client.next_run_at("q") is None

    def test_queue_that_vanishes(
        self, client: Client, conn: Connection, caplog: pytest.LogCaptureFixture
    ) -> None:
        client.create_queue("r")
        record = Record()
        worker = Worker(client, {"q": record, "r": record}, poll_interval=timedelta(seconds=0.05))
        with running(worker):
            wait_until(lambda: listening(conn))
            conn.execute("delete from pgq_sql.queue where name = 'r'")
            for count in range(1, 20):
                client.enqueue("q", count)
                record.wait(count)
            wait_until(lambda: messages(caplog.records, logging.ERROR))
        assert worker.report.acked == 19
        (message,) = messages(caplog.records, logging.ERROR)
        assert message.startswith(
            'queue r: cannot claim: QueueNotFound: no such queue (queue "r"; '
        )

    def test_settling_is_refused(
        self, client: Client, conn: Connection, as_role: AsRole, caplog: pytest.LogCaptureFixture
    ) -> None:
        session = as_role("worker")
        user = session.info.user
        gate = Gate()
        client.enqueue("q", {"n": 1}, visibility_timeout=60 * SECOND)
        with Client(session.info.dsn + f" password={session.info.password}") as mine:
            worker = Worker(mine, {"q": gate}, poll_interval=timedelta(seconds=0.05))
            with running(worker):
                gate.wait(1)
                client.revoke_access(user, "worker")
                gate.open.set()
                # Given up after some tries; the worker is there when it may work again.
                wait_until(lambda: worker.report.lost, PATIENCE)
                client.grant_access(user, "worker")
                client.enqueue("q", {"n": 2})
                gate.wait(2)
                wait_until(lambda: worker.report.acked)
        assert gate.payloads == [{"n": 1}, {"n": 2}]
        assert any(
            "cannot ack it: NotAllowed" in m for m in messages(caplog.records, logging.ERROR)
        )
        assert states(conn) == [("running", 1)]

    def test_one_bad_settlement_does_not_stop_the_others(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Exchange.run

        def picky(
            exchange: Exchange, settlements: Sequence[Settlement], asks: Sequence[Ask], *rest: Any
        ) -> None:
            if any(one.job.payload == 5 for one in settlements):
                raise psycopg.ProgrammingError("not this one")
            run(exchange, settlements, asks, *rest)

        monkeypatch.setattr(Exchange, "run", picky)
        client.enqueue_many("q", list(range(10)), visibility_timeout=60 * SECOND)
        worker = Worker(client, {"q": Record()}, concurrency=10)
        with running(worker):
            wait_until(lambda: worker.report.acked == 9 and worker.report.lost == 1, PATIENCE)

    def test_frozen_past_its_lease(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        """As if the process had been stopped: no renewal, then the handler ends as if well."""
        monkeypatch.setattr(client, "heartbeat_many", unreachable)
        taken = threading.Event()
        jobs: list[RunningJob] = []

        def handle(job: RunningJob) -> None:
            jobs.append(job)
            if len(jobs) == 1:
                taken.wait(PATIENCE)

        client.enqueue("q", max_attempts=5)
        worker = Worker(client, {"q": handle}, concurrency=2)
        with running(worker):
            # Claims sweep: the second claim gets the job when the lease has ended.
            wait_until(lambda: len(jobs) == 2, PATIENCE)
            taken.set()
            wait_until(lambda: worker.report.acked + worker.report.lost == 2)
        assert worker.report == Report(claimed=2, acked=1, lost=1)
        assert jobs[1].attempt == 2
