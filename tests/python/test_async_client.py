"""The client for asyncio: the same methods, awaited; its transactions, pools and mistakes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg
import psycopg_pool
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from pgq_sql import AsyncClient, Client, Closed, Enqueued, InvalidArgument, LeaseLost
from servers import Connection, Server, wait_until
from test_concurrency import scalar

JOBS = "select count(*) from pgq_sql.jobs"


def run(database: str, act: Callable[[AsyncClient], Awaitable[object]]) -> None:
    """Let it act with a client that has a queue q."""

    async def main() -> None:
        async with AsyncClient(database) as client:
            await client.create_queue("q")
            await act(client)

    asyncio.run(main())


def methods(kind: type) -> dict[str, Callable[..., object]]:
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_both_clients_have_the_same_methods() -> None:
    waits, blocks = methods(AsyncClient), methods(Client)
    assert waits.keys() == blocks.keys()
    for name, method in waits.items():
        assert inspect.iscoroutinefunction(method), name
        names = [list(inspect.signature(one).parameters.values()) for one in (method, blocks[name])]
        one, other = ([(p.name, p.kind, p.default) for p in found] for found in names)
        assert one == other, name
        assert inspect.getdoc(method) == inspect.getdoc(blocks[name]), name


def test_a_job_s_life(database: str, conn: Connection) -> None:
    async def act(client: AsyncClient) -> None:
        assert await client.check() == "0001"
        made = await client.enqueue("q", {"a": None}, delay=timedelta(0), headers={"h": 1})
        assert made == Enqueued(1, "inserted")
        assert len(await client.enqueue_many("q", [1, None, "x"])) == 3
        first, *others = await client.claim("q", "w", 10)
        assert (first.payload, first.headers, first.attempt) == ({"a": None}, {"h": 1}, 1)
        beat = await client.heartbeat(first.job_id, first.token, progress={"done": 1})
        assert beat.outcome == "extended"
        kept = await client.get_job(first.job_id)
        assert kept is not None
        assert (kept.state, kept.progress) == ("running", {"done": 1})
        assert await client.retry(others[0].job_id, others[0].token, "boom") == "retried"
        assert await client.dead_letter(others[1].job_id, others[1].token, "boom") == "dead"
        outcomes = await client.ack_many(
            [first.job_id, others[2].job_id], [first.token, others[2].token + 1]
        )
        assert [one.outcome for one in outcomes] == ["acked", "lost"]
        assert len(await client.redrive([others[1].job_id])) == 1
        assert (await client.queue_stats("q")).running == 1
        assert {one.task for one in await client.sweep()} >= {"recovered", "expired"}

    run(database, act)
    assert scalar(conn, JOBS) == 3


def test_calls_at_once_share_a_few_connections(database: str, conn: Connection) -> None:
    async def act(client: AsyncClient) -> None:
        made = await asyncio.gather(*(client.enqueue("q", number) for number in range(50)))
        assert len({one.job_id for one in made}) == 50
        backends = (
            "select count(*) from pg_stat_activity"
            " where application_name = 'pgq_sql' and datname = current_database()"
        )
        assert 1 <= int(str(scalar(conn, backends))) <= 8

    run(database, act)
    assert scalar(conn, JOBS) == 50


def test_a_call_that_is_cancelled_harms_no_other(database: str, conn: Connection) -> None:
    async def act(client: AsyncClient) -> None:
        job = await client.enqueue("q")
        with conn.transaction():
            conn.execute("select from pgq_sql.job for update")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.cancel(job.job_id), 0.2)
        assert await client.cancel(job.job_id) == "cancelled"

    run(database, act)


class TestTransactions:
    """`conn=` joins, and never ends, the caller's transaction."""

    @pytest.mark.parametrize("commits", [True, False])
    @pytest.mark.parametrize("cursor", [True, False])
    def test_psycopg(self, database: str, conn: Connection, commits: bool, cursor: bool) -> None:
        async def act(client: AsyncClient) -> None:
            async with await psycopg.AsyncConnection.connect(database) as mine:
                await client.enqueue("q", conn=mine.cursor() if cursor else mine)
                assert scalar(conn, JOBS) == 0
                await (mine.commit() if commits else mine.rollback())

        run(database, act)
        assert scalar(conn, JOBS) == int(commits)

    @pytest.mark.parametrize("commits", [True, False])
    @pytest.mark.parametrize("session", [True, False])
    def test_sqlalchemy(
        self, database: str, conn: Connection, commits: bool, session: bool
    ) -> None:
        async def use(client: AsyncClient, mine: Any) -> None:
            await client.enqueue("q", conn=mine)
            assert scalar(conn, JOBS) == 0
            await (mine.commit() if commits else mine.rollback())

        async def act(client: AsyncClient) -> None:
            async with engine(database) as made:
                opened = AsyncSession(made) if session else made.connect()
                async with opened as mine:
                    await use(client, mine)

        run(database, act)
        assert scalar(conn, JOBS) == int(commits)

    def test_a_lease_in_the_caller_s_transaction(self, database: str) -> None:
        async def act(client: AsyncClient) -> None:
            await client.enqueue("q")
            (job,) = await client.claim("q", "w")
            async with await psycopg.AsyncConnection.connect(database) as mine:
                await client.require_lease(job.job_id, job.token, conn=mine)
                assert await client.ack(job.job_id, job.token, conn=mine) == "acked"
                await mine.rollback()
                with pytest.raises(LeaseLost):
                    await client.require_lease(job.job_id, job.token + 1, conn=mine)

        run(database, act)


