"""Through a pooler in transaction mode: the client's own tests pass, and a worker polls."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import psycopg_pool
import pytest

from conftest import dbname_of
from pgq_sql import AsyncClient, AsyncRunningJob, AsyncWorker, Client, Report, Worker, _listener
from pooling import PROGRAM, Pgbouncer
from servers import ROOT, Connection, Server, wait_until
from working import PATIENCE, Record, listening, messages, running

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")

HERE = Path(__file__).parent
NEVER = 1000.0
DEAF = (
    "cannot listen, so only polling: NotSupportedError: notifications do not come through:"
    " is this a pooler? see listener_dsn"
)

# These are about what a session keeps, which is what a pooler takes away.
SESSIONS_OWN = (
    "test_client.py::TestConsume::test_wait",
    "test_client_connections.py::TestConnections"
    "::test_comes_back_after_the_server_ended_its_session",
)


@pytest.fixture
def bouncer(server: Server) -> Iterator[Callable[..., Pgbouncer]]:
    """Starts a pgbouncer, with few sessions so that clients meet on them."""
    started: list[Pgbouncer] = []

    def start(mode: str = "transaction", size: int = 2) -> Pgbouncer:
        started.append(Pgbouncer(server, mode, size))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def queue(conn: Connection) -> None:
    conn.execute("select pgq_sql.create_queue('q')")


@pytest.fixture
def soon_deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_listener, "HEARS_WITHIN", 0.2)


def test_the_tests_of_the_client(server: Server) -> None:
    files = [path.name for path in HERE.glob("test_client*.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pooling", "-p", "no:cacheprovider"]
    command += [f"--deselect=tests/python/{name}" for name in SESSIONS_OWN]
    command += [str(HERE / name) for name in (*sorted(files), "test_async_client.py")]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PGQ_DSN": server.dsn(), "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(SESSIONS_OWN)} deselected" in done.stdout
    assert "failed" not in done.stdout


class TestPreparedStatements:
    def test_prepared_where_the_session_is_ours(self, database: str) -> None:
        with Client(database)._connect() as mine:
            assert mine.prepare_threshold == 5

    def test_not_prepared_behind_a_pooler(
        self, database: str, bouncer: Callable[..., Pgbouncer]
    ) -> None:
        dsn = bouncer().dsn(dbname_of(database))
        with Client(dsn)._connect() as mine:
            assert mine.prepare_threshold is None

        async def act() -> None:
            async with await AsyncClient(dsn)._connect() as mine:
                assert mine.prepare_threshold is None

        asyncio.run(act())

    @pytest.mark.usefixtures("queue")
    def test_clients_that_meet_on_one_session(
        self, database: str, bouncer: Callable[..., Pgbouncer], conn: Connection
    ) -> None:
        dsn = bouncer(size=1).dsn(dbname_of(database))
        with Client(dsn) as one, Client(dsn) as other:
            # Both would prepare under the same names, in another order.
            for count in range(20):
                one.enqueue("q", count)
                (job,) = other.claim("q", "w")
                assert job.payload == count
                assert other.ack(job.job_id, job.token) == "acked"
        rows = conn.execute("select 1 from pgq_sql.jobs").fetchall()
        assert rows == []


@pytest.mark.usefixtures("queue", "soon_deaf")
class TestWorkerPolls:
    def test_threads(
        self,
        database: str,
        bouncer: Callable[..., Pgbouncer],
        conn: Connection,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(_listener, "TRY_AGAIN_AFTER", 0.05)
        tries: list[int] = []
        effects: list[object] = []

        def handle(job: Any) -> None:
            with job.transaction():
                effects.append(job.payload)

        with Client(bouncer(size=1).dsn(dbname_of(database))) as client:
            worker = Worker(
                client, {"q": handle}, concurrency=2, poll_interval=timedelta(seconds=0.05)
            )
            connect = worker._connect_listener

            def connect_listener() -> Connection:
                tries.append(len(listening(conn)))
                return connect()

            monkeypatch.setattr(worker, "_connect_listener", connect_listener)
            # First, because producers hold locks of that kind too, for a moment.
            client.enqueue_many("q", list(range(50)))
            with running(worker):
                wait_until(lambda: worker.report.acked >= 50, PATIENCE)
                # Tried again and again, told once; no lock is left on the pooler's session.
                wait_until(lambda: len(tries) > 3, PATIENCE)
            with client._connect() as pooled:
                left = pooled.execute("select pg_listening_channels()").fetchall()
        assert set(tries) == {0}
        assert left == []
        assert sorted(effects) == list(range(50))  # type: ignore[type-var]
        assert messages(caplog.records, logging.WARNING) == [DEAF]

    @pytest.mark.parametrize("pooled", [False, True])
    def test_tasks(
        self,
        database: str,
        bouncer: Callable[..., Pgbouncer],
        conn: Connection,
        caplog: pytest.LogCaptureFixture,
        pooled: bool,
    ) -> None:
        dsn = bouncer().dsn(dbname_of(database))
        effects: list[object] = []

        async def handle(job: AsyncRunningJob) -> None:
            async with job.transaction():
                effects.append(job.payload)

        async def work(client: AsyncClient) -> Report:
            await client.enqueue_many("q", list(range(50)))
            worker = AsyncWorker(
                client, {"q": handle}, concurrency=3, poll_interval=timedelta(seconds=0.05)
            )
            task = asyncio.create_task(worker.run())
            while worker.report.acked < 50 or not messages(caplog.records, logging.WARNING):
                await asyncio.sleep(0.01)
            worker.stop()
            return await task

        async def act() -> Report:
            if not pooled:
                async with AsyncClient(dsn) as client:
                    return await work(client)
            # What is prepared on a pool's connections is for the pool's maker to say.
            kwargs = {"prepare_threshold": None}
            async with psycopg_pool.AsyncConnectionPool(dsn, kwargs=kwargs, open=False) as pool:
                return await work(AsyncClient(pool))

        report = asyncio.run(asyncio.wait_for(act(), 3 * PATIENCE))
        assert report == Report(claimed=50, acked=50)
        assert sorted(effects) == list(range(50))  # type: ignore[type-var]
        assert messages(caplog.records, logging.WARNING) == [DEAF]
        assert listening(conn) == []


@pytest.mark.usefixtures("queue")
class TestWorkerListens:
    def test_past_the_pooler(
        self, database: str, bouncer: Callable[..., Pgbouncer], conn: Connection
    ) -> None:
        record = Record()
        with Client(bouncer().dsn(dbname_of(database))) as client:
            worker = Worker(
                client, {"q": record}, poll_interval=timedelta(seconds=NEVER), listener_dsn=database
            )
            with running(worker):
                for count in range(1, 4):
                    wait_until(lambda: listening(conn), PATIENCE)
                    client.enqueue("q")
                    record.wait(count)

    def test_through_a_pooler_in_session_mode(
        self,
        database: str,
        bouncer: Callable[..., Pgbouncer],
        conn: Connection,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        record = Record()
        with Client(bouncer("session", 10).dsn(dbname_of(database))) as client:
            worker = Worker(client, {"q": record}, poll_interval=timedelta(seconds=NEVER))
            with running(worker):
                wait_until(lambda: listening(conn), PATIENCE)
                client.enqueue("q")
                record.wait(1)
            wait_until(lambda: not listening(conn), PATIENCE)
        assert messages(caplog.records, logging.WARNING) == []

    @pytest.mark.usefixtures("soon_deaf")
    def test_a_pooler_that_pauses_is_waited_for(
        self,
        database: str,
        bouncer: Callable[..., Pgbouncer],
        conn: Connection,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def waits_for_the_client() -> bool:
            # Longer than a notification may take.
            row = conn.execute(
                "select from pg_stat_activity where datname = current_database()"
                " and state = 'idle' and query = 'listen \"pgq_sql.trial\"'"
                " and clock_timestamp() > state_change + interval '0.5 s'"
            ).fetchone()
            return row is not None

        record = Record()
        pooler = bouncer()
        name = dbname_of(database)
        with Client(pooler.dsn(name)) as client:
            worker = Worker(
                client, {"q": record}, poll_interval=timedelta(seconds=NEVER), listener_dsn=database
            )
            with running(worker):
                wait_until(lambda: listening(conn), PATIENCE)
                pooler.console(f"pause {name}")
                conn.execute("select pg_terminate_backend(%s)", listening(conn))
                wait_until(waits_for_the_client, PATIENCE)
                pooler.console(f"resume {name}")
                wait_until(lambda: listening(conn), PATIENCE)
                client.enqueue("q")
                record.wait(1)
        assert DEAF not in messages(caplog.records, logging.WARNING)


def test_no_parameter_of_ours_is_refused(database: str, bouncer: Callable[..., Pgbouncer]) -> None:
    """All that we set is libpq's own; what the user adds may be refused."""
    dsn = bouncer().dsn(dbname_of(database))
    with (
        Client(f"{dsn}&options=-csearch_path%3Dpublic") as client,
        pytest.raises(psycopg.OperationalError, match="unsupported startup parameter"),
    ):
        client.check()
    with Client(f"{dsn}&application_name=mine") as client:
        client.create_queue("q", visibility_timeout=timedelta(seconds=1))
