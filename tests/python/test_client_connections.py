"""Whose connections the client uses, and whose transactions it joins."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import psycopg_pool
import pytest
import sqlalchemy as sa
from psycopg import conninfo, rows
from sqlalchemy.orm import Session

import pgq_sql
from conftest import Connect
from pgq_sql import Client
from servers import Connection, Server, wait_until

SECOND = timedelta(seconds=1)


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("q")
        yield client


def live(conn: Connection) -> int:
    """How many jobs there are."""
    return conn.execute("select count(*) from pgq_sql.jobs").fetchall()[0][0]  # type: ignore[return-value]


class TestTransactions:
    """`conn=` joins, and never ends, the caller's transaction."""

    @pytest.mark.parametrize("commit", [True, False])
    def test_connection(
        self, client: Client, connect: Connect, conn: Connection, commit: bool
    ) -> None:
        mine = connect(autocommit=False)
        job = client.enqueue("q", conn=mine)
        client.enqueue_many("q", [1, 2], conn=mine)
        assert live(mine) == 3
        assert live(conn) == 0
        mine.commit() if commit else mine.rollback()
        assert live(conn) == (3 if commit else 0)
        assert job.outcome == "inserted"

    def test_cursor_of_any_kind(self, client: Client, connect: Connect, conn: Connection) -> None:
        mine = connect(autocommit=False, row_factory=rows.dict_row)
        mine.cursor_factory = psycopg.ClientCursor
        client.enqueue("q", {"a": 1}, conn=mine.cursor())
        (job,) = client.claim("q", "me", conn=mine.cursor())
        assert job.payload == {"a": 1}
        assert live(conn) == 0
        mine.rollback()

    def test_savepoint(self, client: Client, connect: Connect, conn: Connection) -> None:
        mine = connect(autocommit=False)
        client.enqueue("q", conn=mine)
        with mine.transaction(force_rollback=True):
            client.enqueue("q", conn=mine)
        mine.commit()
        assert live(conn) == 1

    def test_settings_of_the_callers_connection_do_not_matter(
        self, client: Client, connect: Connect
    ) -> None:
        client.enqueue("q", {"a": "ä"}, delay=timedelta(0))
        mine = connect()
        for setting in (
            "datestyle = 'German, DMY'",
            "intervalstyle = 'sql_standard'",
            "timezone = 'Asia/Kathmandu'",
            "client_encoding = 'LATIN1'",
            "bytea_output = 'escape'",
            "search_path = ''",
        ):
            mine.execute(f"set {setting}".encode())
        client.enqueue("q", delay=90 * SECOND, conn=mine)
        (job,) = client.claim("q", "me", visibility_timeout=5 * SECOND, conn=mine)
        assert job.payload == {"a": "ä"}
        assert job.lease_until - job.observed_at == 5 * SECOND
        assert abs(datetime.now(UTC) - job.observed_at) < 60 * SECOND

    @pytest.mark.parametrize("commit", [True, False])
    @pytest.mark.parametrize("kind", ["connection", "session"])
    def test_sqlalchemy(
        self, client: Client, database: str, conn: Connection, kind: str, commit: bool
    ) -> None:
        engine = sa.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
        opened = engine.connect() if kind == "connection" else Session(engine)
        with opened as mine:
            client.enqueue("q", conn=mine)
            mine.execute(sa.text("create table business (id int)"))
            client.enqueue("q", conn=mine)
            assert live(conn) == 0
            mine.commit() if commit else mine.rollback()
        engine.dispose()
        assert live(conn) == (2 if commit else 0)
        made = conn.execute("select to_regclass('business') is not null").fetchone()
        assert made == (commit,)

    def test_other_things_are_refused(self, client: Client, database: str) -> None:
        for wrong in (database, object(), psycopg.AsyncConnection):
            with pytest.raises(TypeError, match="conn must be"):
                client.enqueue("q", conn=wrong)  # type: ignore[arg-type]


class TestConnections:
    def test_connects_late(self, database: str, server: Server, conn: Connection) -> None:
        dbname = conn.info.dbname
        with Client(database) as client:
            assert len(server.sessions(dbname)) == 1
            client.check()
            client.check()
            assert len(server.sessions(dbname)) == 2

    def test_threads_share_a_client(self, client: Client, conn: Connection) -> None:
        threads = [
            threading.Thread(target=lambda: [client.enqueue("q") for _ in range(20)])
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert live(conn) == 400

    def test_comes_back_after_the_server_ended_its_session(
        self, client: Client, server: Server, conn: Connection
    ) -> None:
        client.check()
        killed = conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name = 'pgq_sql'"
        ).fetchall()
        assert killed == [(True,)]
        wait_until(lambda: len(server.sessions(conn.info.dbname)) == 1)
        assert client.check() == "0001"

    def test_session_is_not_reused_after_an_error_within(self, client: Client) -> None:
        for _ in range(20):
            with pytest.raises(pgq_sql.QueueNotFound):
                client.enqueue("no")
        assert client.enqueue("q").outcome == "inserted"

    @pytest.mark.parametrize("autocommit", [True, False])
    def test_pool(self, database: str, conn: Connection, autocommit: bool) -> None:
        with psycopg_pool.ConnectionPool(
            database, min_size=1, open=True, kwargs={"autocommit": autocommit}
        ) as pool:
            with Client(pool) as client:
                client.create_queue("q")
                client.enqueue("q")
                assert live(conn) == 1
            with pool.connection() as still_open:
                still_open.execute("select 1")

    def test_dsn_from_the_environment(self, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PGQ_DSN", database)
        with Client() as client:
            client.check()
        for name, value in conninfo.conninfo_to_dict(database).items():
            if value is not None:
                monkeypatch.setenv(
                    "PGDATABASE" if name == "dbname" else f"PG{name}".upper(), str(value)
                )
        monkeypatch.delenv("PGQ_DSN")
        with Client() as client:
            client.check()

    def test_sqlalchemys_url(self, database: str) -> None:
        with Client(database.replace("postgresql://", "postgresql+psycopg://")) as client:
            client.check()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_child_does_not_use_its_parents_session(self, client: Client, conn: Connection) -> None:
        client.check()
        # Newer Pythons warn where other threads run, as they may here.
        with warnings.catch_warnings(action="ignore"):
            child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if client.enqueue("q").outcome == "inserted" else 1
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        client.check()
        assert live(conn) == 1
