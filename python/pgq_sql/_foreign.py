"""Calls through what is no connection of psycopg's: SQLAlchemy, Django, psycopg2, asyncpg.

Arguments go as text, to be cast. Each row comes back as one bytea: a record in PostgreSQL's binary
format, which tells the type of every column. psycopg's dumpers write the one and its loaders read
the other. So all drivers take and give the same values, whatever is registered with them, and
every call runs as the caller's library runs its own: in its transaction, logs and exceptions.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import psycopg
from psycopg import abc
from psycopg.adapt import AdaptersMap, PyFormat, Transformer
from psycopg.postgres import types
from psycopg.pq import Format

from ._adapt import loaders, text_loader
from ._json import Loads

Texts = dict[str, str | None]
Fetch: TypeAlias = Callable[[bytes, Texts], Sequence[Any]]
"""Runs a statement of psycopg's style, and answers its records and their encoding."""
AsyncFetch: TypeAlias = Callable[[bytes, Texts], Awaitable[Sequence[Any]]]

_ARGUMENT_OR_PERCENT = re.compile(r"%(?:\((\w+)\)s|%)")

# How the styles that PEP 249 and SQLAlchemy name write an argument, and a percent sign.
_STYLES = {
    "format": ("%s", "%"),  # pg8000's, which knows that it isn't one in a quoted name
    "numeric_dollar": ("${number}", "%"),
    "pyformat": ("%({name})s", "%%"),
}


def texts(values: Mapping[str, object]) -> Texts:
    """The arguments as PostgreSQL reads them."""
    transformer = Transformer()
    return {name: _text(transformer, value) for name, value in values.items()}


def _text(transformer: abc.Transformer, value: object) -> str | None:
    data = None if value is None else transformer.get_dumper(value, PyFormat.TEXT).dump(value)
    return None if data is None else bytes(data).decode()


class Reader:
    """Reads records, as the cursors of psycopg's connections do."""

    def __init__(self, loads: Loads) -> None:
        self._loads = loads
        self._contexts: dict[str, _Context] = {}

    def rows(self, fetched: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The rows in what a statement answered."""
        if not fetched:
            return []
        encoding = fetched[0][1]
        context = self._contexts.get(encoding)
        if context is None:
            context = self._contexts[encoding] = _Context(self._loads, encoding)
        load = Transformer(context).get_loader(types["record"].oid, Format.BINARY).load
        return [load(bytes(record)) for record, _ in fetched]


class _Context:
    """How to adapt where there is no connection."""

    connection = None

    def __init__(self, loads: Loads, encoding: str) -> None:
        codec = _codec(encoding)
        self.adapters = AdaptersMap(psycopg.adapters)
        self.adapters.register_loader("text", text_loader(codec))
        for oid, loader in loaders(loads, codec):
            self.adapters.register_loader(oid, loader)


def _codec(encoding: str) -> str:
    if encoding == "SQL_ASCII":
        # Whatever is stored; by far most often that.
        return "utf-8"
    # Python knows PostgreSQL's other names, but for these.
    return codecs.lookup(encoding.replace("WIN", "cp").replace("KOI8", "koi8_")).name


def through_cursor(cursor: Callable[[], Any]) -> Fetch:
    """Through psycopg2, or Django on any driver."""

    def fetch(text: bytes, values: Texts) -> Sequence[Any]:
        with cursor() as opened:
            opened.execute(*_in_style("pyformat", text, values))
            rows: Sequence[Any] = opened.fetchall()
            return rows

    return fetch


def through_sqlalchemy(conn: Any) -> Fetch:
    """Through a SQLAlchemy Connection or Session, on any driver."""

    def fetch(text: bytes, values: Texts) -> Sequence[Any]:
        connection = conn.connection() if _is_session(conn) else conn
        call = _in_style(_style(connection.dialect), text, values)
        rows: Sequence[Any] = connection.exec_driver_sql(*call).all()
        return rows

    return fetch


def through_async_sqlalchemy(conn: Any) -> AsyncFetch:
    """Through a SQLAlchemy AsyncConnection or AsyncSession, on any driver."""

    async def fetch(text: bytes, values: Texts) -> Sequence[Any]:
        connection = await conn.connection() if _is_session(conn) else conn
        call = _in_style(_style(connection.dialect), text, values)
        rows: Sequence[Any] = (await connection.exec_driver_sql(*call)).all()
        return rows

    return fetch


def through_asyncpg(conn: Any) -> AsyncFetch:
    """Through asyncpg."""

    async def fetch(text: bytes, values: Texts) -> Sequence[Any]:
        statement, arguments = _in_style("numeric_dollar", text, values)
        rows: Sequence[Any] = await conn.fetch(statement, *arguments)
        return rows

    return fetch


def _is_session(conn: object) -> bool:
    # Both kinds have `connection`, and mean different things by it.
    return hasattr(conn, "get_bind")


def _style(dialect: Any) -> str:
    if dialect.name != "postgresql":
        raise TypeError(f"conn must be on PostgreSQL, not {dialect.name}")
    style: str = dialect.paramstyle
    if style not in _STYLES:
        raise TypeError(f"conn has the paramstyle {style}, which is none of {', '.join(_STYLES)}")
    return style


def _in_style(style: str, text: bytes, values: Texts) -> tuple[str, Any]:
    statement, names = _rewritten(style, text)
    return statement, values if style == "pyformat" else tuple(values[name] for name in names)


@lru_cache(maxsize=1024)
def _rewritten(style: str, text: bytes) -> tuple[str, list[str]]:
    """The statement in another style of arguments, with records for answers; its arguments."""
    mark, percent = _STYLES[style]
    names: list[str] = []

    def rewrite(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return percent
        names.append(found[1])
        return f"cast({mark.format(name=found[1], number=len(names))} as text)"

    call = _ARGUMENT_OR_PERCENT.sub(rewrite, text.decode())
    return (
        "select pg_catalog.record_send(r), pg_catalog.pg_client_encoding()"  # noqa: S608
        f" from ({call}) r"
    ), names
