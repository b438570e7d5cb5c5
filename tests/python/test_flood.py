"""A flood of notifications must not become a flood of looks into the queue."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from afar import PATIENCE, Work, at_work, both
from pgq_sql import Client
from proxy import Proxy
from servers import Connection, wait_until
from working import listening

INTERVAL = 1.0
"""The worker's poll interval."""
INTERVALS = 4
"""How long the flood goes on."""
A_SECOND = 10_000
"""Notifications in the flood."""


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("q")
        yield client


def flood(conn: Connection, channel: str, seconds: float) -> int:
    """Notify as often as that, for so long; the answer is how often it was."""
    began, sent = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        due = int(elapsed * A_SECOND) - sent
        if due < 100:
            threading.Event().wait(0.005)
            continue
        # Equal ones in one transaction would become one.
        conn.execute("select pg_notify(%s, n::text) from generate_series(1, %s) n", [channel, due])
        sent += due
    return sent


@both
def test_an_idle_worker_looks_once_more_in_an_interval(
    client: Client, conn: Connection, database: str, proxy: Proxy, kind: str
) -> None:
    work = Work()
    # The listener goes past the proxy, which counts.
    options: dict[str, Any] = {
        "poll_interval": timedelta(seconds=INTERVAL),
        "listener_dsn": database,
    }
    with at_work(kind, proxy.dsn, work, **options) as worker:
        wait_until(lambda: listening(conn), PATIENCE)
        (channel,) = conn.execute("select pgq_sql.wait_begin('q')").fetchall()[0]
        # Idle for so long that it looks in once an interval, and no more often.
        before = proxy.count(".claim(")
        wait_until(lambda: proxy.count(".claim(") >= before + 8, PATIENCE)
        before, began = proxy.count(".claim("), time.monotonic()
        sent = flood(conn, str(channel), INTERVALS * INTERVAL)
        looks = proxy.count(".claim(") - before
        intervals = (time.monotonic() - began) / INTERVAL
        # What is real is found all the same, and at once when the flood is over.
        client.enqueue("q")
        worker.wait(acked=1)
    assert sent >= A_SECOND * INTERVALS * INTERVAL / 2
    # Each pause is up to a quarter shorter than the interval. The last ones allow for a way of
    # looking less and less often that begins anew with the flood.
    assert looks <= 2 * intervals / 0.75 + 8


@both
def test_a_flood_on_other_channels_leads_to_nothing(
    client: Client, conn: Connection, database: str, proxy: Proxy, kind: str
) -> None:
    work = Work()
    options: dict[str, Any] = {"poll_interval": timedelta(seconds=1000.0), "listener_dsn": database}
    with at_work(kind, proxy.dsn, work, **options) as worker, psycopg.connect(database) as other:
        wait_until(lambda: listening(conn), PATIENCE)
        wait_until(lambda: proxy.count(".claim(") >= 8, PATIENCE)
        before = proxy.count(".claim(")
        other.autocommit = True
        flood(other, "another", 1.0)
        assert proxy.count(".claim(") <= before + 2
        client.enqueue("q")
        worker.wait(acked=1)
    assert set(work.runs.values()) == {1}
