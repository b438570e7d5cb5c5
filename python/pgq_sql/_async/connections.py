"""Where a client's connections come from."""

from __future__ import annotations

import os
from asyncio import Condition
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from psycopg import AsyncConnection, AsyncCursor
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from .._conninfo import AsyncPool, check_pool, complete, lives


class Source(Protocol):
    """Lends connections."""

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """Lend a connection; it is ours until the context ends."""
        ...

    async def connect(self) -> AsyncConnection[Any]:
        """Make another connection to the same database, for the caller to close."""
        ...

    async def close(self) -> None:
        """Lend no more."""


class OwnConnection(AsyncConnection[Any]):
    """A connection that nobody else uses for calls, which may so share a cursor."""

    calls: AsyncCursor[Any] | None = None


async def _connect(conninfo: str) -> OwnConnection:
    conn = await OwnConnection.connect(conninfo, autocommit=True)
    try:
        cursor = await conn.execute("select pg_backend_pid()")
        (pid,) = await cursor.fetchone() or (None,)
    except BaseException:
        await conn.close()
        raise
    if pid != conn.info.backend_pid:
        # A pooler: what one client prepares on a server's session, another would run by its name.
        conn.prepare_threshold = None
    return conn


class OwnConnections:
    """Autocommit connections, opened when needed and kept for the next call."""

    def __init__(self, conninfo: str, limit: int = 8) -> None:
        self._conninfo = conninfo
        self._limit = limit
        self._lent = 0
        self._idle: list[AsyncConnection[Any]] = []
        self._closed = False
        self._changed = Condition()
        self._process = os.getpid()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        conn = await self._take()
        try:
            if conn is None:
                conn = await self.connect()
            yield conn
        finally:
            await self._give_back(conn)

    async def connect(self) -> AsyncConnection[Any]:
        return await _connect(self._conninfo)

    async def close(self) -> None:
        async with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
        for conn in idle:
            await conn.close()

    async def _take(self) -> AsyncConnection[Any] | None:
        """An idle connection, or None for leave to make one."""
        async with self._changed:
            if self._process != os.getpid():
                # A forked child that used its parent's connections would mix up both.
                self._idle, self._lent, self._process = [], 0, os.getpid()
            while self._lent >= self._limit:
                await self._changed.wait()
            self._lent += 1
            while self._idle:
                conn = self._idle.pop()
                if lives(conn):
                    return conn
                await conn.close()
        return None

    async def _give_back(self, conn: AsyncConnection[Any] | None) -> None:
        async with self._changed:
            self._lent -= 1
            self._changed.notify()
            if conn is None:
                return
            if not self._closed and conn.info.transaction_status == TransactionStatus.IDLE:
                self._idle.append(conn)
                return
        await conn.close()


class PoolConnections:
    """The connections of a pool that the caller made, and closes."""

    def __init__(self, pool: AsyncPool) -> None:
        check_pool(pool, "AsyncConnectionPool")
        self._pool = pool

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        while True:
            async with self._pool.connection() as conn:
                if lives(conn):
                    yield conn
                    return
                # After a restart of the server all of them are: one failure for each is too many.
                await conn.close()

    async def connect(self) -> AsyncConnection[Any]:
        # Ask a connection where it leads: a pool may compute its connection string.
        async with self._pool.connection() as conn:
            conninfo = make_conninfo(conn.info.dsn, password=conn.info.password or None)
        return await _connect(complete(conninfo))

    async def close(self) -> None:
        pass
