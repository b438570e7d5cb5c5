"""The commands of `pgq` that look: figures, filters, tables and JSON, and how they end."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from importlib import metadata
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from typer.testing import CliRunner

from conftest import Connect
from pgq_sql import Client, _cli_look, _cli_output
from pgq_sql.cli import app
from pgq_sql.models import QueueState
from servers import Connection, Server, wait_until
from ways import NEWEST, pgq
from working import PATIENCE

ESCAPE = "\x1b[31m"
PROGRAM = "python -m pgq_sql.cli "


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("mails", max_attempts=2, keep_done=timedelta(days=7))
        client.create_queue("idle")
        yield client


def answer(dsn: str, *arguments: str) -> Any:
    """What a command answers with --json."""
    return json.loads(pgq(dsn, *arguments, "--json").out)


def lines(dsn: str, *arguments: str) -> list[list[str]]:
    """The cells of a table, which two spaces or more divide."""
    text = pgq(dsn, *arguments).out
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())
    return [[part.strip() for part in line.split("  ") if part] for line in text.splitlines()]


def died(client: Client, payload: object, error: str) -> int:
    """A job that is dead."""
    made = client.enqueue("mails", payload, priority=9)
    (job,) = client.claim("mails", "grave")
    assert job.job_id == made.job_id
    client.dead_letter(job.job_id, job.token, error)
    return made.job_id


def test_version() -> None:
    told = pgq(None, "--version").out
    assert told == f"pgq_sql {metadata.version('pgq_sql')}, schema release {NEWEST}\n"


def test_queues(database: str, client: Client, conn: Connection) -> None:
    client.pause_queue("idle")
    idle, mails = answer(database, "queues")
    assert (idle["queue"], idle["paused"]) == ("idle", True)
    assert (mails["max_attempts"], mails["keep_done"]) == (2, 604800)
    assert (mails["visibility_timeout"], mails["expires_in"]) == (30, None)
    assert mails["retry_jitter"] == [0.8, 1.2]
    assert datetime.fromisoformat(mails["created_at"]).utcoffset() == timedelta(0)
    columns = conn.execute(
        "select attname::text from pg_attribute"
        " where attrelid = 'pgq_sql.queues'::regclass and attnum > 0"
    )
    assert set(mails) == {name for (name,) in columns.fetchall()}
    header, one, other = lines(database, "queues")
    assert header[:3] == ["queue", "paused", "max attempts"]
    assert one[:2] == ["idle", "yes"]
    assert other[:4] == ["mails", "no", "2", "30s"]
    assert "7d" in other


def test_a_queue_that_keeps_for_ever(database: str, client: Client, server: Server) -> None:
    if server.version < 170000:
        pytest.skip("no infinite intervals")
    client.alter_queue("idle", keep_dead=timedelta.max)
    assert answer(database, "queues")[0]["keep_dead"] == "infinity"
    assert "for ever" in lines(database, "queues")[1]


def test_stats(database: str, client: Client) -> None:
    client.enqueue_many("mails", [1, 2, 3], delays=[None, None, timedelta(hours=1)])
    client.claim("mails", "me")
    died(client, {}, "no such host")
    idle, mails = answer(database, "stats")
    assert idle["queue"] == "idle"
    figures = ("ready", "scheduled", "running", "dead", "dead_last_minute", "exact")
    assert [mails[name] for name in figures] == [1, 1, 1, 1, 1, True]
    assert 0 < mails["oldest_ready"] < PATIENCE
    assert answer(database, "stats", "mails", "idle")[1] == idle
    assert lines(database, "stats", "mails")[1][:5] == ["mails", "1", "1", "0", "1"]
    none = pgq(database, "stats", "mails", "nope", fails=True)
    assert (none.code, none.out) == (1, "")
    assert none.err == 'pgq: no such queue: queue "nope". Make it with: pgq create nope\n'
    header, _, _ = lines(database, "stats")
    assert lines(database, "stats", "idle")[1][header.index("done /min") - 1] == "-"


def test_jobs(database: str, client: Client) -> None:
    client.enqueue_many("mails", [{"to": "ada"}, {"to": "bob", "n": [1, 2]}, {"to": "eve"}])
    client.enqueue("idle", None, delay=timedelta(days=1))
    client.claim("mails", "w1")

    def ids(*arguments: str) -> list[int]:
        return [job["job_id"] for job in answer(database, "jobs", *arguments)]

    assert ids() == [1, 2, 3, 4]
    assert ids("--queue", "mails") == ids("mails") == [1, 2, 3]
    assert ids("--state", "scheduled") == [4]
    assert ids("--worker", "w1") == [1]
    assert ids("--payload-has", '{"n": [2]}') == [2]
    assert ids("--after", "1", "-n", "2") == [2, 3]
    assert ids("-n", "0") == []
    header, first, *_ = lines(database, "jobs", "-q", "mails")
    assert header[:6] == ["id", "queue", "state", "priority", "attempt", "run at"]
    assert first[:5] == ["1", "mails", "running", "0", "1/2"]
    assert first[6:] == ["w1", '{"to": "ada"}']
    page = pgq(database, "jobs", "-n", "2")
    assert page.err == "There may be more: --after 2\n"
    assert pgq(database, "jobs", "-n", "9").err == ""


def test_all_of_a_job(database: str, client: Client) -> None:
    job = died(client, {"to": "ada"}, "no such host\nsecond line")
    told = answer(database, "job", str(job))
    state = client.get_job(job)
    assert state is not None
    assert told == _cli_output.plain(state)
    assert told["last_error"] == "no such host\nsecond line"
    assert told["ended_at"].endswith("Z")
    assert told["visibility_timeout"] == 30
    shown = dict(line for line in lines(database, "job", str(job)) if len(line) == 2)
    assert shown["state"] == "dead"
    assert shown["last_error"] == "no such host second line"
    assert shown["retry_delay"] == "500ms"
    none = pgq(database, "job", "77", fails=True)
    assert (none.code, none.out) == (1, "")
    assert none.err.startswith("pgq: there is no job 77. Done jobs stay as long as")
    assert "alter_queue('NAME', keep_done => '7 days')" in none.err


def test_dead(database: str, client: Client) -> None:
    client.enqueue("mails")
    first = died(client, {"to": "ada"}, "no such host\nsecond line")
    second = died(client, {"to": "bob"}, "full")
    for which in (("mails",), ("--queue", "mails")):
        assert [job["job_id"] for job in answer(database, "dead", *which)] == [first, second]
    assert [job["job_id"] for job in answer(database, "dead", "--after", str(first))] == [second]
    assert [job["job_id"] for job in answer(database, "dead", "--payload-has", '{"to":"ada"}')] == [
        first
    ]
    assert answer(database, "dead", "idle") == []
    assert answer(database, "dead", "-n", "1")[0]["reason"] == "failed"
    row = lines(database, "dead", "mails")[1]
    assert row[3:] == ["1/2", "failed", "no such host", '{"to": "ada"}']


LOOKS = (
    *("queues", "stats", "jobs", "dead", "doctor"),
    *("job 1", "stats mails", "dead mails", "top", "top --once"),
)


def test_an_observer_may_look(
    database: str, client: Client, role: Callable[[], str], connect: Connect
) -> None:
    client.enqueue("mails")
    dsn = role()
    name = str(conninfo_to_dict(dsn)["user"])
    refused = pgq(dsn, "stats", fails=True)
    assert refused.code == 1
    assert refused.err.startswith("pgq: permission denied")
    assert refused.err.endswith(
        f"Ask the owner: select \"pgq_sql\".grant_access('{name}', 'observer')\n"
    )
    assert refused.err.count("\n") == 1
    for command, capability in (("pause mails", "admin"), ("enqueue mails", "producer")):
        told = pgq(dsn, *command.split(), fails=True).err
        assert told.endswith(f"grant_access('{name}', '{capability}')\n")
    client.grant_access(name, "observer")
    for command in LOOKS:
        arguments = [*command.split(), "--dsn", dsn]
        assert CliRunner().invoke(app, arguments).exit_code == 0
        json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)


@pytest.mark.parametrize(
    "arguments",
    [
        ("jobs", "--state", "asleep"),
        ("jobs", "--payload-has", "{"),
        ("jobs", "--payload-has", "null"),
        ("jobs", "--payload-has", "NaN"),
        ("jobs", "--after", "-1"),
        ("jobs", "-n", "-1"),
        ("job",),
        ("job", "x"),
        ("jobs", "mails", "--queue", "mails"),
        ("dead", "mails", "-q", "mails"),
        ("top", "--twice"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], database: str) -> None:
    told = pgq(database, *arguments, fails=True)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("pgq: ")
    assert told.err.endswith(f"See pgq {arguments[0]} --help.\n".replace("pgq ", PROGRAM))
    assert told.err.count("\n") == 1


def test_where_the_database_is_said(database: str, client: Client, empty_database: str) -> None:
    parts = conninfo_to_dict(database)
    libpq = {f"PG{name.upper()}": str(parts[name]) for name in ("host", "port", "user", "password")}
    libpq["PGDATABASE"] = str(parts["dbname"])
    wanted = pgq(database, "queues").out
    assert wanted.count("\n") == 3
    assert pgq(None, "queues", env=libpq).out == wanted
    assert pgq("", "queues", env=libpq).out == wanted
    assert pgq("host=/nowhere", "queues", "--dsn", database).out == wanted
    missing = pgq(database, "queues", "--schema", "other", fails=True)
    assert missing.code == 1
    assert "pgq migrate" in missing.err
    assert missing.err.count("\n") == 1
    pgq(empty_database, "migrate", "--schema", "other")
    assert pgq(empty_database, "queues", "--schema", "other").err.startswith("no queues yet")


def test_a_database_that_is_not_there() -> None:
    for dsn, command in (
        ("nonsense", "queues"),
        ("host=/nowhere", "queues"),
        ("host=/nowhere", "top"),
        ("host=/nowhere", "enqueue mails"),
        ("host=/nowhere", "pause mails"),
    ):
        told = pgq(dsn, *command.split(), fails=True)
        assert (told.code, told.out) == (3, "")
        assert told.err.startswith("pgq: ")
        assert told.err.endswith(" Check PGQ_DSN.\n")
        assert told.err.count("\n") == 1
        told = pgq("host=/there", *command.split(), "--dsn", dsn, fails=True)
        assert told.err.endswith(" Check --dsn.\n")
        libpq = pgq(None, *command.split(), env={"PGHOST": "/nowhere"}, fails=True)
        assert libpq.err.endswith("PGPASSWORD, PGDATABASE).\n")


def test_nothing_steers_the_terminal(database: str, client: Client) -> None:
    died(client, {"a": "\x7f\x9b31m \u202e"}, f"{ESCAPE}red")
    for command in ("jobs", "dead", "job 1"):
        told = pgq(database, *command.split()).out
        assert "red" in told
        assert not set(told) & set("\x1b\x7f\x9b\u202e")


def test_any_text_in_any_encoding(database: str, client: Client) -> None:
    client.enqueue("mails", "\N{SNOWMAN}")
    narrow = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    assert "\\u2603" in pgq(database, "jobs", env=narrow).out
    told = pgq(database, "jobs", "--json", env=narrow).out
    assert json.loads(told)[0]["payload"] == "\N{SNOWMAN}"


def test_once_is_a_frame(database: str, client: Client) -> None:
    client.enqueue_many("mails", [1, 2])
    client.enqueue("idle")
    frame = lines(database, "top", "--once")
    assert [line[:2] for line in frame[1:]] == [["idle", "1"], ["mails", "2"], ["all", "3"]]
    # Neither does it go on where nobody sees it.
    assert lines(database, "top")[0] == frame[0]
    assert [one["ready"] for one in answer(database, "top")] == [1, 2]


@contextmanager
def on_a_terminal(dsn: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run a command as a person at a terminal would; the other end is what it shows."""
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "pgq_sql.cli", *arguments]
    environment = {**os.environ, "PGQ_DSN": dsn, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment)
    os.close(its)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, text: bytes) -> bytes:
    """What a terminal shows up to that text."""
    shown = b""
    ends = time.monotonic() + PATIENCE
    while text not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0.0, ends - time.monotonic()))
        assert ready, f"{text!r} did not come; {shown!r} did"
        shown += os.read(terminal, 10_000)
    return shown


