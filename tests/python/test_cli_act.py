"""The commands of `pgq` that change jobs and queues."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from pgq_sql import Client, InvalidState, _cli_act
from pgq_sql.cli import app
from servers import Connection
from test_cli_look import on_a_terminal, read_until
from ways import pgq
from working import PATIENCE


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("mails", max_attempts=1)
        client.create_queue("idle")
        yield client


def buried(client: Client, *payloads: object) -> list[int]:
    """Jobs that are dead."""
    client.enqueue_many("mails", payloads)
    jobs = client.claim("mails", "grave", len(payloads))
    for job in jobs:
        client.dead_letter(job.job_id, job.token, "no such host")
    return [job.job_id for job in jobs]


@pytest.mark.parametrize(
    "command",
    [
        "create",
        "create new --max-attempts x",
        "create new --keep-done 3",
        "redrive",
        "redrive 1 --queue mails",
        "redrive 1 -n 1",
        "redrive 1 --letters mails",
        "redrive --queue mails --letters mails",
        "redrive --letters mails -n -1",
        "redrive x",
        "redrive --queue mails -n -1",
        "discard",
        "discard --queue mails",
        "discard 1 --queue mails --yes",
        "cancel",
        "cancel x",
        "promote",
        "purge",
        "purge mails",
        "purge --yes",
        "pause",
        "resume",
        "sweep -n -1",
    ],
)
def test_wrong_usage(command: str, database: str, client: Client) -> None:
    (job,) = buried(client, 1)
    result = CliRunner().invoke(app, command.split(), env={"PGQ_DSN": database})
    assert result.exit_code == 2, result.output
    (left,) = client.list_jobs()
    assert (left.job_id, left.state) == (job, "dead")


def test_create(database: str, client: Client) -> None:
    assert pgq(database, "create", "new").out == 'queue "new" made\n'
    same = pgq(database, "create", "new", "--max-attempts", "9").out
    assert same == 'queue "new" was there already, and stays as it is\n'
    options = ("--max-attempts", "3", "--visibility-timeout", "2m", "--keep-done", "7d")
    told = pgq(database, "create", "all", *options, "--dead-letter-queue", "new", "--json").out
    assert json.loads(told) == {"queue": "all", "made": True}
    told = pgq(database, "create", "all", "--json").out
    assert json.loads(told) == {"queue": "all", "made": False}
    queues = {one["queue"]: one for one in json.loads(pgq(database, "queues", "--json").out)}
    names = ("max_attempts", "visibility_timeout", "keep_done", "dead_letter_queue")
    assert [queues["all"][name] for name in names] == [3, 120, 604800, "new"]
    assert queues["new"]["max_attempts"] == queues["idle"]["max_attempts"]
    refused = pgq(database, "create", "bad", "--max-attempts", "-1", fails=True)
    assert (refused.code, refused.err.count("\n")) == (1, 1)


def test_redrive(database: str, client: Client) -> None:
    def told(*arguments: str) -> Any:
        return json.loads(pgq(database, "redrive", *arguments, "--json").out)

    first, second, third = buried(client, 1, 2, 3)
    tried = told(str(second), str(first), "--dry-run")
    assert [one["job_id"] for one in tried] == [second, first]
    shown = pgq(database, "redrive", "-q", "mails", "-n", "1", "--dry-run").out
    assert shown.splitlines()[1].split(maxsplit=1) == [str(first), "would be redriven"]
    assert len(client.list_jobs(state="dead")) == 3
    assert told(str(second), str(first)) == tried
    assert pgq(database, "redrive", "-q", "mails", "-n", "5").out.split() == [
        *("id", "outcome", str(third), "redriven")
    ]
    assert {job.state for job in client.list_jobs()} == {"ready"}
    assert told("--queue", "mails") == []
    none = pgq(database, "redrive", "--queue", "mails")
    assert (none.out, none.err) == ("", "no dead jobs\n")
    refused = pgq(database, "redrive", str(first), fails=True)
    assert refused.code == 1
    assert refused.err.startswith(f"pgq: no such dead job: job {first}. ")
    assert refused.err.count("\n") == 1


def test_discard(database: str, client: Client) -> None:
    first, _, third, _ = buried(client, 1, 2, 3, 4)
    assert pgq(database, "discard", str(first), str(third)).out == "2 dead jobs discarded\n"
    assert pgq(database, "discard", str(first), fails=True).code == 1
    told = pgq(database, "discard", "--queue", "mails", "-n", "1", "--yes").out
    assert told == "1 dead job discarded\n"
    told = pgq(database, "discard", "--queue", "mails", "--yes", "--json").out
    assert json.loads(told) == {"discarded": 1}
    assert client.list_jobs() == []


@pytest.mark.parametrize(("typing", "code", "left"), [(b"n\n", 1, 1), (b"y\n", 0, 0)])
def test_discard_asks(typing: bytes, code: int, left: int, database: str, client: Client) -> None:
    buried(client, 1)
    with on_a_terminal(database, "discard", "--queue", "mails") as (process, terminal):
        assert b"all dead jobs of mails" in read_until(terminal, b"[y/N]")
        os.write(terminal, typing)
        assert process.wait(PATIENCE) == code
    assert len(client.list_jobs()) == left


@pytest.mark.parametrize("batch", [1000, 2])
def test_redrive_in_batches(
    batch: int, monkeypatch: pytest.MonkeyPatch, database: str, client: Client
) -> None:
    monkeypatch.setattr(_cli_act, "BATCH", batch)
    ids = buried(client, 1, 2, 3, 4, 5)

    def told(*arguments: str) -> Any:
        command = ["redrive", "-q", "mails", "--json", "--dsn", database, *arguments]
        result = CliRunner().invoke(app, command)
        assert (result.exit_code, result.stderr) == (0, "")
        return [(one["ordinal"], one["job_id"]) for one in json.loads(result.stdout)]

    assert told("-n", "0") == []
    assert told("--dry-run") == list(enumerate(ids, 1))
    assert told("-n", "3") == list(enumerate(ids[:3], 1))
    assert told() == list(enumerate(ids[3:], 1))


def test_a_batch_that_fails_undoes_the_others(
    monkeypatch: pytest.MonkeyPatch, database: str, client: Client
) -> None:
    monkeypatch.setattr(_cli_act, "BATCH", 2)
    buried(client, 1, 2, 3, 4, 5)
    calls: list[int] = []
    redrive = Client.redrive

    def fail_late(self: Client, **arguments: Any) -> Any:
        calls.append(arguments["n"])
        if len(calls) == 3:
            raise InvalidState("too late")
        return redrive(self, **arguments)

    monkeypatch.setattr(Client, "redrive", fail_late)
    result = CliRunner().invoke(app, ["redrive", "-q", "mails", "--dsn", database])
    assert isinstance(result.exception, InvalidState)
    assert calls == [2, 2, 1]
    assert {job.state for job in client.list_jobs()} == {"dead"}


def test_redrive_letters(monkeypatch: pytest.MonkeyPatch, database: str, client: Client) -> None:
    client.alter_queue("mails", dead_letter_queue="idle")
    buried(client, "a", "b", "c")
    client.enqueue("idle", "no letter")
    letters = [job.job_id for job in client.list_jobs(queue="idle")][:3]

    def told(*arguments: str) -> Any:
        return json.loads(pgq(database, "redrive", "--letters", "idle", *arguments, "--json").out)

    tried = told("--dry-run")
    assert [(one["letter_id"], one["queue"], one["job_id"]) for one in tried] == [
        (letter, "mails", None) for letter in letters
    ]
    shown = pgq(database, "redrive", "--letters", "idle", "--dry-run").out.splitlines()
    assert shown[0].split(maxsplit=1) == ["letter", "would come back in"]
    assert shown[1].split() == [str(letters[0]), "mails"]
    (first,) = told("-n", "1")
    assert (first["ordinal"], first["letter_id"]) == (1, letters[0])
    assert [job.payload for job in client.list_jobs(queue="mails")] == ["a"]
    monkeypatch.setattr(_cli_act, "BATCH", 1)
    result = CliRunner().invoke(app, ["redrive", "--letters", "idle", "--dsn", database])
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["letter", "queue", "new", "id"]
    assert [row[:2] for row in rows[1:]] == [[str(letter), "mails"] for letter in letters[1:]]
    new = {str(job.job_id) for job in client.list_jobs(queue="mails")}
    assert {row[2] for row in rows[1:]} < new
    assert [job.payload for job in client.list_jobs(queue="mails")] == ["a", "b", "c"]
    assert [job.payload for job in client.list_jobs(queue="idle")] == ["no letter"]
    for name in ("nope", "nope -n 0"):
        none = pgq(database, "redrive", "--letters", *name.split(), fails=True)
        assert (none.code, none.out) == (1, "")
        assert 'queue "nope"' in none.err


def test_cancel(database: str, client: Client) -> None:
    client.enqueue_many("mails", [1, 2, 3], delays=[None, timedelta(hours=1), None])
    (running,) = client.claim("mails", "me")
    told = json.loads(pgq(database, "cancel", "2", "1", "2", "--json").out)
    assert told == [{"job_id": 2, "outcome": "cancelled"}, {"job_id": 1, "outcome": "cancelled"}]
    assert client.ack(running.job_id, running.token) == "gone"
    gone = pgq(database, "cancel", "2", "3", fails=True)
    assert (gone.code, gone.err) == (1, "")
    assert gone.out.split() == ["id", "outcome", "2", "gone", "3", "cancelled"]
    assert client.list_jobs() == []


def test_promote(database: str, client: Client) -> None:
    client.enqueue_many("mails", [1, 2, 3], delays=[timedelta(hours=1), None, None])
    client.suspend(3)
    told = json.loads(pgq(database, "promote", "2", "1", "--json").out)
    assert [(one["job_id"], one["outcome"]) for one in told] == [(2, "ready"), (1, "promoted")]
    assert {job.state for job in client.list_jobs()} == {"ready", "suspended"}
    for job, outcome in ((3, "suspended"), (77, "gone")):
        refused = pgq(database, "promote", str(job), fails=True)
        assert (refused.code, refused.out.split()[2:]) == (1, [str(job), outcome])


def test_purge(database: str, client: Client) -> None:
    (dead,) = buried(client, 1)
    client.enqueue_many("mails", [1, 2, 3], delays=[None, timedelta(hours=1), None])
    (running,) = client.claim("mails", "me")
    client.enqueue("idle")
    none = pgq(database, "purge", "idle", "nope", "--yes", fails=True)
    assert (none.code, none.out) == (1, "")
    assert len(client.list_jobs()) == 5
    told = pgq(database, "purge", "mails", "idle", "mails", "--yes").out
    assert told == 'queue "mails": 2 jobs removed\nqueue "idle": 1 job removed\n'
    assert [job.job_id for job in client.list_jobs()] == [dead, running.job_id]
    told = json.loads(pgq(database, "purge", "idle", "--yes", "--json").out)
    assert told == [{"queue": "idle", "removed": 0}]


@pytest.mark.parametrize(("typing", "code", "left"), [(b"n\n", 1, 1), (b"y\n", 0, 0)])
def test_purge_asks(typing: bytes, code: int, left: int, database: str, client: Client) -> None:
    client.enqueue("mails")
    with on_a_terminal(database, "purge", "mails") as (process, terminal):
        assert b"every job of mails" in read_until(terminal, b"[y/N]")
        os.write(terminal, typing)
        assert process.wait(PATIENCE) == code
    assert len(client.list_jobs()) == left


def test_sweep(database: str, client: Client, conn: Connection) -> None:
    client.enqueue("mails", expires_in=timedelta(0))
    told = json.loads(pgq(database, "sweep", "--json").out)
    assert {"task": "expired", "count": 1} in told
    assert [one.state for one in client.list_jobs()] == ["dead"]
    table = pgq(database, "sweep", "-n", "0").out.splitlines()
    assert table[0].split() == ["task", "count"]
    assert [line.split()[0] for line in table[1:]] == [one["task"] for one in told]


def test_sweep_until_done(database: str, client: Client) -> None:
    client.enqueue_many("mails", range(30), expires_in=timedelta(0))

    def expired(*arguments: str) -> int:
        found = json.loads(pgq(database, "sweep", "-n", "2", *arguments, "--json").out)
        return sum(one["count"] for one in found if one["task"] == "expired")

    once = expired()
    assert 0 < once < 30
    assert expired("--until-done") == 30 - once
    assert expired("--until-done") == 0
    # Nothing at a time would never be all.
    pgq(database, "sweep", "-n", "0", "--until-done")


def test_progress_is_for_people(database: str, client: Client) -> None:
    buried(client, *range(5))
    with on_a_terminal(database, "redrive", "--queue", "mails") as (process, terminal):
        shown = read_until(terminal, b"redriven\r\n")
        assert process.wait(PATIENCE) == 0
    assert b"5/5" in shown
    buried(client, *range(5))
    with on_a_terminal(database, "redrive", "--queue", "mails", "--json") as (process, terminal):
        shown = read_until(terminal, b"]\r\n")
        assert process.wait(PATIENCE) == 0
    assert json.loads(shown)[4]["ordinal"] == 5


def test_pause_and_resume(database: str, client: Client) -> None:
    def paused() -> list[bool]:
        return [client.queue_stats(name).paused for name in ("mails", "idle")]

    assert pgq(database, "pause", "mails").out == 'queue "mails" paused\n'
    assert paused() == [True, False]
    assert pgq(database, "pause", "mails", "idle", "idle").out == (
        'queue "mails" was paused already\nqueue "idle" paused\n'
    )
    assert paused() == [True, True]
    # All or none.
    told = pgq(database, "resume", "mails", "nope", fails=True)
    assert (told.code, told.out) == (1, "")
    assert 'queue "nope"' in told.err
    assert paused() == [True, True]
    assert pgq(database, "resume", "mails").out == 'queue "mails" resumed\n'
    assert pgq(database, "resume", "mails").out == 'queue "mails" was not paused\n'
    assert paused() == [False, True]
    told = json.loads(pgq(database, "pause", "mails", "--json").out)
    assert told == [{"queue": "mails", "changed": True}]
    told = json.loads(pgq(database, "pause", "mails", "idle", "--json").out)
    assert [one["changed"] for one in told] == [False, False]
