"""`pgq worker`: a process that runs the handlers of a module; and that the reference has it all."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import typer

from pgq_sql import Client, Report
from pgq_sql.cli import app
from servers import ROOT, Connection, wait_until
from ways import Done, run
from working import PATIENCE

HANDLERS = """\
import asyncio, functools, time
from pathlib import Path

import pgq_sql

def mails(job):
    if job.payload == "fail":
        raise ValueError("no such host")
    if job.payload == "wait":
        Path(f"begun-{job.job_id}").touch()
        while not Path("go").exists() and not job.lost.is_set():
            time.sleep(0.01)

async def later(job):
    Path(f"begun-{job.job_id}").touch()
    while job.payload == "wait" and not Path("go").exists():
        await asyncio.sleep(0.01)

class Later:
    async def __call__(self, job):
        await later(job)

class App:
    handlers = {"mails": mails}

HANDLERS = {"mails": mails}
ASYNC = {"mails": later}
PARTIAL = {"mails": functools.partial(later)}
OBJECT = {"mails": Later()}
CONSUMER = {"mails": pgq_sql.Consumer(mails, limit=1)}
BATCH = {"mails": pgq_sql.BatchConsumer(lambda batch: None)}
ASYNC_CONSUMER = {"mails": pgq_sql.Consumer(later)}
NO_CONSUMER = {"mails": pgq_sql.Consumer(1)}
MIXED = {"mails": mails, "later": later}
NO_FUNCTION = {"mails": 1}
NO_QUEUE = {1: mails}
NOTHING = {}
NUMBER = 3
"""


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("mails", max_attempts=1)
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module of handlers."""
    (tmp_path / "jobs.py").write_text(HANDLERS)
    return tmp_path


def command(*arguments: str) -> list[str]:
    # Not -m, which would put the folder on sys.path by itself.
    start = "import sys, pgq_sql.cli; sys.path.remove(''); pgq_sql.cli.main()"
    return [sys.executable, "-c", start, "worker", *arguments]


def worker(dsn: str, folder: Path, *arguments: str, fails: bool = False) -> Done:
    return run(*command(*arguments), dsn=dsn, cwd=folder, fails=fails)