def test_top_goes_on_until_interrupted(database: str, client: Client) -> None:
    with on_a_terminal(database, "top") as (process, terminal):
        read_until(terminal, b"mails")
        client.enqueue_many("mails", [0] * 4321)
        read_until(terminal, b"4321")
        process.send_signal(signal.SIGINT)
        # It leaves the alternate screen.
        assert b"Traceback" not in read_until(terminal, b"\x1b[?1049l")
        assert process.wait(PATIENCE) == 0


def test_top_outlives_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [QueueState("q", False, 1, 0, 0, 0, 0, None, None, 0, True)]

    def fail(error: Exception) -> None:
        def raise_it(_: object) -> None:
            raise error

        monkeypatch.setattr(_cli_look, "all_stats", raise_it)

    fail(psycopg.OperationalError("connection refused"))
    client: Any = None
    found, trouble = _cli_look._look(client, before)
    assert found == before
    assert "connection refused" in trouble
    fail(psycopg.errors.InsufficientPrivilege("no"))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        _cli_look._look(client, before)


def test_the_sum_of_queues() -> None:
    one = QueueState("a", True, 1, 2, 3, 4, 5, timedelta(seconds=9.9), None, 6, True)
    two = QueueState("b", False, 10, 20, 30, 40, 50, None, 60, 70, False)
    assert _cli_look._all_figures([one, two]) == [
        ["a", 1, 2, 3, 4, 5, timedelta(seconds=9), "-", 6, "paused"],
        ["b", 10, 20, 30, 40, 50, None, 60, 70, "at least"],
        ["all", 11, 22, 33, 44, 55, timedelta(seconds=9), 60, 76, "at least"],
    ]


