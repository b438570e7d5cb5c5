"""The worker: finds jobs, runs them, settles them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg_pool
import pytest

import pgq_sql
from pgq_sql import Client, Report, RunningJob, Worker, _looks
from servers import Connection, wait_until
from working import PATIENCE, Record, listening, messages, running, states

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
        with running(Worker(client, {"q": record}, poll_interval=timedelta(seconds=NEVER))):
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
        worker = Worker(client, {"q": record}, poll_interval=timedelta(seconds=NEVER))
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
        worker = Worker(client, {"q": record}, poll_interval=timedelta(seconds=0.05), listen=False)
        with running(worker):
            client.enqueue("q")
            record.wait(1)
            assert listening(conn) == []

    @pytest.mark.usefixtures("no_polling")
    def test_sleeps_until_a_delayed_job(self, client: Client, conn: Connection) -> None:
        record = Record()
        with running(Worker(client, {"q": record}, poll_interval=timedelta(seconds=NEVER))):
            wait_until(lambda: listening(conn))
            client.enqueue("q", delay=SECOND / 2)
            record.wait(1)
        (job,) = record.jobs
        assert job.observed_at >= job.run_at

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


class TestRefusals:
    def test_arguments(self, client: Client) -> None:
        async def handle(_: RunningJob) -> None: ...

        record = Record()
        with pytest.raises(TypeError, match="ordinary function"):
            Worker(client, {"q": handle})
        with pytest.raises(TypeError, match="must be a function"):
            Worker(client, {"q": None})  # type: ignore[dict-item]
        wrong: list[dict[str, Any]] = [
            {"concurrency": 0},
            {"prefetch": -1},
            {"poll_interval": timedelta(0)},
            {"drain_timeout": timedelta(seconds=-1)},
        ]
        for options in wrong:
            with pytest.raises(pgq_sql.InvalidArgument):
                Worker(client, {"q": record}, **options)
        with pytest.raises(TypeError, match="poll_interval must be timedelta, not int"):
            Worker(client, {"q": record}, poll_interval=5)  # type: ignore[arg-type]
        with pytest.raises(pgq_sql.InvalidArgument, match="handler"):
            Worker(client, {})

    def test_unknown_queue(self, client: Client, caplog: pytest.LogCaptureFixture) -> None:
        """It is told once, and waited for: a worker may be deployed before its queue is made."""
        record = Record()
        worker = Worker(
            client, {"q": record, "late": record}, poll_interval=timedelta(seconds=0.02)
        )
        with running(worker):
            wait_until(lambda: messages(caplog.records, logging.ERROR))
            client.enqueue("q", 1)
            record.wait(1)
            client.create_queue("late")
            client.enqueue("late", 2)
            record.wait(2)
        (told,) = messages(caplog.records, logging.ERROR)
        assert told.startswith("queue late: cannot claim: QueueNotFound:")

    def test_unknown_queue_that_is_to_become_idle(self, client: Client) -> None:
        with pytest.raises(pgq_sql.QueueNotFound) as caught:
            Worker(client, {"q": Record(), "no": Record()}).run(until_idle=True)
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