@contextmanager
def started(dsn: str, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A worker that goes on until it is stopped."""
    process = subprocess.Popen(
        command(*arguments),
        env={**os.environ, "PGQ_DSN": dsn},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def runs(folder: Path, count: int = 1) -> None:
    """Wait until so many handlers run."""
    wait_until(lambda: len(list(folder.glob("begun-*"))) == count, PATIENCE, message="a run")


def test_until_idle(database: str, client: Client, folder: Path) -> None:
    client.enqueue_many("mails", ["ok", "fail", "ok"])
    told = worker(database, folder, "jobs:HANDLERS", "--until-idle")
    report = Report(claimed=3, acked=2, dead=1)
    assert told.out == ", ".join(f"{name} {n}" for name, n in asdict(report).items()) + "\n"
    assert re.search(r"ERROR pgq_sql.worker: job \d+ of mails is dead: ValueError", told.err)
    (dead,) = client.list_jobs()
    assert (dead.last_error or "").startswith("ValueError: no such host")


def test_in_json(database: str, client: Client, folder: Path) -> None:
    client.enqueue("mails", "fail")
    told = worker(
        *(database, folder, "jobs:App.handlers", "--until-idle", "--json", "--worker", "me"),
        *("--log-level", "error", "--concurrency", "2", "--prefetch", "0"),
        *("--poll-interval", "100ms", "--drain-timeout", "1s", "--no-listen"),
        *("--listener-dsn", database),
    )
    assert json.loads(told.out) == asdict(Report(claimed=1, dead=1))
    assert client.list_jobs()[0].worker == "me"
    assert worker(
        database, folder, "jobs:HANDLERS", "--until-idle", "--log-level", "error"
    ).err == ("")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_is_finished(
    number: signal.Signals, database: str, client: Client, folder: Path
) -> None:
    client.enqueue("mails", "wait")
    # One thread, and nothing claimed ahead: what comes now waits until the first job is done.
    with started(database, folder, "jobs:HANDLERS", "-c", "1", "--prefetch", "0") as process:
        runs(folder)
        client.enqueue("mails")
        process.send_signal(number)
        (folder / "go").touch()
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert out.startswith("claimed 1, acked 1,")
    assert [job.state for job in client.list_jobs()] == ["ready"]


def test_what_is_not_finished_is_given_back(database: str, client: Client, folder: Path) -> None:
    client.enqueue("mails", "wait")
    with started(database, folder, "jobs:HANDLERS", "--drain-timeout", "0s", "--json") as process:
        runs(folder)
        process.terminate()
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert json.loads(out) == asdict(Report(claimed=1, released=1))
    assert [(job.state, job.attempt) for job in client.list_jobs()] == [("ready", 0)]


def test_a_second_signal_ends_it_at_once(database: str, client: Client, folder: Path) -> None:
    client.enqueue("mails", "wait")
    with started(database, folder, "jobs:HANDLERS") as process:
        runs(folder)
        process.terminate()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert out.strip().endswith("left 1")


def test_concurrency(database: str, client: Client, folder: Path) -> None:
    client.enqueue_many("mails", ["wait"] * 4)
    with started(database, folder, "jobs:HANDLERS", "-c", "3", "--prefetch", "0") as process:
        runs(folder, 3)
        (folder / "go").touch()
        wait_until(lambda: not client.list_jobs(), PATIENCE)
        process.terminate()
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("name", ["CONSUMER", "BATCH"])
def test_consumers(name: str, database: str, client: Client, folder: Path) -> None:
    client.enqueue_many("mails", [1, 2, 3])
    told = worker(database, folder, f"jobs:{name}", "--until-idle", "--json")
    assert json.loads(told.out) == asdict(Report(claimed=3, acked=3))


@pytest.mark.parametrize("name", ["ASYNC", "PARTIAL", "OBJECT", "ASYNC_CONSUMER"])
def test_coroutines(name: str, database: str, client: Client, folder: Path) -> None:
    client.enqueue_many("mails", [1, 2, 3])
    told = worker(database, folder, f"jobs:{name}", "--until-idle", "--json")
    assert json.loads(told.out) == asdict(Report(claimed=3, acked=3))


def test_coroutines_are_finished(database: str, client: Client, folder: Path) -> None:
    client.enqueue_many("mails", ["wait"] * 9)
    with started(database, folder, "jobs:ASYNC", "-c", "5", "--prefetch", "0") as process:
        runs(folder, 5)
        process.send_signal(signal.SIGINT)
        (folder / "go").touch()
        out, error = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, error
    assert out.startswith("claimed 5, acked 5,")
    assert "Traceback" not in error


@pytest.mark.parametrize("name", ["HANDLERS", "ASYNC"])
def test_a_database_that_is_away_is_waited_for(name: str, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    dsn = f"postgresql://127.0.0.1:{port}/x"
    with started(dsn, folder, f"jobs:{name}") as process:
        assert process.stderr is not None
        assert any("trying again until it answers" in line for line in process.stderr)
        process.terminate()
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert out.startswith("claimed 0")


def test_what_waiting_would_not_mend(
    database: str, empty_database: str, client: Client, folder: Path, conn: Connection
) -> None:
    told = worker("nonsense", folder, "jobs:HANDLERS", fails=True)
    assert (told.code, told.out) == (3, "")
    assert "not a connection string" in told.err
    told = worker(database, folder, "jobs:ASYNC", "--listener-dsn", "nonsense", fails=True)
    assert (told.code, told.out) == (3, "")
    for name in ("ASYNC", "HANDLERS"):
        told = worker(empty_database, folder, f"jobs:{name}", fails=True)
        # The log is there, too.
        assert "Traceback" not in told.err
        assert told.err.splitlines()[-1].startswith("pgq: ")
    assert told.code == 1
    assert "pgq migrate" in told.err


@pytest.mark.parametrize("name", ["HANDLERS", "ASYNC"])
def test_a_queue_that_is_not_there_is_waited_for(
    name: str, database: str, client: Client, folder: Path
) -> None:
    client.drop_queue("mails")
    with started(database, folder, f"jobs:{name}", "--poll-interval", "100ms") as process:
        assert process.stderr is not None
        assert any("no such queue" in line for line in process.stderr)
        client.create_queue("mails")
        client.enqueue("mails")
        wait_until(lambda: not client.list_jobs(), PATIENCE)
        process.terminate()
        out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out.partition(",")[0]) == (0, "claimed 1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("jobs",), "MODULE:HANDLERS"),
        (("jobs:",), "MODULE:HANDLERS"),
        ((":HANDLERS",), "MODULE:HANDLERS"),
        (("nowhere:HANDLERS",), "there is no module nowhere"),
        (("jobs.nowhere:HANDLERS",), "there is no module jobs.nowhere"),
        (("jobs:NOWHERE",), "there is no NOWHERE in jobs"),
        (("jobs:NUMBER",), "is not a mapping"),
        (("jobs:NOTHING",), "is not a mapping"),
        (("jobs:mails",), "is not a mapping"),
        (("jobs:MIXED",), "start a worker for each"),
        (("jobs:NO_FUNCTION",), "no function for a queue"),
        (("jobs:NO_CONSUMER",), "no function for a queue"),
        (("jobs:NO_QUEUE",), "no function for a queue"),
        (("jobs:HANDLERS", "--concurrency", "0"), "concurrency"),
        (("jobs:HANDLERS", "--prefetch", "-1"), "prefetch"),
        (("jobs:HANDLERS", "--poll-interval", "0s"), "poll-interval"),
        (("jobs:HANDLERS", "--drain-timeout", "5"), "drain-timeout"),
        (("jobs:HANDLERS", "--log-level", "loud"), "log-level"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], message: str, folder: Path) -> None:
    told = worker("host=/nowhere", folder, *arguments, fails=True)
    assert (told.code, told.out) == (2, "")
    assert message in " ".join(told.err.replace("│", "").split())


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("x = 1\nx.y", "AttributeError: 'int' object has no attribute 'y'"),
        ("x = (", "SyntaxError: "),
    ],
)
def test_a_module_that_fails(source: str, message: str, folder: Path) -> None:
    (folder / "broken.py").write_text(source)
    told = worker("host=/nowhere", folder, "broken:HANDLERS", fails=True)
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith(f"pgq: importing broken failed: {message}")
    assert f"broken.py, line {source.count(chr(10)) + 1})" in told.err
    assert told.err.count("\n") == 1


# The reference

PAGE = (ROOT / "docs/reference/cli.md").read_text()
COMMANDS: dict[str, Any] = getattr(typer.main.get_command(app), "commands")  # noqa: B009


def section(name: str) -> str:
    """What the page says about a command."""
    _, _, rest = PAGE.partition(f"\n## {name}\n")
    return rest.partition("\n## ")[0]


def options(name: str) -> list[Sequence[str]]:
    """The options of a command that its section has to name; all commands have the others."""
    common = {"schema", "help", "as_json"} | ({"dsn"} if name != "demo" else set())
    found = [one for one in COMMANDS[name].params if one.name not in common]
    return [[*one.opts, *one.secondary_opts] for one in found if one.param_type_name == "option"]


def test_the_reference_has_every_command() -> None:
    named = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    assert [name for name in named if name in COMMANDS] == list(COMMANDS)
    assert set(named) - set(COMMANDS) == {"All commands", "Exit codes"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_reference_has_every_option(name: str) -> None:
    text = section(name)
    missing = [one for names in options(name) for one in names if f"`{one}" not in text]
    assert missing == []
    known = {one for names in options(name) for one in names} | {"--dsn", "--schema", "--json"}
    assert set(re.findall(r"`(--?[a-z][a-z-]*)", text)) <= known


def test_every_command_answers_in_json() -> None:
    assert all("as_json" in {one.name for one in command.params} for command in COMMANDS.values())
