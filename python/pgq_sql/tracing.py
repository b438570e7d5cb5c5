"""Traces by OpenTelemetry: a span for each enqueue and for each run of a handler.

The trace's context travels in the job's headers, as W3C Trace Context unless the application has
set another propagator. Names are those of OpenTelemetry's conventions for messaging.

* `TracedClient`, `TracedAsyncClient`: `send emails`, of kind PRODUCER. `enqueue_many` makes one
  span, whose context goes into each job. A context that the caller put into the headers stays,
  and the span links to it.
* `traced(handler)`: `process emails`, of kind CONSUMER. A job's span is a child of the one that
  enqueued it and links to it too, a batch's begins a trace and links to those of all its jobs.

An exception makes the span an error, also DeadLetter. Retry and Snooze do not: they are what the
handler wants. `messaging.pgq_sql.disposition` tells which it was, or `ack`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeGuard

from opentelemetry import context as current
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from . import AsyncClient, Client, DeadLetter, Job, Retry, Snooze
from ._decorating import HandlerKind, Work, around, jobs_of
from ._joining import AsyncJoinable, Joinable

Row: TypeAlias = tuple[Any, ...]

SENDS = ("enqueue", "enqueue_many")
BATCH = "messaging.batch.message_count"
MESSAGE_ID = "messaging.message.id"
OUTCOME = "messaging.pgq_sql.outcome"
"""Of an enqueue: inserted, existing or replaced."""
ATTEMPT = "messaging.pgq_sql.attempt"
DISPOSITION = "messaging.pgq_sql.disposition"
"""What the handler wants for its job: ack, retry, dead_letter or snooze."""

_tracer = trace.get_tracer("pgq_sql", schema_url="https://opentelemetry.io/schemas/1.44.0")


class TracedClient(Client):
    """`Client` whose enqueues are spans, and whose jobs carry their context."""

    def _rows(self, conn: Joinable | None, function: str, **arguments: object) -> list[Row]:
        if function not in SENDS:
            return super()._rows(conn, function, **arguments)
        with _sending(function, arguments) as sent:
            rows = super()._rows(conn, function, **arguments)
            sent(rows)
            return rows


class TracedAsyncClient(AsyncClient):
    """`AsyncClient` whose enqueues are spans, and whose jobs carry their context."""

    async def _rows(
        self, conn: AsyncJoinable | None, function: str, **arguments: object
    ) -> list[Row]:
        if function not in SENDS:
            return await super()._rows(conn, function, **arguments)
        with _sending(function, arguments) as sent:
            rows = await super()._rows(conn, function, **arguments)
            sent(rows)
            return rows


def traced(handler: HandlerKind) -> HandlerKind:
    """The handler with a span around each of its runs.

    It is a function or coroutine function that takes a job, or a batch. With options, so:
    `Consumer(traced(handler), …)`. Code in it finds the span as the current one.
    """
    return around(handler, _processing)


@contextmanager
def _sending(
    function: str, arguments: dict[str, object]
) -> Iterator[Callable[[Sequence[Row]], None]]:
    """Put a new span's context into the headers to be sent; the answer is to be told."""
    many = function == "enqueue_many"
    payloads = arguments["payloads"] if many else None
    # Whatever is of a wrong type goes on as it is, to be refused by those who know how.
    count = len(payloads) if isinstance(payloads, Sequence) else 1
    given = arguments["headers"]
    headers = [given] if not many else list(given) if _is_list(given) else [None] * count
    own = [_span_context(_extracted(one)) for one in headers]
    links = [Link(one) for one in own if one is not None]
    attributes: dict[str, AttributeValue] = {BATCH: count} if many else {}
    with _span("send", str(arguments["queue"]), SpanKind.PRODUCER, attributes, links) as span:
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        if carrier and (given is None or _is_list(given) if many else True):
            with_context = [
                one if found is not None else _with(carrier, one)
                for one, found in zip(headers, own, strict=True)
            ]
            arguments["headers"] = with_context if many else with_context[0]

        def sent(rows: Sequence[Row]) -> None:
            if not many:
                job_id, outcome = rows[0]
                span.set_attributes({MESSAGE_ID: str(job_id), OUTCOME: outcome})

        try:
            yield sent
        except BaseException as error:
            _failed(span, error)
            raise


