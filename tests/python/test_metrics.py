"""pgq_sql.metrics: what a scrape tells."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from psycopg.conninfo import make_conninfo

from conftest import AsRole
from pgq_sql import (
    AsyncClient,
    AsyncRunningJob,
    AsyncWorker,
    Batch,
    BatchConsumer,
    Client,
    DeadLetter,
    RunningJob,
    Snooze,
    Worker,
)
from pgq_sql._sync.connections import open_connection
from pgq_sql.metrics import JOB_SECONDS, QueueMetrics, WorkerMetrics, timed
from pgq_sql.testing import drain
from servers import ROOT, Connection, wait_for_lock, wait_until
from working import Record

GUIDE = ROOT / "docs" / "howto" / "observe.md"
HOUR = timedelta(hours=1)
# Seconds after which a condition has failed; nothing takes nearly that long.
PATIENCE = 60.0
NOWHERE = "postgresql://127.0.0.1:1/x?connect_timeout=2"


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("q")
        yield client


def registry(*collectors: Any) -> CollectorRegistry:
    """As a process's own one, but for one test."""
    made = CollectorRegistry(auto_describe=True)
    for collector in collectors:
        made.register(collector)
    return made


def scraped(scrape: CollectorRegistry) -> dict[str, float]:
    """The samples of a scrape, read back from its text: `name{label}` and value."""
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(generate_latest(scrape).decode()):
        for one in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in one.labels.items())
            samples[f"{one.name}{{{labels}}}" if labels else one.name] = one.value
    return samples


def timings(queue: str) -> dict[str, float]:
    """What has been measured of a queue's handlers."""
    return {
        name.removeprefix("pgq_job_seconds_").replace(f"queue={queue}", ""): value
        for name, value in scraped(registry(JOB_SECONDS)).items()
        if f"queue={queue}" in name
    }


