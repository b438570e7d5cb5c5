"""The queue in an application's own Alembic migrations."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.exc import DBAPIError, SAWarning

import catalog
import pgq_sql.alembic
from pgq_sql._install import UnknownRelease
from servers import ROOT
from ways import NEWEST, ODD, alembic, application, pgq, psql, revision

Connection = psycopg.Connection[Any]
upgrade, downgrade = pgq_sql.alembic.upgrade, pgq_sql.alembic.downgrade


@pytest.fixture
def engine(empty_database: str) -> Iterator[sa.Engine]:
    """The application's engine."""
    engine = sa.create_engine(
        "postgresql+psycopg://",
        creator=lambda: psycopg.connect(empty_database),
        poolclass=sa.NullPool,
    )
    yield engine
    engine.dispose()


def operations(connection: sa.Connection) -> Operations:
    """What `alembic.op` is in a revision."""
    return Operations(MigrationContext.configure(connection))


def offline() -> tuple[Operations, io.StringIO]:
    """What `alembic.op` is with --sql, and what it writes to."""
    buffer = io.StringIO()
    options = {"as_sql": True, "output_buffer": buffer}
    context = MigrationContext.configure(dialect_name="postgresql", opts=options)
    return Operations(context), buffer


def read(engine: sa.Engine, schema: str = "pgq_sql") -> catalog.Catalog:
    """The schema as another session sees it."""
    with engine.connect() as connection:
        raw: Any = connection.connection.driver_connection
        raw.autocommit = True
        return catalog.read(raw, schema)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "asyncpg"])
def test_the_application_keeps_its_own(
    driver: str, empty_database: str, engine: sa.Engine, tmp_path: Path
) -> None:
    project = application(tmp_path, "pgq_sql", driver)
    alembic(empty_database, "upgrade", "head", cwd=project)
    assert alembic(empty_database, "heads", cwd=project).out.split() == ["app_3", "(head)"]
    with engine.connect() as connection:
        tables = sa.inspect(connection).get_table_names("public")
        assert sorted(tables) == ["alembic_version", "app_after", "app_before"]
        stamped = connection.execute(sa.text("select * from public.alembic_version"))
        assert stamped.scalars().all() == ["app_3"]
    assert read(engine)["ledger"] == [NEWEST]


def test_the_transaction_goes_on_as_it_was(engine: sa.Engine) -> None:
    settings = "select current_setting('search_path'), current_setting('lock_timeout')"
    with engine.begin() as connection:
        connection.exec_driver_sql('set search_path = information_schema, "$user", public')
        connection.exec_driver_sql("set lock_timeout = '7s'")
        before = connection.exec_driver_sql(settings).one()
        upgrade(operations(connection), to=NEWEST)
        assert connection.exec_driver_sql(settings).one() == before
        downgrade(operations(connection))
        assert connection.exec_driver_sql(settings).one() == before


def test_twice_does_nothing(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        upgrade(operations(connection), to=NEWEST)
    before = read(engine)
    with engine.begin() as connection:
        upgrade(operations(connection), to=NEWEST)
        upgrade(operations(connection), to="base")
        downgrade(operations(connection), to=NEWEST)
    assert read(engine) == before
    for _ in range(2):
        with engine.begin() as connection:
            downgrade(operations(connection))
        assert read(engine) == {}


def test_what_the_application_rolls_back_is_gone(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        upgrade(operations(connection), to=NEWEST)
        connection.rollback()
    assert read(engine) == {}


def test_an_engine_that_commits_each_statement(engine: sa.Engine) -> None:
    eager = engine.execution_options(isolation_level="AUTOCOMMIT")
    with eager.connect() as connection, pytest.raises(DBAPIError, match="no schema to install"):
        upgrade(operations(connection), to=NEWEST)
    assert read(engine) == {}


def test_a_release_that_is_not_there(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        op = operations(connection)
        for call in (
            partial(upgrade, op, to="0999"),
            partial(upgrade, op, to=NEWEST, from_="0999"),
            partial(downgrade, op, to="0999"),
        ):
            with pytest.raises(UnknownRelease, match="there is no release 0999"):
                call()
    assert read(engine) == {}


def test_offline_refuses_what_does_not_fit(database: str, conn: Connection) -> None:
    before = catalog.read(conn)
    op, buffer = offline()
    upgrade(op, to=NEWEST)
    told = psql(database, text=f"begin; {buffer.getvalue()} commit;", fails=True).err
    assert f"schema pgq_sql is at {NEWEST}, this script starts from base" in told
    op, buffer = offline()
    downgrade(op, from_="base")
    told = psql(database, text=f"begin; {buffer.getvalue()} commit;", fails=True).err
    assert f"schema pgq_sql is at {NEWEST}, this script starts from base" in told
    assert catalog.read(conn) == before


def test_offline_in_one_application_transaction(empty_database: str, engine: sa.Engine) -> None:
    op, buffer = offline()
    op.execute("create table before_it (id int)")
    upgrade(op, to=NEWEST, schema=ODD)
    op.execute("create table after_it (id int)")
    psql(empty_database, text=f"begin; {buffer.getvalue()} commit;")
    with engine.connect() as connection:
        assert sorted(sa.inspect(connection).get_table_names("public")) == ["after_it", "before_it"]
    assert read(engine, ODD)["ledger"] == [NEWEST]


def test_autogenerate_leaves_the_queue_alone(empty_database: str, engine: sa.Engine) -> None:
    pgq(empty_database, "migrate")

    def differences(**options: Any) -> list[Any]:
        with engine.connect() as connection:
            context = MigrationContext.configure(
                connection, opts={"include_schemas": True, **options}
            )
            return list(compare_metadata(context, sa.MetaData()))

    with warnings.catch_warnings(action="ignore", category=SAWarning):  # regrole
        assert len(differences()) > 3
    assert differences(include_name=pgq_sql.alembic.include_name) == []
    other = partial(pgq_sql.alembic.include_name, schema="other")
    with warnings.catch_warnings(action="ignore", category=SAWarning):
        assert len(differences(include_name=other)) > 3


def test_a_revision_can_be_added_later(
    empty_database: str, engine: sa.Engine, tmp_path: Path
) -> None:
    project = application(tmp_path, "pgq_sql", "psycopg")
    alembic(empty_database, "upgrade", "head", cwd=project)
    again = f'pgq_sql.alembic.upgrade(op, to="{NEWEST}", from_="{NEWEST}")'
    revision(project, "app_4", "'app_3'", again)
    alembic(empty_database, "upgrade", "head", cwd=project)
    assert read(engine)["ledger"] == [NEWEST]


def test_our_alembic_in_a_given_transaction(engine: sa.Engine) -> None:
    config = Config(ROOT / "alembic.ini")
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        with connection.begin() as transaction:
            command.upgrade(config, "head")
            transaction.rollback()
        assert read(engine) == {}
        command.upgrade(config, "head")  # a transaction of its own
        assert read(engine)["ledger"] == [NEWEST]
        with connection.begin():
            command.downgrade(config, "base")
    assert read(engine) == {}