def engine(database: str) -> Any:
    """An engine that is disposed of in the end."""

    class Disposed:
        async def __aenter__(self) -> AsyncEngine:
            self.made = create_async_engine(
                database.replace("postgresql://", "postgresql+psycopg://")
            )
            return self.made

        async def __aexit__(self, *_: object) -> None:
            await self.made.dispose()

    return Disposed()


def test_a_pool_of_the_caller_s(database: str, conn: Connection) -> None:
    async def main() -> None:
        async with psycopg_pool.AsyncConnectionPool(database, min_size=1, open=False) as pool:
            client = AsyncClient(pool)
            await client.create_queue("q")
            await client.enqueue("q")
            await client.close()
            async with pool.connection() as mine:  # still open
                await mine.execute("select 1")

    asyncio.run(main())
    assert scalar(conn, JOBS) == 1


class TestMistakes:
    """Refused before any SQL."""

    def test_a_connection_of_the_other_kind(self, database: str, conn: Connection) -> None:
        async def act(client: AsyncClient) -> None:
            wrong: Any = conn
            with pytest.raises(TypeError, match="AsyncConnection"):
                await client.enqueue("q", conn=wrong)
            async with await psycopg.AsyncConnection.connect(database) as mine:
                other: Any = mine
                with Client(database) as blocking, pytest.raises(TypeError, match="a psycopg Conn"):
                    blocking.enqueue("q", conn=other)
            async with engine(database) as made, made.connect() as mine:
                with (
                    Client(database) as blocking,
                    pytest.raises(TypeError, match="SQLAlchemy Conn"),
                ):
                    blocking.enqueue("q", conn=mine)

        run(database, act)
        assert scalar(conn, JOBS) == 0

    def test_a_pool_of_the_other_kind(self, database: str) -> None:
        wrong: Any = psycopg_pool.ConnectionPool(database, open=False)
        with pytest.raises(TypeError, match="AsyncConnectionPool"):
            AsyncClient(wrong)
        other: Any = psycopg_pool.AsyncConnectionPool(database, open=False)
        with pytest.raises(TypeError, match="a ConnectionPool"):
            Client(other)

    def test_a_closed_client(self, database: str) -> None:
        async def act(client: AsyncClient) -> None:
            await client.close()
            with pytest.raises(Closed):
                await client.enqueue("q")

        run(database, act)

    def test_a_bad_argument(self, database: str) -> None:
        async def act(client: AsyncClient) -> None:
            with pytest.raises(InvalidArgument):
                await client.enqueue("q", delay=timedelta(seconds=-1))

        run(database, act)


def test_a_connection_that_was_killed(database: str, conn: Connection, server: Server) -> None:
    """An idle one that has died is not lent."""

    async def act(client: AsyncClient) -> None:
        with psycopg.connect(server.dsn(conn.info.dbname), autocommit=True) as admin:
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'pgq_sql' and datname = current_database()"
            )
            gone = (
                "select count(*) from pg_stat_activity"
                " where application_name = 'pgq_sql' and datname = current_database()"
            )
            wait_until(lambda: scalar(admin, gone) == 0, message="the session gone")
        await client.enqueue("q")

    run(database, act)
