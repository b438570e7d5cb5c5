"""The client: every method, and its answers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import conninfo, sql

import pgq_sql
from conftest import Connect
from pgq_sql import Client, Enqueued, Job, Outcome, Swept
from pgq_sql._adapt import EARLIEST, EPOCH, LATEST, InstantLoader
from pgq_sql._json import dumps
from servers import Connection

SECOND = timedelta(seconds=1)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("q")
        yield client


def claim_one(client: Client, queue: str = "q") -> Job:
    (job,) = client.claim(queue, "me")
    return job


class TestProduce:
    def test_enqueue(self, client: Client) -> None:
        answer = client.enqueue("q", {"to": "a"})
        assert answer == Enqueued(answer.job_id, "inserted")
        job = claim_one(client)
        assert (job.job_id, job.payload, job.headers) == (answer.job_id, {"to": "a"}, None)

    def test_payload_is_an_empty_object_unless_given(self, client: Client) -> None:
        client.enqueue("q")
        assert claim_one(client).payload == {}

    @pytest.mark.parametrize("payload", [None, 0, "text", [1, None], {"ä": {"€": "😀"}}])
    def test_any_json_value(self, client: Client, payload: object) -> None:
        client.enqueue("q", payload)
        assert claim_one(client).payload == payload

    def test_every_option(self, client: Client, conn: Connection) -> None:
        client.enqueue(
            "q",
            priority=7,
            delay=60 * SECOND,
            max_attempts=2,
            visibility_timeout=2 * SECOND,
            expires_in=3600 * SECOND,
            retry_backoff="linear",
            retry_factor=1.5,
            retry_delay=3 * SECOND,
            retry_max_delay=4 * SECOND,
            retry_jitter=(0.5, 1),
            headers={"trace": "x"},
            options={},
        )
        row = conn.execute(
            "select priority, run_at - enqueued_at, max_attempts, visibility_timeout,"
            " expires_at - run_at, retry_backoff, retry_factor, retry_delay, retry_max_delay,"
            " retry_jitter::text, headers from pgq_sql.jobs"
        ).fetchone()
        assert row == (
            *(7, 60 * SECOND, 2, 2 * SECOND, 3600 * SECOND, "linear", 1.5, 3 * SECOND, 4 * SECOND),
            *("[0.5,1]", {"trace": "x"}),
        )

    def test_run_at(self, client: Client) -> None:
        then = datetime.now(UTC) + 60 * SECOND
        client.enqueue("q", run_at=then)
        assert client.claim("q", "me") == []
        assert client.next_run_at("q") == then

    def test_delay_wins_over_run_at(self, client: Client) -> None:
        client.enqueue("q", run_at=datetime.now(UTC) + 60 * SECOND, delay=timedelta(0))
        assert len(client.claim("q", "me")) == 1

    def test_enqueue_many(self, client: Client) -> None:
        answers = client.enqueue_many(
            "q", ["a", None, "c"], priorities=[1, None, 2], headers=[None, {"h": 1}, None]
        )
        assert answers == [
            Outcome(place, answer.job_id, "inserted")
            for place, answer in enumerate(answers, start=1)
        ]
        jobs = client.claim("q", "me", 10)
        assert [(job.payload, job.priority, job.headers) for job in jobs] == [
            ("c", 2, None),
            ("a", 1, None),
            (None, 0, {"h": 1}),
        ]

    def test_enqueue_many_with_times(self, client: Client) -> None:
        client.enqueue_many(
            "q",
            [1, 2, 3],
            delays=[None, 60 * SECOND, None],
            run_ats=[LONG_AGO, LONG_AGO, datetime.now(UTC) + 60 * SECOND],
            max_attempts=1,
        )
        jobs = client.claim("q", "me", 10)
        assert [(job.payload, job.max_attempts) for job in jobs] == [(1, 1)]

    def test_enqueue_many_of_none(self, client: Client) -> None:
        assert client.enqueue_many("q", []) == []

    def test_what_json_accepts_comes_back_equal(self, conn: Connection) -> None:
        scalars = st.none() | st.booleans() | st.integers() | st.text()
        values = st.recursive(
            scalars,
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=10,
        )

        @settings(max_examples=100, deadline=None)
        @given(values)
        def check(value: object) -> None:
            try:
                text = dumps(value)
            except pgq_sql.InvalidJson:
                return
            assert conn.execute("select %s::jsonb", [text]).fetchone() == (value,)

        check()


class TestConsume:
    def test_claim(self, client: Client) -> None:
        before = client.enqueue("q", {"n": 1}, headers={"h": [1]})
        job = claim_one(client)
        assert job == Job(
            job_id=before.job_id,
            token=1,
            queue="q",
            payload={"n": 1},
            headers={"h": [1]},
            attempt=1,
            max_attempts=5,
            priority=0,
            run_at=job.enqueued_at,
            enqueued_at=job.enqueued_at,
            lease_until=job.observed_at + 30 * SECOND,
            observed_at=job.observed_at,
            last_error=None,
        )
        assert job.run_at.tzinfo is UTC
        assert job.run_at <= job.observed_at

    def test_claim_nothing(self, client: Client) -> None:
        assert client.claim("q", "me", 10) == []
        client.enqueue("q")
        assert client.claim("q", "me", 0) == []

    def test_claim_with_its_own_lease(self, client: Client) -> None:
        client.enqueue("q")
        (job,) = client.claim("q", "me", visibility_timeout=2 * SECOND)
        assert job.lease_until - job.observed_at == 2 * SECOND

    def test_ack(self, client: Client) -> None:
        client.enqueue("q")
        job = claim_one(client)
        assert client.ack(job.job_id, job.token + 1) == "lost"
        assert client.ack(job.job_id, job.token) == "acked"
        assert client.ack(job.job_id, job.token) == "gone"

    def test_retry(self, client: Client) -> None:
        client.enqueue("q", max_attempts=2)
        job = claim_one(client)
        assert client.retry(job.job_id, job.token, "first", delay=timedelta(0)) == "retried"
        again = claim_one(client)
        assert (again.attempt, again.token, again.last_error) == (2, job.token + 1, "first")
        assert client.retry(job.job_id, job.token) == "lost"
        assert client.retry(again.job_id, again.token, "second") == "dead"
        assert client.retry(again.job_id, again.token) == "gone"

    def test_dead_letter(self, client: Client, conn: Connection) -> None:
        client.enqueue("q", {"a": 1})
        job = claim_one(client)
        assert client.dead_letter(job.job_id, job.token + 1) == "lost"
        assert client.dead_letter(job.job_id, job.token, "why") == "dead"
        assert client.dead_letter(job.job_id, job.token) == "gone"
        dead = conn.execute("select job_id, error, payload from pgq_sql.dead_jobs").fetchall()
        assert dead == [(job.job_id, "why", {"a": 1})]

    def test_release(self, client: Client) -> None:
        client.enqueue("q")
        job = claim_one(client)
        assert client.release(job.job_id, job.token) == "released"
        again = claim_one(client)
        assert (again.job_id, again.attempt) == (job.job_id, 1)
        assert client.release(again.job_id, again.token, delay=60 * SECOND) == "released"
        assert client.claim("q", "me") == []
        assert client.release(again.job_id, again.token) == "lost"

    def test_heartbeat(self, client: Client) -> None:
        client.enqueue("q")
        job = claim_one(client)
        beat = client.heartbeat(job.job_id, job.token, extend=60 * SECOND)
        assert beat.outcome == "extended"
        assert beat.lease_until == beat.observed_at + 60 * SECOND
        lost = client.heartbeat(job.job_id, job.token + 1)
        assert (lost.outcome, lost.lease_until) == ("lost", None)

    def test_heartbeat_many(self, client: Client) -> None:
        client.enqueue_many("q", [1, 2])
        one, two = client.claim("q", "me", 2)
        beats = client.heartbeat_many(
            [two.job_id, one.job_id, 0], [two.token, one.token, 1], extends=[None, 5 * SECOND, None]
        )
        assert [(beat.ordinal, beat.job_id, beat.outcome) for beat in beats] == [
            (1, two.job_id, "extended"),
            (2, one.job_id, "extended"),
            (3, 0, "gone"),
        ]
        assert [beat.lease_until and beat.lease_until - beat.observed_at for beat in beats] == [
            30 * SECOND,
            5 * SECOND,
            None,
        ]

    def test_many_answer_in_input_order(self, client: Client) -> None:
        client.enqueue_many("q", list(range(9)))
        jobs = client.claim("q", "me", 9)
        ids, tokens = [job.job_id for job in jobs], [job.token for job in jobs]

        def pick(*places: int) -> tuple[list[int], list[int]]:
            return [ids[place] for place in places], [tokens[place] for place in places]

        def answers(outcomes: list[Outcome]) -> list[tuple[int, int, str]]:
            return [(one.ordinal, ids.index(one.job_id), one.outcome) for one in outcomes]

        assert answers(client.ack_many(*pick(1, 0))) == [(1, 1, "acked"), (2, 0, "acked")]
        assert answers(
            client.retry_many(*pick(3, 2, 0), ["e", None, "f"], delays=[SECOND, None, None])
        ) == [(1, 3, "retried"), (2, 2, "retried"), (3, 0, "gone")]
        assert answers(client.dead_letter_many(*pick(5, 4), ["e", None])) == [
            (1, 5, "dead"),
            (2, 4, "dead"),
        ]
        assert answers(client.release_many(*pick(7, 6, 3), delays=[None, SECOND, None])) == [
            (1, 7, "released"),
            (2, 6, "released"),
            (3, 3, "lost"),
        ]

    def test_wait(self, client: Client, connect: Connect) -> None:
        session = connect()
        channel = client.wait_begin("q", conn=session)
        session.execute(sql.SQL("listen {}").format(sql.Identifier(channel)))
        client.enqueue("q")
        (notify,) = session.notifies(timeout=10, stop_after=1)
        assert (notify.channel, notify.payload) == (channel, "")
        client.wait_end("q", conn=session)
        with pytest.raises(pgq_sql.InvalidState):
            client.wait_end("q", conn=session)


class TestAdminister:
    def test_create_queue(self, client: Client) -> None:
        assert client.create_queue("new") is True
        assert client.create_queue("new") is False

    def test_every_setting(self, client: Client, conn: Connection) -> None:
        client.create_queue(
            "new",
            max_attempts=2,
            visibility_timeout=SECOND,
            retry_backoff="fixed",
            retry_factor=3,
            retry_delay=2 * SECOND,
            retry_max_delay=3 * SECOND,
            retry_jitter=(1, 1),
            expires_in=4 * SECOND,
            keep_dead=5 * SECOND,
            notify=False,
            max_payload=6,
            options={},
        )
        row = conn.execute(
            "select max_attempts, visibility_timeout, retry_backoff, retry_factor, retry_delay,"
            " retry_max_delay, retry_jitter::text, expires_in, keep_dead, notify, max_payload"
            " from pgq_sql.queues where queue = 'new'"
        ).fetchone()
        assert row == (
            *(2, SECOND, "fixed", 3, 2 * SECOND, 3 * SECOND, "[1,1]", 4 * SECOND, 5 * SECOND),
            *(False, 6),
        )

    def test_next_run_at(self, client: Client) -> None:
        assert client.next_run_at("q") is None
        client.enqueue("q")
        assert client.next_run_at("q") == claim_one(client).run_at
        assert client.next_run_at("q") is None

    @pytest.mark.parametrize(
        ("microseconds", "instant"),
        [
            (0, EPOCH),
            (-1, EPOCH - timedelta(microseconds=1)),
            (2**63 - 1, LATEST),
            (-(2**63), EARLIEST),
        ],
    )
    def test_no_instant_is_beyond_the_calendar(self, microseconds: int, instant: datetime) -> None:
        assert InstantLoader(0).load(struct.pack("!q", microseconds)) == instant

    def test_sweep(self, client: Client) -> None:
        done = client.sweep()
        assert done
        assert all(isinstance(one, Swept) and one.count == 0 for one in done)
        assert client.sweep(1) == done

    def test_access(self, client: Client, role: Callable[[], str]) -> None:
        dsn = role()
        user = conninfo.conninfo_to_dict(dsn)["user"]
        assert isinstance(user, str)
        with Client(dsn) as stranger:
            with pytest.raises(pgq_sql.NotAllowed):
                stranger.enqueue("q")
            client.grant_access(user, "producer")
            stranger.enqueue("q")
            with pytest.raises(pgq_sql.NotAllowed):
                stranger.claim("q", "me")
            client.revoke_access(user, "producer")
            with pytest.raises(pgq_sql.NotAllowed):
                stranger.enqueue("q")

    def test_schema_version(self, client: Client) -> None:
        assert client.schema_version() == client.check() == "0001"
