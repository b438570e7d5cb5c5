"""How a client calls: whose connection, which statement, what comes back."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeAlias

from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import tuple_row

from .. import _json
from .._adapt import loaders
from .._conninfo import AsyncPool, complete
from .._foreign import Reader, texts
from .._joining import AsyncJoinable, async_joined
from .._statements import Statements
from ..errors import Closed, from_database
from .connections import (
    Guard,
    OwnConnection,
    OwnConnections,
    PoolConnections,
    Source,
    open_connection,
)

Row: TypeAlias = tuple[Any, ...]


LIMIT = 8
"""Connections of a client at a time; who wants more hands in a pool."""


class Caller:
    """Calls the functions of one schema by name."""

    def __init__(
        self,
        conninfo: str | AsyncPool | None = None,
        *,
        schema: str = "pgq_sql",
        dumps: _json.Dumps | None = None,
        loads: _json.Loads | None = None,
    ) -> None:
        self.schema = schema
        self._conninfo, self._dumps, self._loads = conninfo, dumps, loads
        self._statements = Statements(schema, _json.checked(dumps) if dumps else _json.dumps)
        self._loaders = loaders(loads or _json.loads)
        self._reader = Reader(loads or _json.loads)
        self._source: Source = (
            OwnConnections(partial(open_connection, complete(conninfo)), LIMIT)
            if conninfo is None or isinstance(conninfo, str)
            else PoolConnections(conninfo)
        )
        self._closed = False

    def _twin(self, limit: int) -> Self:
        """The same with connections of its own, so many; a pool that was handed in is shared."""
        twin = copy.copy(self)
        if isinstance(self._conninfo, str | None):
            connect = partial(open_connection, complete(self._conninfo))
            twin._source = OwnConnections(connect, limit, waits=False)
        return twin

    def _apart(self, limit: int, guard: Guard) -> Self:
        """The same with connections of its own, so many, wherever this one's come from.

        What cannot be decoded is `Unreadable`.
        """
        twin = copy.copy(self)
        twin._source = OwnConnections(self._source.connect, limit, guard=guard)
        twin._loaders = loaders(_json.tolerant(self._loads or _json.loads))
        return twin

    async def close(self) -> None:
        """Close the client's connections; a pool that was handed in stays open."""
        self._closed = True
        await self._source.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def _borrow(self) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection of ours; what was done on it is committed afterwards."""
        self._refuse_if_closed()
        async with self._source.connection() as own:
            yield own

    async def _connect(self) -> OwnConnection:
        """A new autocommit connection, which the caller closes."""
        self._refuse_if_closed()
        return await self._source.connect()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Closed("the client is closed", hint="Make a new one.")

    async def _execute(
        self, conn: AsyncConnection[Any], function: str, **arguments: object
    ) -> AsyncCursor[Row]:
        """Call a function. In a pipeline, fetch from the cursor when it has ended."""
        return await self._run(conn, *self._statements.call(function, arguments))

    async def _run(
        self, conn: AsyncConnection[Any], text: bytes, values: dict[str, object]
    ) -> AsyncCursor[Row]:
        return await self._cursor(conn).execute(text, values, binary=True)

    def _cursor(self, conn: AsyncConnection[Any]) -> AsyncCursor[Row]:
        # Not conn.cursor(), which the caller's settings may have made something else.
        cursor = AsyncCursor(conn, row_factory=tuple_row)
        for oid, loader in self._loaders:
            cursor.adapters.register_loader(oid, loader)
        return cursor

    async def _rows(
        self, conn: AsyncJoinable | None, function: str, **arguments: object
    ) -> list[Row]:
        # First, so that a wrong value costs no connection.
        text, values = self._statements.call(function, arguments)
        self._refuse_if_closed()
        try:
            if conn is None:
                return await self._own_rows(text, values)
            theirs = async_joined(conn)
            if isinstance(theirs, AsyncConnection):
                return await (await self._run(theirs, text, values)).fetchall()
            return self._reader.rows(await theirs(text, texts(values)))
        except Exception as error:
            if (known := from_database(error)) is None:
                raise
            raise known from error

    async def _own_rows(self, text: bytes, values: dict[str, object]) -> list[Row]:
        async with self._source.connection() as own:
            if not isinstance(own, OwnConnection):
                return await (await self._run(own, text, values)).fetchall()
            if own.calls is None:
                own.calls = self._cursor(own)
            await own.calls.execute(text, values, binary=True)
            return await own.calls.fetchall()

    async def _row(self, conn: AsyncJoinable | None, function: str, **arguments: object) -> Row:
        return (await self._rows(conn, function, **arguments))[0]

    async def _value(self, conn: AsyncJoinable | None, function: str, **arguments: object) -> Any:
        return (await self._row(conn, function, **arguments))[0]
