"""The workers when nobody answers: packets are taken, connections stay open, and that is all.

So it is with a pooler whose server is gone, or a server whose disk hangs. TCP's own timeouts see
nothing of it, because everything that is sent is received.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from afar import PATIENCE, Work, all_done, at_work, both, effects, mended
from pgq_sql import Client, _line, _listener
from pgq_sql._watch import Patience, Unanswered, Watch
from proxy import Proxy
from servers import Connection, wait_until
from working import listening, messages

NEVER = 1000.0
SECOND = timedelta(seconds=1)

QUICK = {"connect_timeout": 2, "tcp_user_timeout": 2000, "keepalives_idle": 1}

WITHIN = 20.0
"""Seconds for what takes less than one."""
BOUND = 1.0
"""Seconds that the worker waits for an answer here."""
ASKING = 0.2
"""Seconds that it then asks the server to stop, before it hangs up."""


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    """Goes straight to the database."""
    with Client(database) as client:
        client.create_queue("q", visibility_timeout=SECOND, retry_delay=timedelta(0))
        yield client


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    wait_until(lambda: set(threading.enumerate()) <= before, 20, message="the end of all threads")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patience.__init__, "__defaults__", (BOUND,))
    monkeypatch.setattr(_line, "CANCEL_PATIENCE", ASKING)


@pytest.fixture
def patient(impatient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not for the time that an answer may take that a call is given up."""
    monkeypatch.setattr(Patience.__init__, "__defaults__", (NEVER,))


