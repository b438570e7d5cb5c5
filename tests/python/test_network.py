"""The workers when connections are cut, refused or slow: no job is lost, none is done twice."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Literal

import pytest

from afar import PATIENCE, Work, all_done, at_work, both, effects
from pgq_sql import Client
from proxy import Proxy
from servers import Connection, wait_until
from working import listening, messages

NEVER = 1000.0
SECOND = timedelta(seconds=1)

cuts = pytest.mark.parametrize("reset", [True, False], ids=["RST", "FIN"])


@pytest.fixture
def client(database: str, conn: Connection) -> Iterator[Client]:
    """Goes straight to the database."""
    conn.execute("create table effects (job_id bigint)")
    with Client(database) as client:
        client.create_queue("q", visibility_timeout=60 * SECOND, retry_delay=timedelta(0))
        yield client


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    wait_until(lambda: set(threading.enumerate()) <= before, message="the end of all threads")


class TestCut:
    @both
    @cuts
    def test_while_idle(
        self, client: Client, conn: Connection, proxy: Proxy, kind: str, *, reset: bool
    ) -> None:
        work = Work()
        with at_work(kind, proxy.dsn, work, poll_interval=timedelta(seconds=NEVER)) as worker:
            for count in range(1, 4):
                wait_until(lambda: listening(conn), PATIENCE)
                before = listening(conn)
                assert proxy.cut(reset=reset) >= 2
                wait_until(lambda: listening(conn) not in ([], before), PATIENCE)  # noqa: B023
                client.enqueue("q")
                work.wait(count)
            worker.wait(acked=3)
        assert set(work.runs.values()) == {1}

    @both
    @cuts
    def test_while_handlers_run(
        self, client: Client, proxy: Proxy, kind: str, *, reset: bool
    ) -> None:
        work = Work()
        work.go.clear()
        client.enqueue_many("q", list(range(4)))
        with at_work(kind, proxy.dsn, work) as worker:
            work.wait(4)
            proxy.cut(reset=reset)
            work.go.set()
            worker.wait(acked=4)
        assert (worker.report.claimed, worker.report.lost) == (4, 0)
        assert set(work.runs.values()) == {1}

    @both
    @pytest.mark.parametrize("carried_out", [True, False])
    def test_renewals_in_flight(
        self, client: Client, proxy: Proxy, kind: str, *, carried_out: bool
    ) -> None:
        """A lease outlives renewals that fail."""
        work = Work()
        work.go.clear()
        client.enqueue_many("q", list(range(4)), visibility_timeout=3 * SECOND)
        with at_work(kind, proxy.dsn, work) as worker:
            work.wait(4)
            for _ in range(4):
                proxy.trap("heartbeat_many", carried_out=carried_out).wait()
            work.go.set()
            worker.wait(acked=4)
        assert (worker.report.claimed, worker.report.lost) == (4, 0)
        assert work.told == []
        assert set(work.runs.values()) == {1}

    @both
    @pytest.mark.parametrize("then", ["reset", "end"])
    @pytest.mark.parametrize("carried_out", [True, False])
    def test_a_claim_in_flight(
        self,
        client: Client,
        conn: Connection,
        proxy: Proxy,
        kind: str,
        then: Literal["reset", "end"],
        *,
        carried_out: bool,
    ) -> None:
        """What was claimed for nobody comes back when its lease ends."""
        work = Work()
        client.enqueue_many("q", list(range(10)), visibility_timeout=SECOND)
        trap = proxy.trap(".claim(", carried_out=carried_out, then=then)
        with at_work(kind, proxy.dsn, work, concurrency=4) as worker:
            trap.wait()
            all_done(conn)
            worker.wait(acked=10)
        assert worker.report.lost == 0
        assert set(work.runs.values()) == {1}
        attempts = Counter(job.attempt for job in work.jobs)
        assert attempts == ({1: 6, 2: 4} if carried_out else {1: 10})

    @both
    @pytest.mark.parametrize("then", ["reset", "end"])
    @pytest.mark.parametrize("carried_out", [True, False])
    def test_an_ack_in_flight(
        self,
        client: Client,
        conn: Connection,
        proxy: Proxy,
        kind: str,
        then: Literal["reset", "end"],
        *,
        carried_out: bool,
    ) -> None:
        """It is sent again: done is done, also if the first one was heard."""
        work = Work()
        client.enqueue_many("q", list(range(4)))
        trap = proxy.trap("ack_many", carried_out=carried_out, then=then, times=2)
        with at_work(kind, proxy.dsn, work, concurrency=4) as worker:
            trap.wait()
            trap.wait()
            worker.wait(acked=4)
        assert (worker.report.claimed, worker.report.acked, worker.report.lost) == (4, 4, 0)
        assert set(work.runs.values()) == {1}
        all_done(conn)


class TestRefused:
    @both
    def test_at_the_start(
        self, client: Client, proxy: Proxy, kind: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, "pgq_sql.worker")
        work = Work()
        client.enqueue("q")
        dsn = proxy.dsn
        proxy.refuse()
        with at_work(kind, dsn, work) as worker:
            wait_until(lambda: len(messages(caplog.records, logging.DEBUG)) >= 4, PATIENCE)
            proxy.accept()
            worker.wait(acked=1)
            wait_until(lambda: told(caplog) == (1, 1), PATIENCE)
        assert set(work.runs.values()) == {1}
        assert told(caplog) == (1, 1)

    @both
    def test_each_outage_is_told_once(
        self, client: Client, proxy: Proxy, kind: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """All parts of the worker fail and recover: one warning, and one line at the end."""
        caplog.set_level(logging.DEBUG, "pgq_sql.worker")
        work = Work()
        work.go.clear()
        client.enqueue_many("q", list(range(2)), visibility_timeout=10 * SECOND)
        with at_work(kind, proxy.dsn, work, poll_interval=timedelta(seconds=0.05)) as worker:
            work.wait(2)
            for outages in range(1, 4):
                caplog.clear()
                proxy.refuse()
                proxy.cut()
                failed: set[str] = set()
                while not {"worker", "listener"} <= failed:
                    failed = {
                        message.partition(":")[0]
                        for message in messages(caplog.records, logging.DEBUG)
                    }
                    assert not messages(caplog.records, logging.INFO)
                    threading.Event().wait(0.01)
                proxy.accept()
                wait_until(lambda: messages(caplog.records, logging.INFO), PATIENCE)
                assert told(caplog) == (1, 1), f"outage {outages}"
            work.go.set()
            worker.wait(acked=2)
        assert set(work.runs.values()) == {1}
        assert worker.report.lost == 0


def told(caplog: pytest.LogCaptureFixture) -> tuple[int, int]:
    """How many warnings, and how many lines that it is over."""
    begun = messages(caplog.records, logging.WARNING)
    # Beside them it tells what it is and does.
    over = [one for one in messages(caplog.records, logging.INFO) if one.startswith("database:")]
    assert all(message.startswith("database: OperationalError: ") for message in begun)
    assert all(message.startswith("database: answers again after") for message in over)
    return len(begun), len(over)


@both
def test_slow(client: Client, conn: Connection, proxy: Proxy, kind: str) -> None:
    """Each way takes 200 ms."""
    proxy.delays = 0.2, 0.2
    work = Work(transaction=True)
    client.enqueue_many("q", list(range(20)))
    with at_work(kind, proxy.dsn, work, concurrency=10) as worker:
        worker.wait(acked=20)
    assert (worker.report.claimed, worker.report.lost) == (20, 0)
    assert set(work.runs.values()) == {1}
    assert set(effects(conn).values()) == {1}
    all_done(conn)


@both
@pytest.mark.parametrize("seed", [1, 2])
def test_anything(client: Client, conn: Connection, proxy: Proxy, kind: str, seed: int) -> None:
    """Faults of all kinds, one upon the other, then quiet: each job has its effect once."""
    chance = random.Random(seed)
    count = 400
    client.enqueue_many("q", list(range(count)), visibility_timeout=2 * SECOND, max_attempts=1000)
    work = Work(transaction=True)
    statements = (".claim(", "ack_many", "heartbeat_many", "COMMIT", "BEGIN", "require_lease")
    with at_work(kind, proxy.dsn, work, concurrency=8, prefetch=8) as worker:
        for _ in range(60):
            match chance.randrange(5):
                case 0:
                    proxy.cut(reset=chance.random() < 0.5)
                case 1:
                    proxy.refuse()
                    proxy.cut(chance.choice(statements))
                case 2 | 3:
                    proxy.trap(
                        chance.choice(statements),
                        carried_out=chance.random() < 0.7,
                        then=chance.choice(["reset", "end"]),
                    )
                case 4:
                    proxy.delays = chance.random() / 20, chance.random() / 20
            threading.Event().wait(chance.random() / 10)
            proxy.accept()
        proxy.disarm()
        proxy.delays = 0.0, 0.0
        all_done(conn)
        assert not worker.end.done()
    assert len(effects(conn)) == count
    assert set(effects(conn).values()) == {1}
