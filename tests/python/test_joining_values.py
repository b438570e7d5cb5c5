"""`conn=` on every driver: each type of argument and answer, errors, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

import pgq_sql
from joining import DRIVERS, Theirs, native, url
from pgq_sql import AsyncClient, Client
from pgq_sql._foreign import texts
from pgq_sql._install import migrate
from pgq_sql._joining import async_joined, joined
from pgq_sql._statements import TYPES

ODD = "ä ' \" \\ \\' % %% %s %(queue)s :queue ::text $1 {,} NULL \n é😀"
SECOND = timedelta(seconds=1)


@pytest.fixture(params=DRIVERS)
def theirs(request: pytest.FixtureRequest, database: str) -> Iterator[Theirs]:
    with DRIVERS[request.param](database) as theirs:
        yield theirs


@pytest.fixture
def ours(database: str) -> Iterator[Theirs]:
    with native(database) as ours:
        yield ours


def asked(one: Theirs, text: str, **values: object) -> list[Any]:
    """What a statement of psycopg's style answers."""
    client = one.client
    if isinstance(one.conn, psycopg.Connection):
        rows: list[Any] = client._run(one.conn, text.encode(), values).fetchall()
        return rows
    through: Any = (async_joined if isinstance(client, AsyncClient) else joined)(one.conn)
    found: list[Any] = client._reader.rows(one.wait(through(text.encode(), texts(values))))
    return found


VALUES: dict[str, list[Any]] = {
    "bigint": [0, -(2**63), 2**63 - 1],
    "boolean": [True, False],
    "double precision": [0.0, -1.5, 1e308, 5e-324, 0.1 + 0.2, float("inf"), float("nan")],
    "integer": [0, -(2**31)],
    "interval": [
        timedelta(0),
        timedelta(days=40, hours=30, microseconds=1),
        timedelta(microseconds=-1),
        timedelta(days=1_000_000),
        "1 month -1 day",
    ],
    "jsonb": ["null", '{"a": [1, 2.50, 1e3, "\\u00e4\\\\"]}', f'"{"x" * 10_000}"', '"%s :a $1"'],
    "name": ["x", 'A "b"'],
    "numrange": ["[0.8,1.2]", "[0,1e20]", "empty", "(,)"],
    "text": ["", "NULL", ODD, "\\", "'", "x" * 10_000],
    "timestamptz": [
        datetime(2024, 2, 29, 23, 59, 59, 999999, UTC),
        datetime(1, 1, 2, tzinfo=UTC),
        datetime(9999, 12, 30, tzinfo=UTC),
        datetime(2024, 7, 1, tzinfo=timezone(timedelta(hours=-3.5))),
    ],
}


def test_every_type_is_covered() -> None:
    assert {kind.removesuffix("[]") for kind in TYPES.values()} == set(VALUES)


def test_arguments_arrive_as_from_psycopg(theirs: Theirs, ours: Theirs) -> None:
    def check(text: str, value: object) -> None:
        found = asked(theirs, text, value=value)
        assert repr(found) == repr(asked(ours, text, value=value)), text

    for kind, values in VALUES.items():
        for value in [*values, None]:
            check(f"select %(value)s::{kind} as back, (%(value)s::{kind})::text as seen", value)
        # psycopg dumps no list of two types; an interval is text where it means for ever.
        alike = [value for value in values if type(value) is type(values[0])]
        for array in ([], [None], [None, *alike, None], alike):
            # As text, because no answer has an array.
            array_of = f"%(value)s::{kind}[]"
            check(f"select ({array_of})::text, cardinality({array_of})", array)


ANSWERS = """
    select * from (values
      ('infinity'::timestamptz, '1 mon -2 days 03:04:05.678'::interval, '[0.80,1.2)'::numrange),
      ('-infinity', '-1 us', 'empty'),
      ('4713-01-01 BC', '300 days', '(,1]'),
      ('294276-12-31', '0', '[,]'),
      (null, null, null)
    ) one (instant, span, range),
    (values
      ('null'::jsonb, 'x'::text, 1::bigint, 1::int, 'nan'::float8, true),
      ('{"a": [1.50, 1e400, "\\u00e4"]}', '', -9223372036854775808, -1, '-infinity', false),
      (null, null, null, null, null, null)
    ) two (json, text, big, whole, float, truth)"""


