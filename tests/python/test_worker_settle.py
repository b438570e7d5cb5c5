"""How a handler's end becomes a job's: acks, retries, wishes, odd exceptions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import pgq_sql
from pgq_sql import Client, DeadLetter, Report, Retry, RunningJob, Snooze, Worker
from pgq_sql._settlements import ERROR_LIMIT
from servers import Connection, wait_until
from working import Record, states

SECOND = timedelta(seconds=1)


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("q", retry_delay=timedelta(0))
        yield client


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    wait_until(lambda: set(threading.enumerate()) <= before, message="the end of all threads")


def last_error(conn: Connection) -> str:
    (row,) = conn.execute("select last_error from pgq_sql.jobs").fetchall()
    return str(row[0])


class TestSettle:
    def run_once(self, client: Client, handler: Callable[[RunningJob], object]) -> Report:
        """Run one job, in one run."""
        client.enqueue("q", {"a": 1}, max_attempts=3)
        seen: list[RunningJob] = []

        def once(job: RunningJob) -> object:
            if not seen:
                seen.append(job)
                return handler(job)
            raise Snooze(3600 * SECOND)

        return Worker(client, {"q": once}).run(until_idle=True)

    def test_an_exception_is_a_retry(self, client: Client, conn: Connection) -> None:
        def fail(job: RunningJob) -> None:
            raise ValueError(f"no good: {job.payload}")

        assert self.run_once(client, fail).retried == 1
        lines = last_error(conn).splitlines()
        assert lines[0] == "ValueError: no good: {'a': 1}"
        assert "in fail" in lines[-2]
        assert lines[-1].strip().startswith('raise ValueError(f"no good')

    def test_the_last_attempt_is_the_end(self, client: Client, conn: Connection) -> None:
        def fail(_: RunningJob) -> None:
            raise OSError("again")

        client.enqueue("q", max_attempts=3)
        report = Worker(client, {"q": fail}).run(until_idle=True)
        assert report == Report(claimed=3, retried=2, dead=1)
        (row,) = conn.execute("select reason, attempt, error from pgq_sql.dead_jobs").fetchall()
        assert row[:2] == ("max attempts exceeded", 3)
        assert str(row[2]).startswith("OSError: again\n")

    def test_retry_after_a_delay(self, client: Client, conn: Connection) -> None:
        def later(_: RunningJob) -> None:
            raise Retry(3600 * SECOND, "not yet") from KeyError("cause")

        assert self.run_once(client, later) == Report(claimed=1, retried=1)
        assert states(conn) == [("scheduled", 1)]
        assert last_error(conn) == "not yet\ncaused by KeyError: 'cause'"

    def test_retry_with_the_backoff(self, client: Client) -> None:
        def again(job: RunningJob) -> None:
            if job.attempt < 3:
                raise Retry

        client.enqueue("q")
        report = Worker(client, {"q": again}).run(until_idle=True)
        assert report == Report(claimed=3, retried=2, acked=1)

    def test_dead_letter(self, client: Client, conn: Connection) -> None:
        def refuse(_: RunningJob) -> None:
            raise DeadLetter("never")

        assert self.run_once(client, refuse) == Report(claimed=1, dead=1)
        (row,) = conn.execute("select reason, attempt, error from pgq_sql.dead_jobs").fetchall()
        assert row == ("failed", 1, "never")

    def test_snooze_costs_no_attempt(self, client: Client, conn: Connection) -> None:
        def sleepy(_: RunningJob) -> None:
            raise Snooze(3600 * SECOND)

        assert self.run_once(client, sleepy) == Report(claimed=1, released=1)
        assert states(conn) == [("scheduled", 0)]
        (row,) = conn.execute("select run_at from pgq_sql.jobs").fetchall()
        assert isinstance(row[0], datetime)
        assert row[0] > datetime.now(UTC) + 3500 * SECOND

    @pytest.mark.parametrize("wish", [Retry, Snooze])
    def test_wishes_check_their_delay_when_made(self, wish: Callable[[Any], object]) -> None:
        with pytest.raises(ValueError, match="from 0 to"):
            wish(-SECOND)
        with pytest.raises(TypeError, match="timedelta"):
            wish(5)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Quiet(BaseException):
    pass


def recurse(job: RunningJob) -> None:
    recurse(job)


def throw(error: BaseException) -> Callable[[RunningJob], None]:
    def handle(_: RunningJob) -> None:
        raise error

    return handle


ODD = {
    "its str fails": (throw(Unprintable()), "(its text cannot be had)"),
    "NUL": (throw(ValueError("a\0b")), "ValueError: a\\0b"),
    "lone surrogate": (throw(ValueError("a\ud800b")), "ValueError: a\\ud800b"),
    "huge": (throw(ValueError("x" * 10_000_000)), "ValueError: xxx"),
    "no message": (throw(ValueError()), "ValueError\n"),
    "SystemExit": (throw(SystemExit(3)), "SystemExit: 3"),
    "KeyboardInterrupt": (throw(KeyboardInterrupt()), "KeyboardInterrupt"),
    "GeneratorExit": (throw(GeneratorExit()), "GeneratorExit"),
    "StopIteration": (throw(StopIteration(1)), "StopIteration: 1"),
    "BaseException": (throw(Quiet("hush")), "test_worker_settle.Quiet: hush"),
    "group": (throw(ExceptionGroup("two", [ValueError(1), OSError(2)])), "ExceptionGroup: two"),
    "endless recursion": (recurse, "RecursionError"),
    "our own": (throw(pgq_sql.QueueNotFound("gone")), "pgq_sql.errors.QueueNotFound: gone"),
    "wrong wish": (lambda _: Snooze(-SECOND), "ValueError: delay must not be negative"),
}


@pytest.mark.parametrize(("handler", "text"), ODD.values(), ids=ODD.keys())
def test_odd_exceptions(
    client: Client, conn: Connection, handler: Callable[[RunningJob], None], text: str
) -> None:
    client.enqueue("q", max_attempts=1)
    record = Record()
    client.create_queue("r")
    client.enqueue("r")
    report = Worker(client, {"q": handler, "r": record}).run(until_idle=True)
    assert (report.dead, report.acked) == (1, 1)
    (row,) = conn.execute("select error from pgq_sql.dead_jobs").fetchall()
    error = str(row[0])
    assert text in error
    assert len(error) <= ERROR_LIMIT
