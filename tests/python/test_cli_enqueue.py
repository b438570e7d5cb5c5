"""The command of `pgq` that makes jobs."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pgq_sql import Client, _cli_enqueue
from pgq_sql.cli import app
from servers import Connection
from ways import Done, pgq, run


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("mails")
        yield client


def typed(dsn: str, text: str, *arguments: str, fails: bool = False) -> Done:
    """Run a command that reads from stdin."""
    return run(sys.executable, "-m", "pgq_sql.cli", *arguments, dsn=dsn, text=text, fails=fails)


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
        ours = set(inspect.signature(_cli_enqueue.enqueue).parameters)
        theirs = set(inspect.signature(Client.enqueue).parameters)
        # options is the place where later releases of the schema grow before the client does.
        assert theirs - ours == {"self", "options", "conn"}
        assert ours - theirs == {"many", "dedup_field", "dsn", "schema", "as_json"}

    def test_from_stdin(self, database: str, client: Client) -> None:
        assert typed(database, '\ufeff {"to":\n"ada"}\n', "enqueue", "mails", "-").out
        assert client.list_jobs()[0].payload == {"to": "ada"}

    @pytest.mark.usefixtures("client")
    def test_numbers_keep_their_digits(self, database: str, conn: Connection) -> None:
        number = "123456789012345678901234567890.12345678901234567890"
        pgq(database, "enqueue", "mails", number)
        typed(database, f"{number}\n{'9' * 5000}\n", "enqueue", "mails", "--many", "-")
        rows = conn.execute("select payload::text from pgq_sql.jobs order by job_id").fetchall()
        assert rows == [(number,), (number,), ("9" * 5000,)]

    def test_many(self, database: str, client: Client) -> None:
        count = 2 * _cli_enqueue.BATCH + 5
        text = "".join(f"{number}\n\n" for number in range(count))
        told = typed(database, text, "enqueue", "mails", "--many", "-", "--priority", "4").out
        assert told == f"{count} jobs: 1 to {count}\n"
        jobs = client.list_jobs(n=count + 1)
        assert [job.payload for job in jobs] == list(range(count))
        assert {job.priority for job in jobs} == {4}

    def test_many_in_json(self, database: str, client: Client, tmp_path: Path) -> None:
        # What JSON allows inside a text ends no line.
        file = tmp_path / "jobs.ndjson"
        file.write_text('\ufeff"a\u2028b"\r\n2', encoding="utf-8")
        arguments = ("enqueue", "mails", "--many", str(file), "--delay", "1h")
        told = json.loads(pgq(database, *arguments, "--headers", '{"a":1}', "--json").out)
        assert [(one["ordinal"], one["job_id"]) for one in told] == [(1, 1), (2, 2)]
        jobs = client.list_jobs()
        assert [job.payload for job in jobs] == ["a\u2028b", 2]
        assert all(job.headers == {"a": 1} for job in jobs)
        assert all(job.run_at - job.enqueued_at == timedelta(hours=1) for job in jobs)
        assert typed(database, "\n", "enqueue", "mails", "--many", "-").out == "0 jobs\n"
        assert typed(database, "1", "enqueue", "mails", "--many", "-").out == "1 job: 3\n"

    def test_many_are_all_or_none(self, database: str, client: Client) -> None:
        told = typed(database, "1\n2\n{\n", "enqueue", "mails", "--many", "-", fails=True)
        assert told.code == 2
        assert "line 3" in told.err
        client.alter_queue("mails", max_payload=100)
        text = "1\n" * _cli_enqueue.BATCH + f'"{"x" * 200}"\n'
        told = typed(database, text, "enqueue", "mails", "--many", "-", fails=True)
        assert (told.code, told.out) == (1, "")
        assert told.err.count("\n") == 1
        assert client.list_jobs() == []

    def test_dedup_by_a_field(
        self, monkeypatch: pytest.MonkeyPatch, database: str, client: Client, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(_cli_enqueue, "BATCH", 2)
        pgq(database, "enqueue", "mails", '{"id": 1.50}', "--dedup-field", "id")
        file = tmp_path / "jobs.ndjson"
        file.write_text('{"id": 7}\n\n{"id": "a b"}\n{"id": 7, "n": 1}\n{"id": 1.50}\n')
        told = CliRunner().invoke(
            app, f"enqueue mails --many {file} --dedup-field id --dsn {database}".split()
        )
        assert told.stdout == "4 jobs: 1 to 3, 2 existing\n"
        assert [job.dedup_key for job in client.list_jobs()] == ["1.50", "7", "a b"]

    @pytest.mark.parametrize("line", ["1", "[]", "{}", '{"id": null}', '{"id": true}'])
    def test_no_such_field(self, line: str, database: str, client: Client) -> None:
        arguments = ("enqueue", "mails", "--many", "-", "--dedup-field", "id")
        told = typed(database, f'{{"id": 1}}\n{line}', *arguments, fails=True)
        assert told.code == 2
        assert "payload 2 has no text" in " ".join(told.err.replace("│", "").split())
        assert client.list_jobs() == []

    @pytest.mark.usefixtures("client")
    def test_a_refusal_is_one_line(self, database: str) -> None:
        told = pgq(database, "enqueue", "nope", fails=True)
        assert told.code == 1
        assert told.err == 'pgq: no such queue: queue "nope". Make it with: pgq create nope\n'
        told = pgq(database, "enqueue", "no; $pe", fails=True)
        assert told.err.endswith("Make it with: pgq create 'no; $pe'\n")

    def test_an_empty_text_is_no_payload(self, database: str, client: Client) -> None:
        told = pgq(database, "enqueue", "mails", "", fails=True)
        assert told.code == 2
        assert "PAYLOAD: not JSON" in told.err
        assert client.list_jobs() == []


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
        "enqueue mails {} --dedup-field id",
        "enqueue mails {} --dedup-field id --dedup-key k",
        "enqueue mails 1 --many -",
        "enqueue mails --many - --dedup-key k",
        "enqueue mails --many /nowhere",
        "enqueue mails --many",
    ],
)
def test_wrong_usage(command: str, database: str, client: Client) -> None:
    result = CliRunner().invoke(app, command.split(), env={"PGQ_DSN": database})
    assert result.exit_code == 2, result.output
    assert client.list_jobs() == []
