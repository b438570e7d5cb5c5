"""Handlers that end their transaction otherwise, or answer what is no result: nothing is acked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool

from pgq_sql import (
    AsyncClient,
    AsyncRunningJob,
    AsyncWorker,
    Batch,
    BatchConsumer,
    Client,
    Consumer,
    InvalidState,
    Report,
    Retry,
    RunningJob,
    Worker,
)
from servers import Connection
from test_concurrency import scalar

EFFECTS = "select coalesce(array_agg(n order by n), '{}') from effects"
WRITE = "insert into effects select 1"
ERROR = "select error from pgq_sql.dead_jobs"


@pytest.fixture
def client(database: str, conn: Connection) -> Iterator[Client]:
    conn.execute("create table effects (n integer)")
    with Client(database) as client:
        client.create_queue("q", retry_delay=timedelta(0), max_attempts=2)
        client.enqueue("q")
        yield client


class TestTransactions:
    def test_psycopg_s_rollback(self, client: Client, conn: Connection) -> None:
        def handle(job: RunningJob) -> None:
            with job.transaction() as mine:
                mine.execute(WRITE)
                if job.attempt == 1:
                    raise psycopg.Rollback

        report = Worker(client, {"q": handle}).run(until_idle=True)
        assert report == Report(claimed=2, acked=1, retried=1)
        assert scalar(conn, EFFECTS) == [1]

    def test_psycopg_s_rollback_in_the_loop(
        self, client: Client, database: str, conn: Connection
    ) -> None:
        async def handle(job: AsyncRunningJob) -> None:
            async with job.transaction() as mine:
                await mine.execute(WRITE)
                if job.attempt == 1:
                    raise psycopg.Rollback

        async def main() -> Report:
            async with AsyncClient(database) as asynchronous:
                return await AsyncWorker(asynchronous, {"q": handle}).run(until_idle=True)

        assert asyncio.run(main()) == Report(claimed=2, acked=1, retried=1)
        assert client.next_run_at("q") is None
        assert scalar(conn, EFFECTS) == [1]

    @pytest.mark.parametrize("statement", ["rollback", "commit"])
    def test_a_statement_that_ends_it(
        self, client: Client, conn: Connection, statement: str
    ) -> None:
        def handle(job: RunningJob) -> None:
            with job.transaction() as mine:
                mine.execute(statement.encode())

        assert Worker(client, {"q": handle}).run(until_idle=True).dead == 1
        assert "ended by the handler's own statement" in str(scalar(conn, ERROR))

    def test_of_a_batch(self, client: Client, conn: Connection) -> None:
        def handle(batch: Batch) -> None:
            with batch.transaction() as mine:
                mine.execute(WRITE)
                if batch[0].attempt == 1:
                    raise psycopg.Rollback

        report = Worker(client, {"q": BatchConsumer(handle)}).run(until_idle=True)
        assert report == Report(claimed=2, acked=1, retried=1)
        assert scalar(conn, EFFECTS) == [1]

    def test_two_at_once(self, client: Client) -> None:
        errors: list[InvalidState] = []

        def handle(job: RunningJob) -> None:
            with job.transaction():
                try:
                    with job.transaction():
                        pass
                except InvalidState as error:
                    errors.append(error)

        report = Worker(client, {"q": handle}).run(until_idle=True)
        assert report == Report(claimed=1, acked=1)
        assert str(errors[0]) == "the job has a transaction already"

    def test_an_ack_whose_transaction_was_given_up(
        self, client: Client, database: str, conn: Connection
    ) -> None:
        def handle(job: RunningJob) -> None:
            with psycopg.connect(database) as mine:
                mine.execute(WRITE)
                job.ack(conn=mine)
                if job.attempt == 1:
                    mine.rollback()

        report = Worker(client, {"q": handle}).run(until_idle=True)
        assert report == Report(claimed=2, acked=1, retried=1)
        assert scalar(conn, EFFECTS) == [1]

    def test_an_error_that_is_swallowed_in_it(self, client: Client, conn: Connection) -> None:
        def handle(job: RunningJob) -> None:
            with job.transaction() as mine, suppress(psycopg.Error):
                mine.execute("selec")

        assert Worker(client, {"q": handle}).run(until_idle=True).dead == 1
        assert "InFailedSqlTransaction" in str(scalar(conn, ERROR))


class Asynchronous:
    async def __call__(self, _: object) -> None: ...


class TestAnswers:
    @pytest.mark.parametrize(
        ("answer", "says"),
        [
            (Retry, "TypeError: the handler answered Retry, which is no result"),
            ((n for n in "ab"), "TypeError: the handler answered generator"),
            (ValueError("boom"), "ValueError: boom"),
        ],
    )
    def test_no_results(self, client: Client, conn: Connection, answer: Any, says: str) -> None:
        assert Worker(client, {"q": lambda _: answer}).run(until_idle=True).dead == 1
        assert str(scalar(conn, ERROR)).startswith(says)

    def test_a_coroutine_in_a_thread(self, client: Client, conn: Connection) -> None:
        async def handle(_: object) -> None: ...

        assert Worker(client, {"q": lambda job: handle(job)}).run(until_idle=True).dead == 1
        assert "needs an AsyncWorker" in str(scalar(conn, ERROR))
        with pytest.raises(TypeError, match="ordinary function"):
            Worker(client, {"q": Asynchronous()})

    def test_a_function_in_the_loop(self, client: Client, database: str) -> None:
        """It has run, so that its job is done: to fail it would only repeat its effect."""
        calls: list[object] = []

        async def main() -> Report:
            async with AsyncClient(database) as asynchronous:
                handlers: dict[str, Any] = {"q": calls.append}
                return await AsyncWorker(asynchronous, handlers).run(until_idle=True)

        assert asyncio.run(main()) == Report(claimed=1, acked=1)
        assert len(calls) == 1
        assert client.next_run_at("q") is None

    def test_kinds_that_are_no_tuple(self) -> None:
        with pytest.raises(TypeError, match="must be a tuple"):
            Consumer(print, dead_letter_on=[LookupError])  # type: ignore[arg-type]


def test_an_async_worker_goes_where_the_pool_goes(database: str, client: Client) -> None:
    """Also if the pool says so by its keywords alone."""
    options = conninfo_to_dict(database)

    async def handle(_: AsyncRunningJob) -> None: ...

    async def main() -> Report:
        async with AsyncConnectionPool("", kwargs={**options, "autocommit": True}) as pool:
            return await AsyncWorker(AsyncClient(pool), {"q": handle}).run(until_idle=True)

    assert asyncio.run(main()) == Report(claimed=1, acked=1)
    assert client.next_run_at("q") is None


def test_a_cancelled_wait_for_a_connection_wakes_another(database: str) -> None:
    async def main() -> None:
        async with AsyncClient(database) as client:
            gate = asyncio.Event()

            async def hold() -> None:
                async with client._borrow():
                    await gate.wait()

            holders = [asyncio.create_task(hold()) for _ in range(8)]
            while client._source._lent < 8:  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)
            waiting = [asyncio.create_task(client.schema_version()) for _ in range(2)]
            await asyncio.sleep(0.05)
            holders[0].cancel()
            await asyncio.sleep(0)
            waiting[0].cancel()
            assert await asyncio.wait_for(waiting[1], 10)
            gate.set()
            await asyncio.gather(*holders, *waiting, return_exceptions=True)

    asyncio.run(main())
