"""`conn=` as each library's own users write it, and what is refused."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import django.core.cache
import django.db
import psycopg
import psycopg2
import psycopg2.extras
import pytest
import sqlalchemy as sa
from django.db import transaction
from sqlalchemy import event
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncSession,
    async_scoped_session,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session

from joining import django_on, url
from pgq_sql import AsyncClient, Client, QueueNotFound
from servers import Connection

# Django has no types.
atomic: Any = transaction.atomic
connection: Any = django.db.connection


if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("q")
        yield client


@pytest.fixture(params=["psycopg", "psycopg2"])
def engine(request: pytest.FixtureRequest, database: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(url(database, request.param))
    yield engine
    engine.dispose()


@pytest.fixture
def wrapper(database: str) -> Iterator[Any]:
    with django_on(database) as wrapper:
        yield wrapper


def counts(conn: Connection) -> tuple[int, int]:
    """How many jobs and orders others see."""
    rows: Any = conn.execute(
        "select (select count(*) from pgq_sql.jobs), (select count(*) from orders)"
    ).fetchall()
    (row,) = rows
    return row  # type: ignore[no-any-return]


class TestSQLAlchemy:
    @pytest.mark.parametrize("fails", [False, True])
    def test_session(
        self, client: Client, engine: sa.Engine, conn: Connection, fails: bool
    ) -> None:
        Base.metadata.create_all(engine)
        try:
            with Session(engine) as session, session.begin():
                order = Order()
                session.add(order)
                session.flush()
                client.enqueue("q", {"order": order.id}, conn=session)
                assert counts(conn) == (0, 0)
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        assert counts(conn) == ((0, 0) if fails else (1, 1))

    def test_session_is_not_flushed(self, client: Client, engine: sa.Engine) -> None:
        Base.metadata.create_all(engine)
        with Session(engine) as session:
            session.add(order := Order())
            client.enqueue("q", conn=session)
            assert order in session.new
            assert session.in_transaction()

    def test_queue_and_order_after_an_error(
        self, client: Client, engine: sa.Engine, conn: Connection
    ) -> None:
        Base.metadata.create_all(engine)
        with Session(engine) as session, session.begin():
            session.add(Order())
            with pytest.raises(QueueNotFound), session.begin_nested():
                client.enqueue("no", conn=session)
            client.enqueue("q", conn=session)
        assert counts(conn) == (1, 1)

    def test_autocommit(self, client: Client, engine: sa.Engine, conn: Connection) -> None:
        Base.metadata.create_all(engine)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as mine:
            client.enqueue("q", conn=mine)
            assert counts(conn) == (1, 0)

    def test_engine_hears_of_the_call(self, client: Client, engine: sa.Engine) -> None:
        heard: list[str] = []
        event.listen(engine, "before_cursor_execute", lambda *arguments: heard.append(arguments[2]))
        with engine.connect() as mine:
            client.enqueue("q", conn=mine)
        assert ["enqueue" in one for one in heard] == [True]

    @pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
    def test_blocking_code_in_an_async_session(
        self, client: Client, database: str, driver: str
    ) -> None:
        async def main() -> None:
            engine = create_async_engine(url(database, driver))
            async with AsyncSession(engine) as session, session.begin():
                await session.run_sync(lambda inner: client.enqueue("q", conn=inner))
                assert client.count_jobs() == []
            await engine.dispose()

        asyncio.run(main())
        assert [one.count for one in client.count_jobs()] == [1]

    def test_other_databases_are_refused(self, client: Client) -> None:
        engine = sa.create_engine("sqlite://")
        with engine.connect() as mine, pytest.raises(TypeError, match="PostgreSQL, not sqlite"):
            client.enqueue("q", conn=mine)
        engine.dispose()


class TestDjango:
    @pytest.mark.parametrize("fails", [False, True])
    @pytest.mark.usefixtures("wrapper")
    def test_atomic(self, client: Client, conn: Connection, fails: bool) -> None:
        conn.execute("create table orders (id int)")
        try:
            with atomic():
                with connection.cursor() as cursor:
                    cursor.execute("insert into orders values (1)")
                client.enqueue("q", {"order": 1}, conn=connection)
                assert counts(conn) == (0, 0)
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        assert counts(conn) == ((0, 0) if fails else (1, 1))

    def test_inner_atomic_contains_an_error(self, client: Client, wrapper: Any) -> None:
        with atomic():
            client.enqueue("q", conn=wrapper)
            with pytest.raises(QueueNotFound), atomic():
                client.enqueue("no", conn=wrapper)
        assert [one.count for one in client.count_jobs()] == [1]

    def test_broken_transaction_is_django_s_to_refuse(self, client: Client, wrapper: Any) -> None:
        with atomic():
            transaction.set_rollback(True)
            with pytest.raises(transaction.TransactionManagementError):
                client.enqueue("q", conn=wrapper)
        assert client.count_jobs() == []

    def test_no_transaction(self, client: Client, wrapper: Any) -> None:
        """Then the call is one of its own, as all of Django's are."""
        client.enqueue("q", conn=wrapper)
        assert [one.count for one in client.count_jobs()] == [1]

    def test_on_psycopg2(self, client: Client, database: str) -> None:
        """Which Django takes only where it finds no psycopg 3."""
        code = (
            "import sys, psycopg\n"
            "sys.modules['psycopg'], there = None, psycopg\n"
            "import django.db.backends.postgresql.base\n"
            "sys.modules['psycopg'] = there\n"
            "from django.db import transaction\n"
            "from joining import KINDS, django_on\n"
            "import psycopg2, pgq_sql\n"
            "with KINDS['django'](sys.argv[1]) as theirs:\n"
            "    theirs.conn.ensure_connection()\n"
            "    assert isinstance(theirs.conn.connection, psycopg2.extensions.connection)\n"
            "    theirs.call('enqueue', 'q', {'%s': 'ä'})\n"
            "    theirs.rollback()\n"
            "    theirs.call('enqueue', 'q', {'%s': 'ö'})\n"
            "    theirs.commit()\n"
            "    (job,) = theirs.call('claim', 'q', 'me')\n"
            "    assert job.payload == {'%s': 'ö'}, job\n"
            "    assert theirs.call('get_job', job.job_id).state == 'running'\n"
            "    try:\n"
            "        theirs.call('enqueue', 'no')\n"
            "    except pgq_sql.QueueNotFound as error:\n"
            "        assert isinstance(error.__cause__, django.db.utils.Error)\n"
            "        print(error.sqlstate, error.detail, error.hint)\n"
        )
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, database],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == 'JQ001 queue "no" Make it with create_queue.\n'
        assert [one.count for one in client.count_jobs()] == [1]

    def test_other_databases_are_refused(self, client: Client) -> None:
        from django.db.backends.sqlite3.base import DatabaseWrapper

        wrong: Any
        for wrong in (DatabaseWrapper({"NAME": ":memory:"}), django.core.cache.cache):
            with pytest.raises(TypeError, match=r"PostgreSQL, not (sqlite|no database)"):
                client.enqueue("q", conn=wrong)