@contextmanager
def _processing(work: Work) -> Iterator[Callable[[object], None]]:
    """A span for a handler's run; what the handler answers is to be told."""
    jobs = jobs_of(work)
    single = isinstance(work, Job)
    attributes: dict[str, AttributeValue] = (
        {MESSAGE_ID: str(jobs[0].job_id), ATTEMPT: jobs[0].attempt}
        if single
        else {BATCH: len(jobs)}
    )
    contexts = [_extracted(job.headers) for job in jobs]
    links = [
        Link(found, None if single else {MESSAGE_ID: str(job.job_id)})
        for job, context in zip(jobs, contexts, strict=True)
        if (found := _span_context(context)) is not None
    ]
    # A worker may have been started in a span: no parent of its jobs, but worth a link.
    if (ambient := trace.get_current_span().get_span_context()).is_valid:
        links.append(Link(ambient))
    token = current.attach(contexts[0] if single else Context())
    try:
        with _span("process", jobs[0].queue, SpanKind.CONSUMER, attributes, links) as span:

            def done(answer: object) -> None:
                if single:
                    span.set_attribute(DISPOSITION, "ack")
                elif isinstance(answer, Sequence):
                    for job, one in zip(jobs, answer, strict=False):
                        if isinstance(one, BaseException):
                            _ended_by(span, one, {MESSAGE_ID: str(job.job_id)})

            try:
                yield done
            except BaseException as error:
                if (wish := _wish(error)) is not None:
                    span.set_attribute(DISPOSITION, wish)
                _ended_by(span, error)
                raise
    finally:
        current.detach(token)


@contextmanager
def _span(
    operation: str,
    queue: str,
    kind: SpanKind,
    attributes: Mapping[str, AttributeValue],
    links: Sequence[Link],
) -> Iterator[Span]:
    with _tracer.start_as_current_span(
        f"{operation} {queue}",
        kind=kind,
        attributes={
            "messaging.system": "pgq_sql",
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": queue,
            **attributes,
        },
        links=links,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield span


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _wish(error: BaseException) -> str | None:
    match error:
        case Retry():
            return "retry"
        case Snooze():
            return "snooze"
        case DeadLetter():
            return "dead_letter"
    return None


def _ended_by(
    span: Span, error: BaseException, attributes: Mapping[str, AttributeValue] | None = None
) -> None:
    if not isinstance(error, Retry | Snooze):
        _failed(span, error, attributes)


def _failed(
    span: Span, error: BaseException, attributes: Mapping[str, AttributeValue] | None = None
) -> None:
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    span.set_attribute("error.type", f"{module}{kind.__qualname__}")
    try:
        text = str(error)
        span.record_exception(error, attributes)
    except BaseException:
        # An exception's text may fail too, and the handler's own exception is the one to tell.
        text = "(its text cannot be had)"
    span.set_status(Status(StatusCode.ERROR, text))


class _Texts(Getter[Mapping[str, object]]):
    """Reads headers, in which a producer may have put any JSON."""

    def get(self, carrier: Mapping[str, object], key: str) -> list[str] | None:
        value = carrier.get(key)
        return [value] if isinstance(value, str) else None

    def keys(self, carrier: Mapping[str, object]) -> list[str]:
        return list(carrier)


_TEXTS = _Texts()


def _extracted(headers: object) -> Context:
    """The context that came with a job; an empty one if it has none that can be read."""
    if not isinstance(headers, Mapping):
        return Context()
    return propagate.extract(headers, Context(), _TEXTS)


def _span_context(context: Context) -> trace.SpanContext | None:
    found = trace.get_current_span(context).get_span_context()
    return found if found.is_valid else None


def _with(carrier: Mapping[str, str], headers: object) -> object:
    if headers is None:
        return dict(carrier)
    return {**carrier, **headers} if isinstance(headers, Mapping) else headers