def test_answers_are_read_as_psycopg_s(theirs: Theirs, ours: Theirs) -> None:
    found = asked(theirs, ANSWERS)
    assert len(found) == 15
    assert repr(found) == repr(asked(ours, ANSWERS))


def test_settings_of_the_session_do_not_matter(
    theirs: Theirs, request: pytest.FixtureRequest
) -> None:
    theirs.call("create_queue", "q")
    for setting in (
        "datestyle = 'German, DMY'",
        "intervalstyle = 'sql_standard'",
        "timezone = 'Asia/Kathmandu'",
        "bytea_output = 'escape'",
        "search_path = ''",
    ):
        if "pg8000" not in request.node.name or "bytea" not in setting:  # it reads but one form
            theirs.sql(f"set {setting}")
    when = datetime(2222, 2, 3, 4, 5, tzinfo=UTC)
    later = theirs.call("enqueue", "q", run_at=when, retry_delay=timedelta(days=3, seconds=2))
    found = theirs.call("get_job", later.job_id)
    assert (found.run_at, found.retry_delay) == (when, timedelta(days=3, seconds=2))
    assert found.run_at.tzinfo is UTC
    theirs.call("enqueue", "q", ODD)
    (job,) = theirs.call("claim", "q", "me", visibility_timeout=5 * SECOND)
    assert job.payload == ODD
    assert job.lease_until - job.observed_at == 5 * SECOND


@pytest.mark.parametrize("encoding", ["LATIN1", "WIN1252", "KOI8R", "EUC_JP", "SQL_ASCII"])
def test_encoding_of_the_session(database: str, encoding: str) -> None:
    text = {"LATIN1": "ä ÿ", "WIN1252": "ä €", "KOI8R": "ж", "EUC_JP": "日本"}.get(encoding, "a")
    engine = sa.create_engine(url(database, "psycopg2"), client_encoding=encoding)
    with Client(database) as client, engine.connect() as mine:
        assert mine.scalar(sa.text("show client_encoding")) == encoding
        client.create_queue("q")
        client.enqueue("q", {text: text})
        (job,) = client.claim("q", text, conn=mine)
        assert job.payload == {text: text}
        kept = client.get_job(job.job_id, conn=mine)
        assert kept is not None
        assert kept.worker == text
    engine.dispose()


@pytest.mark.parametrize("kind", DRIVERS)
@pytest.mark.parametrize("schema", ['Odd %(queue)s %s % "x" :queue ::y \\:z $1 \' ä', "a:b", "\\"])
def test_odd_name_of_the_schema(empty_database: str, kind: str, schema: str) -> None:
    migrate(empty_database, schema=schema)
    with DRIVERS[kind](empty_database, schema=schema) as theirs:
        theirs.call("check")
        theirs.call("create_queue", "q")
        theirs.call("enqueue", "q", ODD)
        (job,) = theirs.call("claim", "q", ODD[:30])
        assert job.payload == ODD
        assert theirs.call("ack", job.job_id, job.token) == "acked"


def test_own_encoder_and_decoder(database: str) -> None:
    with DRIVERS["psycopg2"](database, dumps=lambda _: b"[1]", loads=lambda text: text) as theirs:
        theirs.call("create_queue", "q")
        theirs.call("enqueue", "q", object())
        (job,) = theirs.call("claim", "q", "me")
        assert job.payload == "[1]"