class TestPsycopg2:
    @pytest.mark.parametrize("fails", [False, True])
    def test_connection_whose_cursors_answer_dicts(
        self, client: Client, database: str, fails: bool
    ) -> None:
        mine = psycopg2.connect(database, cursor_factory=psycopg2.extras.RealDictCursor)
        try:
            with mine:
                client.enqueue("q", conn=mine)
                assert client.count_jobs() == []
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        mine.close()
        assert [one.count for one in client.count_jobs()] == ([] if fails else [1])


class TestAsyncpg:
    def test_own_codecs_do_not_matter(self, client: Client, database: str) -> None:
        async def main() -> None:
            mine = await asyncpg.connect(database)
            for kind in ("jsonb", "timestamptz", "int8"):
                await mine.set_type_codec(
                    kind, encoder=repr, decoder=repr, schema="pg_catalog", format="text"
                )
            async with AsyncClient(database) as waiting, mine.transaction():
                made = await waiting.enqueue("q", {"a": 1}, conn=mine)
                (found,) = await waiting.list_jobs(conn=mine)
                assert (found.job_id, found.payload) == (made.job_id, {"a": 1})
            await mine.close()

        asyncio.run(main())
        (job,) = client.claim("q", "me")
        assert job.payload == {"a": 1}


class TestRefused:
    """What is of the other kind, before any SQL."""

    def test_by_the_client_for_threads(self, client: Client, database: str) -> None:
        async def main() -> list[Any]:
            engine = create_async_engine(url(database, "asyncpg"))
            wrong: list[Any] = [
                AsyncSession(engine),
                AsyncConnection(engine),
                await asyncpg.connect(database),
                await psycopg.AsyncConnection.connect(database),
                psycopg2.connect(database, async_=True),
                engine,
                engine.sync_engine,
                database,
                object(),
                Client,
            ]
            for conn in wrong:
                with pytest.raises(TypeError, match="conn must be a psycopg Connection or Cursor"):
                    client.enqueue("q", conn=conn)
            await wrong[2].close()
            await wrong[3].close()
            await engine.dispose()
            return wrong

        wrong = asyncio.run(main())
        psycopg2.extras.wait_select(wrong[4])
        wrong[4].close()

    def test_by_the_client_for_asyncio(self, database: str, wrapper: Any) -> None:
        engine = sa.create_engine(url(database, "psycopg2"))

        async def main() -> None:
            async with AsyncClient(database) as waiting:
                for conn in wrong:
                    with pytest.raises(TypeError, match="conn must be a psycopg AsyncConnection"):
                        await waiting.enqueue("q", conn=conn)

        with (
            Session(engine) as session,
            engine.connect() as conn,
            psycopg.connect(database) as ours,
        ):
            wrong: list[Any] = [session, conn, ours, ours.cursor(), wrapper, connection]
            wrong += [psycopg2.connect(database), engine, database, object()]
            asyncio.run(main())
            wrong[6].close()
        engine.dispose()


