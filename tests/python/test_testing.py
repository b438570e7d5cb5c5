"""pgq_sql.testing: asking what is enqueued."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pgq_sql import Client, InvalidJson, QueueNotFound
from pgq_sql.testing import _asserts, assert_enqueued, assert_not_enqueued, enqueued

HOUR = timedelta(hours=1)


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("q")
        yield client


class TestEnqueued:
    def test_all_live_jobs(self, client: Client) -> None:
        client.create_queue("other", keep_done=HOUR)
        client.enqueue_many("q", ["running", "later"], delays=[None, HOUR])
        client.claim("q", "me")
        client.enqueue_many("other", ["done", "dead"])
        (done, dead) = client.claim("other", "me", 2)
        client.ack(done.job_id, done.token)
        client.dead_letter(dead.job_id, dead.token)
        client.enqueue("other", "ready")
        assert [job.payload for job in enqueued(client)] == ["running", "later", "ready"]
        assert [job.payload for job in enqueued(client, "other")] == ["ready"]
        assert [job.payload for job in enqueued(client, state="dead")] == ["dead"]
        assert [job.payload for job in enqueued(client, "other", state="done")] == ["done"]

    def test_payload_is_the_whole(self, client: Client) -> None:
        client.enqueue_many("q", [{"to": "ada"}, {"to": "ada", "cc": "bob"}])
        assert [job.job_id for job in enqueued(client, payload={"to": "ada"})] == [1]
        assert [job.job_id for job in enqueued(client, payload_has={"to": "ada"})] == [1, 2]
        assert enqueued(client, payload={"to": "ada"}, payload_has={"cc": "bob"}) == []
        assert enqueued(client, payload={}) == []

    def test_numbers_and_truth_are_not_the_same(self, client: Client) -> None:
        client.enqueue_many("q", [{"n": 1}, {"n": True}])
        assert [job.job_id for job in enqueued(client, payload={"n": 1.0})] == [1]
        assert [job.job_id for job in enqueued(client, payload={"n": True})] == [2]

    def test_payload_takes_the_way_of_the_job(self, database: str, client: Client) -> None:
        with pytest.raises(InvalidJson):
            enqueued(client, payload={"at": datetime.now(UTC)})
        with Client(database, dumps=lambda value: f'{{"packed": "{value}"}}') as own:
            own.enqueue("q", HOUR)
            assert len(enqueued(own, payload=HOUR)) == 1
            assert enqueued(own, payload=2 * HOUR) == []

    def test_all_pages(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_asserts, "PAGE", 2)
        client.enqueue_many("q", [1, 2, 3, 4, 5])
        assert [job.payload for job in enqueued(client, "q")] == [1, 2, 3, 4, 5]

    def test_no_such_queue(self, client: Client) -> None:
        with pytest.raises(QueueNotFound):
            enqueued(client, "unknown")


class TestAsserts:
    def test_answers_what_is_there(self, client: Client) -> None:
        client.enqueue_many("q", [{"n": 1}, {"n": 2}, {"n": 1}])
        assert [job.job_id for job in assert_enqueued(client, "q", payload={"n": 1})] == [1, 3]
        assert len(assert_enqueued(client, "q", payload={"n": 1}, n=2)) == 2
        assert len(assert_enqueued(client, n=3)) == 3
        assert_enqueued(client, "q", payload={"n": 3}, n=0)
        assert_not_enqueued(client, "q", payload={"n": 3})
        assert_not_enqueued(client, "q", payload={"n": 1}, state="scheduled")

    def test_says_what_is_there_instead(self, client: Client) -> None:
        client.create_queue("other")
        run_at = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)
        client.enqueue("q", {"to": "eve"})
        (job,) = client.claim("q", "me")
        client.dead_letter(job.job_id, job.token, "unknown")
        client.enqueue("q", {"to": "bob"})
        client.enqueue("other", {"to": "ada"}, run_at=run_at)
        with pytest.raises(AssertionError) as caught:
            assert_enqueued(client, "q", payload={"to": "ada"})
        assert str(caught.value).splitlines() == [
            'expected a job in q with payload {"to": "ada"}, found none',
            "there are:",
            '  job 1 in q, dead (unknown): {"to": "eve"}',
            '  job 2 in q, ready: {"to": "bob"}',
            '  job 3 in other, scheduled for 2100-01-02 03:04:05Z: {"to": "ada"}',
        ]

    def test_says_which_there_are_too_many(self, client: Client) -> None:
        client.enqueue_many("q", [1, 2])
        with pytest.raises(AssertionError) as caught:
            assert_not_enqueued(client, "q", payload=2, state="ready")
        assert str(caught.value).splitlines() == [
            "expected no ready jobs in q with payload 2, found 1",
            "there are:",
            "  job 1 in q, ready: 1",
            "* job 2 in q, ready: 2",
        ]

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({}, "expected a job, found none"),
            ({"n": 1}, "expected 1 job, found none"),
            ({"n": 2, "state": "ready"}, "expected 2 ready jobs, found none"),
            ({"payload_has": {"a": 1}}, 'expected a job whose payload has {"a": 1}, found none'),
        ],
    )
    def test_words(self, client: Client, given: dict[str, Any], told: str) -> None:
        with pytest.raises(AssertionError) as caught:
            assert_enqueued(client, **given)
        assert str(caught.value) == f"{told}\nthere are no jobs at all"

    def test_does_not_flood(self, client: Client) -> None:
        client.enqueue_many("q", ["x" * 1000] * 30)
        with pytest.raises(AssertionError) as caught:
            assert_enqueued(client, "q", n=31)
        lines = str(caught.value).splitlines()
        assert lines[0] == "expected 31 jobs in q, found 30"
        assert len(lines) == 2 + _asserts.MOST_LISTED + 1
        assert lines[-1] == "  and more"
        assert max(map(len, lines)) < 300
