"""The command `pgq`: what it says, on which stream, and how it ends."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from conftest import dbname_of
from pgq_sql import _install
from servers import Server
from ways import NEWEST, ODD, pgq, run


@pytest.fixture
def nobody_there() -> str:
    """A connection string that leads to a closed port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"postgresql://127.0.0.1:{port}/x"


def test_version() -> None:
    told = pgq(None, "version").out
    assert told == f"pgq_sql {metadata.version('pgq_sql')}, schema release {NEWEST}\n"


def test_migrate_says_what_it_did(empty_database: str) -> None:
    def out(*arguments: str) -> str:
        return pgq(empty_database, "migrate", *arguments).out

    assert out() == f'schema "pgq_sql" went from base to {NEWEST}\n'
    assert out() == f'schema "pgq_sql" is at {NEWEST}: nothing to do\n'
    assert out("--downgrade", "--to", NEWEST) == f'schema "pgq_sql" is at {NEWEST}: nothing to do\n'
    assert out("--downgrade", "--to", "base") == f'schema "pgq_sql" went from {NEWEST} to base\n'
    assert out("--downgrade", "--to", "base") == 'schema "pgq_sql" is at base: nothing to do\n'


def test_check_changes_nothing(empty_database: str) -> None:
    behind = pgq(empty_database, "migrate", "--check", fails=True)
    assert (behind.code, behind.out) == (1, 'schema "pgq_sql" is at base\n')
    assert behind.err == f"pgq: {NEWEST} is wanted. Run: pgq migrate\n"
    with psycopg.connect(empty_database) as conn:
        assert _install.installed(conn) == "base"
    pgq(empty_database, "migrate")
    assert pgq(empty_database, "migrate", "--check").out == f'schema "pgq_sql" is at {NEWEST}\n'


def test_check_without_permission(server: Server, database: str) -> None:
    name, password = server.create_role()
    try:
        dsn = server.dsn(dbname_of(database), name, password)
        told = pgq(dsn, "migrate", "--check", fails=True)
    finally:
        server.drop_role(name)
    assert told.err == (
        "pgq: permission denied for schema pgq_sql. Connect as the owner of the schema.\n"
    )


def test_never_back_unasked(database: str) -> None:
    told = pgq(database, "migrate", "--to", "base", fails=True)
    assert told.code == 1
    assert "Say --downgrade" in told.err
    with psycopg.connect(database) as conn:
        assert _install.installed(conn) == NEWEST


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("migrate", "--to", "0999"), f"no release 0999. Choose one of base, {NEWEST}, head."),
        (("migrate", "--check", "--to", "0999"), "no release 0999"),
        (("sql", "--from", "0999"), "no release 0999"),
        (("sql", "--to", "0999"), "no release 0999"),
        (("migrate", "--downgrade"), "--downgrade needs --to"),
        (("migrate", "--nonsense"), "no such option"),
        (("nonsense",), "no such command"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], message: str, database: str) -> None:
    told = pgq(database, *arguments, fails=True)
    assert told.code == 2
    assert message in told.err


def test_nothing_asked_shows_the_help() -> None:
    told = run(sys.executable, "-m", "pgq_sql.cli", fails=True)
    assert told.code == 2
    assert "migrate" in told.out + told.err


def test_database_that_is_not_there(nobody_there: str, server: Server) -> None:
    for dsn, message in (
        (nobody_there, "Connection refused"),
        (server.dsn("no_such_database"), 'database "no_such_database" does not exist'),
        ("nonsense", "not a connection string"),
        ("postgresql+psycopg://127.0.0.1/x?nonsense=1", "not a connection string"),
    ):
        for arguments in ((), ("--check",)):
            told = pgq(dsn, "migrate", *arguments, fails=True)
            assert told.code == 3
            assert message in told.err
            assert told.err.count("\n") == 1
            assert told.err.endswith(" Check PGQ_DSN.\n")


def test_an_address_that_swallows_everything_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Mapping[str, object]] = []
    monkeypatch.setattr(psycopg, "connect", lambda text: asked.append(conninfo_to_dict(text)))
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)
    _install.connect("host=x")
    _install.connect("host=x connect_timeout=3")
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "5")
    _install.connect("host=x")
    assert [each.get("connect_timeout") for each in asked] == ["10", "3", None]


def test_schema_names(empty_database: str) -> None:
    told = pgq(empty_database, "migrate", "--schema", "", fails=True)
    assert told.err == "pgq: the schema name is empty or has a NUL in it. Choose another.\n"
    told = pgq(empty_database, "migrate", "--schema", "x" * 64, fails=True)
    assert "longer than 63 bytes. Choose a shorter one." in told.err
    assert pgq(empty_database, "migrate", "--schema", ODD).out.startswith(f'schema "{ODD}" went')


def test_where_the_database_is_said(empty_database: str, nobody_there: str) -> None:
    parts = conninfo_to_dict(empty_database)
    sqlalchemy = empty_database.replace("postgresql://", "postgresql+psycopg://", 1)
    libpq = {f"PG{name.upper()}": str(parts[name]) for name in ("host", "port", "user", "password")}
    libpq["PGDATABASE"] = str(parts["dbname"])
    check = ("migrate", "--check", "--to", "base")
    wanted = 'schema "pgq_sql" is at base\n'
    assert pgq(empty_database, *check).out == wanted
    assert pgq(sqlalchemy, *check).out == wanted
    assert pgq(nobody_there, *check, "--dsn", empty_database).out == wanted
    assert pgq(None, *check, env=libpq).out == wanted
    assert pgq("", *check, env=libpq).out == wanted


def test_sql_is_plain_sql() -> None:
    told = pgq(None, "sql").out
    assert not [line for line in told.splitlines() if line.startswith("\\")]
    assert told.count("\nbegin;\n") == told.count("\ncommit;\n") == 1
    assert pgq(None, "sql", "--from", "base", "--to", "head", "--schema", "pgq_sql").out == told
    narrow = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    odd = pgq(None, "sql", "--schema", "\N{SNOWMAN}", env=narrow).out
    assert odd.replace("\N{SNOWMAN}", "pgq_sql") == told


def test_a_reader_that_has_enough() -> None:
    told = run("sh", "-c", f"'{sys.executable}' -m pgq_sql.cli sql | head -n 1")
    assert told.err == ""


def test_without_the_extra(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError(name='typer')")
    told = run(sys.executable, "-m", "pgq_sql.cli", "version", cwd=tmp_path, fails=True)
    assert told.err == "pgq needs typer: pip install 'pgq_sql[cli]'\n"
