"""Where a client's connections come from."""

from __future__ import annotations

import os
from asyncio import Condition
from collections.abc import AsyncIterator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
)
from typing import Any, Protocol, TypeAlias

from psycopg import AsyncConnection, AsyncCursor
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from .._conninfo import AsyncPool, check_pool, complete, lives
from ..errors import InvalidState

Guard: TypeAlias = Callable[[AsyncConnection[Any]], AbstractContextManager[object]]
"""Put around what is asked on a new connection, which may never answer."""


class OwnConnection(AsyncConnection[Any]):
    """A connection that nobody else uses for calls, which may so share a cursor."""

    calls: AsyncCursor[Any] | None = None


class Connect(Protocol):
    """Makes connections."""

    async def __call__(self, guard: Guard, /) -> OwnConnection: ...


class Source(Protocol):
    """Lends connections."""

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """Lend a connection; it is ours until the context ends."""
        ...

    async def connect(self, guard: Guard | None = None) -> OwnConnection:
        """Make another connection to the same database, for the caller to close."""
        ...

    async def close(self) -> None:
        """Lend no more."""


async def open_connection(conninfo: str, guard: Guard = nullcontext) -> OwnConnection:
    """A new autocommit connection."""
    conn = await OwnConnection.connect(conninfo, autocommit=True)
    try:
        with guard(conn):
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

    def __init__(
        self, connect: Connect, limit: int, *, waits: bool = True, guard: Guard = nullcontext
    ) -> None:
        self._connect = connect
        self._guard = guard
        self._limit = limit
        self._waits = waits
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

    async def connect(self, guard: Guard | None = None) -> OwnConnection:
        return await self._connect(guard or self._guard)

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
                if not self._waits:
                    raise InvalidState(
                        f"all {self._limit} connections of the handlers are in use",
                        hint="Does one of them hold several transactions at once?",
                    )
                try:
                    await self._changed.wait()
                except BaseException:
                    # Whoever was cancelled may have taken the word that was meant for another.
                    self._changed.notify()
                    raise
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
        self._conninfo: str | None = None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Any]]:
        while True:
            async with self._pool.connection() as conn:
                if lives(conn):
                    yield conn
                    return
                # After a restart of the server all of them are: one failure for each is too many.
                await conn.close()

    async def connect(self, guard: Guard | None = None) -> OwnConnection:
        if self._conninfo is None:
            # Ask a connection where it leads: a pool may compute its connection string. Only once,
            # because handlers may hold all of them later.
            async with self._pool.connection() as conn:
                password = conn.info.password or None
                self._conninfo = complete(make_conninfo(conn.info.dsn, password=password))
        return await open_connection(self._conninfo, guard or nullcontext)

    async def close(self) -> None:
        pass