def test_a_command_that_is_cut_off(database: str, client: Client) -> None:
    client.enqueue_many("mails", ["x" * 1000] * 500)
    for arguments, first in (("--json", "["), ("", "id")):
        command = f"'{sys.executable}' -m pgq_sql.cli jobs {arguments} -n 500 | head -n 1"
        done = subprocess.run(
            ["sh", "-c", command],
            env={**os.environ, "PGQ_DSN": database},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout.split()[0], done.stdout.count("\n"), done.stderr) == (first, 1, "")


def test_nobody_reads_what_it_says() -> None:
    """What little there is leaves only when Python ends."""
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-m", "pgq_sql", "version"]
    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, check=False)
    os.close(writes)
    assert (done.returncode, done.stderr) == (1, b"")


def test_interrupted(database: str, client: Client, conn: Connection, connect: Connect) -> None:
    first = connect()
    first.execute("begin; select pgq_sql.pause_queue('mails')")

    def waits() -> bool:
        query = "select from pg_stat_activity where %s = any (pg_blocking_pids(pid))"
        return bool(conn.execute(query, [first.info.backend_pid]).fetchall())

    with on_a_terminal(database, "pause", "mails") as (process, _):
        wait_until(waits, PATIENCE)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130


def test_sessions_end(database: str, server: Server) -> None:
    pgq(database, "stats")
    name = str(conninfo_to_dict(database)["dbname"])
    wait_until(lambda: not server.sessions(name))
