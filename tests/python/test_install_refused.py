"""What an installation refuses, how it says so, and that nothing is half done."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

import catalog
from conftest import dbname_of
from pgq_sql import VersionMismatch, _install, _releases
from servers import SINGLE_FILE, Server, wait_for_lock, wait_until
from ways import NEWEST, Done, alembic, application, pgq, psql

Connection = psycopg.Connection[Any]


@pytest.fixture
def admin(server: Server, empty_database: str) -> Iterator[Connection]:
    """The administrator in the database that is installed into."""
    with server.admin(dbname_of(empty_database)) as conn:
        yield conn


@pytest.fixture
def stranger(server: Server, admin: Connection, empty_database: str) -> Iterator[str]:
    """The URI of a role that may not create schemas, only tables in public."""
    dbname = dbname_of(empty_database)
    name, password = server.create_role()
    admin.execute(f"grant create on schema public to {name}".encode())
    try:
        yield server.dsn(dbname, name, password)
    finally:
        server.drop_role(name, dbname)


def each_way_fails(dsn: str, folder: Path) -> Iterator[Done]:
    """Try them all; the ones of ours say what is wrong in one line."""
    for done in (pgq(dsn, "migrate", fails=True), alembic(dsn, "upgrade", "head", fails=True)):
        told = (done.err + done.out).strip()
        assert "\n" not in told
        assert "Traceback" not in told
        yield done
    yield psql(dsn, "-f", SINGLE_FILE, fails=True)
    yield psql(dsn, text=pgq(None, "sql").out, fails=True)
    yield psql(dsn, text=alembic(None, "upgrade", "head", "--sql").out, fails=True)
    project = application(folder, "pgq_sql", "psycopg")
    yield alembic(dsn, "upgrade", "head", cwd=project, fails=True)


def test_a_schema_of_somebody_else(
    empty_database: str, admin: Connection, server: Server, tmp_path: Path
) -> None:
    admin.execute("create schema pgq_sql")
    for done in each_way_fails(empty_database, tmp_path):
        told = done.out + done.err
        assert f"schema pgq_sql belongs to postgres, not to {server.owner}" in told
        assert "Choose another schema name, or connect as postgres." in told
    assert catalog.leftovers(admin).keys() <= {"pg_namespace", "pg_class", "pg_type", "pg_depend"}
    assert admin.execute("select count(*) from pg_class where relkind = 'r' and relnamespace = "
                         "'pgq_sql'::regnamespace").fetchone() == (0,)  # fmt: skip


def test_no_permission_to_create_a_schema(stranger: str, tmp_path: Path) -> None:
    for done in each_way_fails(stranger, tmp_path):
        told = done.out + done.err
        assert "may not create a schema in database" in told
        assert "create schema pgq_sql authorization" in told


def test_what_the_hint_says_helps(stranger: str, admin: Connection, conn: Connection) -> None:
    told = pgq(stranger, "migrate", fails=True).err
    admin.execute(told[told.index("create schema") :].encode())
    pgq(stranger, "migrate")
    assert catalog.read(admin) == catalog.read(conn)


def test_a_schema_in_which_others_may_create(empty_database: str, tmp_path: Path) -> None:
    with psycopg.connect(empty_database, autocommit=True) as owner:
        owner.execute("create schema pgq_sql")
        owner.execute("grant create on schema pgq_sql to public")
        for done in each_way_fails(empty_database, tmp_path):
            assert "revoke create on schema pgq_sql from public" in done.out + done.err
        owner.execute("revoke create on schema pgq_sql from public")
        pgq(empty_database, "migrate")


def test_a_schema_from_a_newer_package(database: str, conn: Connection, tmp_path: Path) -> None:
    conn.execute("update pgq_sql.alembic_version set version_num = '0099'")
    before = catalog.read(conn)
    known = f"is at 0099, this package knows up to {NEWEST}"
    for command in (
        pgq(database, "migrate", fails=True),
        pgq(database, "migrate", "--check", fails=True),
        pgq(database, "migrate", "--downgrade", "--to", "base", fails=True),
        alembic(database, "upgrade", "head", fails=True),
        alembic(database, "downgrade", "base", fails=True),
    ):
        told = (command.err or command.out).strip()
        assert known in told
        assert told.endswith("Upgrade the package pgq_sql.")
        assert "\n" not in told
    project = application(tmp_path, "pgq_sql", "psycopg")
    assert known in alembic(database, "upgrade", "head", cwd=project, fails=True).err
    told = psql(database, text=pgq(None, "sql").out, fails=True).err
    assert "schema pgq_sql is at 0099, this script starts from base" in told
    assert catalog.read(conn) == before


def test_psql_file_on_an_installed_schema(database: str, conn: Connection) -> None:
    before = catalog.read(conn)
    told = psql(database, "-f", SINGLE_FILE, fails=True).err
    assert f"schema pgq_sql is at {NEWEST}, this script starts from base" in told
    assert catalog.read(conn) == before


@pytest.mark.parametrize(
    ("statement", "sqlstate", "message"),
    [
        ("set local pgq_install.schema = ''", "25P01", "no schema to install into"),
        (f"set local pgq_install.schema = '{'x' * 64}'", "42622", "longer than 63 bytes"),
        ("set local pgq_install.schema = 'pg_x'", "42939", "pg_x"),
    ],
)
def test_a_schema_name_that_cannot_be(
    statement: LiteralString, sqlstate: str, message: str, empty_database: str
) -> None:
    with psycopg.connect(empty_database) as conn:
        conn.execute(statement)
        with pytest.raises(psycopg.Error, match=message) as caught:
            conn.execute(_releases.read("prelude.sql")[0].encode())
        assert caught.value.sqlstate == sqlstate


def test_a_script_that_is_not_run_in_one_transaction(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as conn:
        statements = _install.script("pgq_sql", "base", NEWEST)
        conn.execute(next(statements).encode())
        with pytest.raises(psycopg.Error, match="no schema to install into"):
            conn.execute(next(statements).encode())


def test_a_server_that_is_too_old(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (prelude,) = _releases.read("prelude.sql")
    assert prelude.count("150000") == 1
    asking_more = (prelude.replace("150000", "990000"),)
    monkeypatch.setattr(_releases, "read", {"prelude.sql": asking_more}.__getitem__)
    with pytest.raises(psycopg.NotSupportedError, match="PostgreSQL 15 or newer is needed"):
        _install.migrate(empty_database)


def test_a_failure_in_the_middle_leaves_nothing(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = _releases.upgrade(NEWEST)
    monkeypatch.setattr(_releases, "upgrade", lambda _: [*sound, "select 1 / 0;"])
    with pytest.raises(psycopg.errors.DivisionByZero):
        _install.migrate(empty_database)
    with psycopg.connect(empty_database) as conn:
        assert catalog.leftovers(conn) == {}


def test_waiting_for_another_upgrade_has_an_end(empty_database: str) -> None:
    with psycopg.connect(empty_database) as other:
        for statement in _install.prelude("pgq_sql"):
            other.execute(statement.encode())
        assert other.execute("show lock_timeout").fetchone() == ("1min",)
        impatient = empty_database + "&options=-c%20lock_timeout%3D100ms"
        told = pgq(impatient, "migrate", fails=True)
        assert told.code == 1
        assert told.err.startswith("pgq: another upgrade of schema pgq_sql is still running. Run")
        pgq(impatient, "migrate", "--schema", "another")
    pgq(impatient, "migrate")


def test_an_upgrade_waits_for_another(empty_database: str, server: Server) -> None:
    with ThreadPoolExecutor() as threads:
        with psycopg.connect(empty_database, application_name="first") as other:
            _install.apply(
                lambda statement: other.execute(statement.encode()), "pgq_sql", lambda _: NEWEST
            )
            second = threads.submit(_install.migrate, empty_database)
            with server.admin() as admin:
                waiting = "select count(*) from pg_stat_activity where wait_event = 'advisory'"
                wait_until(lambda: admin.execute(waiting).fetchone() == (1,))
            assert not second.done()
        assert second.result() == _install.Change(NEWEST, NEWEST)


def test_twenty_processes_at_once(empty_database: str, conn: Connection) -> None:
    def upgrade(number: int) -> Done:
        if number % 2:
            return pgq(empty_database, "migrate")
        return alembic(empty_database, "upgrade", "head")

    with ThreadPoolExecutor(20) as threads:
        assert len(list(threads.map(upgrade, range(20)))) == 20
    with psycopg.connect(empty_database, autocommit=True) as empty:
        assert catalog.read(empty) == catalog.read(conn)


def test_twenty_threads_at_once(empty_database: str) -> None:
    def many(**options: Any) -> list[_install.Change]:
        with ThreadPoolExecutor(20) as threads:
            asked = [threads.submit(_install.migrate, empty_database, **options) for _ in range(20)]
            return sorted((each.result() for each in asked), key=lambda change: change.start)

    up = many()
    assert up.count(_install.Change("base", NEWEST)) == 1
    assert up.count(_install.Change(NEWEST, NEWEST)) == 19
    down = many(to="base", downgrade=True)
    assert down.count(_install.Change(NEWEST, "base")) == 1
    assert down.count(_install.Change("base", "base")) == 19
    with psycopg.connect(empty_database) as conn:
        assert catalog.leftovers(conn) == {}


def test_looking_while_the_schema_is_removed(database: str) -> None:
    """The ledger is there when the query begins and gone when its lock is granted."""
    with psycopg.connect(database) as removing, psycopg.connect(database) as looking:
        for statement in _install.script("pgq_sql", NEWEST, "base"):
            removing.execute(statement.encode())
        with ThreadPoolExecutor(1) as thread:
            found = thread.submit(_install.installed, looking)
            wait_for_lock(removing, looking.info.backend_pid)
            removing.commit()
            assert found.result() == "base"
        assert looking.execute("select 1").fetchone() == (1,)


def test_a_ledger_with_two_entries(database: str, conn: Connection) -> None:
    conn.execute("insert into pgq_sql.alembic_version values ('0000')")
    with pytest.raises(VersionMismatch, match=f"is at 0000, {NEWEST}"):
        _install.migrate(database)
