"""How a client calls: whose connection, which statement, what comes back."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeAlias

from psycopg import Connection, Cursor
from psycopg.rows import tuple_row

from .. import _json
from .._adapt import loaders
from .._conninfo import Pool, complete
from .._foreign import Reader, texts
from .._joining import Joinable, joined
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
        conninfo: str | Pool | None = None,
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

    def close(self) -> None:
        """Close the client's connections; a pool that was handed in stays open."""
        self._closed = True
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _borrow(self) -> Iterator[Connection[Any]]:
        """A connection of ours; what was done on it is committed afterwards."""
        self._refuse_if_closed()
        with self._source.connection() as own:
            yield own

    def _connect(self) -> OwnConnection:
        """A new autocommit connection, which the caller closes."""
        self._refuse_if_closed()
        return self._source.connect()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise Closed("the client is closed", hint="Make a new one.")

    def _execute(self, conn: Connection[Any], function: str, **arguments: object) -> Cursor[Row]:
        """Call a function. In a pipeline, fetch from the cursor when it has ended."""
        return self._run(conn, *self._statements.call(function, arguments))

    def _run(self, conn: Connection[Any], text: bytes, values: dict[str, object]) -> Cursor[Row]:
        return self._cursor(conn).execute(text, values, binary=True)

    def _cursor(self, conn: Connection[Any]) -> Cursor[Row]:
        # Not conn.cursor(), which the caller's settings may have made something else.
        cursor = Cursor(conn, row_factory=tuple_row)
        for oid, loader in self._loaders:
            cursor.adapters.register_loader(oid, loader)
        return cursor

    def _rows(self, conn: Joinable | None, function: str, **arguments: object) -> list[Row]:
        # First, so that a wrong value costs no connection.
        text, values = self._statements.call(function, arguments)
        self._refuse_if_closed()
        try:
            if conn is None:
                return self._own_rows(text, values)
            theirs = joined(conn)
            if isinstance(theirs, Connection):
                return (self._run(theirs, text, values)).fetchall()
            return self._reader.rows(theirs(text, texts(values)))
        except Exception as error:
            if (known := from_database(error)) is None:
                raise
            raise known from error

    def _own_rows(self, text: bytes, values: dict[str, object]) -> list[Row]:
        with self._source.connection() as own:
            if not isinstance(own, OwnConnection):
                return (self._run(own, text, values)).fetchall()
            if own.calls is None:
                own.calls = self._cursor(own)
            own.calls.execute(text, values, binary=True)
            return own.calls.fetchall()

    def _row(self, conn: Joinable | None, function: str, **arguments: object) -> Row:
        return (self._rows(conn, function, **arguments))[0]

    def _value(self, conn: Joinable | None, function: str, **arguments: object) -> Any:
        return (self._row(conn, function, **arguments))[0]
