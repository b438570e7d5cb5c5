"""The worker under faults: lost leases and lost sessions."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgq_sql import Client, Report, RunningJob, Worker, _looks
from pgq_sql._dispatcher import Dispatcher
from pgq_sql._log import log
from pgq_sql._outage import LONGEST_PAUSE, Outage
from pgq_sql._sync.connections import OwnConnections
from pgq_sql._watch import Patience, Watch
from servers import Connection, wait_until
from working import PATIENCE, Gate, Record, kill, listening, messages, running, states, steal

NEVER = 1000.0
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


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a look that finds nothing, nothing but a notification leads to the next one."""
    monkeypatch.setattr(_looks, "FIRST_PAUSE", NEVER)


class TestLeases:
    def test_renewed_while_the_handler_runs(self, client: Client, conn: Connection) -> None:
        gate = Gate()
        leases: set[object] = set()

        def renewed() -> bool:
            (row,) = conn.execute("select lease_until from pgq_sql.jobs").fetchall()
            leases.add(row[0])
            return len(leases) > 5

        client.enqueue("q")
        worker = Worker(client, {"q": gate}, concurrency=2)
        with running(worker):
            # Five renewals of a lease of one second: it would have ended long ago.
            wait_until(renewed, PATIENCE)
            gate.open.set()
            wait_until(lambda: worker.report.acked)
        assert worker.report == Report(claimed=1, acked=1)

    def test_many_leases_are_renewed_together(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[int] = []
        heartbeat_many = client.heartbeat_many

        def count(job_ids: Sequence[int], tokens: Sequence[int], **rest: Any) -> Any:
            calls.append(len(job_ids))
            return heartbeat_many(job_ids, tokens, **rest)

        monkeypatch.setattr(client, "heartbeat_many", count)
        gate = Gate()
        client.enqueue_many("q", list(range(8)))
        worker = Worker(client, {"q": gate})
        with running(worker):
            wait_until(lambda: len(calls) >= 3, PATIENCE)
            gate.open.set()
        assert set(calls) == {8}
        assert worker.report == Report(claimed=8, acked=8)

    @pytest.mark.parametrize("fails", [False, True])
    def test_lost(self, client: Client, caplog: pytest.LogCaptureFixture, *, fails: bool) -> None:
        first: list[RunningJob] = []

        def handle(job: RunningJob) -> None:
            if not first:
                first.append(job)
                assert job.lost.wait(PATIENCE)
                if fails:
                    raise ValueError("given up")

        client.enqueue("q")
        worker = Worker(client, {"q": handle}, concurrency=2)
        with running(worker):
            wait_until(lambda: first)
            steal(client, first[0])
            # Its second run ends well; what the first one answers counts for nothing.
            wait_until(lambda: worker.report.acked and first[0].lost.is_set())
        assert worker.report == Report(claimed=2, acked=1, lost=1)
        assert messages(caplog.records, logging.WARNING) == [
            f"job {first[0].job_id} of q: the lease was lost while it ran"
        ]

    def test_lost_before_it_began(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Dispatcher, "_free", property(lambda self: 2 - len(self._held)))
        gate = Gate()
        client.enqueue_many("q", [1, 2])
        worker = Worker(client, {"q": gate}, concurrency=1)
        with running(worker):
            gate.wait(1)
            assert worker._dispatcher
            held = worker._dispatcher._held.values()
            waiting = [job for unit in held for job in unit if job.payload == 2]
            steal(client, waiting[0])
            assert waiting[0].lost.wait(PATIENCE)
            gate.open.set()
            wait_until(lambda: worker.report.acked == 2)
        # The second job ran once, under its second claim.
        assert [(job.payload, job.token) for job in gate.jobs] == [(1, 1), (2, 2)]

    def test_lost_just_before_the_ack(self, client: Client, conn: Connection) -> None:
        jobs: list[RunningJob] = []

        def handle(job: RunningJob) -> None:
            jobs.append(job)
            if len(jobs) == 1:
                conn.execute("select pgq_sql.release(%s, %s, '1 hour')", [job.job_id, job.token])

        client.enqueue("q")
        report = Worker(client, {"q": handle}).run(until_idle=True)
        assert report == Report(claimed=1, lost=1)
        assert states(conn) == [("scheduled", 0)]

    def test_ends_while_the_database_is_away(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gate = Gate()
        client.enqueue("q")
        worker = Worker(client, {"q": gate})
        with running(worker):
            gate.wait(1)
            with monkeypatch.context() as away:
                away.setattr(worker._talk._source, "connection", unreachable)
                # The handler is told, though nobody could be asked.
                assert gate.jobs[0].lost.wait(PATIENCE)
            gate.open.set()
            # The job comes back, and is done.
            wait_until(lambda: worker.report.acked, PATIENCE)


def unreachable(*_: object) -> Any:
    raise psycopg.OperationalError("nobody home")


class TestSessions:
    def test_all_sessions_killed_again_and_again(self, client: Client, conn: Connection) -> None:
        record = Record()
        client.enqueue_many("q", list(range(2000)), max_attempts=100)
        killed = 0
        worker = Worker(client, {"q": record}, concurrency=4, prefetch=4)
        with running(worker):
            for step in range(1, 9):
                record.wait(step * 200)
                killed += kill(conn)
            # Claims whose answer got lost come back when their lease ends.
            wait_until(lambda: not states(conn), 3 * PATIENCE)
        assert killed >= 8
        assert set(record.payloads) == set(range(2000))
        assert worker.report.acked + worker.report.lost <= worker.report.claimed

    def test_listener_killed(
        self, client: Client, conn: Connection, caplog: pytest.LogCaptureFixture
    ) -> None:
        record = Record()
        with running(Worker(client, {"q": record}, poll_interval=timedelta(seconds=NEVER))):
            for count in range(1, 4):
                wait_until(lambda: listening(conn))
                (pid,) = listening(conn)
                conn.execute("select pg_terminate_backend(%s)", [pid])
                wait_until(lambda: listening(conn) not in ([], [pid]))  # noqa: B023
                client.enqueue("q", count)
                record.wait(count)
        assert len(messages(caplog.records, logging.WARNING)) == 3

    @pytest.mark.usefixtures("no_polling")
    def test_a_job_that_came_while_nobody_listened(
        self, client: Client, conn: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        record = Record()
        worker = Worker(client, {"q": record}, poll_interval=timedelta(seconds=NEVER))
        go = threading.Event()

        def late() -> Any:
            go.wait(PATIENCE)
            return worker._connect_listener()

        with running(worker):
            wait_until(lambda: listening(conn))
            assert worker._dispatcher
            assert worker._dispatcher._listener
            monkeypatch.setattr(worker._dispatcher._listener, "_connect", late)
            conn.execute("select pg_terminate_backend(%s)", listening(conn))
            wait_until(lambda: not listening(conn))
            client.enqueue("q")
            go.set()
            record.wait(1)

    def test_cannot_listen(
        self,
        client: Client,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def refuse(*_: object, **__: object) -> str:
            raise psycopg.errors.FeatureNotSupported("cannot execute LISTEN during recovery")

        monkeypatch.setattr(client, "wait_begin", refuse)
        record = Record()
        with running(Worker(client, {"q": record}, poll_interval=timedelta(seconds=0.05))):
            for count in range(1, 4):
                client.enqueue("q")
                record.wait(count)
        (message,) = messages(caplog.records, logging.WARNING)
        assert message.startswith("cannot listen, so only polling")

    def test_unreachable_at_the_start(
        self,
        client: Client,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        client.enqueue("q")
        tries = iter(range(6))
        connect = OwnConnections.connect

        def late(source: OwnConnections, *guard: Any) -> psycopg.Connection[Any]:
            return unreachable() if next(tries, None) is not None else connect(source, *guard)

        monkeypatch.setattr(OwnConnections, "connect", late)
        record = Record()
        caplog.set_level(logging.INFO, "pgq_sql.worker")
        with running(Worker(client, {"q": record})):
            record.wait(1)
            wait_until(lambda: len(messages(caplog.records, logging.INFO)) == 2)
        assert len(messages(caplog.records, logging.WARNING)) == 1
        _, message = messages(caplog.records, logging.INFO)
        assert message.startswith("database: answers again after")

    def test_stops_while_the_database_is_away(self) -> None:
        with Client("host=/nowhere") as client:
            worker = Worker(client, {"q": Record()})
            with running(worker):
                wait_until(lambda: worker._dispatcher and worker._dispatcher._trader.resume_at)


def test_outage_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    outage = Outage(logging.getLogger("pgq_sql.worker"))
    error = psycopg.OperationalError("no\nbody")
    pauses = [outage.failed("worker", error) for _ in range(20)]
    outage.failed("leases", error)
    assert pauses[0] < 0.2
    assert max(pauses) <= LONGEST_PAUSE * 1.25
    outage.over("worker")
    outage.over("worker")
    assert messages(caplog.records, logging.INFO) == []
    outage.over("leases")
    assert len(messages(caplog.records, logging.INFO)) == 1
    (warning,) = messages(caplog.records, logging.WARNING)
    assert warning == "database: OperationalError: no body; trying again until it answers"
    began = time.monotonic()
    assert outage.failed("worker", error) < 0.2
    assert time.monotonic() - began < 1


def test_what_the_worker_cuts_itself_is_no_outage(
    conn: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    """Also not where the cut came after an answer, so that only the next use finds it closed."""
    watch = Watch()
    patience, outage = Patience(watch, 60), Outage(log, watch)
    with patience.with_(conn):
        conn.execute("select 1")
        watch.hurry()
        wait_until(lambda: all(call.line.is_cut for call in patience._calls))
    watch.close(PATIENCE)
    with pytest.raises(psycopg.OperationalError) as raised, patience.with_(conn):
        pass
    assert outage.failed("listener", raised.value) < 1
    outage.over("listener")
    assert not caplog.records
