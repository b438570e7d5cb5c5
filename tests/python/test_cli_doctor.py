"""`pgq doctor`: what the database finds, and what shows only from outside of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from conftest import dbname_of
from pgq_sql import Client, Finding, _cli_doctor
from pgq_sql.cli import app
from pooling import PROGRAM, Pgbouncer
from servers import Connection, Server
from ways import pgq


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        yield client


def doctor(database: str, code: int = 0) -> list[dict[str, Any]]:
    """What it finds, in this process."""
    result = CliRunner().invoke(app, ["doctor", f"--dsn={database}", "--json"])
    assert (result.exit_code, result.stderr) == (code, "")
    found: list[dict[str, Any]] = json.loads(result.stdout)
    assert all(set(one) == {"severity", "finding", "subject", "detail", "hint"} for one in found)
    return found


def test_all_is_well(database: str) -> None:
    told = pgq(database, "doctor").out
    assert told == "nothing found: the schema fits, notifications arrive, the clocks agree\n"
    assert doctor(database) == []


def test_an_error_is_a_failure(database: str, conn: Connection) -> None:
    conn.execute(
        "create or replace function pgq_sql.pause_queue(queue text) returns boolean"
        " language sql as $$ select true $$"
    )
    found = pgq(database, "doctor", fails=True)
    assert found.code == 1
    assert "function changed" in found.out
    assert found.err == ""
    assert "error" in {one["severity"] for one in doctor(database, 1)}


def test_a_warning_is_none(monkeypatch: pytest.MonkeyPatch, database: str) -> None:
    monkeypatch.setattr(
        Client, "doctor", lambda _: [Finding("warning", "backlog", "mails", "9 ready", "hire")]
    )
    result = CliRunner().invoke(app, ["doctor", f"--dsn={database}"])
    assert (result.exit_code, "backlog" in result.output) == (0, True)


def test_a_schema_that_does_not_fit(empty_database: str, database: str, conn: Connection) -> None:
    conn.execute("drop function pgq_sql.schema_version()")
    conn.execute(
        "create function pgq_sql.schema_version() returns text language sql as $$ select '9999' $$"
    )
    for dsn in (empty_database, database):
        (found,) = doctor(dsn, 1)
        assert (found["severity"], found["finding"]) == ("error", "does not fit")
        assert found["hint"]


def test_not_reachable() -> None:
    told = pgq("host=/nowhere", "doctor", "--json", fails=True)
    assert (told.code, told.out) == (3, "")


def test_clocks(monkeypatch: pytest.MonkeyPatch, database: str, client: Client) -> None:
    ahead, unsure = _cli_doctor._ahead(client)
    assert abs(ahead) <= unsure + 0.1
    looks = iter([(-12.34, 0.01), (9.0, 5.0), (99.0, 80.0)])
    monkeypatch.setattr(_cli_doctor, "_ahead", lambda _: next(looks))
    (found,) = doctor(database)
    assert (found["severity"], found["finding"]) == ("warning", "clocks differ")
    assert "12.3 s ahead of" in found["detail"]
    # On a slow line nobody can tell.
    monkeypatch.setattr(_cli_doctor, "_ahead", lambda _: (3.0, 1.5))
    assert doctor(database) == []
    monkeypatch.setattr(_cli_doctor, "_ahead", lambda _: (4.0, 1.5))
    assert "4.0 s behind" in doctor(database)[0]["detail"]


def test_notifications_that_do_not_arrive(
    monkeypatch: pytest.MonkeyPatch, database: str, client: Client
) -> None:
    monkeypatch.setattr(_cli_doctor, "HEARS_WITHIN", 0.1)
    monkeypatch.setattr(_cli_doctor, "view_rows", lambda *_: [])
    (found,) = _cli_doctor._notifications(client)
    assert (found.severity, found.finding) == ("warning", "no notifications")
    assert "swallows" in found.detail
    assert "--listener-dsn" in found.hint


@pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")
@pytest.mark.parametrize(
    ("mode", "patience", "told"), [("session", 60, []), ("transaction", 1, ["no notifications"])]
)
def test_through_a_pooler(
    mode: str,
    patience: float,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
    server: Server,
    database: str,
) -> None:
    monkeypatch.setattr(_cli_doctor, "HEARS_WITHIN", patience)
    with Pgbouncer(server, mode, size=2) as pooler:
        dsn = pooler.dsn(dbname_of(database))
        found = doctor(dsn)
        # Nothing stays behind in the sessions that others go on with.
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as conn:
            left = conn.execute("select pg_listening_channels()").fetchall()
    assert [one["finding"] for one in found] == told
    assert left == []


def test_listen_refused(monkeypatch: pytest.MonkeyPatch, database: str, client: Client) -> None:
    """As on a standby."""

    def refuse(_: object) -> None:
        raise psycopg.errors.ReadOnlySqlTransaction("cannot execute LISTEN during recovery")

    monkeypatch.setattr(Client, "_connect", refuse)
    (found,) = doctor(database)
    assert found["detail"] == "LISTEN is refused: cannot execute LISTEN during recovery"