@both
def test_at_the_start(
    client: Client, proxy: Proxy, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The time to connect in is bounded, and it tries again."""
    client.enqueue("q")
    proxy.go_deaf()
    work = Work()
    with at_work(kind, proxy.to(**QUICK), work) as worker, mended(proxy):
        wait_until(lambda: messages(caplog.records, logging.WARNING), PATIENCE)
        proxy.hear()
        worker.wait(acked=1)
    assert worker.report.lost == 0


class TestHalfOpen:
    """A call is made on a connection that worked before, and is never answered."""

    @both
    def test_a_claim(
        self, client: Client, proxy: Proxy, kind: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "pgq_sql.worker")
        trap = proxy.trap(".claim(", carried_out=False, then="deaf")
        work = Work()
        with at_work(kind, proxy.to(**QUICK), work) as worker, mended(proxy):
            trap.wait()
            client.enqueue("q")
            wait_until(lambda: worker.report.acked, PATIENCE)
            # An outage; or, since other connections are answered, a claim that cannot be made.
            told = [messages(caplog.records, level) for level in (logging.WARNING, logging.ERROR)]
            assert sum(map(len, told)) == 1

    @both
    @pytest.mark.parametrize("carried_out", [True, False])
    def test_an_ack(
        self, client: Client, conn: Connection, proxy: Proxy, kind: str, *, carried_out: bool
    ) -> None:
        trap = proxy.trap("ack_many", carried_out=carried_out, then="deaf")
        work = Work()
        client.enqueue("q", visibility_timeout=60 * SECOND)
        with at_work(kind, proxy.to(**QUICK), work) as worker, mended(proxy):
            trap.wait()
            wait_until(lambda: worker.report.acked, PATIENCE)
        all_done(conn)
        assert (worker.report.claimed, worker.report.lost) == (1, 0)

    @both
    def test_a_handler_learns_that_its_lease_has_run_out(
        self, client: Client, proxy: Proxy, kind: str
    ) -> None:
        """The clock tells it, though the renewal hangs."""
        trap = proxy.trap("heartbeat_many", carried_out=False, then="deaf", times=1000)
        work = Work()
        work.go.clear()
        client.enqueue("q")
        with at_work(kind, proxy.to(**QUICK), work), mended(proxy):
            trap.wait()
            wait_until(lambda: work.told, PATIENCE)

    @both
    @pytest.mark.usefixtures("patient")
    def test_a_renewal(self, client: Client, proxy: Proxy, kind: str) -> None:
        """It is given up while the lease lives, and done on another connection."""
        client.enqueue_many("q", [1, 2], visibility_timeout=9 * SECOND)
        trap = proxy.trap("heartbeat_many", carried_out=False, then="deaf")
        work = Work()
        work.go.clear()
        with (
            at_work(kind, proxy.to(**QUICK), work, drain_timeout=timedelta(seconds=0.5)),
            mended(proxy),
        ):
            trap.wait()
            wait_until(lambda: proxy.count("heartbeat_many") > 1 or work.told, PATIENCE)
            assert work.told == []
            work.go.set()

    @both
    def test_all_of_them(
        self,
        client: Client,
        conn: Connection,
        proxy: Proxy,
        kind: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """It comes back by itself when new connections are answered."""
        work = Work()
        with (
            at_work(kind, proxy.to(**QUICK), work, poll_interval=timedelta(seconds=0.05)) as worker,
            mended(proxy),
        ):
            wait_until(lambda: listening(conn), PATIENCE)
            proxy.go_deaf()
            client.enqueue("q")
            wait_until(lambda: messages(caplog.records, logging.WARNING), PATIENCE)
            proxy.hear()
            wait_until(lambda: worker.report.acked, PATIENCE)


ASKS = """\
import sys, psycopg
from pgq_sql import _line
from pgq_sql._watch import Patience, Unanswered, Watch
_line.CANCEL_PATIENCE = 0.2
conn = psycopg.connect(sys.argv[1], autocommit=True)
print("connected", flush=True)
sys.stdin.readline()
try:
    with Patience(Watch(), 0.1).with_(conn):
        conn.execute("select 1")
except Unanswered:
    print("given up", flush=True)
"""


def test_asking_the_server_to_stop_holds_nobody_up(proxy: Proxy) -> None:
    """That goes over a new connection, on which no answer comes either."""
    process = subprocess.Popen(
        [sys.executable, "-c", ASKS, proxy.dsn],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "connected\n"
        proxy.go_deaf()
        out, _ = process.communicate("\n", timeout=WITHIN)
        assert out == "given up\n"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.usefixtures("client")
class TestListener:
    """Its connection alone is half-open."""

    @both
    def test_polling_goes_on(
        self,
        client: Client,
        conn: Connection,
        proxy: Proxy,
        kind: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(_listener, "CHECK_EVERY", 0.1)
        work = Work()
        with (
            at_work(kind, proxy.to(**QUICK), work, poll_interval=timedelta(seconds=0.1)) as worker,
            mended(proxy),
        ):
            wait_until(lambda: listening(conn), PATIENCE)
            assert proxy.deafen("wait_begin") == 1
            client.enqueue_many("q", list(range(3)))
            worker.wait(acked=3)

    @both
    def test_it_listens_again(
        self,
        conn: Connection,
        proxy: Proxy,
        kind: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(_listener, "CHECK_EVERY", 0.1)
        work = Work()
        with (
            at_work(kind, proxy.to(**QUICK), work, poll_interval=timedelta(seconds=NEVER)),
            mended(proxy),
        ):
            wait_until(lambda: listening(conn), PATIENCE)
            before = listening(conn)
            assert proxy.deafen("wait_begin") == 1
            wait_until(lambda: set(listening(conn)) - set(before), PATIENCE)


class TestTransaction:
    """The connection of `job.transaction()` is half-open: the handler hangs."""

    @both
    @pytest.mark.usefixtures("patient")
    @pytest.mark.parametrize(
        ("text", "carried_out"),
        [
            ("require_lease", False),
            ("insert into effects", False),
            (".ack(", True),
            ("COMMIT", False),
            ("COMMIT", True),
        ],
    )
    def test_with_a_timeout(
        self,
        client: Client,
        conn: Connection,
        proxy: Proxy,
        kind: str,
        text: str,
        *,
        carried_out: bool,
    ) -> None:
        """The handler's time is over, and the job runs again unless it was done."""
        done = text == "COMMIT" and carried_out
        conn.execute("create table effects (job_id bigint)")
        client.enqueue("q", visibility_timeout=60 * SECOND)
        trap = proxy.trap(text, carried_out=carried_out, then="deaf")
        work = Work(transaction=True)
        options: dict[str, Any] = {"timeout": SECOND, "drain_timeout": timedelta(seconds=0.5)}
        with at_work(kind, proxy.to(**QUICK), work, **options), mended(proxy):
            trap.wait()
            wait_until(lambda: done or len(work.jobs) > 1, PATIENCE)
            all_done(conn)
        assert len(work.jobs) == (1 if done else 2)
        assert list(effects(conn).values()) == [1]

    @both
    @pytest.mark.parametrize("text", ["require_lease", ".ack(", "COMMIT"])
    def test_without(
        self, client: Client, conn: Connection, proxy: Proxy, kind: str, text: str
    ) -> None:
        conn.execute("create table effects (job_id bigint)")
        client.enqueue("q", visibility_timeout=60 * SECOND)
        trap = proxy.trap(text, carried_out=False, then="deaf")
        work = Work(transaction=True)
        with (
            at_work(kind, proxy.to(**QUICK), work, drain_timeout=timedelta(seconds=0.5)),
            mended(proxy),
        ):
            trap.wait()
            wait_until(lambda: len(work.jobs) > 1, PATIENCE)


@pytest.mark.usefixtures("client")
class TestStop:
    """The worker ends when it is told to, whatever it waits for."""

    @both
    @pytest.mark.parametrize("now", [True, False])
    def test_while_a_claim_hangs(self, proxy: Proxy, kind: str, *, now: bool) -> None:
        trap = proxy.trap(".claim(", carried_out=False, then="deaf", times=1000)
        work = Work()
        with (
            at_work(kind, proxy.to(**QUICK), work, drain_timeout=timedelta(seconds=0.5)) as worker,
            mended(proxy),
        ):
            trap.wait()
            worker.worker.stop(now=now)
            wait_until(worker.end.done, PATIENCE)

    @both
    @pytest.mark.usefixtures("patient")
    def test_at_once(self, proxy: Proxy, kind: str) -> None:
        """As after a second signal: not only when the call is given up."""
        trap = proxy.trap(".claim(", carried_out=False, then="deaf", times=1000)
        with at_work(kind, proxy.to(**QUICK), Work()) as worker, mended(proxy):
            trap.wait()
            worker.worker.stop(now=True)
            wait_until(worker.end.done, PATIENCE)

    def test_whoever_asks_after_it(self, conn: Connection) -> None:
        """Threads that it does not wait for may still ask something."""
        watch = Watch()
        watch.close(PATIENCE)
        with pytest.raises(Unanswered), Patience(watch).with_(conn):
            conn.execute("select pg_sleep(1)")

    @both
    def test_while_an_ack_hangs(self, client: Client, proxy: Proxy, kind: str) -> None:
        client.enqueue("q")
        trap = proxy.trap("ack_many", carried_out=False, then="deaf", times=1000)
        work = Work()
        with (
            at_work(kind, proxy.to(**QUICK), work, drain_timeout=timedelta(seconds=0.5)) as worker,
            mended(proxy),
        ):
            trap.wait()
            worker.worker.stop()
            wait_until(worker.end.done, PATIENCE)

    @both
    def test_while_a_renewal_hangs(self, client: Client, proxy: Proxy, kind: str) -> None:
        client.enqueue("q", visibility_timeout=3 * SECOND)
        trap = proxy.trap("heartbeat_many", carried_out=False, then="deaf", times=1000)
        work = Work()
        work.go.clear()
        with (
            at_work(kind, proxy.to(**QUICK), work, drain_timeout=timedelta(seconds=60)) as worker,
            mended(proxy),
        ):
            trap.wait()
            work.go.set()
            worker.worker.stop()
            wait_until(worker.end.done, PATIENCE)
        assert worker.report.acked == 1
