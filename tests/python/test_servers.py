"""The tests' own tools: which server is chosen, how a test waits, what it may leave behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

from conftest import dbname_of, no_session_left
from servers import Choice, embedded_bindir, wait_for_lock, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import AsRole, Connect
    from servers import Connection, Server


@pytest.mark.parametrize(
    ("option", "environ", "dsn"),
    [
        (None, {"PGQ_DSN": "postgresql://h/d", "PGHOST": "other"}, "postgresql://h/d"),
        (None, {"PGHOST": "h"}, ""),
        (None, {"PGSERVICE": "s", "PGQ_TEST_PG": "15"}, ""),
        (None, {"PGPASSWORD": "secret"}, None),
        (None, {}, None),
        ("embedded", {"PGQ_DSN": "postgresql://h/d"}, None),
    ],
)
def test_choice_of_server(option: str | None, environ: dict[str, str], dsn: str | None) -> None:
    choice = Choice.of(option, environ)
    assert choice.dsn == dsn
    assert (choice.bindir is None) == (dsn is not None)


def test_choice_of_programs(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "initdb").touch()
    assert Choice.of(str(tmp_path), {}).bindir == tmp_path / "bin"
    assert Choice.of(str(tmp_path / "bin"), {}).bindir == tmp_path / "bin"
    assert Choice.of(None, {"PGQ_TEST_PG": str(tmp_path)}).bindir == tmp_path / "bin"
    assert Choice.of("embedded", {"PGQ_TEST_PG": "15"}).bindir == embedded_bindir()
    with pytest.raises(FileNotFoundError, match="no PostgreSQL server programs in"):
        Choice.of(str(tmp_path / "nothing"), {})


def test_wait_until_gives_up() -> None:
    with pytest.raises(AssertionError, match="the moon did not come true"):
        wait_until(lambda: False, 0.01, message="the moon")


def test_wait_for_lock(connect: Connect) -> None:
    holder, waiter, observer = connect(), connect(), connect()
    waiting = threading.Thread(target=waiter.execute, args=["select pg_advisory_lock(1)"])
    holder.execute("select pg_advisory_lock(1)")
    with pytest.raises(AssertionError, match="waiting for a lock"):
        wait_for_lock(observer, waiter.info.backend_pid, 0.01)
    waiting.start()
    wait_for_lock(observer, waiter.info.backend_pid)
    holder.close()
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_session_left_open_is_told(server: Server, database: str) -> None:
    name = dbname_of(database)
    with psycopg.connect(database, application_name="forgotten") as conn:
        conn.execute("select 'the last query'")
        with pytest.raises(pytest.fail.Exception, match=r"'forgotten', idle in.*the last query"):
            no_session_left(server, name, 0.05)
    no_session_left(server, name)


def test_roles(conn: Connection, admin: Connection, as_role: AsRole) -> None:
    def is_superuser(session: Connection) -> object:
        return session.execute(
            "select usesuper from pg_user where usename = current_user"
        ).fetchall()

    assert is_superuser(admin) == [(True,)]
    assert is_superuser(conn) == [(False,)], "the owner must be an ordinary role"
    assert is_superuser(as_role("producer", "worker")) == [(False,)]
