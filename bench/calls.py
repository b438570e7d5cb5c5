"""What a client adds to a call: enqueue, one per transaction."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg

from contenders import OURS
from pgq_sql import AsyncClient, Client
from result import Run
from scenario import Scenario, Size
from server import Server

DOCUMENT = {"id": 1, "t": 1234567890123, "to": "user@example.com", "k": "w"}
STATEMENT = b"""\
select * from "pgq_sql".enqueue(queue => %(queue)s::text, payload => %(payload)s::jsonb)"""
"""As the clients send it. psycopg prepares it when it has run five times, for all alike."""
SLICE = 50
"""Calls in a turn: short against what disturbs a machine."""

Calls = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Enqueueing(Scenario):
    """The clients and the bare statement take turns of a few calls, in one process."""

    figures: tuple[str, ...] = ("jobs_per_second", "client_us")

    def round(self, server: Server, size: Size, _number: int, /) -> dict[str, Run]:
        """Measure all, each on a connection of its own, for so many seconds each."""
        with server.fresh(OURS), asyncio.Runner() as loop, server.connect() as conn:
            arun = loop.run
            bare = arun(psycopg.AsyncConnection.connect(server.dsn, autocommit=True))
            client, other = Client(server.dsn), AsyncClient(server.dsn)
            try:
                return _in_turn(
                    {
                        "bare": lambda n: _bare(conn, n),
                        "ours": lambda n: _ours(client, n),
                        "bare, async": lambda n: arun(_bare_async(bare, n)),
                        "ours, async": lambda n: arun(_ours_async(other, n)),
                    },
                    size.seconds,
                )
            finally:
                client.close()
                arun(other.close())
                arun(bare.close())


def _in_turn(contenders: dict[str, Calls], seconds: float) -> dict[str, Run]:
    for calls in contenders.values():
        calls(SLICE)  # not counted: connections are opened, plans made
    spent = dict.fromkeys(contenders, 0.0)
    worked = dict.fromkeys(contenders, 0.0)
    turns = 0
    while sum(spent.values()) < seconds * len(contenders):
        turns += 1
        for name, calls in contenders.items():
            began, idled = time.perf_counter(), time.process_time()
            calls(SLICE)
            spent[name] += time.perf_counter() - began
            worked[name] += time.process_time() - idled
    jobs = turns * SLICE
    return {
        name: Run(
            {
                "jobs_per_second": jobs / spent[name],
                "client_us": worked[name] / jobs * 1_000_000,
            }
        )
        for name in contenders
    }


def _bare(conn: psycopg.Connection[tuple[object, ...]], n: int) -> None:
    for _ in range(n):
        values = {"queue": "bench", "payload": json.dumps(DOCUMENT)}
        conn.execute(STATEMENT, values, binary=True).fetchone()


def _ours(client: Client, n: int) -> None:
    for _ in range(n):
        client.enqueue("bench", DOCUMENT)


async def _bare_async(conn: psycopg.AsyncConnection[tuple[object, ...]], n: int) -> None:
    for _ in range(n):
        values = {"queue": "bench", "payload": json.dumps(DOCUMENT)}
        cursor = await conn.execute(STATEMENT, values, binary=True)
        await cursor.fetchone()


async def _ours_async(client: AsyncClient, n: int) -> None:
    for _ in range(n):
        await client.enqueue("bench", DOCUMENT)
