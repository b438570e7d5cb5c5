"""Where LISTEN hears nothing, or is refused: the worker polls, says so once, and leaves no lock."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from chaos_server import PrivateServer, bindir_for
from conftest import CHOICE
from pgq_sql import Client, Worker, _listener
from servers import Connection, Server, install, wait_until
from working import PATIENCE, Record, listening, messages, running

NEVER = 1000.0


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("q")
        yield client


@pytest.fixture
def elsewhere(server: Server, template: str) -> Iterator[str]:
    """A database with the same queue, to which nobody's notifications go."""
    with server.database(template) as name:
        dsn = server.dsn(name, server.owner)
        with Client(dsn) as client:
            client.create_queue("q")
        yield dsn


def test_a_listener_that_hears_nothing(
    client: Client,
    elsewhere: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(_listener, "HEARS_WITHIN", 0.1)
    monkeypatch.setattr(_listener, "TRY_AGAIN_AFTER", 0.05)
    tries: list[int] = []
    record = Record()
    worker = Worker(
        client, {"q": record}, poll_interval=timedelta(seconds=0.05), listener_dsn=elsewhere
    )
    connect = worker._connect_listener

    with psycopg.connect(elsewhere, autocommit=True) as conn:

        def connect_listener() -> Connection:
            tries.append(len(listening(conn)))
            return connect()

        monkeypatch.setattr(worker, "_connect_listener", connect_listener)
        with running(worker):
            client.enqueue_many("q", [1, 2, 3])
            record.wait(3)
            wait_until(lambda: len(tries) > 3, PATIENCE)
    # Nor was a lock taken that nobody would answer for.
    assert set(tries) == {0}
    assert messages(caplog.records, logging.WARNING) == [
        "cannot listen, so only polling: NotSupportedError: notifications do not come through:"
        " is this a pooler? see listener_dsn"
    ]


def test_listens_as_soon_as_it_hears(
    client: Client,
    conn: Connection,
    database: str,
    elsewhere: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(_listener, "HEARS_WITHIN", 0.1)
    monkeypatch.setattr(_listener, "TRY_AGAIN_AFTER", 0.05)
    record = Record()
    worker = Worker(
        client, {"q": record}, poll_interval=timedelta(seconds=NEVER), listener_dsn=elsewhere
    )
    with running(worker):
        wait_until(lambda: messages(caplog.records, logging.WARNING), PATIENCE)
        monkeypatch.setattr(worker, "_listener_dsn", database)
        # A notification may take longer again.
        monkeypatch.setattr(_listener, "HEARS_WITHIN", PATIENCE)
        wait_until(lambda: listening(conn), PATIENCE)
        client.enqueue("q")
        record.wait(1)


def test_ends_while_it_waits_for_a_notification(
    client: Client, elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_listener, "HEARS_WITHIN", NEVER)
    trial = "select from pg_stat_activity where query like 'listen %trial%' and state = 'idle'"
    worker = Worker(client, {"q": Record()}, listener_dsn=elsewhere)
    with psycopg.connect(elsewhere, autocommit=True) as conn, running(worker):
        wait_until(lambda: conn.execute(trial).fetchall(), PATIENCE)
    assert "pgq-listener" not in {thread.name for thread in threading.enumerate()}


def test_on_a_standby(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> None:
    bindir = bindir_for(request.config.stash[CHOICE])
    if bindir is None:
        pytest.skip("no server to make a standby of")
    record = Record()
    with (
        PrivateServer(bindir) as private,
        private.server.database() as name,
        private.standby() as standby,
    ):
        owner = private.server.owner
        install(private.server.dsn(name, owner))
        with Client(private.server.dsn(name, owner)) as client:
            client.create_queue("q")
            dsn = standby.dsn(name, owner)
            worker = Worker(
                client, {"q": record}, poll_interval=timedelta(seconds=0.05), listener_dsn=dsn
            )
            with running(worker):
                client.enqueue("q")
                record.wait(1)
                wait_until(lambda: messages(caplog.records, logging.WARNING), PATIENCE)
    assert messages(caplog.records, logging.WARNING) == [
        "cannot listen, so only polling: ReadOnlySqlTransaction: cannot execute LISTEN during"
        " recovery"
    ]
