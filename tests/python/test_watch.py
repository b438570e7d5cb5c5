"""Acting in time while every other thread waits: the watch, and giving up on the database."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from conftest import Connect
from pgq_sql._bell import Bell
from pgq_sql._line import Line
from pgq_sql._watch import Patience, Unanswered, Watch
from servers import Connection, wait_until
from test_concurrency import scalar
from working import PATIENCE

LOCKS = "select count(*) from pg_locks where relation = 't'::regclass and pid <> pg_backend_pid()"


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    yield watch
    watch.close(PATIENCE)
    assert not any(thread.name == "pgq-watch" for thread in threading.enumerate())


class TestWatch:
    def test_acts_when_it_is_time(self, watch: Watch) -> None:
        acted: list[float] = []
        due = time.monotonic() + 0.05

        def act(now: float) -> float:
            if now < due:
                return due
            acted.append(now)
            return math.inf

        watch.add(act)
        watch.by(due)
        wait_until(lambda: acted, PATIENCE)
        assert acted[0] >= due

    def test_an_earlier_time_comes_first(self, watch: Watch) -> None:
        woken = threading.Event()

        def act(_: float) -> float:
            woken.set()
            return math.inf

        watch.add(act)
        watch.by(time.monotonic() + 1000)
        watch.by(time.monotonic())
        assert woken.wait(PATIENCE)

    def test_what_one_answers_does_not_hide_another(self, watch: Watch) -> None:
        woken = threading.Event()
        due = time.monotonic() + 0.05

        def act(now: float) -> float:
            if now < due:
                return due
            woken.set()
            return math.inf

        watch.add(act)
        watch.add(lambda _: math.inf)
        watch.by(time.monotonic())
        assert woken.wait(PATIENCE)


class TestPatience:
    def test_gives_up_and_lets_the_server_stop(
        self, watch: Watch, connect: Connect, conn: Connection
    ) -> None:
        impatient = connect()
        pid = impatient.info.backend_pid
        patience = Patience(watch, 0.1)
        with pytest.raises(Unanswered, match=r"no answer within 0\.1 s"), patience.with_(impatient):
            impatient.execute("select pg_sleep(1000)")
        assert impatient.closed
        wait_until(
            lambda: scalar(conn, f"select count(*) from pg_stat_activity where pid = {pid}") == 0,
            PATIENCE,
        )

    def test_leaves_who_answers_alone(self, watch: Watch, conn: Connection) -> None:
        patience = Patience(watch, 60)
        for _ in range(3):
            with patience.with_(conn):
                assert scalar(conn, "select 1") == 1
        assert not conn.closed
        assert not patience._calls

    def test_errors_of_others_stay_what_they_are(self, watch: Watch, conn: Connection) -> None:
        patience = Patience(watch, 60)
        with pytest.raises(psycopg.errors.SyntaxError), patience.with_(conn):
            conn.execute("selec")
        assert not patience._calls


class TestLine:
    def test_cut_too_late_does_nothing(self, conn: Connection) -> None:
        """The connection may be somebody else's by then."""
        with Line(conn) as line:
            pass
        line.cut()
        assert not line.is_cut
        assert scalar(conn, "select 1") == 1
        assert not any(thread.name == "pgq-cut" for thread in threading.enumerate())

    def test_cut_ends_an_idle_transaction(self, connect: Connect, conn: Connection) -> None:
        conn.execute("create table t (n integer)")
        mine = connect(autocommit=False)
        with Line(mine) as line:
            mine.execute("insert into t values (1)")
            line.cut()
            wait_until(lambda: scalar(conn, LOCKS) == 0, PATIENCE)
        assert mine.closed
        assert scalar(conn, "select count(*) from t") == 0


class TestBell:
    def test_a_ring_stays_until_it_is_heard(self) -> None:
        bell = Bell()
        bell.ring()
        bell.ring()
        bell.wait()
        began = time.monotonic()
        bell.wait(0.05)
        assert time.monotonic() - began >= 0.05

    def test_a_signal_handler_rings_while_its_thread_waits(self) -> None:
        bell = Bell()
        before = signal.signal(signal.SIGALRM, lambda *_: bell.ring())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            bell.wait(PATIENCE)
        finally:
            signal.signal(signal.SIGALRM, before)
        assert bell._rings.empty()
