"""LISTEN on a connection of its own: wakes the worker when a job arrives in an idle queue."""

from __future__ import annotations

import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

import psycopg
from psycopg import sql
from psycopg.pq import ConnStatus

from ._conninfo import Connection
from ._log import log
from ._outage import UNREACHABLE, Outage, one_line
from ._watch import Patience
from .client import Client
from .errors import InvalidState, QueueNotFound

CHECK_EVERY = 30.0
"""Seconds without a notification after which the connection is tried."""
TRY_AGAIN_AFTER = 60.0
"""Seconds to rest where LISTEN is refused, or hears nothing."""
HEARS_WITHIN = 5.0
"""Seconds that a notification may take."""
TRIAL = "pgq_sql.trial"
"""The channel to try that on. One for all: a pooler's session may go on listening to it."""


class Listener:
    """Holds the idle lock of the queues to watch, and calls `wake` with those that have news.

    A queue that begins to be watched is woken once: a job may have come before we listened.
    """

    def __init__(
        self,
        client: Client,
        connect: Callable[[], Connection],
        outage: Outage,
        wake: Callable[[Collection[str]], None],
        patience: Patience,
    ) -> None:
        self._client = client
        self._connect = connect
        self._outage = outage
        self._wake = wake
        self._patience = patience
        self._wanted: frozenset[str] = frozenset()
        self._closed = False
        self._told = False
        # A socket, because a thread can wait for it and for the connection at once.
        self._bell, self._ring = socket.socketpair()
        self._bell.setblocking(False)
        self._ring.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="pgq-listener", daemon=True)
        self._thread.start()

    def watch(self, queues: frozenset[str]) -> None:
        """Watch these queues and no others."""
        if queues != self._wanted:
            self._wanted = queues
            self._ring_bell()

    def close(self, patience: float) -> None:
        """Stop, and close the connection."""
        self._closed = True
        self._ring_bell()
        self._thread.join(patience)

    def _ring_bell(self) -> None:
        # Blocked: it has rung often enough. Closed: there is nobody to hear it.
        with suppress(OSError):
            self._ring.send(b"!")

    def _run(self) -> None:
        with self._bell, self._ring:
            self._listen()

    def _listen(self) -> None:
        while not self._closed:
            try:
                with self._connect() as conn:
                    _Session(self, conn).serve()
                return
            except UNREACHABLE as error:
                self._rest(self._outage.failed("listener", error))
            except Exception as error:
                if not self._told:
                    self._told = True
                    log.warning("cannot listen, so only polling: %s", one_line(error))
                self._rest(TRY_AGAIN_AFTER)

    def _rest(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._bell, selectors.EVENT_READ)
            while not self._closed and (left := ends - time.monotonic()) > 0:
                if selector.select(left):
                    self._hush()

    def _hush(self) -> None:
        with suppress(BlockingIOError):
            while self._bell.recv(1024):
                pass


class _Session:
    """One connection's life."""

    def __init__(self, owner: Listener, conn: Connection) -> None:
        self._owner = owner
        self._conn = conn
        self._patience = partial(owner._patience.with_, conn)
        self._heard: set[tuple[str, str]] = set()
        self._held: set[str] = set()
        self._queues: dict[str, str] = {}
        # Notifications may come with the answer to any statement.
        conn.add_notify_handler(lambda notify: self._heard.add((notify.channel, notify.payload)))

    def serve(self) -> None:
        owner = self._owner
        self._try()
        with selectors.DefaultSelector() as selector:
            selector.register(owner._bell, selectors.EVENT_READ)
            selector.register(self._conn.pgconn.socket, selectors.EVENT_READ)
            self._prove(selector)
            while not owner._closed:
                self._follow(owner._wanted)
                self._receive()
                if not selector.select(CHECK_EVERY):
                    self._try()
                owner._hush()

    def _try(self) -> None:
        with self._patience():
            self._conn.execute("select 1")
        self._owner._outage.over("listener")

    def _prove(self, selector: selectors.BaseSelector) -> None:
        """Hear a notification of the client's, before any lock is taken.

        A pooler's transaction mode takes LISTEN, to a session that others go on with, and hears
        nothing; wait_begin would leave its lock there.
        """
        owner, channel, word = self._owner, sql.Identifier(TRIAL), secrets.token_hex(8)
        with self._patience():
            self._conn.execute(sql.SQL("listen {}").format(channel))
        with owner._client._borrow() as other, owner._patience.with_(other):
            other.execute("select pg_notify(%s, %s)", [TRIAL, word])
        ends = time.monotonic() + HEARS_WITHIN
        while not (heard := (TRIAL, word) in self._heard) and not owner._closed:
            if (left := ends - time.monotonic()) <= 0:
                break
            selector.select(left)
            owner._hush()
            self._take_in()
        with self._patience():
            self._conn.execute(sql.SQL("unlisten {}").format(channel))
        if heard:
            owner._told = False
        elif not owner._closed:
            raise psycopg.NotSupportedError(
                "notifications do not come through: is this a pooler? see listener_dsn"
            )

    def _follow(self, wanted: frozenset[str]) -> None:
        """Take and leave idle locks until they are those of the queues to watch."""
        for name in self._held - wanted:
            self._held.discard(name)
            with suppress(QueueNotFound, InvalidState), self._patience():
                self._owner._client.wait_end(name, conn=self._conn)
        for name in wanted - self._held:
            # Dropped meanwhile: the worker tells, and goes on polling.
            with suppress(QueueNotFound), self._patience():
                channel = self._owner._client.wait_begin(name, conn=self._conn)
                self._held.add(name)
                if channel not in self._queues:
                    self._conn.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
                    self._queues[channel] = name
                self._owner._wake([name])

    def _receive(self) -> None:
        """Pass on what has been heard."""
        self._take_in()
        woken = {self._queues[channel] for channel, _ in self._heard if channel in self._queues}
        self._heard.clear()
        if woken:
            self._owner._wake(woken)

    def _take_in(self) -> None:
        pgconn = self._conn.pgconn
        pgconn.consume_input()
        while notify := pgconn.notifies():
            self._heard.add((notify.relname.decode(), notify.extra.decode()))
        if pgconn.status != ConnStatus.OK:
            raise psycopg.OperationalError("the connection was closed")
