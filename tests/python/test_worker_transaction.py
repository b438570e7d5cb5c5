"""`job.transaction()`: what a handler does and its job's ack commit together, or neither does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from pgq_sql import (
    AsyncClient,
    AsyncRunningJob,
    AsyncWorker,
    Client,
    Closed,
    LeaseLost,
    Report,
    RunningJob,
    Worker,
)
from servers import Connection
from test_concurrency import scalar
from working import PATIENCE

EFFECTS = "select array_agg(n order by n) from effects"
JOBS = "select count(*) from pgq_sql.jobs"
WRITE = "insert into effects select 1"


@pytest.fixture
def client(database: str, conn: Connection) -> Iterator[Client]:
    conn.execute("create table effects (n integer)")
    with Client(database) as client:
        client.create_queue("q", retry_delay=timedelta(0), max_attempts=3)
        client.enqueue("q")
        yield client


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    engine = create_engine(database.replace("postgresql:", "postgresql+psycopg:", 1))
    yield engine
    engine.dispose()


def test_both_commit(client: Client, conn: Connection) -> None:
    def handle(job: RunningJob) -> None:
        with job.transaction() as mine:
            mine.execute(WRITE)
            assert scalar(conn, EFFECTS) is None
        assert scalar(conn, EFFECTS) == [1]
        assert scalar(conn, JOBS) == 0

    report = Worker(client, {"q": handle}).run(until_idle=True)
    assert report == Report(claimed=1, acked=1)
    assert scalar(conn, EFFECTS) == [1]


def test_neither_commits(client: Client, conn: Connection) -> None:
    def handle(job: RunningJob) -> None:
        with job.transaction() as mine:
            mine.execute(WRITE)
            if job.attempt == 1:
                raise ValueError("boom")

    report = Worker(client, {"q": handle}).run(until_idle=True)
    assert report == Report(claimed=2, acked=1, retried=1)
    assert scalar(conn, EFFECTS) == [1]


def test_a_commit_that_fails(client: Client, conn: Connection) -> None:
    """What is told is what happened: the connection is lost before the commit."""

    def handle(job: RunningJob) -> None:
        with job.transaction() as mine:
            mine.execute(WRITE)
            if job.attempt == 1:
                conn.execute("select pg_terminate_backend(%s)", [mine.info.backend_pid])

    report = Worker(client, {"q": handle}).run(until_idle=True)
    assert report == Report(claimed=2, acked=1, retried=1)
    assert scalar(conn, EFFECTS) == [1]


def test_an_answer_of_the_commit_that_is_lost(client: Client, conn: Connection) -> None:
    """It was carried out: the job is gone, its effect is there once, and nothing runs again."""

    def handle(job: RunningJob) -> None:
        with job.transaction() as mine:
            mine.execute(WRITE)
        # As if the answer had not come.
        job._course.ended = job._course.ending = False
        raise psycopg.OperationalError("the connection was lost")

    report = Worker(client, {"q": handle}).run(until_idle=True)
    assert report == Report(claimed=1, lost=1)
    assert scalar(conn, EFFECTS) == [1]


def test_a_lease_that_is_lost(client: Client, conn: Connection) -> None:
    errors: list[type] = []

    def handle(job: RunningJob) -> None:
        if not errors:  # a release costs no attempt
            client.release(job.job_id, job.token)
        try:
            with job.transaction() as mine:
                mine.execute(WRITE)
        except LeaseLost as error:
            errors.append(type(error))
            raise

    report = Worker(client, {"q": handle}, concurrency=1).run(until_idle=True)
    assert errors == [LeaseLost]
    assert (report.claimed, report.acked, report.lost) == (2, 1, 1)
    assert scalar(conn, EFFECTS) == [1]


def test_a_lease_that_runs_out_in_it(client: Client, conn: Connection) -> None:
    def handle(job: RunningJob) -> None:
        with job.transaction() as mine:
            mine.execute(WRITE)
            if job.attempt == 1:
                mine.execute("select pgq_sql.heartbeat(%s, %s, '1 ms')", [job.job_id, job.token])
                mine.execute("select pg_sleep(0.01)")

    report = Worker(client, {"q": handle}).run(until_idle=True)
    assert report.acked == 1
    assert scalar(conn, EFFECTS) == [1]


def test_what_comes_after_it_does_not_undo_it(client: Client, conn: Connection) -> None:
    def handle(job: RunningJob) -> None:
        with job.transaction() as mine:
            mine.execute(WRITE)
        raise ValueError("boom")

    report = Worker(client, {"q": handle}).run(until_idle=True)
    assert report == Report(claimed=1, acked=1)
    assert scalar(conn, JOBS) == 0


def test_renewals_after_it_do_not_count_the_job_as_lost(client: Client, conn: Connection) -> None:
    client.enqueue("q", visibility_timeout=timedelta(seconds=2))
    conn.execute("delete from pgq_sql.job where id = 1")

    def handle(job: RunningJob) -> None:
        with job.transaction() as mine:
            mine.execute(WRITE)
        # A renewal comes when a third of the lease is over.
        conn.execute("select pg_sleep(1.5)")

    assert Worker(client, {"q": handle}).run(until_idle=True) == Report(claimed=1, acked=1)


def test_as_many_at_once_as_there_are_threads(client: Client, conn: Connection) -> None:
    """Renewals and acks have connections of their own beside them."""
    client.enqueue_many("q", list(range(30)))

    def handle(job: RunningJob) -> None:
        with job.transaction() as mine:
            mine.execute("select pg_sleep(0.02)")
            mine.execute(WRITE)

    report = Worker(client, {"q": handle}, concurrency=20).run(until_idle=True)
    assert report == Report(claimed=31, acked=31)
    assert scalar(conn, "select count(*) from effects") == 31


def test_outside_of_a_worker() -> None:
    job = RunningJob(*[None] * 13)  # type: ignore[arg-type]
    with pytest.raises(Closed), job.transaction():
        pass


class TestAsync:
    def test_commit_rollback_and_after(
        self, client: Client, conn: Connection, database: str
    ) -> None:
        client.enqueue("q", "after")

        async def handle(job: AsyncRunningJob) -> None:
            async with job.transaction() as mine:
                await mine.execute(WRITE)
                if job.attempt == 1 and job.payload != "after":
                    raise ValueError("boom")
            if job.payload == "after":
                raise ValueError("boom")

        async def main() -> Report:
            async with AsyncClient(database) as mine:
                return await AsyncWorker(mine, {"q": handle}).run(until_idle=True)

        assert asyncio.run(main()) == Report(claimed=3, acked=2, retried=1)
        assert scalar(conn, EFFECTS) == [1, 1]

    def test_cancelled_in_it(self, client: Client, conn: Connection, database: str) -> None:
        assert client is not None

        async def main() -> Report:
            async with AsyncClient(database) as mine:
                began = asyncio.Event()

                async def handle(job: AsyncRunningJob) -> None:
                    async with job.transaction() as own:
                        await own.execute(WRITE)
                        began.set()
                        await asyncio.sleep(60)

                worker = AsyncWorker(mine, {"q": handle}, drain_timeout=timedelta(seconds=0.1))
                running = asyncio.create_task(worker.run())
                await asyncio.wait_for(began.wait(), PATIENCE)
                worker.stop()
                return await running

        report = asyncio.run(main())
        assert (report.claimed, report.acked) == (1, 0)
        assert scalar(conn, EFFECTS) is None
        assert scalar(conn, JOBS) == 1


class TestAck:
    """`job.ack(conn=…)`: with the effect in a transaction of the application's."""

    def test_commits_with_the_effect(
        self, client: Client, conn: Connection, engine: Engine
    ) -> None:
        def handle(job: RunningJob) -> None:
            with Session(engine) as session, session.begin():
                session.execute(text(WRITE))
                job.ack(conn=session)
                assert scalar(conn, JOBS) == 1

        report = Worker(client, {"q": handle}).run(until_idle=True)
        assert report == Report(claimed=1, acked=1)
        assert (scalar(conn, EFFECTS), scalar(conn, JOBS)) == ([1], 0)

    def test_rolls_back_with_it(self, client: Client, conn: Connection, engine: Engine) -> None:
        def handle(job: RunningJob) -> None:
            with Session(engine) as session, session.begin():
                session.execute(text(WRITE))
                job.ack(conn=session)
                if job.attempt == 1:
                    raise ValueError("boom")

        report = Worker(client, {"q": handle}).run(until_idle=True)
        assert report == Report(claimed=2, acked=1, retried=1)
        assert scalar(conn, EFFECTS) == [1]

    def test_is_refused_without_the_lease(
        self, client: Client, conn: Connection, engine: Engine
    ) -> None:
        def handle(job: RunningJob) -> None:
            if job.token == 1:
                client.release(job.job_id, job.token)
            with Session(engine) as session, session.begin():
                session.execute(text(WRITE))
                job.ack(conn=session)

        report = Worker(client, {"q": handle}, concurrency=1).run(until_idle=True)
        assert (report.acked, report.lost) == (1, 1)
        assert scalar(conn, EFFECTS) == [1]

    @pytest.mark.usefixtures("client")
    def test_in_the_loop(self, database: str, conn: Connection) -> None:
        async def main() -> Report:
            engine = create_async_engine(database.replace("postgresql:", "postgresql+psycopg:", 1))

            async def handle(job: AsyncRunningJob) -> None:
                async with AsyncSession(engine) as session, session.begin():
                    await session.execute(text(WRITE))
                    await job.ack(conn=session)

            async with AsyncClient(database) as asynchronous:
                worker = AsyncWorker(asynchronous, {"q": handle})
                report = await worker.run(until_idle=True)
            await engine.dispose()
            return report

        assert asyncio.run(main()) == Report(claimed=1, acked=1)
        assert (scalar(conn, EFFECTS), scalar(conn, JOBS)) == ([1], 0)
