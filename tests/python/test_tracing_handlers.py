"""pgq_sql.tracing: the spans of handlers, and how they hang on those of enqueues."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.semconv._incubating.attributes import messaging_attributes as conventions
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.trace import SpanKind, StatusCode

from pgq_sql import (
    AsyncBatch,
    AsyncClient,
    AsyncRunningJob,
    AsyncWorker,
    Batch,
    BatchConsumer,
    Client,
    Consumer,
    DeadLetter,
    Job,
    QueueNotFound,
    Retry,
    RunningJob,
    Snooze,
    Worker,
    tracing,
)
from pgq_sql.testing import drain
from pgq_sql.tracing import TracedAsyncClient, TracedClient, traced
from servers import ROOT
from spans import Spans, attributes, ids, key, links, recording
from working import Record

GUIDE = ROOT / "docs" / "howto" / "observe.md"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    with recording(monkeypatch) as spans:
        yield spans


@pytest.fixture
def client(database: str, spans: Spans) -> Iterator[TracedClient]:
    with TracedClient(database) as client:
        client.create_queue("emails", retry_delay=timedelta(0))
        yield client


class TestProcess:
    def test_one(self, client: TracedClient, spans: Spans) -> None:
        inside: list[Any] = []

        def handle(job: RunningJob) -> None:
            inside.append(trace.get_current_span().get_span_context())

        answer = client.enqueue("emails")
        Worker(client, {"emails": traced(handle)}).run(until_idle=True)
        sent, span = spans.one("send emails"), spans.one("process emails")
        assert span.kind == SpanKind.CONSUMER
        assert span.parent is not None
        assert key(span.parent) == ids(sent)
        assert links(span) == [ids(sent)]
        assert span.status.status_code == StatusCode.UNSET
        assert attributes(span) == {
            conventions.MESSAGING_SYSTEM: "pgq_sql",
            conventions.MESSAGING_DESTINATION_NAME: "emails",
            conventions.MESSAGING_OPERATION_NAME: "process",
            conventions.MESSAGING_OPERATION_TYPE: "process",
            conventions.MESSAGING_MESSAGE_ID: str(answer.job_id),
            "messaging.pgq_sql.attempt": 1,
            "messaging.pgq_sql.disposition": "ack",
        }
        assert [key(one) for one in inside] == [ids(span)]

    def test_a_span_for_each_run_and_no_more(self, client: TracedClient, spans: Spans) -> None:
        def handle(job: RunningJob) -> None:
            if job.attempt == 1 and job.payload == 0:
                raise ValueError

        client.enqueue_many("emails", list(range(20)))
        Worker(client, {"emails": traced(handle)}, concurrency=3).run(until_idle=True)
        runs = spans.named("process emails")
        assert len(runs) == 21
        assert len(spans.all()) == 22
        # All of one trace: the one that enqueued them.
        assert {ids(span)[0] for span in runs} == {ids(spans.one("send emails"))[0]}

    def test_without_a_context_each_job_is_a_trace(
        self, client: TracedClient, database: str, spans: Spans
    ) -> None:
        with Client(database) as plain:
            plain.enqueue_many("emails", [1, 2], headers=[None, {"traceparent": "nonsense"}])
        drain(client, {"emails": traced(Record())})
        runs = spans.named("process emails")
        assert [span.parent for span in runs] == [None, None]
        assert len({ids(span)[0] for span in runs}) == 2

    def test_the_span_that_the_worker_runs_in_is_linked(
        self, client: TracedClient, spans: Spans
    ) -> None:
        client.enqueue("emails")
        with tracing._tracer.start_as_current_span("around") as around:
            drain(client, {"emails": traced(Record())})
            assert trace.get_current_span() is around
        span = spans.one("process emails")
        assert links(span) == [ids(spans.one("send emails")), key(around.get_span_context())]
        assert span.parent is not None
        assert key(span.parent) == ids(spans.one("send emails"))

    @pytest.mark.parametrize(
        ("error", "wish"),
        [(Retry(), "retry"), (Snooze(timedelta(hours=1)), "snooze")],
        ids=["Retry", "Snooze"],
    )
    def test_a_wish_is_no_error(
        self, client: TracedClient, spans: Spans, error: Exception, wish: str
    ) -> None:
        def handle(job: RunningJob) -> None:
            raise error

        client.enqueue("emails", max_attempts=1)
        drain(client, {"emails": traced(handle)})
        span = spans.one("process emails")
        assert span.status.status_code == StatusCode.UNSET
        assert attributes(span)["messaging.pgq_sql.disposition"] == wish
        assert ERROR_TYPE not in attributes(span)
        assert list(span.events) == []

    @pytest.mark.parametrize(
        ("error", "kind", "text"),
        [
            (ValueError("no address"), "ValueError", "no address"),
            (DeadLetter("no address"), f"{DeadLetter.__module__}.DeadLetter", "no address"),
        ],
        ids=["ValueError", "DeadLetter"],
    )
    def test_an_exception_is_an_error(
        self, client: TracedClient, spans: Spans, error: BaseException, kind: str, text: str
    ) -> None:
        def handle(job: RunningJob) -> None:
            raise error

        client.enqueue("emails", max_attempts=1)
        assert drain(client, {"emails": traced(handle)}).dead == 1
        span = spans.one("process emails")
        assert span.status.status_code == StatusCode.ERROR
        assert span.status.description == text
        assert attributes(span)[ERROR_TYPE] == kind
        (event,) = span.events
        assert event.attributes is not None
        assert "in handle" in str(event.attributes["exception.stacktrace"])
        wish = attributes(span).get("messaging.pgq_sql.disposition")
        assert wish == ("dead_letter" if isinstance(error, DeadLetter) else None)

    def test_an_exception_whose_text_fails(self, client: TracedClient, spans: Spans) -> None:
        class OddError(Exception):
            def __str__(self) -> NoReturn:
                raise SystemExit

        def handle(job: RunningJob) -> None:
            raise OddError

        client.enqueue("emails", max_attempts=1)
        (run,) = drain(client, {"emails": traced(handle)}).runs
        assert isinstance(run.exception, OddError)
        span = spans.one("process emails")
        assert span.status.status_code == StatusCode.ERROR
        assert attributes(span)[ERROR_TYPE].endswith("OddError")

    def test_what_is_kept_of_an_exception_is_the_handlers(self, client: TracedClient) -> None:
        def handle(job: RunningJob) -> None:
            raise ValueError("boom")

        client.enqueue("emails", max_attempts=1)
        (run,) = drain(client, {"emails": traced(handle)}).runs
        assert run.error is not None
        assert run.error.startswith("ValueError: boom\n")
        assert run.error.rstrip().endswith('raise ValueError("boom")')


class TestBatch:
    def test_links(self, client: TracedClient, spans: Spans, database: str) -> None:
        client.enqueue("emails", 1)
        client.enqueue("emails", 2)
        with Client(database) as plain:
            plain.enqueue("emails", 3)
        jobs = client.claim("emails", "me", 3)

        def handle(batch: Sequence[Job]) -> list[object]:
            return [job.payload for job in batch]

        assert traced(handle)(jobs) == [1, 2, 3]
        span = spans.one("process emails")
        assert span.parent is None
        assert links(span) == [ids(sent) for sent in spans.named("send emails")]
        assert [dict(link.attributes or {}) for link in span.links] == [
            {conventions.MESSAGING_MESSAGE_ID: str(job.job_id)} for job in jobs[:2]
        ]
        assert attributes(span)[conventions.MESSAGING_BATCH_MESSAGE_COUNT] == 3
        assert conventions.MESSAGING_MESSAGE_ID not in attributes(span)
        assert span.status.status_code == StatusCode.UNSET

    def test_in_a_worker(self, client: TracedClient, spans: Spans) -> None:
        def handle(batch: Batch) -> None:
            with batch.transaction():
                assert trace.get_current_span().is_recording()

        client.enqueue_many("emails", [1, 2, 3])
        consumer = BatchConsumer(traced(handle), size=10)
        assert Worker(client, {"emails": consumer}).run(until_idle=True).acked == 3
        assert links(spans.one("process emails")) == 3 * [ids(spans.one("send emails"))]

    def test_in_an_async_worker(self, database: str, spans: Spans) -> None:
        async def handle(batch: AsyncBatch) -> None:
            await asyncio.sleep(0)
            assert trace.get_current_span().is_recording()

        async def main() -> int:
            async with TracedAsyncClient(database) as client:
                await client.create_queue("emails")
                await client.enqueue_many("emails", [1, 2, 3])
                consumer = BatchConsumer(traced(handle), size=10)
                worker = AsyncWorker(client, {"emails": consumer})
                return (await worker.run(until_idle=True)).acked

        assert asyncio.run(main()) == 3
        assert len(spans.one("process emails").links) == 3

    def test_exceptions_among_the_answers(self, client: TracedClient, spans: Spans) -> None:
        client.enqueue_many("emails", [1, 2, 3])
        jobs = client.claim("emails", "me", 3)
        errors = [None, Retry(), ValueError("no")]
        assert traced(lambda _: errors)(jobs) is errors
        span = spans.one("process emails")
        assert span.status.status_code == StatusCode.ERROR
        (event,) = span.events
        assert event.attributes is not None
        assert event.attributes[conventions.MESSAGING_MESSAGE_ID] == str(jobs[2].job_id)

    def test_an_exception(self, client: TracedClient, spans: Spans) -> None:
        client.enqueue_many("emails", [1])
        jobs = client.claim("emails", "me", 3)

        def handle(batch: Sequence[Job]) -> NoReturn:
            raise ValueError

        with pytest.raises(ValueError, match=r"^$"):
            traced(handle)(jobs)
        assert spans.one("process emails").status.status_code == StatusCode.ERROR


class TestAsync:
    def test_a_job_from_end_to_end(self, database: str, spans: Spans) -> None:
        seen: list[Any] = []

        async def handle(job: AsyncRunningJob) -> None:
            await asyncio.sleep(0)
            seen.append((job.payload, trace.get_current_span().get_span_context()))

        async def main() -> None:
            async with TracedAsyncClient(database) as client:
                await client.create_queue("emails")
                async with await psycopg.AsyncConnection.connect(database) as conn:
                    for n in range(5):
                        await client.enqueue("emails", n, conn=conn)
                await AsyncWorker(client, {"emails": traced(handle)}).run(until_idle=True)
                assert not trace.get_current_span().get_span_context().is_valid

        asyncio.run(main())
        sent, runs = spans.named("send emails"), spans.named("process emails")
        assert [span.parent and key(span.parent) for span in runs] == [ids(one) for one in sent]
        assert sorted((n, key(found)) for n, found in seen) == [
            (n, ids(span)) for n, span in enumerate(runs)
        ]

    def test_a_cancelled_handler(self, database: str, spans: Spans) -> None:
        async def main() -> None:
            began = asyncio.Event()

            async def handle(job: AsyncRunningJob) -> None:
                began.set()
                await asyncio.Event().wait()

            async with TracedAsyncClient(database) as client:
                await client.create_queue("emails")
                await client.enqueue_many("emails", [1])
                worker = AsyncWorker(
                    client, {"emails": traced(handle)}, drain_timeout=timedelta(seconds=0)
                )
                running = asyncio.create_task(worker.run())
                await asyncio.wait_for(began.wait(), 60)
                worker.stop()
                await running

        asyncio.run(main())
        span = spans.one("process emails")
        assert span.status.status_code == StatusCode.ERROR
        assert attributes(span)[ERROR_TYPE] == "asyncio.exceptions.CancelledError"

    def test_a_refusal_is_an_error(self, database: str, spans: Spans) -> None:
        async def main() -> None:
            async with TracedAsyncClient(database) as client:
                with pytest.raises(QueueNotFound):
                    await client.enqueue("nowhere")

        asyncio.run(main())
        assert spans.one("send nowhere").status.status_code == StatusCode.ERROR

    def test_an_object_that_is_called(self, database: str, spans: Spans) -> None:
        class Handler:
            async def __call__(self, _: AsyncRunningJob) -> None:
                await asyncio.sleep(0)
                assert trace.get_current_span().is_recording()

        async def main() -> int:
            async with AsyncClient(database) as client:
                await client.create_queue("emails")
                await client.enqueue("emails")
                worker = AsyncWorker(client, {"emails": traced(Handler())})
                return (await worker.run(until_idle=True)).acked

        assert asyncio.run(main()) == 1
        assert spans.one("process emails").status.status_code == StatusCode.UNSET


def test_the_guides_example(
    client: TracedClient, spans: Spans, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(
        r"^```python\n# traces.py\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL
    )
    monkeypatch.setenv("PGQ_DSN", database)
    exec(compile(example, "traces.py", "exec"), {})
    assert [span.name for span in spans.all()] == ["send emails", "process emails"]
    for name in re.findall(r"`(\w+)`", GUIDE.read_text().partition("`messaging.pgq_sql.` ")[2])[:3]:
        assert f'"messaging.pgq_sql.{name}"' in Path(tracing.__file__).read_text()


def test_kinds_of_handlers_stay(database: str) -> None:
    """A worker refuses the wrong kind, also if it is traced."""

    async def handle(job: AsyncRunningJob) -> None:
        """Say what it does."""

    assert traced(handle).__doc__ == handle.__doc__
    wrong: Any = traced(handle)
    with Client(database) as client, pytest.raises(TypeError, match="ordinary function"):
        Worker(client, {"emails": wrong})
    not_callable: Any = Consumer(handle)
    with pytest.raises(TypeError, match="decorate the handler itself"):
        traced(not_callable)