@pytest.mark.parametrize("kind", DRIVERS)
def test_any_payload(database: str, kind: str) -> None:
    characters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
    texts = st.text(characters)
    # PostgreSQL writes larger ones as whole numbers, in more digits than they have.
    finite = st.floats(-1e15, 1e15)
    leaves = st.none() | st.booleans() | st.integers() | finite | texts
    values = st.recursive(leaves, lambda s: st.lists(s) | st.dictionaries(texts, s), max_leaves=9)

    with DRIVERS[kind](database) as theirs:
        theirs.call("create_queue", "q")

        @hypothesis(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(values, min_size=1, max_size=5))
        def check(payloads: list[Any]) -> None:
            theirs.call("enqueue_many", "q", payloads)
            # A float may come back as the whole number that it equals.
            assert [job.payload for job in theirs.call("pop", "q", 5)] == payloads

        check()


class TestErrors:
    def test_the_same_as_through_psycopg(self, theirs: Theirs, ours: Theirs) -> None:
        ours.call("create_queue", "q")
        ours.commit()

        def raised(one: Theirs, method: str, *arguments: Any, **options: Any) -> list[Any]:
            undo = one.savepoint()
            with pytest.raises(pgq_sql.PgqError) as caught:
                one.call(method, *arguments, **options)
            undo()
            error = caught.value
            # Of a number it says which, and not all say it alike.
            text = str(error) if error.sqlstate != "22003" else ""
            return [type(error), error.sqlstate, text, error.detail, error.hint]

        calls: list[tuple[Any, ...]] = [
            ("enqueue", "no"),
            ("enqueue", "q", "x" * 1_048_576),
            ("enqueue", "q\0"),
            ("enqueue", "q", float("nan")),
            ("claim", "q", ""),
            ("ack", 2**70, 1),
            ("require_lease", 5, 1),
            ("grant_access", "no such role", "worker"),
        ]
        for call in calls:
            assert raised(theirs, *call) == raised(ours, *call)
        options: dict[str, Any]
        for options in ({"options": {"odd": 1}}, {"priority": 2**40}, {"delay": -SECOND}):
            assert raised(theirs, "enqueue", "q", **options) == raised(
                ours, "enqueue", "q", **options
            )

    def test_what_the_library_raised_is_the_cause(self, theirs: Theirs) -> None:
        with pytest.raises(pgq_sql.QueueNotFound) as caught:
            theirs.call("enqueue", "no")
        assert isinstance(caught.value.__cause__, theirs.error)

    def test_no_schema(self, theirs: Theirs) -> None:
        kind = type(theirs.client)
        theirs.client = kind(theirs.client._conninfo, schema="nowhere")
        with pytest.raises(pgq_sql.VersionMismatch, match="nowhere"):
            theirs.call("enqueue", "q")

    def test_faults_of_the_database_stay_the_library_s(self, theirs: Theirs, ours: Theirs) -> None:
        ours.call("create_queue", "q")
        job = ours.call("enqueue", "q")
        ours.commit()
        ours.sql("select from pgq_sql.job for update")
        theirs.sql("set local lock_timeout = '10 ms'")
        with pytest.raises(theirs.error, match="lock timeout") as caught:
            theirs.call("cancel", job.job_id)
        assert not isinstance(caught.value, pgq_sql.PgqError)

    def test_the_transaction_is_left_as_it_is(self, theirs: Theirs, ours: Theirs) -> None:
        ours.call("create_queue", "q")
        ours.commit()
        theirs.call("enqueue", "q")
        with pytest.raises(pgq_sql.QueueNotFound):
            theirs.call("enqueue", "no")
        with pytest.raises(theirs.error, match="transaction is aborted"):
            theirs.call("enqueue", "q")
        theirs.rollback()
        assert ours.call("count_jobs") == []

    def test_a_savepoint_contains_it(self, theirs: Theirs, ours: Theirs) -> None:
        ours.call("create_queue", "q")
        ours.commit()
        theirs.call("enqueue", "q")
        undo = theirs.savepoint()
        with pytest.raises(pgq_sql.QueueNotFound):
            theirs.call("enqueue", "no")
        undo()
        theirs.call("enqueue", "q")
        theirs.commit()
        assert [one.count for one in ours.call("count_jobs")] == [2]

    def test_a_closed_client(self, theirs: Theirs) -> None:
        theirs.wait(theirs.client.close())
        with pytest.raises(pgq_sql.Closed):
            theirs.call("enqueue", "q")