class TestQueues:
    def test_all_states(self, client: Client) -> None:
        client.create_queue("empty")
        client.pause_queue("empty")
        client.enqueue_many("q", ["runs", "dies"], priorities=[9, 9])
        _, dying = client.claim("q", "me", 2)
        client.dead_letter(dying.job_id, dying.token)
        client.suspend(client.enqueue("q").job_id)
        client.enqueue_many("q", [1, 2, 3])
        client.enqueue("q", delay=HOUR)
        before = client.queue_stats("q").oldest_ready
        samples = scraped(registry(QueueMetrics(client)))
        late = timedelta(seconds=samples.pop("pgq_oldest_ready_seconds{queue=q}"))
        after = client.queue_stats("q").oldest_ready
        assert before is not None
        assert after is not None
        assert before < late < after
        assert samples == {
            "pgq_up": 1,
            "pgq_jobs{queue=q,state=ready}": 3,
            "pgq_jobs{queue=q,state=scheduled}": 1,
            "pgq_jobs{queue=q,state=suspended}": 1,
            "pgq_jobs{queue=q,state=running}": 1,
            "pgq_jobs{queue=q,state=dead}": 1,
            "pgq_jobs_exact{queue=q}": 1,
            "pgq_paused{queue=q}": 0,
            **{
                f"pgq_jobs{{queue=empty,state={state}}}": 0
                for state in ("ready", "scheduled", "suspended", "running", "dead")
            },
            "pgq_jobs_exact{queue=empty}": 1,
            "pgq_oldest_ready_seconds{queue=empty}": 0,
            "pgq_paused{queue=empty}": 1,
        }

    def test_a_number_that_is_a_lower_limit(self, client: Client) -> None:
        client.enqueue_many("q", 10_001 * [None])
        samples = scraped(registry(QueueMetrics(client)))
        assert samples["pgq_jobs_exact{queue=q}"] == 0
        assert samples["pgq_jobs{queue=q,state=ready}"] == 10_000

    def test_one_statement_whatever_the_number_of_queues(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(20):
            client.create_queue(f"q{number}")
        run = Mock(side_effect=client._run)
        monkeypatch.setattr(client, "_run", run)
        samples = scraped(registry(QueueMetrics(client)))
        assert len([name for name in samples if "paused" in name]) == 21
        run.assert_called_once()

    def test_an_observer_may(self, as_role: AsRole) -> None:
        observer = as_role("observer").info
        dsn = make_conninfo(observer.dsn, password=observer.password)
        with Client(dsn) as eyes:
            assert scraped(registry(QueueMetrics(eyes)))["pgq_up"] == 1

    def test_another_schema(self, empty_database: str) -> None:
        """Nothing is there yet: that is no reason for an exception either."""
        with Client(empty_database, schema='odd "%s"') as client:
            assert scraped(registry(QueueMetrics(client))) == {"pgq_up": 0}

    def test_database_away(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, "pgq_sql")
        with Client(NOWHERE) as client:
            scrape = registry(QueueMetrics(client))
            assert not caplog.records  # to register asks nothing of the database
            for _ in range(3):
                assert scraped(scrape) == {"pgq_up": 0}
        assert scraped(scrape) == {"pgq_up": 0}  # the client is closed
        levels = [(record.name, record.levelname) for record in caplog.records]
        assert levels == [("pgq_sql.metrics", "WARNING")] + 3 * [("pgq_sql.metrics", "DEBUG")]

    def test_database_comes_back(self, client: Client, admin: Connection) -> None:
        scrape = registry(QueueMetrics(client))
        assert scraped(scrape)["pgq_up"] == 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client._source, "_connect", partial(open_connection, NOWHERE))
            admin.execute(
                "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
                " where datname = current_database() and application_name = 'pgq_sql'"
            )
            assert scraped(scrape) == {"pgq_up": 0}
        assert scraped(scrape)["pgq_up"] == 1

    def test_waits_for_no_work(self, client: Client, connect: Any) -> None:
        """Nothing that producers, consumers and an admin do at a queue holds a scrape up."""
        with connect(autocommit=False) as busy, ThreadPoolExecutor(1) as other:
            client.enqueue("q", conn=busy)
            client.pause_queue("q", conn=busy)
            # Somebody queues up behind it, too.
            with connect() as waiting:
                end = other.submit(waiting.execute, "select pgq_sql.pause_queue('q')")
                with connect() as watch:
                    wait_for_lock(watch, waiting.info.backend_pid, PATIENCE)
                assert scraped(registry(QueueMetrics(client)))["pgq_paused{queue=q}"] == 0
                busy.rollback()
                end.result(PATIENCE)

    def test_scrapes_at_once(self, client: Client) -> None:
        scrape = registry(QueueMetrics(client))
        with ThreadPoolExecutor(20) as pool:
            assert all(one["pgq_up"] == 1 for one in pool.map(lambda _: scraped(scrape), range(20)))

    def test_needs_a_client_for_threads(self, database: str) -> None:
        wrong: Any = AsyncClient(database)
        with pytest.raises(TypeError, match="not AsyncClient"):
            QueueMetrics(wrong)

    def test_names_are_known_before_a_scrape(self) -> None:
        scrape = registry(QueueMetrics(Client(NOWHERE)))
        with pytest.raises(ValueError, match="pgq_jobs"):
            scrape.register(QueueMetrics(Client(NOWHERE)))


class TestWorkers:
    def test_outcomes(self, client: Client) -> None:
        def handle(job: RunningJob) -> None:
            match job.payload:
                case "dead":
                    raise DeadLetter
                case "snooze":
                    raise Snooze(HOUR)
                case "retry" if job.attempt == 1:
                    raise ValueError

        client.alter_queue("q", retry_delay=timedelta(0))
        client.enqueue_many("q", ["fine", "dead", "snooze", "retry"])
        other = Worker(client, {"q": Record()})
        worker = Worker(client, {"q": handle})
        scrape = registry(WorkerMetrics(worker, other))
        assert set(scraped(scrape).values()) == {0}
        worker.run(until_idle=True)
        client.enqueue("q")
        other.run(until_idle=True)
        assert scraped(scrape) == {
            "pgq_worker_claimed_total": 6,
            "pgq_worker_jobs_total{outcome=acked}": 3,
            "pgq_worker_jobs_total{outcome=retried}": 1,
            "pgq_worker_jobs_total{outcome=dead}": 1,
            "pgq_worker_jobs_total{outcome=released}": 1,
            "pgq_worker_jobs_total{outcome=lost}": 0,
        }

    def test_an_async_one(self, database: str) -> None:
        async def handle(job: AsyncRunningJob) -> None:
            await asyncio.sleep(0)

        async def main() -> dict[str, float]:
            async with AsyncClient(database) as client:
                await client.create_queue("q")
                await client.enqueue("q")
                worker = AsyncWorker(client, {"q": handle})
                await worker.run(until_idle=True)
                return scraped(registry(WorkerMetrics(worker)))

        assert asyncio.run(main())["pgq_worker_jobs_total{outcome=acked}"] == 1


