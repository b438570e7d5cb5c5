"""pgq_sql.tracing: the spans of enqueues, and what goes with the jobs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.semconv._incubating.attributes import messaging_attributes as conventions
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace import SpanKind, StatusCode

from pgq_sql import Client, InvalidArgument, QueueNotFound, tracing
from pgq_sql.testing import drain
from pgq_sql.tracing import TracedClient, traced
from spans import Spans, attributes, carried, ids, links, recording

VALID = f"00-{'1a' * 16}-{'2b' * 8}-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    with recording(monkeypatch) as spans:
        yield spans


@pytest.fixture
def client(database: str, spans: Spans) -> Iterator[TracedClient]:
    with TracedClient(database) as client:
        client.create_queue("emails", retry_delay=timedelta(0))
        yield client


class TestEnqueue:
    def test_one(self, client: TracedClient, spans: Spans) -> None:
        answer = client.enqueue("emails", {"to": "ada"})
        span = spans.one("send emails")
        assert span.kind == SpanKind.PRODUCER
        assert span.status.status_code == StatusCode.UNSET
        assert attributes(span) == {
            conventions.MESSAGING_SYSTEM: "pgq_sql",
            conventions.MESSAGING_DESTINATION_NAME: "emails",
            conventions.MESSAGING_OPERATION_NAME: "send",
            conventions.MESSAGING_OPERATION_TYPE: "send",
            conventions.MESSAGING_MESSAGE_ID: str(answer.job_id),
            "messaging.pgq_sql.outcome": "inserted",
        }
        (job,) = client.claim("emails", "me")
        assert carried(job) == ids(span)
        assert links(span) == []

    def test_no_other_call_is_a_span(self, client: TracedClient, spans: Spans) -> None:
        client.enqueue("emails")
        (job,) = client.claim("emails", "me")
        client.ack(job.job_id, job.token)
        assert len(spans.all()) == 1

    def test_many(self, client: TracedClient, spans: Spans) -> None:
        client.enqueue_many("emails", [1, 2], headers=[None, {"tenant": 7}])
        span = spans.one("send emails")
        assert span.kind == SpanKind.PRODUCER
        assert attributes(span)[conventions.MESSAGING_BATCH_MESSAGE_COUNT] == 2
        assert conventions.MESSAGING_MESSAGE_ID not in attributes(span)
        first, second = client.claim("emails", "me", 2)
        assert carried(first) == carried(second) == ids(span)
        assert second.headers is not None
        assert second.headers["tenant"] == 7

    @pytest.mark.parametrize("payloads", [[], [None], list(range(3))])
    def test_many_without_headers(
        self, client: TracedClient, spans: Spans, payloads: list[object]
    ) -> None:
        assert len(client.enqueue_many("emails", payloads)) == len(payloads)
        assert [carried(job) for job in client.claim("emails", "me", 9)] == len(payloads) * [
            ids(spans.one("send emails"))
        ]

    def test_headers_are_kept(self, client: TracedClient) -> None:
        own = {"tenant": 7, "traceparent": "nonsense"}
        client.enqueue("emails", headers=own)
        (job,) = client.claim("emails", "me")
        assert job.headers == own
        assert own == {"tenant": 7, "traceparent": "nonsense"}

    def test_a_context_of_the_callers_is_kept_and_linked(
        self, client: TracedClient, spans: Spans
    ) -> None:
        own = {"traceparent": VALID}
        client.enqueue("emails", headers=own)
        client.enqueue_many("emails", [1, 2], headers=[own, None])
        one, two, three = client.claim("emails", "me", 3)
        assert one.headers == two.headers == own
        single, many = spans.named("send emails")
        assert links(single) == links(many) == [(int("1a" * 16, 16), int("2b" * 8, 16))]
        assert carried(three) == ids(many)

    def test_baggage_travels(self, client: TracedClient) -> None:
        token = context.attach(baggage.set_baggage("tenant", "seven"))
        try:
            client.enqueue("emails")
        finally:
            context.detach(token)
        seen: list[object] = []
        drain(client, {"emails": traced(lambda _: seen.append(baggage.get_baggage("tenant")))})
        assert seen == ["seven"]
        assert baggage.get_baggage("tenant") is None

    def test_the_jobs_key_was_there(self, client: TracedClient, spans: Spans) -> None:
        first = client.enqueue("emails", dedup_key="k")
        client.enqueue("emails", dedup_key="k")
        _, second = spans.named("send emails")
        assert attributes(second)["messaging.pgq_sql.outcome"] == "existing"
        assert attributes(second)[conventions.MESSAGING_MESSAGE_ID] == str(first.job_id)

    def test_in_the_callers_transaction(
        self, client: TracedClient, spans: Spans, database: str
    ) -> None:
        with psycopg.connect(database) as conn:
            client.enqueue("emails", "kept", conn=conn)
            conn.commit()
            client.enqueue("emails", "rolled back", conn=conn)
            conn.rollback()
        (job,) = client.claim("emails", "me", 9)
        assert carried(job) == ids(spans.named("send emails")[0])

    def test_a_refusal_is_an_error(self, client: TracedClient, spans: Spans) -> None:
        with pytest.raises(QueueNotFound):
            client.enqueue("nowhere")
        span = spans.one("send nowhere")
        assert span.status.status_code == StatusCode.ERROR
        assert attributes(span)[ERROR_TYPE] == "pgq_sql.errors.QueueNotFound"
        assert [event.name for event in span.events] == ["exception"]

    @pytest.mark.parametrize(
        ("payloads", "headers"),
        [(5, None), ([1], 5), ([1], "x"), ([1], [5]), ([1, 2], [None]), ("x", None)],
    )
    def test_what_is_wrong_is_refused_as_without_traces(
        self, client: TracedClient, database: str, payloads: Any, headers: Any
    ) -> None:
        told: list[BaseException] = []
        with Client(database) as plain:
            for one in (plain, client):
                with pytest.raises((TypeError, InvalidArgument)) as refused:
                    one.enqueue_many("emails", payloads, headers=headers)
                told.append(refused.value)
        assert type(told[0]) is type(told[1])
        assert str(told[0]) == str(told[1])

    def test_without_a_sampled_trace(
        self, client: TracedClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A decision not to sample goes with the job; without an SDK, nothing does."""
        provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
        monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("pgq_sql"))
        client.enqueue("emails")
        monkeypatch.setattr(tracing, "_tracer", trace.NoOpTracer())
        client.enqueue("emails")
        client.enqueue_many("emails", [1], headers=[{"a": 1}])
        unsampled, *others = client.claim("emails", "me", 3)
        assert unsampled.headers is not None
        assert int(unsampled.headers["traceparent"][-2:], 16) & trace.TraceFlags.SAMPLED == 0
        assert [job.headers for job in others] == [None, {"a": 1}]


hexes = st.text("0123456789abcdefABCDEF-", max_size=60)
texts = st.text() | hexes | st.builds("00-{}-{}-{}".format, hexes, hexes, hexes)
odd = st.none() | st.integers() | st.lists(st.integers()) | st.dictionaries(st.text(), st.text())
keys = st.sampled_from(["traceparent", "tracestate", "baggage"])


@given(st.dictionaries(keys, texts | st.just(VALID) | odd))
def test_no_headers_break_a_job(headers: dict[str, Any]) -> None:
    tracing._span_context(tracing._extracted(headers))
    assert tracing._with({"traceparent": VALID}, headers) == {"traceparent": VALID} | headers
