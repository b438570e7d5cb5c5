"""The applications in docs/howto/web-apps.md do what the guide says, from its own text."""

from __future__ import annotations

import asyncio
import importlib
import logging
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from psycopg import sql
from starlette.testclient import TestClient

from pgq_sql import AsyncRunningJob, VersionMismatch
from servers import ROOT, Connection, Server, wait_until
from test_leaks import PATIENCE, files, threads
from working import kill

GUIDE = ROOT / "docs" / "howto" / "web-apps.md"
BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TABLE = """
create table orders (
  id bigint generated always as identity, total integer not null, mailed boolean default false
)"""


def write(folder: Path, beginning: str) -> None:
    """Write the guide's files whose names begin so, as packages."""
    for name, source in BLOCK.findall(GUIDE.read_text()):
        if name.startswith(beginning):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)


@pytest.fixture
def shop(conn: Connection) -> Connection:
    """A connection to a database with the application's table and queue."""
    conn.execute(TABLE)
    conn.execute("select pgq_sql.create_queue('emails')")
    return conn


@pytest.fixture
def app(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the Starlette application."""
    write(tmp_path, "app.py")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PGQ_DSN", database)
    yield importlib.import_module("app")
    del sys.modules["app"]


class Tasks:
    """Looks, after the application's lifespan, which tasks it has left."""

    def __init__(self, lifespan: Callable[[Any], AbstractAsyncContextManager[Any]]) -> None:
        self._lifespan = lifespan
        self.left: set[str] | None = None

    @asynccontextmanager
    async def __call__(self, app: object) -> AsyncIterator[Any]:
        before = asyncio.all_tasks()
        async with self._lifespan(app) as state:
            yield state
        # The test client has tasks too, which come and go.
        left = {task.get_name() for task in asyncio.all_tasks() - before}
        self.left = {name for name in left if not name.startswith("anyio.")}


def mailed(conn: Connection) -> list[object]:
    rows = conn.execute("select id from orders where mailed order by id").fetchall()
    return [number for (number,) in rows]


def count(conn: Connection, table: str) -> object:
    row = conn.execute(f"select count(*) from {table}".encode()).fetchone()
    assert row is not None
    return row[0]


class TestStarlette:
    def test_every_block_names_its_file(self) -> None:
        text = GUIDE.read_text()
        assert len(BLOCK.findall(text)) == text.count("```python\n")

    def test_a_request_and_its_job(
        self, app: ModuleType, shop: Connection, caplog: pytest.LogCaptureFixture
    ) -> None:
        before = files()
        tasks = app.app.router.lifespan_context = Tasks(app.app.router.lifespan_context)
        with TestClient(app.app) as browser:
            assert browser.get("/healthz").json() == {"schema": "0001"}
            answers = [browser.post("/orders", json={"total": n}) for n in range(5)]
            assert [answer.json() for answer in answers] == [{"order": n + 1} for n in range(5)]
            wait_until(lambda: mailed(shop) == [1, 2, 3, 4, 5], PATIENCE)
        assert tasks.left == set()
        assert threads() == []
        assert {fd: name for fd, name in files().items() if before.get(fd) != name} == {}
        assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []
        assert count(shop, "pgq_sql.jobs") == 0

    def test_a_request_that_fails_enqueues_nothing(
        self, app: ModuleType, shop: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(app, "JSONResponse", None)  # not reached: after the commit
        with TestClient(app.app, raise_server_exceptions=False) as browser:
            assert browser.post("/orders", json={"total": None}).status_code == 500
        assert count(shop, "orders") == 0
        assert count(shop, "pgq_sql.jobs") == 0

    def test_shutdown_waits_for_what_runs(
        self, app: ModuleType, shop: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun, stopping = threading.Event(), threading.Event()
        send, stop = app.send, app.AsyncWorker.stop

        async def slow(job: AsyncRunningJob) -> None:
            begun.set()
            await asyncio.to_thread(stopping.wait, PATIENCE)
            await send(job)

        def told(worker: Any, **options: bool) -> None:
            stop(worker, **options)
            stopping.set()

        monkeypatch.setattr(app, "send", slow)
        monkeypatch.setattr(app.AsyncWorker, "stop", told)
        with TestClient(app.app) as browser:
            browser.post("/orders", json={"total": 1})
            assert begun.wait(PATIENCE)
            assert mailed(shop) == []
        assert mailed(shop) == [1]

    def test_the_database_goes_away(
        self, app: ModuleType, shop: Connection, server: Server
    ) -> None:
        name = sql.Identifier(shop.info.dbname)
        allow = sql.SQL("alter database {} with allow_connections {}")
        with server.admin() as admin, TestClient(app.app) as browser:
            assert browser.get("/healthz").status_code == 200
            # Nobody may connect, and who is connected is thrown out.
            admin.execute(allow.format(name, False))
            kill(shop)
            wait_until(lambda: browser.get("/healthz").status_code == 503, PATIENCE)
            assert browser.get("/healthz").json() == {"error": "OperationalError"}
            admin.execute(allow.format(name, True))
            wait_until(lambda: browser.get("/healthz").status_code == 200, PATIENCE)
            # The engine has no connection yet, so the request is not hit.
            browser.post("/orders", json={"total": 1})
            wait_until(lambda: mailed(shop) == [1], PATIENCE)

    def test_a_missing_schema_is_told(
        self, empty_database: str, app: ModuleType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(app, "DSN", empty_database)
        with pytest.raises(VersionMismatch), TestClient(app.app) as browser:  # noqa: PT012
            wait_until(lambda: browser.get("/healthz").status_code == 503, PATIENCE)
            wait_until(lambda: "ended" in browser.get("/healthz").json()["error"], PATIENCE)

    def test_a_queue_that_is_made_later(self, app: ModuleType, conn: Connection) -> None:
        conn.execute(TABLE)
        with TestClient(app.app, raise_server_exceptions=False) as browser:
            assert browser.post("/orders", json={"total": 1}).status_code == 500
            assert count(conn, "orders") == 0
            conn.execute("select pgq_sql.create_queue('emails')")
            assert browser.post("/orders", json={"total": 1}).status_code == 201
            wait_until(lambda: mailed(conn) == [2], PATIENCE)


SETTINGS = """
import os
from psycopg.conninfo import conninfo_to_dict
given = conninfo_to_dict(os.environ["PGQ_DSN"])
INSTALLED_APPS = ["shop"]
DATABASES = {"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": given["dbname"], "HOST": given["host"],
    "PORT": given.get("port", ""), "USER": given["user"], "PASSWORD": given.get("password", ""),
}}
SECRET_KEY = "x"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
"""

PRODUCE = """
import django
from django.test import RequestFactory
django.setup()
from shop.views import order
for _ in range(3):
    print(order(RequestFactory().post("/")).content.decode())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_django(database: str, shop: Connection, tmp_path: Path, number: signal.Signals) -> None:
    pytest.importorskip("django")
    write(tmp_path, "shop/")
    (tmp_path / "settings.py").write_text(SETTINGS)
    environment = {
        "PGQ_DSN": database,
        "DJANGO_SETTINGS_MODULE": "settings",
        "PYTHONPATH": str(tmp_path),
        "PYTHONWARNINGS": "error",
    }
    produced = subprocess.run(
        [sys.executable, "-c", PRODUCE],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (produced.stdout.count("order"), produced.stderr) == (3, "")
    working = subprocess.Popen(
        [sys.executable, "-m", "django", "work"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: mailed(shop) == [1, 2, 3], PATIENCE)
        working.send_signal(number)
        out, err = working.communicate(timeout=PATIENCE)
    finally:
        working.kill()
        working.wait()
    assert (working.returncode, err) == (0, "")
    assert "acked=3" in out
