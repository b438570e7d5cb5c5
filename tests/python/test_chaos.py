"""Workers are killed and stopped, sessions ended, the server restarted: nothing is lost or doubled.

A short run: `make chaos` is the long random form.
"""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import psycopg_pool
import pytest
from psycopg_pool import AsyncConnectionPool

from chaos import FAULTS, Chaos, Plan
from chaos_ledger import Tally, count, watch
from chaos_server import PrivateServer, bindir_for
from conftest import CHOICE
from pgq_sql import AsyncClient, Client
from pgq_sql._conninfo import lives
from servers import Connection, install
from test_marks import patch
from working import PATIENCE

SCRIPT = (
    "worker stopped",
    "listeners ended",
    "worker killed",
    "worker stopped",
    "all sessions ended",
    "restart immediate",
    "worker stopped",
    "worker killed",
    "restart fast",
    "worker stopped",
)


@pytest.fixture(scope="module")
def private(request: pytest.FixtureRequest) -> Iterator[PrivateServer]:
    bindir = bindir_for(request.config.stash[CHOICE])
    if bindir is None:
        pytest.skip("no server that could be restarted")
    with PrivateServer(bindir) as private:
        yield private


@pytest.fixture
def private_database(private: PrivateServer) -> Iterator[str]:
    """The name of a database with the schema."""
    with private.server.database() as name:
        install(private.server.dsn(name, private.server.owner))
        yield name


def test_nothing_is_lost_or_doubled(
    private: PrivateServer, private_database: str, tmp_path: Path
) -> None:
    chaos = Chaos(private, private_database, Plan(1, SCRIPT), tmp_path)

    tally = chaos.run()

    print("\n".join(tally.lines()))
    assert tally.wrong() == {}, "\n".join(chaos.explain())
    assert tally.faults.keys() == FAULTS.keys()
    assert tally.jobs > 100
    assert tally.refused


def test_the_ledger_notices(conn: Connection, database: str) -> None:
    """Each kind of fault that it counts, made by hand."""
    watch(conn)
    conn.execute("select pgq_sql.create_queue('exact')")
    with Client(database) as client:
        claims = []
        for number in range(4):
            client.enqueue("exact", number)
            (claim,) = client.claim("exact", "first")
            claims.append(claim)
        stale, live, doubled, finished = claims
        client.release(stale.job_id, stale.token)
        client.claim("exact", "second")
        assert client.ack(stale.job_id, stale.token) == "lost"
        assert client.ack(finished.job_id, finished.token) == "acked"
        wanted = "insert into chaos.wanted (job_id, queue) values (%s, 'exact')"
        for job in claims:
            conn.execute(wanted, [job.job_id])
        effect = "insert into chaos.effect (job_id, queue) values (%s, 'exact')"
        for job_id in (doubled.job_id, doubled.job_id, 1000):
            conn.execute(effect, [job_id])
        tally = Tally()
        count(conn, tally, ["nobody"])
        assert (tally.jobs, tally.effects, tally.refused, tally.refused_after_stop) == (4, 3, 1, 0)
        assert tally.wrong() == {"left": 3, "lost": 1, "doubled": 1, "unexpected": 1}

        # An engine that forgets to look at the token, or at the lease.
        fence = "j.token = ack.token and j.lease_until > _now()"
        broken_ack(conn, fence, "true")
        assert client.ack(stale.job_id, stale.token) == "acked"
        broken_ack(conn, "j.id = ack.job_id and true", "false")
        assert client.ack(live.job_id, live.token) == "lost"
    count(conn, tally, [])
    assert (tally.accepted, tally.turned_away) == (1, 1)


def broken_ack(conn: Connection, old: str, new: str) -> None:
    conn.execute("alter function pgq_sql.ack set schema chaos")
    conn.execute("alter function unwatched.ack set schema pgq_sql")
    patch(conn, "ack", old, new)
    conn.execute("alter function pgq_sql.ack set schema unwatched")
    conn.execute("alter function chaos.ack set schema pgq_sql")


class TestClientInUse:
    """After a restart of the server the calls succeed, but for one that may fail."""

    @pytest.mark.parametrize("mode", ["fast", "immediate"])
    @pytest.mark.parametrize("pooled", [False, True])
    def test_restart(
        self, private: PrivateServer, private_database: str, pooled: bool, mode: str
    ) -> None:
        dsn = private.server.dsn(private_database, private.server.owner)
        if not pooled:
            with Client(dsn) as client:
                self.survives(client, private, mode)
            return
        with psycopg_pool.ConnectionPool(dsn, min_size=4, open=True) as pool:
            pool.wait()
            self.survives(Client(pool), private, mode)

    def survives(self, client: Client, private: PrivateServer, mode: Any) -> None:
        client.create_queue("q")
        # As many as were in use at once are kept.
        with ExitStack() as lent:
            for _ in range(4):
                lent.enter_context(client._borrow())
        private.restart(mode)
        failures = 0
        for _ in range(20):
            try:
                client.enqueue("q")
            except psycopg.OperationalError:
                failures += 1
        assert failures <= 1
        assert client.claim("q", "w", 30)

    def test_restart_of_the_async_client(
        self, private: PrivateServer, private_database: str
    ) -> None:
        async def act() -> int:
            dsn = private.server.dsn(private_database, private.server.owner)
            async with AsyncConnectionPool(dsn, min_size=4, open=False) as pool:
                await pool.wait()
                client = AsyncClient(pool)
                await client.create_queue("q")
                await asyncio.to_thread(private.restart, "fast")
                results = [
                    await asyncio.gather(client.enqueue("q"), return_exceptions=True)
                    for _ in range(10)
                ]
                return sum(isinstance(one, psycopg.OperationalError) for (one,) in results)

        assert asyncio.run(act()) <= 1


def test_a_farewell_is_heard(conn: Connection, database: str) -> None:
    """The server says that it ends a session, and only then ends the connection."""
    with (
        endless(conn.info.host, conn.info.port) as options,
        psycopg.connect(database, **options, autocommit=True) as mine,
    ):
        assert lives(mine)
        conn.execute("select pg_terminate_backend(%s, 5000)", [mine.info.backend_pid])
        assert select.select([mine], [], [], PATIENCE)[0]
        assert not lives(mine)


@contextmanager
def endless(host: str, port: int) -> Iterator[dict[str, Any]]:
    """A way to the server for one connection, whose end the client does not see."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def carry() -> None:
            mine, _ = listening.accept()
            server = socket.socket(socket.AF_UNIX if host.startswith("/") else socket.AF_INET)
            server.connect(f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port))
            # What a client says in the end comes too late.
            with mine, server, suppress(BrokenPipeError):
                both = {mine: server, server: mine}
                while mine in both:
                    for ready in select.select([*both], [], [])[0]:
                        data = ready.recv(65536)
                        if data:
                            both[ready].sendall(data)
                        else:
                            del both[ready]

        thread = threading.Thread(target=carry)
        thread.start()
        own = {"host": "127.0.0.1", "port": listening.getsockname()[1]}
        yield {**own, "sslmode": "disable", "gssencmode": "disable"}
        thread.join(PATIENCE)
