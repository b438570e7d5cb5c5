"""The worker: finds jobs, runs them, settles them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg_pool
import pytest

import pgq_sql
from pgq_sql import Client, DeadLetter, Report, Retry, RunningJob, Snooze, Worker, _looks
from pgq_sql._handling import ERROR_LIMIT
from servers import Connection, wait_until
from working import PATIENCE, Record, listening, running, states

NEVER = 1000.0
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


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a look that finds nothing, nothing but a notification leads to the next one."""
    monkeypatch.setattr(_looks, "FIRST_PAUSE", NEVER)


def last_error(conn: Connection) -> str:
    (row,) = conn.execute("select last_error from pgq_sql.jobs").fetchall()
    return str(row[0])


class TestRun:
    def test_every_job_once(self, client: Client) -> None:
        client.enqueue_many("q", list(range(1000)))
        record = Record()
        report = Worker(client, {"q": record}).run(until_idle=True)
        assert sorted(record.payloads) == list(range(1000))
        assert report == Report(claimed=1000, acked=1000)
        assert client.next_run_at("q") is None

    def test_what_the_handler_gets(self, client: Client) -> None:
        enqueued = client.enqueue("q", {"a": 1}, headers={"h": 2}, priority=3)
        record = Record()
        Worker(client, {"q": record}, worker="me").run(until_idle=True)
        (job,) = record.jobs
        assert isinstance(job, pgq_sql.Job)
        assert (job.job_id, job.queue, job.payload) == (enqueued.job_id, "q", {"a": 1})
        assert (job.headers, job.priority, job.attempt) == ({"h": 2}, 3, 1)
        assert not job.lost.is_set()

    def test_label(self, client: Client, conn: Connection) -> None:
        seen: list[object] = []

        def look(_: RunningJob) -> None:
            seen.extend(conn.execute("select worker from pgq_sql.jobs").fetchall())

        client.enqueue("q")
        worker = Worker(client, {"q": look})
        worker.run(until_idle=True)
        assert seen == [(worker.worker,)]
        assert worker.worker != Worker(client, {"q": look}).worker

    def test_priority_first(self, client: Client) -> None:
        client.enqueue_many("q", [0, 1, 2], priorities=[0, 1, 2])
        record = Record()
        Worker(client, {"q": record}, concurrency=1).run(until_idle=True)
        assert record.payloads == [2, 1, 0]

    def test_handlers_run_at_the_same_time(self, client: Client) -> None:
        together = threading.Barrier(4)
        client.enqueue_many("q", list(range(4)))
        worker = Worker(client, {"q": lambda _: together.wait(PATIENCE)}, concurrency=4)
        assert worker.run(until_idle=True).acked == 4

    def test_no_more_than_allowed_at_the_same_time(self, client: Client) -> None:
        slots = threading.BoundedSemaphore(2)
        failed: list[int] = []

        def handle(job: RunningJob) -> None:
            if not slots.acquire(blocking=False):
                failed.append(job.payload)
            threading.Event().wait(0.005)
            slots.release()

        client.enqueue_many("q", list(range(50)))
        assert Worker(client, {"q": handle}, concurrency=2).run(until_idle=True).acked == 50
        assert failed == []

    def test_slow_handlers_hoard_nothing(self, client: Client, conn: Connection) -> None:
        held: list[int] = []

        def handle(_: RunningJob) -> None:
            threading.Event().wait(0.1)
            held.append(sum(state == "running" for state, _ in states(conn)))

        client.enqueue_many("q", list(range(8)))
        Worker(client, {"q": handle}, concurrency=1).run(until_idle=True)
        assert max(held) <= 2

    def test_several_queues(self, client: Client) -> None:
        queues = ["q", "r", "s"]
        for name in queues:
            client.create_queue(name)
            client.enqueue_many(name, list(range(50)))
        records = {name: Record() for name in queues}
        # One thread: a queue that is looked at first must not starve the others.
        worker = Worker(client, records, concurrency=1, prefetch=0)
        assert worker.run(until_idle=True).acked == 150
        for record in records.values():
            assert record.payloads == list(range(50))

    def test_a_busy_queue_does_not_starve_another(self, client: Client) -> None:
        client.create_queue("r")
        record = Record()

        def endless(_: RunningJob) -> None:
            if not record.jobs:
                client.enqueue("q")

        with running(Worker(client, {"q": endless, "r": record}, concurrency=1)):
            client.enqueue("q")
            client.enqueue("r")
            record.wait(1)

    def test_handlers_may_enqueue(self, client: Client) -> None:
        client.create_queue("r")
        record = Record()

        def handle(job: RunningJob) -> None:
            if job.payload:
                client.enqueue("q", job.payload - 1)
            client.enqueue("r", job.payload)

        client.enqueue("q", 5)
        Worker(client, {"r": record, "q": handle}).run(until_idle=True)
        assert sorted(record.payloads) == list(range(6))

    def test_two_workers_share_a_queue(self, client: Client) -> None:
        client.enqueue_many("q", list(range(500)))
        record = Record()
        with running(Worker(client, {"q": record})), running(Worker(client, {"q": record})):
            record.wait(500)
        assert sorted(record.payloads) == list(range(500))

    def test_idle_leaves_alone_what_is_due_later(self, client: Client) -> None:
        client.enqueue("q", delay=60 * SECOND)
        worker = Worker(client, {"q": Record()})
        assert worker.run(until_idle=True) == Report()
        client.enqueue("q")
        assert worker.run(until_idle=True) == Report(claimed=1, acked=1)

    @pytest.mark.parametrize("autocommit", [True, False])
    def test_pool(self, database: str, client: Client, *, autocommit: bool) -> None:
        client.enqueue_many("q", list(range(100)))
        record = Record()
        kwargs = {"autocommit": autocommit}
        with (
            psycopg_pool.ConnectionPool(database, min_size=1, max_size=2, kwargs=kwargs) as pool,
            Client(pool) as pooled,
            running(Worker(pooled, {"q": record})),
        ):
            record.wait(100)
        assert sorted(record.payloads) == list(range(100))


