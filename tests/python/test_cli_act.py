"""The commands of `pgq` that make jobs and change jobs and queues."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from pgq_sql import Client, _cli_act
from pgq_sql.cli import app
from servers import Connection
from test_cli_look import on_a_terminal, read_until
from ways import Done, pgq, run
from working import PATIENCE


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("mails", max_attempts=1)
        client.create_queue("idle")
        yield client


def typed(dsn: str, text: str, *arguments: str, fails: bool = False) -> Done:
    """Run a command that reads from stdin."""
    return run(sys.executable, "-m", "pgq_sql.cli", *arguments, dsn=dsn, text=text, fails=fails)


def buried(client: Client, *payloads: object) -> list[int]:
    """Jobs that are dead."""
    client.enqueue_many("mails", payloads)
    jobs = client.claim("mails", "grave", len(payloads))
    for job in jobs:
        client.dead_letter(job.job_id, job.token, "no such host")
    return [job.job_id for job in jobs]


class TestEnqueue:
    def test_says_what_was_made(self, database: str, client: Client) -> None:
        assert pgq(database, "enqueue", "mails", '{"to": "ada"}').out == "job 1: inserted\n"
        told = pgq(database, "enqueue", "mails", "null", "--json").out
        assert json.loads(told) == {"job_id": 2, "outcome": "inserted"}
        assert pgq(database, "enqueue", "mails").out == "job 3: inserted\n"
        assert [job.payload for job in client.list_jobs()] == [{"to": "ada"}, None, {}]

    def test_every_option_is_stored(self, database: str, client: Client) -> None:
        pgq(
            *(database, "enqueue", "mails", "[1]", "--priority", "-3", "--max-attempts", "9"),
            *("--run-at", "2040-01-31T12:00:00+01:00", "--visibility-timeout", "1m"),
            *("--expires-in", "2d", "--retry-backoff", "linear", "--retry-factor", "3"),
            *("--retry-delay", "250ms", "--retry-max-delay", "1h30m", "--retry-jitter", "0.5,1"),
            *("--dedup-key", "k", "--dedup-mode", "replace", "--headers", '{"a": 1}'),
        )
        job = client.get_job(1)
        assert job is not None
        assert (job.payload, job.priority, job.max_attempts) == ([1], -3, 9)
        assert job.run_at == datetime(2040, 1, 31, 11, tzinfo=UTC)
        assert job.expires_at == job.run_at + timedelta(days=2)
        assert job.visibility_timeout == timedelta(minutes=1)
        assert (job.retry_backoff, job.retry_factor) == ("linear", 3)
        assert job.retry_delay == timedelta(milliseconds=250)
        assert job.retry_max_delay == timedelta(hours=1.5)
        assert job.retry_jitter == (0.5, 1)
        assert (job.dedup_key, job.headers) == ("k", {"a": 1})
        told = pgq(database, "enqueue", "mails", "2", "--dedup-key", "k").out
        assert told == "job 1: existing\n"

    def test_delay(self, database: str, client: Client) -> None:
        pgq(database, "enqueue", "mails", "--delay", "1d")
        job = client.get_job(1)
        assert job is not None
        assert job.run_at - job.enqueued_at == timedelta(days=1)

    def test_an_option_for_each_argument(self) -> None:
        ours = set(inspect.signature(_cli_act.enqueue).parameters)
        theirs = set(inspect.signature(Client.enqueue).parameters)
        # options is the place where later releases of the schema grow before the client does.
        assert theirs - ours == {"self", "options", "conn"}
        assert ours - theirs == {"many", "dsn", "schema", "as_json"}

    def test_from_stdin(self, database: str, client: Client) -> None:
        assert typed(database, '\ufeff {"to":\n"ada"}\n', "enqueue", "mails", "-").out
        assert client.list_jobs()[0].payload == {"to": "ada"}

    @pytest.mark.usefixtures("client")
    def test_numbers_keep_their_digits(self, database: str, conn: Connection) -> None:
        number = "123456789012345678901234567890.12345678901234567890"
        pgq(database, "enqueue", "mails", number)
        typed(database, f"{number}\n{'9' * 5000}\n", "enqueue", "mails", "--many")
        rows = conn.execute("select payload::text from pgq_sql.jobs order by job_id").fetchall()
        assert rows == [(number,), (number,), ("9" * 5000,)]

    def test_many(self, database: str, client: Client) -> None:
        count = 2 * _cli_act.BATCH + 5
        text = "".join(f"{number}\n\n" for number in range(count))
        told = typed(database, text, "enqueue", "mails", "--many", "--priority", "4").out
        assert told == f"{count} jobs: 1 to {count}\n"
        jobs = client.list_jobs(n=count + 1)
        assert [job.payload for job in jobs] == list(range(count))
        assert {job.priority for job in jobs} == {4}

    def test_many_in_json(self, database: str, client: Client) -> None:
        # What JSON allows inside a text ends no line.
        arguments = ("enqueue", "mails", '"a\u2028b"\r\n2', "--many", "--delay", "1h")
        told = json.loads(pgq(database, *arguments, "--headers", '{"a":1}', "--json").out)
        assert [(one["ordinal"], one["job_id"]) for one in told] == [(1, 1), (2, 2)]
        jobs = client.list_jobs()
        assert [job.payload for job in jobs] == ["a\u2028b", 2]
        assert all(job.headers == {"a": 1} for job in jobs)
        assert all(job.run_at - job.enqueued_at == timedelta(hours=1) for job in jobs)
        assert typed(database, "\n", "enqueue", "mails", "--many").out == "0 jobs\n"
        assert typed(database, "1", "enqueue", "mails", "--many").out == "1 job: 3\n"

    def test_many_are_all_or_none(self, database: str, client: Client) -> None:
        told = typed(database, "1\n2\n{\n", "enqueue", "mails", "--many", fails=True)
        assert told.code == 2
        assert "line 3" in told.err
        client.alter_queue("mails", max_payload=100)
        text = "1\n" * _cli_act.BATCH + f'"{"x" * 200}"\n'
        told = typed(database, text, "enqueue", "mails", "--many", fails=True)
        assert (told.code, told.out) == (1, "")
        assert told.err.count("\n") == 1
        assert client.list_jobs() == []

    @pytest.mark.usefixtures("client")
    def test_a_refusal_is_one_line(self, database: str) -> None:
        told = pgq(database, "enqueue", "nope", fails=True)
        assert told.code == 1
        assert told.err == 'pgq: no such queue. queue "nope". Make it with create_queue.\n'


@pytest.mark.parametrize(
    "command",
    [
        "enqueue",
        "enqueue mails {",
        "enqueue mails NaN",
        "enqueue mails [Infinity]",
        r'enqueue mails "\u0000"',
        r'enqueue mails "\ud800"',
        "enqueue mails " + 10_000 * "[",
        "enqueue mails --delay 10",
        "enqueue mails --run-at 2030-01-31T12:00:00",
        "enqueue mails --headers []",
        "enqueue mails --retry-backoff square",
        "enqueue mails --retry-jitter 1",
        "enqueue mails --dedup-mode first",
        "enqueue mails 1 --many --dedup-key k",
        "redrive",
        "redrive 1 --queue mails",
        "redrive 1 -n 1",
        "redrive x",
        "redrive --queue mails -n -1",
        "discard",
        "discard --queue mails",
        "discard 1 --queue mails --yes",
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


def test_redrive(database: str, client: Client) -> None:
    def told(*arguments: str) -> Any:
        return json.loads(pgq(database, "redrive", *arguments, "--json").out)

    first, second, third = buried(client, 1, 2, 3)
    tried = told(str(second), str(first), "--dry-run")
    assert [one["job_id"] for one in tried] == [second, first]
    assert len(client.list_jobs(state="dead")) == 3
    assert told(str(second), str(first)) == tried
    assert pgq(database, "redrive", "-q", "mails", "-n", "5").out.split() == [
        *("id", "outcome", str(third), "redriven")
    ]
    assert {job.state for job in client.list_jobs()} == {"ready"}
    assert told("--queue", "mails") == []
    refused = pgq(database, "redrive", str(first), fails=True)
    assert refused.code == 1
    assert refused.err.startswith(f"pgq: no such dead job. job {first}. ")
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


def test_sweep(database: str, client: Client, conn: Connection) -> None:
    client.enqueue("mails", expires_in=timedelta(0))
    told = json.loads(pgq(database, "sweep", "--json").out)
    assert {"task": "expired", "count": 1} in told
    assert [one.state for one in client.list_jobs()] == ["dead"]
    table = pgq(database, "sweep", "-n", "0").out.splitlines()
    assert table[0].split() == ["task", "count"]
    assert [line.split()[0] for line in table[1:]] == [one["task"] for one in told]


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
