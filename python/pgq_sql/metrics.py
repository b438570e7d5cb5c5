"""Metrics for Prometheus: the state of the queues, what workers did, how long handlers took.

`QueueMetrics` and `WorkerMetrics` are collectors to register; `timed` decorates handlers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from . import AsyncWorker, Client, PgqError, QueueState, Worker
from ._decorating import HandlerKind, Work, around, jobs_of
from ._outage import Outage
from ._views import all_stats

STATES = ("ready", "scheduled", "suspended", "running", "dead")
OUTCOMES = ("acked", "retried", "dead", "released", "lost")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900)

JOB_SECONDS = Histogram(
    "pgq_job_seconds", "How long handlers took for a job, or a batch.", ["queue"], buckets=SECONDS
)

log = logging.getLogger("pgq_sql.metrics")


class QueueMetrics(Collector):
    """The state of all queues, asked for at each scrape in one statement.

    One process should register it: the figures are the database's, not the process's. Its cost
    is bounded as that of `queue_stats` is. While the database cannot be asked, `pgq_up` is 0 and
    the others are missing.
    """

    def __init__(self, client: Client) -> None:
        if not isinstance(client, Client):
            raise TypeError(f"a scrape asks through a Client, not {type(client).__name__}")
        self._client = client
        self._outage = Outage(log)

    def describe(self) -> list[Metric]:
        """What there is, for the registry, which asks when the database may be away."""
        return [_up(0), *_gauges([])]

    def collect(self) -> list[Metric]:
        """Ask the database."""
        try:
            states = all_stats(self._client)
        except (psycopg.Error, PgqError) as error:
            self._outage.failed("metrics", error)
            return [_up(0)]
        self._outage.over("metrics")
        return [_up(1), *_gauges(states)]


class WorkerMetrics(Collector):
    """What the workers of this process have done, taken together."""

    def __init__(self, *workers: Worker | AsyncWorker) -> None:
        self._workers = workers

    def collect(self) -> list[Metric]:
        """Read their reports."""
        reports = [worker.report for worker in self._workers]
        claimed = CounterMetricFamily("pgq_worker_claimed", "Jobs that were claimed.")
        claimed.add_metric([], sum(report.claimed for report in reports))
        jobs = CounterMetricFamily("pgq_worker_jobs", "Claims by their end.", labels=["outcome"])
        for outcome in OUTCOMES:
            jobs.add_metric([outcome], sum(getattr(report, outcome) for report in reports))
        return [claimed, jobs]


def timed(handler: HandlerKind) -> HandlerKind:
    """The handler with its runs measured in `pgq_job_seconds`, also those that fail."""
    return around(handler, _measured)


@contextmanager
def _measured(work: Work) -> Iterator[Callable[[object], None]]:
    began = time.perf_counter()
    try:
        yield lambda _: None
    finally:
        JOB_SECONDS.labels(jobs_of(work)[0].queue).observe(time.perf_counter() - began)


def _up(value: int) -> GaugeMetricFamily:
    return GaugeMetricFamily("pgq_up", "Whether the database answers.", value)


def _gauges(states: list[QueueState]) -> list[GaugeMetricFamily]:
    jobs = GaugeMetricFamily("pgq_jobs", "Jobs by state.", labels=["queue", "state"])
    exact = GaugeMetricFamily(
        "pgq_jobs_exact", "0 where a number of jobs is a lower limit.", labels=["queue"]
    )
    oldest = GaugeMetricFamily(
        "pgq_oldest_ready_seconds",
        "How late the queue is: since when its first ready job has been due; 0: none is ready.",
        labels=["queue"],
    )
    paused = GaugeMetricFamily("pgq_paused", "Whether the queue is paused.", labels=["queue"])
    for state in states:
        for name in STATES:
            jobs.add_metric([state.queue, name], getattr(state, name))
        exact.add_metric([state.queue], state.exact)
        late = state.oldest_ready.total_seconds() if state.oldest_ready else 0.0
        oldest.add_metric([state.queue], late)
        paused.add_metric([state.queue], state.paused)
    return [jobs, exact, oldest, paused]
