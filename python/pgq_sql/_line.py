"""Breaking a connection that another thread is using."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

import psycopg

from ._conninfo import Connection

CANCEL_PATIENCE = 5.0
"""Seconds for the server to hear that it should stop."""


class Line:
    """A connection in use; when `cut`, its statement is cancelled and it is closed in the end."""

    __slots__ = ("_conn", "_lock", "_over", "_socket", "is_cut")

    def __init__(self, conn: Connection) -> None:
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
            # Else the cancellation might hit whoever uses it next.
            self._conn.close()

    def cut(self) -> None:
        """Cut it if it is still in use; does not wait for that."""
        with self._lock:
            if self._over or self.is_cut:
                return
            self.is_cut = True
        threading.Thread(target=self._cut, name="pgq-cut", daemon=True).start()

    def _cut(self) -> None:
        # The server first: waiting for a lock, it would not notice that nobody is there.
        with suppress(psycopg.Error):
            self._conn.cancel_safe(timeout=CANCEL_PATIENCE)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
