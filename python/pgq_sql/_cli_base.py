"""What the commands share: where the database is, what its errors say, and questions."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import psycopg
import typer
from psycopg import sql

from . import _install
from ._cli_values import dumps
from ._conninfo import complete
from .client import Client
from .errors import NotAllowed, QueueNotFound

FAILED, USAGE, UNREACHABLE = 1, 2, 3

Dsn = Annotated[
    str,
    typer.Option(envvar="PGQ_DSN", help="Connection string; default: libpq's variables (PGHOST …)"),
]
Schema = Annotated[str, typer.Option(help="The schema that the queue is in.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer with one JSON document.")]


def fail(message: str, code: int) -> NoReturn:
    """One line, and an exit code that scripts may rely on."""
    print(f"pgq: {message}", file=sys.stderr)
    sys.exit(code)


def explain(error: BaseException) -> str:
    """An error in one line: what happened, to what, and what to do."""
    diag = getattr(error, "diag", None)
    detail = getattr(error, "detail", None) or getattr(diag, "message_detail", None)
    line = _install.with_hint(error)
    if not detail:
        return line
    message = (getattr(diag, "message_primary", None) or str(error)).partition("\n")[0].rstrip(".")
    rest = line.removeprefix(message).removeprefix(".").strip()
    if isinstance(error, QueueNotFound) and (name := re.fullmatch(r'queue "(.*)"', detail)):
        rest = f"Make it with: pgq create {shlex.quote(name[1])}"
    return " ".join(f"{message}: {str(detail).rstrip('.')}. {rest}".split())


def lost(error: BaseException) -> bool:
    """Whether the database cannot be reached: libpq's own errors, and those of a server's end."""
    if isinstance(error, _install.Unreachable):
        return True
    code = getattr(error, "sqlstate", None)
    return isinstance(error, psycopg.OperationalError) and (
        code is None or code.startswith(("08", "57P"))
    )


def where(dsn: str) -> str:
    """What to look at if a connection string leads nowhere."""
    if not dsn:
        return _install.WHERE
    return "Check PGQ_DSN." if dsn == os.environ.get("PGQ_DSN") else "Check --dsn."


@contextmanager
def reaching(dsn: str) -> Iterator[None]:
    """What to do about a database that is not reachable depends on who said where it is."""
    try:
        yield
    except _install.Unreachable as error:
        error.hint = where(dsn)
        raise


def read_dsn(dsn: str, hint: str = "") -> None:
    """Refuse what is no connection string."""
    try:
        complete(dsn)
    except psycopg.ProgrammingError as error:
        raise _install.Unreachable(
            f"not a connection string: {_install.with_hint(error)}", hint=hint or where(dsn)
        ) from error


@contextmanager
def opened(dsn: str, schema: str, capability: str) -> Iterator[Client]:
    """A client; refuses at once a schema that is missing or does not fit."""
    read_dsn(dsn)
    with allowed(dsn, schema, capability), Client(dsn, schema=schema, dumps=dumps) as client:
        try:
            client.check()
        except psycopg.OperationalError as error:
            if error.sqlstate is not None:
                raise
            raise _install.Unreachable(_install.with_hint(error), hint=where(dsn)) from error
        yield client


@contextmanager
def allowed(dsn: str, schema: str, capability: str) -> Iterator[None]:
    """Who is not allowed to learns what to ask for."""
    try:
        yield
    except NotAllowed as error:
        with Client(dsn) as client, client._borrow() as conn:
            ((role,),) = conn.execute("select current_user::text").fetchall()
            call = sql.SQL("select {}.grant_access({}, {})").format(
                sql.Identifier(schema),
                sql.Literal(role),
                sql.Literal(capability),
            )
            error.hint = f"Ask the owner: {call.as_string(conn)}"
        raise


def confirm(question: str, *, yes: bool) -> None:
    """Ask before what cannot be undone; where nobody can answer, `--yes` has to."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"needs --yes where nobody can be asked: {question}")
    typer.confirm(question, abort=True, err=True)
