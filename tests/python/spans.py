"""Spans in tests: what has been told, and how it hangs together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pgq_sql import Job, tracing


class Spans:
    """What has been told so far."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self.exporter = exporter

    def all(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]


@contextmanager
def recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Let all spans be kept here; a process can set its provider only once."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_tracer", provider.get_tracer("pgq_sql"))
    yield Spans(exporter)
    provider.shutdown()


def ids(span: ReadableSpan) -> tuple[int, int]:
    return key(span.context)


def key(found: Any) -> tuple[int, int]:
    return found.trace_id, found.span_id


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    return [key(link.context) for link in span.links]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def carried(job: Job) -> tuple[int, int]:
    """The span whose context a job carries."""
    assert job.headers is not None
    _, trace_id, span_id, _ = job.headers["traceparent"].split("-")
    return int(trace_id, 16), int(span_id, 16)
