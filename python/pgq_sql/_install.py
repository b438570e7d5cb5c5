"""Installing, upgrading and removing the schema: the one script behind all ways of doing it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from . import _releases
from ._releases import BASE
from .errors import PgqError, VersionMismatch

SCHEMA = "pgq_sql"
HEAD = "head"

# Alembic's own definition, so that Alembic can take over from any other way.
LEDGER = """\
create table alembic_version (
  version_num varchar(32) not null,
  constraint alembic_version_pkc primary key (version_num)
);"""

CONNECT_TIMEOUT = 10
"""Seconds, where neither the connection string nor the environment says."""

WHERE = "Set PGQ_DSN or libpq's variables (PGHOST, PGPORT, PGUSER, PGPASSWORD, PGDATABASE)."

Run = Callable[[str], Any]
"""Runs one statement as it is, and answers with something that has fetchone()."""


class InstallError(PgqError):
    """The schema cannot be changed so; the hint says what to do."""


class UnknownRelease(InstallError):
    """The package has no such release."""


class Unreachable(InstallError):
    """There is no connection to the database."""


@dataclass(frozen=True, slots=True)
class Change:
    """From which release to which; the same twice if there was nothing to do."""

    start: str
    end: str


def resolve(release: str) -> str:
    """The name of a release, where `head` means the newest one."""
    if release == HEAD:
        return _releases.path()[-1]
    if release not in _releases.path():
        known = ", ".join([*_releases.path(), HEAD])
        raise UnknownRelease(f"there is no release {release}", hint=f"Choose one of {known}.")
    return release


def refuse_unknown(found: str, schema: str) -> None:
    """Leave alone what a newer package, or something else, has made."""
    if found not in _releases.path():
        raise VersionMismatch(
            f'schema "{schema}" is at {found}, this package knows up to {resolve(HEAD)}',
            hint="Upgrade the package pgq_sql.",
        )


def at_least(target: str, found: str) -> str:
    """Where an upgrade ends: it never leads back."""
    return max(target, found, key=_releases.path().index)


def at_most(target: str, found: str) -> str:
    """Where a downgrade ends: it never leads forward."""
    return min(target, found, key=_releases.path().index)


def prelude(schema: str) -> Iterator[str]:
    """Checks, lock, schema and search_path: first in every transaction that changes a schema."""
    yield f"set local pgq_install.schema = {_literal(schema)};"
    yield from _releases.read("prelude.sql")


def changes(start: str, end: str) -> Iterator[str]:
    """The statements between prelude and postlude."""
    if start == BASE != end:
        yield LEDGER
    for step in _releases.steps(start, end):
        yield from step.statements
        yield stamp(step.start, step.end)
    if end == BASE:
        yield from remove()


def remove() -> tuple[str, ...]:
    """After the last step down: drops the ledger, and the schema if nothing else is in it."""
    return _releases.read("remove.sql")


def postlude() -> tuple[str, ...]:
    """Last: gives the transaction its own settings back."""
    return _releases.read("postlude.sql")


def script(schema: str, start: str, end: str) -> Iterator[str]:
    """All statements, for a transaction in which the ledger cannot be read beforehand."""
    yield from prelude(schema)
    yield expect(start)
    yield from changes(start, end)
    yield from postlude()


def apply(run: Run, schema: str, choose: Callable[[str], str]) -> Change:
    """Change a schema in the caller's transaction; `choose` leads on from the release found."""
    for statement in prelude(schema):
        run(statement)
    found = run("select current_setting('pgq_install.release')").fetchone()[0]
    refuse_unknown(found, schema)
    change = Change(found, choose(found))
    for statement in (*changes(change.start, change.end), *postlude()):
        run(statement)
    return change


