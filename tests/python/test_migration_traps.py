"""Traps of Alembic, SQLAlchemy and the drivers: each is sprung here, and shown to be avoided."""

from __future__ import annotations

import asyncio
import io
import logging
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from psycopg import sql
from sqlalchemy.exc import ProgrammingError, StatementError
from sqlalchemy.ext.asyncio import create_async_engine

from pgq_sql import _install, _releases
from pgq_sql.alembic import execute
from servers import ROOT, Server
from ways import NEWEST, alembic, application, psql, revision

Connection = psycopg.Connection[Any]

# A body in which everything looks like a parameter to somebody.
BODY = r"""
declare
  a int[] := '{1,2,3}';
begin
  -- it's 100 % sure: a "comment" with :colon, %(name)s, %s, ? and $1
  raise debug 'n: %, %%, :name, {"a":1}', a[1:2];
  return format('{"a":1, "b": "%s %I %L %%"}', ':name', E'\\:x', '%(y)s') || '$$'
    || to_char(now(), 'HH24:MI:SS') || 'http://host/?q=%20' || 1::text;
end
"""
STATEMENT = f"create function trap() returns text language plpgsql as $body${BODY}$body$;"


def body(conn: Connection) -> str:
    """The function's body as the server has it."""
    row = conn.execute("select prosrc from pg_proc where proname = 'trap'").fetchone()
    assert row is not None
    return str(row[0])


def offline(**dialect: str) -> tuple[Operations, io.StringIO]:
    """Alembic with --sql, as the application's env.py has set it up."""
    buffer = io.StringIO()
    context = MigrationContext.configure(
        dialect_name="postgresql",
        dialect_opts=dialect,
        opts={"as_sql": True, "output_buffer": buffer, "literal_binds": True},
    )
    return Operations(context), buffer


def online(driver: str, dsn: str, work: Callable[[Operations], object]) -> None:
    """Alembic on a connection of this driver, in one transaction."""

    def run(connection: sa.Connection) -> None:
        work(Operations(MigrationContext.configure(connection)))

    async def run_async() -> None:
        engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=lambda: asyncpg.connect(dsn),
            poolclass=sa.NullPool,
        )
        async with engine.begin() as connection:
            await connection.run_sync(run)

    if driver == "asyncpg":
        asyncio.run(run_async())
        return
    connect: Any = {"psycopg": psycopg, "psycopg2": psycopg2}[driver].connect
    engine = sa.create_engine(
        f"postgresql+{driver}://", creator=lambda: connect(dsn), poolclass=sa.NullPool
    )
    with engine.begin() as connection:
        run(connection)


drivers = pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "asyncpg"])


@drivers
def test_text_arrives_unchanged(driver: str, empty_database: str) -> None:
    online(driver, empty_database, lambda op: execute(op.get_context(), STATEMENT))
    with psycopg.connect(empty_database) as conn:
        assert body(conn) == BODY


@drivers
def test_alembic_alone_would_take_it_for_parameters(driver: str, empty_database: str) -> None:
    with pytest.raises((StatementError, KeyError)):
        online(driver, empty_database, lambda op: op.execute(STATEMENT))


@pytest.mark.parametrize("dialect", [{}, {"paramstyle": "named"}], ids=["default", "named"])
def test_text_is_printed_unchanged(dialect: dict[str, str], empty_database: str) -> None:
    op, buffer = offline(**dialect)
    execute(op.get_context(), STATEMENT)
    psql(empty_database, text=buffer.getvalue())
    with psycopg.connect(empty_database) as conn:
        assert body(conn) == BODY


@pytest.mark.parametrize("dialect", [{}, {"paramstyle": "named"}], ids=["default", "named"])
def test_alembic_alone_would_print_something_else(dialect: dict[str, str]) -> None:
    op, buffer = offline(**dialect)
    op.execute(STATEMENT)
    assert BODY not in buffer.getvalue()
    assert "NULL" in buffer.getvalue()


def test_asyncpg_takes_one_statement_at_a_time(empty_database: str) -> None:
    with pytest.raises(ProgrammingError, match="cannot insert multiple commands"):
        online(
            "asyncpg",
            empty_database,
            lambda op: execute(op.get_context(), "select 1; select 2;"),
        )


def test_a_second_branch_would_break_upgrade_head(empty_database: str, tmp_path: Path) -> None:
    project = application(tmp_path, "pgq_sql", "psycopg")
    assert len(alembic(None, "heads", cwd=project).out.splitlines()) == 1
    alembic(empty_database, "upgrade", "head", cwd=project)
    revision(project, "branch", None, "pass")
    told = alembic(empty_database, "upgrade", "head", cwd=project, fails=True)
    assert "Multiple head revisions" in told.err + told.out


