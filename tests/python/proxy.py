"""A proxy in front of PostgreSQL that does to connections what networks do.

It stands between a client and the server, in a thread of its own, and knows enough of the
protocol to act on a chosen statement: before the server sees it, or when the server has carried
it out and the client doesn't know yet.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeVar

from psycopg.conninfo import conninfo_to_dict, make_conninfo

T = TypeVar("T")

PATIENCE = 20.0
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
LEAST_OF_SERVER = {"sslmode": "disable", "gssencmode": "disable"}
"""Encrypted, it could not be read."""


@dataclass(eq=False)
class Trap:
    """What is to happen to a connection on which a statement with `text` is sent.

    Not `carried_out`: the server never sees the statement. Otherwise it does, and has committed
    unless a transaction block is open; but nothing of its answer comes through.
    """

    text: bytes
    carried_out: bool
    then: Literal["reset", "end", "deaf"]
    times: int
    sprung: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def wait(self) -> None:
        """Until it has sprung, once more than was waited for already."""
        if not self.sprung.acquire(timeout=PATIENCE):
            raise AssertionError(f"nobody fell into the trap for {self.text.decode()}")


class Messages:
    """Cuts a stream into the messages of the protocol."""

    def __init__(self, *, typed: bool) -> None:
        self._typed = typed  # a client's first message bears no type
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that are complete now, each with its type and its length."""
        self._bytes += data
        while True:
            at = 1 if self._typed else 0
            size = at + int.from_bytes(self._bytes[at : at + 4], "big")
            if not at + 4 <= size <= len(self._bytes):
                return
            message = bytes(self._bytes[:size])
            del self._bytes[:size]
            self._typed = True
            yield message


