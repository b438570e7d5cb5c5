"""pgbouncer in front of the server under test.

As a plugin (`pytest -p pooling`) it puts one between every test and its database, but for the
administrator, who sees to the databases themselves.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest

from servers import Choice, Server, wait_until

if TYPE_CHECKING:
    from types import TracebackType

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
STATS = "pgq_stats"

CONFIG = """\
[databases]
* = host={host} port={port}

[pgbouncer]
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 400
unix_socket_dir = {folder}
listen_port = 6432
auth_type = trust
auth_file = {folder}/users
admin_users = {stats}
stats_users = {stats}
"""


class Pgbouncer:
    """One pgbouncer, for the owner of the test databases; a context manager."""

    def __init__(self, server: Server, mode: str = "transaction", size: int = 10) -> None:
        assert PROGRAM is not None
        self._server = server
        self.folder = Path(tempfile.mkdtemp(prefix="pgq-bouncer-"))
        users = {server.owner: server.owner_password, STATS: ""}
        lines = (f'"{name}" "{password}"\n' for name, password in users.items())
        (self.folder / "users").write_text("".join(lines))
        (self.folder / "ini").write_text(
            CONFIG.format(
                host=server.host,
                port=server.port,
                mode=mode,
                size=size,
                folder=self.folder,
                stats=STATS,
            )
        )
        self.log = self.folder / "log"
        account = self._account()
        if account is not None:
            shutil.chown(self.folder, account)
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [PROGRAM, self.folder / "ini"],
                cwd=self.folder,
                user=account,
                extra_groups=None if account is None else [],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            wait_until(self._answers, 60, message="pgbouncer")
        except BaseException as error:
            error.add_note(self.log.read_text())
            self.close()
            raise

    def __enter__(self) -> Pgbouncer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _account(self) -> int | None:
        """Who runs it: not root, and somebody who can reach the server's socket."""
        if os.geteuid() != 0:
            return None
        host = self._server.host
        owner = os.stat(host).st_uid if host.startswith("/") else 0
        return owner or pwd.getpwnam("nobody").pw_uid

    def _answers(self) -> bool:
        assert self._process.poll() is None, "pgbouncer has ended"
        try:
            self.console("show version")
        except psycopg.OperationalError:
            return False
        return True

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def console(self, command: str) -> list[dict[str, Any]]:
        """What its admin console answers."""
        with psycopg.connect(self.dsn("pgbouncer", STATS), autocommit=True) as conn:
            # It knows the simple protocol alone.
            result = conn.pgconn.exec_(command.encode())
            names = [result.fname(column) or b"" for column in range(result.nfields)]
            return [
                {
                    name.decode(): (result.get_value(row, column) or b"").decode()
                    for column, name in enumerate(names)
                }
                for row in range(result.ntuples)
            ]

    def dsn(self, dbname: str, user: str | None = None) -> str:
        """The URI of a database behind it."""
        user = user or self._server.owner
        return (
            f"postgresql://{quote(user, safe='')}@/{quote(dbname, safe='')}"
            f"?host={quote(str(self.folder), safe='')}&port=6432"
        )


@dataclass
class PooledServer(Server):
    """A server whose owner's databases are reached through a pgbouncer, but for templates."""

    bouncer: Pgbouncer = field(kw_only=True)

    def dsn(self, dbname: str = "postgres", user: str | None = None, password: str = "") -> str:
        if user is not None and user == self.owner and not dbname.startswith("pgq_template"):
            return self.bouncer.dsn(dbname)
        return super().dsn(dbname, user, password)

    def sessions(self, dbname: str) -> list[tuple[object, ...]]:
        """Those of pgbouncer's clients: its own connections stay when they have gone."""
        return [
            (0, client["application_name"], client["state"], "")
            for client in self.bouncer.console("show clients")
            if client["database"] == dbname
        ]


@dataclass(frozen=True)
class PooledChoice(Choice):
    def start(self) -> Server:
        server = super().start()
        bouncer = Pgbouncer(server)
        close = server.close

        def close_both() -> None:
            bouncer.close()
            close()

        server.close = close_both
        told = {each.name: getattr(server, each.name) for each in fields(Server)}
        return PooledServer(**told, bouncer=bouncer)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    from conftest import CHOICE

    choice = config.stash[CHOICE]
    config.stash[CHOICE] = PooledChoice(choice.dsn, choice.bindir)