def test_one_line_of_revisions_one_for_each_release() -> None:
    script = ScriptDirectory.from_config(Config(ROOT / "alembic.ini"))
    revisions = [*script.walk_revisions()][::-1]
    assert ["base", *(each.revision for each in revisions)] == _releases.path()
    assert len(script.get_heads()) == 1
    for each in revisions:
        assert len(each.revision) <= 32  # varchar(32)
        assert Path(each.path).name.startswith(f"{each.revision}_")
        text = Path(each.path).read_text()
        assert "op.execute" not in text
        assert len(text.splitlines()) <= 30


def test_the_schema_is_there_before_the_version_table() -> None:
    told = alembic(None, "upgrade", "head", "--sql").out
    order = [told.index(part) for part in (
        "BEGIN;", "set local pgq_install.schema", "pg_advisory_xact_lock", "create schema",
        "CREATE TABLE pgq_sql.alembic_version", "create table queue", "INSERT INTO pgq_sql",
        "COMMIT;",
    )]  # fmt: skip
    assert order == sorted(order)


def test_the_version_table_is_in_our_schema(empty_database: str) -> None:
    alembic(empty_database, "upgrade", "head")
    with psycopg.connect(empty_database) as conn:
        tables = conn.execute("select relnamespace::regnamespace::text from pg_class"
                              " where relname = 'alembic_version'").fetchall()  # fmt: skip
    assert tables == [("pgq_sql",)]


def test_the_lock_does_not_keep_alembic_from_committing(empty_database: str) -> None:
    alembic(empty_database, "upgrade", "head")
    with psycopg.connect(empty_database) as conn:
        assert _install.installed(conn) == NEWEST
        locks = "select count(*) from pg_locks where locktype = 'advisory'"
        assert conn.execute(locks).fetchone() == (0,)
    alembic(empty_database, "downgrade", "base")
    with psycopg.connect(empty_database) as conn:
        assert _install.installed(conn) == "base"


def test_looking_changes_nothing(empty_database: str) -> None:
    for arguments in (("current",), ("history",), ("heads",)):
        alembic(empty_database, *arguments)
    with psycopg.connect(empty_database) as conn:
        assert conn.execute("select from pg_namespace where nspname = 'pgq_sql'").fetchall() == []


def test_a_percent_sign_in_the_connection_string(server: Server) -> None:
    """`%40` and the like break Config.set_main_option; a bare `%` breaks what decodes twice."""
    name = f"pgq 50%40_%s {secrets.token_hex(6)}"
    dsn = server.dsn(name)
    assert "%2540" in dsn
    with pytest.raises(ValueError, match="invalid interpolation syntax"):
        Config().set_main_option("sqlalchemy.url", dsn)
    with server.admin() as admin:
        admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            alembic(dsn, "upgrade", "head")
            with psycopg.connect(dsn) as conn:
                assert _install.installed(conn) == NEWEST
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def test_a_percent_sign_in_a_password(server: Server, empty_database: str) -> None:
    name, _ = server.create_role()
    password = "50%40 %s@:/?#'"
    try:
        with server.admin() as admin:
            admin.execute(
                sql.SQL("alter role {} password {}").format(sql.Identifier(name), password)
            )
        dsn = server.dsn("postgres", name, password)
        with _install.connect(dsn) as conn:
            assert conn.info.password == password
        told = alembic(dsn, "current")
        assert told.err == ""
    finally:
        server.drop_role(name)


def test_an_error_of_the_connection_is_one_line(server: Server) -> None:
    told = alembic(server.dsn("no_such_database"), "upgrade", "head", fails=True)
    assert re.fullmatch(r"FAILED: .* does not exist\. Set PGQ_DSN or [^\n]*\n", told.err + told.out)


def test_logging_is_left_alone(empty_database: str) -> None:
    """fileConfig(), as in Alembic's own template, would switch an application's loggers off."""
    mine = logging.getLogger("an.application")
    mine.setLevel(logging.INFO)

    def state() -> object:
        others = map(logging.getLogger, ("alembic", "sqlalchemy"))
        loggers = [logging.root, mine, *others]
        return [(each.level, each.disabled, each.propagate, *each.handlers) for each in loggers]

    before = state()
    engine = sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(empty_database),
        poolclass=sa.NullPool,
    )
    config = Config(ROOT / "alembic.ini")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    _install.migrate(empty_database)
    assert state() == before
    for path in ("alembic.ini", "migrations/env.py"):
        assert "fileConfig" not in (ROOT / path).read_text()
        assert "[loggers]" not in (ROOT / path).read_text()


def test_an_option_that_is_not_known(empty_database: str) -> None:
    """Otherwise a misspelt `-x schema=` would install into the default schema."""
    told = alembic(empty_database, "-x", "shema=jobs", "upgrade", "head", fails=True)
    assert "unknown option -x shema: there is schema=NAME" in told.err + told.out


def test_alembic_ini_works_from_another_folder(empty_database: str, tmp_path: Path) -> None:
    alembic(empty_database, "-c", str(ROOT / "alembic.ini"), "upgrade", "head", cwd=tmp_path)
    with psycopg.connect(empty_database) as conn:
        assert _install.installed(conn) == NEWEST
