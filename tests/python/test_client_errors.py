"""What the client refuses, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

import pgq_sql
from pgq_sql import Client, Job
from pgq_sql.errors import MIGRATE
from servers import Connection

SECOND = timedelta(seconds=1)


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("q")
        yield client


def claim_one(client: Client, queue: str = "q") -> Job:
    (job,) = client.claim(queue, "me")
    return job


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "sqlstate", "call"),
        [
            (pgq_sql.QueueNotFound, "JQ001", lambda c: c.enqueue("no")),
            (pgq_sql.QueueNotFound, "JQ001", lambda c: c.claim("no", "me")),
            (pgq_sql.UnknownOption, "JQ005", lambda c: c.enqueue("q", options={"odd": 1})),
            (pgq_sql.PayloadTooLarge, "JQ007", lambda c: c.enqueue("q", "x" * 1_048_576)),
            (pgq_sql.InvalidArgument, "22023", lambda c: c.create_queue("no name")),
            (pgq_sql.InvalidArgument, "22023", lambda c: c.claim("q", "")),
            (pgq_sql.InvalidArgument, "22023", lambda c: c.enqueue("q", delay=-SECOND)),
            (pgq_sql.InvalidArgument, "22023", lambda c: c.enqueue_many("q", [1], priorities=[])),
            (pgq_sql.InvalidArgument, "22003", lambda c: c.enqueue("q", priority=2**40)),
            (pgq_sql.InvalidArgument, "22003", lambda c: c.ack(2**70, 1)),
            (pgq_sql.InvalidArgument, "22023", lambda c: c.enqueue("q\0")),
            (pgq_sql.InvalidJson, "22023", lambda c: c.enqueue("q", float("nan"))),
        ],
    )
    def test_sqlstate_makes_the_class(
        self,
        client: Client,
        error: type[pgq_sql.PgqError],
        sqlstate: str,
        call: Callable[[Client], object],
    ) -> None:
        with pytest.raises(error) as caught:
            call(client)
        assert type(caught.value) is error
        assert caught.value.sqlstate == sqlstate

    def test_says_what_and_what_to_do(self, client: Client) -> None:
        with pytest.raises(pgq_sql.QueueNotFound) as caught:
            client.enqueue("no")
        error = caught.value
        assert str(error) == "no such queue"
        assert error.detail == 'queue "no"'
        assert error.hint
        assert error.__notes__ == [f"detail: {error.detail}", f"hint: {error.hint}"]
        assert isinstance(error.__cause__, psycopg.Error)

    @pytest.mark.parametrize(
        "call",
        [
            lambda c: c.enqueue(1),
            lambda c: c.enqueue("q", delay=1),
            lambda c: c.enqueue("q", run_at="now"),
            lambda c: c.enqueue("q", priority="high"),
            lambda c: c.enqueue("q", retry_jitter=1),
            lambda c: c.enqueue("q", retry_factor="2"),
            lambda c: c.enqueue_many("q", "abc"),
            lambda c: c.enqueue_many("q", [1], delays=[1]),
            lambda c: c.create_queue("q", notify=1),
        ],
    )
    def test_wrong_type_never_reaches_the_database(self, call: Callable[[Any], object]) -> None:
        with Client("host=/nowhere") as client, pytest.raises(TypeError, match="must be"):
            call(client)

    def test_naive_datetime_is_refused(self) -> None:
        naive = datetime(2030, 1, 1)
        with Client("host=/nowhere") as client:
            with pytest.raises(pgq_sql.InvalidArgument, match="run_at must have a time zone"):
                client.enqueue("q", run_at=naive)
            with pytest.raises(pgq_sql.InvalidArgument, match="run_ats must have a time zone"):
                client.enqueue_many("q", [1], run_ats=[naive])

    def test_unreachable_stays_psycopgs(self) -> None:
        with Client("host=/nowhere") as client, pytest.raises(psycopg.OperationalError):
            client.enqueue("q")

    def test_no_schema(self, empty_database: str) -> None:
        with Client(empty_database) as client:
            for call in (client.check, lambda: client.enqueue("q")):
                with pytest.raises(pgq_sql.VersionMismatch) as caught:
                    call()
                assert caught.value.hint == MIGRATE

    @pytest.mark.parametrize(
        ("release", "hint"),
        [("0000", MIGRATE), ("9999", "Upgrade the package pgq_sql.")],
    )
    def test_other_release(self, client: Client, conn: Connection, release: str, hint: str) -> None:
        body = f"'begin return ''{release}''; end'"
        conn.execute(
            "create or replace function pgq_sql.schema_version() returns text"
            f" language plpgsql as {body}".encode()
        )
        with pytest.raises(pgq_sql.VersionMismatch, match=release) as caught:
            client.check()
        assert caught.value.hint == hint
        assert caught.value.sqlstate == "JQ006"

    def test_closed_client_refuses_every_call(self, client: Client, conn: Connection) -> None:
        client.close()
        client.close()
        for call in (
            lambda: client.enqueue("q"),
            lambda: client.claim("q", "me"),
            lambda: client.check(),
            lambda: client.enqueue("q", conn=conn),
        ):
            with pytest.raises(pgq_sql.Closed, match="the client is closed"):
                call()

    def test_odd_schema_name(self, database: str) -> None:
        odd = 'odd "%s" näme'
        with (
            Client(database, schema=odd) as client,
            pytest.raises(pgq_sql.VersionMismatch) as lacks,
        ):
            client.check()
        assert odd in str(lacks.value)
        with pytest.raises(pgq_sql.InvalidArgument):
            Client(database, schema="")


class TestEncoders:
    def test_own_dumps_and_loads(self, database: str) -> None:
        with Client(database, dumps=lambda _: b'{"own": 1}', loads=str.upper) as client:
            client.create_queue("q")
            client.enqueue("q", object())
            assert claim_one(client).payload == '{"OWN": 1}'

    @pytest.mark.parametrize("text", ["NaN", '"\\u0000"', "{", '"\\ud800"', '"\ud800"', ""])
    def test_own_dumps_that_answers_no_json(self, database: str, text: str) -> None:
        with (
            Client(database, dumps=lambda _: text) as client,
            pytest.raises(pgq_sql.InvalidArgument),
        ):
            client.enqueue("q")


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("create_queue", 1),
        ("enqueue", 1),
        ("claim", 2),
        ("ack", 2),
        ("retry_many", 2),
        ("reprioritize", 2),
        ("redrive_queue", 1),
        ("grant_access", 2),
    ],
)
def test_none_for_what_is_required(client: Client, method: str, arguments: int) -> None:
    with pytest.raises(pgq_sql.InvalidArgument):
        getattr(client, method)(*[None] * arguments)