class Link:
    """A client's connection to the proxy, and the proxy's to the server for it."""

    def __init__(
        self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._server: asyncio.StreamWriter | None = None
        self.seen: Counter[bytes] = Counter()
        self.holed = False
        """Something was swallowed: what came after it would make no sense to anybody."""
        self._prepared: dict[bytes, bytes] = {}
        # Each Query and each Sync ends a request; so does the start of the session. The server
        # answers each with one ReadyForQuery.
        self._asked = self._answered = 0
        self._trap: Trap | None = None
        self._trapped_at = 0

    async def run(self) -> None:
        """Until one of the two ends it."""
        try:
            if self._proxy._over:
                return
            if self.deaf:
                while await self._reader.read(65536):
                    pass
                return
            reader, self._server = await self._proxy._connect()
            ways = [
                asyncio.ensure_future(self._upward(self._server)),
                asyncio.ensure_future(self._downward(reader)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                ends = await asyncio.gather(*ways, return_exceptions=True)
            for end in ends:
                # A connection that broke is what this is for; anything else is a fault of its own.
                if isinstance(end, Exception) and not isinstance(end, OSError):
                    raise end
        except OSError:
            pass  # nobody there
        finally:
            self.cut(reset=False)
            with suppress(OSError):
                await self._writer.wait_closed()

    @property
    def deaf(self) -> bool:
        """Whether nothing comes through, in either direction."""
        if self._proxy._deaf:
            self.holed = True
        return self.holed

    def cut(self, *, reset: bool) -> None:
        """End both connections: the client gets a RST, or a FIN."""
        if reset:
            with suppress(OSError):
                self._writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE
                )
            self._writer.transport.abort()
        else:
            self._writer.close()
        if self._server is not None:
            self._server.close()

    async def _upward(self, server: asyncio.StreamWriter) -> None:
        messages = Messages(typed=False)
        while data := await self._reader.read(65536):
            await asyncio.sleep(self._proxy.delays[0])
            for message in messages.feed(data):
                if self._may_go_up(message):
                    server.write(message)
            await server.drain()

    async def _downward(self, reader: asyncio.StreamReader) -> None:
        messages = Messages(typed=True)
        while data := await reader.read(65536):
            await asyncio.sleep(self._proxy.delays[1])
            for message in messages.feed(data):
                if not self.deaf and self._may_go_down(message):
                    self._writer.write(message)
            await self._writer.drain()
        if self.deaf:  # then the client doesn't hear the end either
            await asyncio.Event().wait()

    def _may_go_up(self, message: bytes) -> bool:
        text = self._statement(message)
        if text is not None:
            self.seen[text] += 1
        if self.deaf:
            return False
        if text is not None:
            trap = self._proxy._trap(text)
            if trap is not None:
                if not trap.carried_out:
                    self._spring(trap)
                    return False
                self._trap, self._trapped_at = trap, self._asked
        if self._asked == 0 or message[:1] in b"QS":
            self._asked += 1
        return True

    def _statement(self, message: bytes) -> bytes | None:
        """The SQL that this message wants executed."""
        if self._asked == 0:
            return None
        kind, body = message[:1], message[5:]
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._prepared[name] = text
        elif kind == b"B":
            _, name, _ = body.split(b"\0", 2)
            return self._prepared.get(name)
        return body[:-1] if kind == b"Q" else None

    def _may_go_down(self, message: bytes) -> bool:
        trap = self._trap
        trapped = trap is not None and self._answered >= self._trapped_at
        if message[:1] == b"Z":
            self._answered += 1
            if trap is not None and trapped:
                self._trap = None
                self._spring(trap)
        return not trapped

    def _spring(self, trap: Trap) -> None:
        if trap.then == "deaf":
            self.holed = True
        else:
            self.cut(reset=trap.then == "reset")
            self.holed = True  # what is on its way goes nowhere
        trap.sprung.release()


class Proxy:
    """Listens on a port of this machine; `dsn` leads through it to the server."""

    def __init__(self, dsn: str) -> None:
        given = conninfo_to_dict(dsn)
        self._host, self._port = str(given["host"]), str(given.get("port") or 5432)
        self._target = dsn
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._listening: asyncio.Server | None = None
        self._own_port = 0
        self._links: set[Link] = set()
        self._past: Counter[bytes] = Counter()
        self._traps: list[Trap] = []
        self._deaf = self._over = False
        self._faults: list[BaseException] = []
        self.delays = 0.0, 0.0
        """Seconds that what is sent takes to the server, and what it answers to the client."""

    def __enter__(self) -> Self:
        self._thread.start()
        self.accept()
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            # Not cancelled: a task that has not begun would leave its connection open.
            self._over = True
            while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
                for link in self._links:
                    link.cut(reset=True)  # without waiting for a client that reads nothing
                await asyncio.wait(tasks, timeout=0.05)

        self.refuse()
        self._do(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._faults:
            raise self._faults[0]

    def to(self, **options: str | int) -> str:
        """The connection string of the way through the proxy."""
        own: dict[str, Any] = {"host": "127.0.0.1", "port": self._own_port, **LEAST_OF_SERVER}
        return make_conninfo(self._target, **own, **options)

    @property
    def dsn(self) -> str:
        """The same without any options."""
        return self.to()

    # What networks do

    def cut(self, having: str = "", *, reset: bool = True) -> int:
        """Cut the connections on which such a statement was sent; the answer is how many."""
        return self._each(having, lambda link: link.cut(reset=reset))

    def deafen(self, having: str = "") -> int:
        """Let nothing more through on such connections, in either direction, and keep them open."""
        return self._each(having, lambda link: setattr(link, "holed", True))

    def go_deaf(self) -> None:
        """Let nothing through on any connection; accept new ones, which get no answer."""
        self._deaf = True

    def hear(self) -> None:
        """Let new connections through again. Those that missed something are lost for ever."""
        self._deaf = False

    def refuse(self) -> None:
        """Refuse new connections."""

        async def close() -> None:
            if self._listening is None:
                return
            # A server that is closed between the accepting of a connection and its first step
            # leaves it open, with nobody to close it: asyncio before Python 3.12.
            for listening in self._listening.sockets:
                self._loop.remove_reader(listening.fileno())
            await asyncio.sleep(0)
            self._listening.close()
            self._listening = None

        self._do(close())

    def accept(self) -> None:
        """Accept new connections, on the same port as before."""

        async def listen() -> None:
            if self._listening is not None:
                return
            self._listening = await asyncio.start_server(
                self._serve, "127.0.0.1", self._own_port, limit=1 << 20
            )
            self._own_port = self._listening.sockets[0].getsockname()[1]

        self._do(listen())

    def trap(
        self,
        text: str,
        *,
        carried_out: bool,
        then: Literal["reset", "end", "deaf"] = "reset",
        times: int = 1,
    ) -> Trap:
        """Let something happen to the connection on which such a statement is sent next."""
        trap = Trap(text.encode(), carried_out, then, times)
        self._traps.append(trap)
        return trap

    def disarm(self) -> None:
        """Forget the traps that haven't sprung."""
        self._traps.clear()

    def count(self, text: str) -> int:
        """How often such a statement has been sent."""

        async def add_up() -> int:
            seen = sum((link.seen for link in self._links), self._past)
            return sum(times for sent, times in seen.items() if text.encode() in sent)

        return self._do(add_up())

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._links)

    # In the loop

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self, reader, writer)
        self._links.add(link)
        try:
            await link.run()
        except Exception as fault:
            self._faults.append(fault)
        finally:
            self._links.discard(link)
            self._past += link.seen

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._host.startswith("/"):
            return await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._port}")
        return await asyncio.open_connection(self._host, int(self._port))

    def _trap(self, text: bytes) -> Trap | None:
        for trap in self._traps:
            if trap.times and trap.text in text:
                trap.times -= 1
                return trap
        return None

    def _each(self, having: str, act: Any) -> int:
        async def do() -> int:
            text = having.encode()
            chosen = [
                link for link in self._links if not text or any(text in sent for sent in link.seen)
            ]
            for link in chosen:
                act(link)
            return len(chosen)

        return self._do(do())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)