class TestTimed:
    def test_each_run(self, client: Client) -> None:
        @timed
        def handle(job: RunningJob) -> int:
            if job.attempt == 1:
                raise ValueError
            return 7

        client.create_queue("again", retry_delay=timedelta(0))
        client.enqueue("again")
        assert drain(client, {"again": handle}).acked == 1
        assert timings("again")["count{}"] == 2

    def test_how_long(self, client: Client) -> None:
        client.create_queue("slow")
        client.enqueue("slow")
        drain(client, {"slow": timed(lambda _: threading.Event().wait(0.2))})
        measured = timings("slow")
        assert measured["sum{}"] >= 0.2
        assert measured["bucket{le=0.1,}"] == 0
        assert measured["bucket{le=+Inf,}"] == measured["count{}"] == 1

    def test_a_coroutine(self, database: str) -> None:
        async def handle(job: AsyncRunningJob) -> None:
            await asyncio.sleep(0.1)

        async def main() -> None:
            async with AsyncClient(database) as client:
                await client.create_queue("later")
                await client.enqueue_many("later", [1, 2])
                await AsyncWorker(client, {"later": timed(handle)}).run(until_idle=True)

        asyncio.run(main())
        measured = timings("later")
        assert measured["count{}"] == 2
        assert measured["sum{}"] >= 0.2  # awaited, and not only called

    def test_a_batch_is_one_run(self, client: Client) -> None:
        client.create_queue("batch")
        client.enqueue_many("batch", [1, 2, 3])

        def handle(batch: Batch) -> None:
            assert len(batch) == 3

        consumer = BatchConsumer(timed(handle), size=3)
        assert Worker(client, {"batch": consumer}).run(until_idle=True).acked == 3
        assert timings("batch")["count{}"] == 1


def test_the_guides_example(client: Client, database: str, tmp_path: Path) -> None:
    """A worker in a process of its own, and what it tells: just what the guide lists."""
    text = GUIDE.read_text()
    (example,) = re.findall(r"^```python\n# work.py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "work.py").write_text(example.replace("9464", str(port)))
    client.create_queue("emails")
    client.enqueue("emails", {"to": "ada"})
    told: set[str] = set()

    def acked() -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}") as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
            told.update(
                f"{one.name}{{{','.join(one.labels)}}}" if one.labels else one.name
                for family in families
                for one in family.samples
                if one.name.startswith("pgq_") and not one.name.endswith(("_created", "_bucket"))
            )
            return any(s.value == 1 for f in families for s in f.samples if "acked" in str(s))
        return False

    working = subprocess.Popen(
        [sys.executable, "-X", "dev", "work.py"],
        cwd=tmp_path,
        env={**os.environ, "PGQ_DSN": database},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(acked, PATIENCE, message="the metric of the job")
        working.send_signal(signal.SIGTERM)
        out, err = working.communicate(timeout=PATIENCE)
    finally:
        working.kill()
        working.wait()
    assert (working.returncode, out, err) == (0, "ada\n", "")
    names = {re.sub(r"_(count|sum)(?=\{)", "", name) for name in told}
    assert names == set(re.findall(r"^\| `(pgq_[^`]*)` \|", text, re.MULTILINE))