class TestFind:
    @pytest.mark.usefixtures("no_polling")
    def test_woken_by_a_notification(self, client: Client, conn: Connection) -> None:
        record = Record()
        with running(Worker(client, {"q": record}, poll_interval=NEVER)):
            for count in range(1, 4):
                wait_until(lambda: listening(conn))
                client.enqueue("q", count)
                record.wait(count)
        assert record.payloads == [1, 2, 3]

    @pytest.mark.usefixtures("no_polling")
    def test_a_job_from_before_it_listened(self, client: Client) -> None:
        started, go = threading.Event(), threading.Event()
        connect = client._connect

        def late() -> Any:
            started.set()
            go.wait(PATIENCE)
            return connect()

        record = Record()
        worker = Worker(client, {"q": record}, poll_interval=NEVER)
        worker._connect_listener = late  # type: ignore[method-assign]
        with running(worker):
            started.wait(PATIENCE)
            # The first look was in vain, and nobody listens yet.
            wait_until(lambda: worker._dispatcher and worker._dispatcher._sources["q"].empty)
            client.enqueue("q")
            go.set()
            record.wait(1)

    def test_polls_where_it_cannot_listen(self, client: Client, conn: Connection) -> None:
        record = Record()
        worker = Worker(client, {"q": record}, poll_interval=0.05, listen=False)
        with running(worker):
            client.enqueue("q")
            record.wait(1)
            assert listening(conn) == []

    @pytest.mark.usefixtures("no_polling")
    def test_sleeps_until_a_delayed_job(self, client: Client, conn: Connection) -> None:
        record = Record()
        with running(Worker(client, {"q": record}, poll_interval=NEVER)):
            wait_until(lambda: listening(conn))
            client.enqueue("q", delay=SECOND / 2)
            record.wait(1)
        (job,) = record.jobs
        assert job.observed_at >= job.run_at
        assert job.observed_at - job.run_at < SECOND

    def test_busy_workers_are_not_notified(self, client: Client, conn: Connection) -> None:
        # Three looks that find something: from then on nobody holds the idle lock.
        record = Record()
        with running(Worker(client, {"q": record}, concurrency=1, prefetch=0)):
            wait_until(lambda: listening(conn))
            client.enqueue_many("q", list(range(3000)))
            record.wait(100)
            wait_until(lambda: not listening(conn))
            record.wait(3000)
            wait_until(lambda: listening(conn))

    def test_listener_dsn(self, client: Client, conn: Connection, database: str) -> None:
        name = "listener-of-the-test"
        worker = Worker(client, {"q": Record()}, listener_dsn=f"{database}&application_name={name}")
        with running(worker):
            wait_until(lambda: listening(conn))
            (pid,) = listening(conn)
            row = conn.execute(
                "select application_name from pg_stat_activity where pid = %s", [pid]
            ).fetchone()
            assert row == (name,)


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
        with pytest.raises(ValueError, match="negative"):
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
    "BaseException": (throw(Quiet("hush")), "test_worker.Quiet: hush"),
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


class TestRefusals:
    def test_arguments(self, client: Client) -> None:
        async def handle(_: RunningJob) -> None: ...

        record = Record()
        with pytest.raises(TypeError, match="ordinary function"):
            Worker(client, {"q": handle})
        with pytest.raises(TypeError, match="ordinary function"):
            Worker(client, {"q": None})  # type: ignore[dict-item]
        for options in (
            {"concurrency": 0},
            {"prefetch": -1},
            {"poll_interval": 0},
            {"drain_timeout": -1},
        ):
            with pytest.raises(pgq_sql.InvalidArgument):
                Worker(client, {"q": record}, **options)  # type: ignore[arg-type]
        with pytest.raises(pgq_sql.InvalidArgument, match="handler"):
            Worker(client, {})

    def test_unknown_queue(self, client: Client) -> None:
        with pytest.raises(pgq_sql.QueueNotFound) as caught:
            Worker(client, {"q": Record(), "no": Record()}).run()
        assert caught.value.detail == 'queue "no"'

    def test_no_schema(self, empty_database: str) -> None:
        with Client(empty_database) as client, pytest.raises(pgq_sql.VersionMismatch):
            Worker(client, {"q": Record()}).run()

    def test_run_twice(self, client: Client) -> None:
        record = Record()
        worker = Worker(client, {"q": record})
        client.enqueue("q")
        with running(worker):
            record.wait(1)
            with pytest.raises(pgq_sql.Closed, match="running already"):
                worker.run()
        with pytest.raises(pgq_sql.Closed, match="has been stopped"):
            worker.run()

    def test_stopped_before_it_ran(self, client: Client) -> None:
        worker = Worker(client, {"q": Record()})
        client.enqueue("q")
        worker.stop()
        assert worker.run() == Report()