def migrate(
    dsn: str | None = None, *, to: str = HEAD, schema: str = SCHEMA, downgrade: bool = False
) -> Change:
    """Bring a database to a release, in one transaction; only with `downgrade` back to one.

    Safe in any number of processes and threads at once. `dsn` defaults to PGQ_DSN, then to
    libpq's variables.
    """
    target = resolve(to)

    def choose(found: str) -> str:
        refuse_unknown(found, schema)
        if downgrade:
            return at_most(target, found)
        if at_least(target, found) != target:
            raise InstallError(
                f'schema "{schema}" is at {found}, which is later than {target}',
                hint="Say --downgrade to go back and lose what only the later one can store.",
            )
        return target

    with connect(dsn) as conn:
        # The usual case at an application's start: nothing to do, so no lock.
        with suppress(psycopg.errors.InsufficientPrivilege):
            found = installed(conn, schema)
            if choose(found) == found:
                return Change(found, found)
        conn.rollback()  # Who has looked holds a lock on the ledger that a downgrade waits for.
        return apply(lambda statement: conn.execute(statement.encode()), schema, choose)


def installed(conn: psycopg.Connection[Any], schema: str = SCHEMA) -> str:
    """The release that a database is at, by its ledger; changes nothing."""
    ledger = sql.SQL("select string_agg(version_num, ', ' order by version_num) from {}")
    query = ledger.format(sql.Identifier(_named(schema), "alembic_version"))
    # Asking first whether it is there would be no answer: it may be dropped in between.
    gone = suppress(psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)
    with gone, conn.transaction():
        return _value(conn.execute(query)) or BASE
    return BASE


def connect(dsn: str | None = None) -> psycopg.Connection[tuple[Any, ...]]:
    """Connect to `dsn`, else to PGQ_DSN, else to what libpq's variables say."""
    text = os.environ.get("PGQ_DSN", "") if dsn is None else dsn
    # SQLAlchemy's URLs name a driver; people paste what they have.
    text = re.sub(r"^(postgres(?:ql)?)\+\w+://", r"\1://", text)
    try:
        given = conninfo_to_dict(text)
    except psycopg.ProgrammingError as error:
        raise Unreachable(f"not a connection string: {with_hint(error)}", hint=WHERE) from error
    if "connect_timeout" not in given and "PGCONNECT_TIMEOUT" not in os.environ:
        text = make_conninfo(text, connect_timeout=CONNECT_TIMEOUT)
    try:
        return psycopg.connect(text)
    except psycopg.OperationalError as error:
        raise Unreachable(with_hint(error), hint=WHERE) from error


def with_hint(error: BaseException) -> str:
    """An error of ours, of the server's or of libpq's in one line, with what to do about it."""
    diag = getattr(error, "diag", None)  # psycopg's and psycopg2's
    message = getattr(diag, "message_primary", None) or str(error).partition("\n")[0]
    hint = getattr(error, "hint", None) or getattr(diag, "message_hint", None)
    if hint is None and getattr(diag, "sqlstate", None) == "42501":
        hint = "Connect as the owner of the schema."
    return f"{message.rstrip('.')}. {hint}" if hint else message


def expect(start: str) -> str:
    """Refuses a schema that is not where a script starts."""
    return f"""\
do $$
begin
  if current_setting('pgq_install.release') <> '{start}' then
    raise exception 'schema % is at %, this script starts from {start}',
      quote_ident(current_setting('pgq_install.schema')), current_setting('pgq_install.release')
      using errcode = 'JQ006', hint = format('Make one that starts there: pgq sql --from %s, or '
        'from_="%1$s" in a revision.', current_setting('pgq_install.release'));
  end if;
end $$;"""


def stamp(start: str, end: str) -> str:
    """The entry in the ledger for one step, as Alembic makes it."""
    if start == BASE:
        return f"insert into alembic_version (version_num) values ('{end}');"
    if end == BASE:
        return f"delete from alembic_version where version_num = '{start}';"
    return f"update alembic_version set version_num = '{end}' where version_num = '{start}';"


def _named(schema: str) -> str:
    if not schema or "\0" in schema:
        raise InstallError("the schema name is empty or has a NUL in it", hint="Choose another.")
    return schema


def _literal(schema: str) -> str:
    # E'…' means the same whatever standard_conforming_strings says.
    quoted = _named(schema).replace("\\", "\\\\").replace("'", "''")
    return f"E'{quoted}'" if "\\" in schema else f"'{quoted}'"


def _value(result: psycopg.Cursor[Any]) -> Any:
    row = result.fetchone()
    assert row is not None
    return row[0]
