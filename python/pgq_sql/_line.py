"""Breaking a connection that another thread is using."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

import psycopg

from ._conninfo import AnyConnection

CANCEL_PATIENCE = 5.0
"""Seconds for the server to hear that it should stop."""


class Line:
    """A connection in use; when `cut`, its statement is cancelled and it is closed in the end."""

    __slots__ = ("_conn", "_lock", "_over", "_socket", "is_cut")

    def __init__(self, conn: AnyConnection) -> None:
        self._conn = conn
        # A copy, which stays this connection's even if that is closed meanwhile.
        self._socket = socket.socket(fileno=os.dup(conn.fileno()))
        self._lock = threading.Lock()
        self._over = self.is_cut = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._over = True
        self._socket.close()
        if self.is_cut:
            # Else the cancellation might hit whoever uses it next. An AsyncConnection's close()
            # is a coroutine that does just this.
            self._conn.pgconn.finish()

    def cut(self, *, at_once: bool = False) -> None:
        """Cut it if it is still in use; does not wait for that.

        First the server is asked to stop, since one that waits for a lock would not notice that
        nobody is there; not if it is to be done `at_once`.
        """
        with self._lock:
            if self._over or self.is_cut:
                return
            self.is_cut = True
        if at_once:
            self._hang_up()
        else:
            threading.Thread(target=self._cut, name="pgq-cut", daemon=True).start()

    def _cut(self) -> None:
        self._ask()
        self._hang_up()

    def _hang_up(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _ask(self) -> None:
        if not psycopg.capabilities.has_cancel_safe():
            # Before libpq 17 there is only a call that waits, and stops the whole interpreter.
            return
        with suppress(psycopg.Error):
            asking = self._conn.cancel_safe(timeout=CANCEL_PATIENCE)
            if asking is not None:  # an AsyncConnection's
                asyncio.run(asking)