if TYPE_CHECKING:

    async def by_type_checkers(
        client: Client,
        waiting: AsyncClient,
        sync: tuple[sa.Connection, Session, scoped_session[Session]],
        waits: tuple[AsyncConnection, AsyncSession, async_scoped_session[AsyncSession]],
        ours: tuple[psycopg.Connection, psycopg.AsyncConnection],
        others: tuple[psycopg2.extensions.connection, asyncpg.Connection],
        pooled: PoolConnectionProxy,
        engine: sa.Engine,
        pool: asyncpg.Pool,
    ) -> None:
        client.enqueue("q", conn=sync[0])
        client.enqueue("q", conn=sync[1])
        client.enqueue("q", conn=sync[2])
        client.enqueue("q", conn=ours[0])
        client.enqueue("q", conn=others[0])
        client.enqueue("q", conn=waits[0])  # type: ignore[arg-type]
        client.enqueue("q", conn=waits[1])  # type: ignore[arg-type]
        client.enqueue("q", conn=waits[2])  # type: ignore[arg-type]
        client.enqueue("q", conn=ours[1])  # type: ignore[arg-type]
        client.enqueue("q", conn=others[1])  # type: ignore[arg-type]
        client.enqueue("q", conn=engine)  # type: ignore[arg-type]
        await waiting.enqueue("q", conn=waits[0])
        await waiting.enqueue("q", conn=waits[1])
        await waiting.enqueue("q", conn=waits[2])
        await waiting.enqueue("q", conn=ours[1])
        await waiting.enqueue("q", conn=others[1])
        await waiting.enqueue("q", conn=pooled)
        await waiting.enqueue("q", conn=sync[0])  # type: ignore[arg-type]
        await waiting.enqueue("q", conn=sync[1])  # type: ignore[arg-type]
        await waiting.enqueue("q", conn=sync[2])  # type: ignore[arg-type]
        await waiting.enqueue("q", conn=ours[0])  # type: ignore[arg-type]
        await waiting.enqueue("q", conn=others[0])  # type: ignore[arg-type]
        await waiting.enqueue("q", conn=pool)  # type: ignore[arg-type]


def test_imports_none_of_them() -> None:
    """Neither the client itself, nor a call with a connection of psycopg's."""
    code = (
        "import sys, pgq_sql\n"
        "from pgq_sql._joining import async_joined, joined\n"
        "for join in (joined, async_joined):\n"
        "    try:\n"
        "        join(object())\n"
        "    except TypeError:\n"
        "        pass\n"
        "print({'sqlalchemy', 'django', 'psycopg2', 'asyncpg'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
