"""What one job, handler or session does wrong must not hurt the others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import timedelta

import psycopg_pool
import pytest

from conftest import Connect
from pgq_sql import AsyncClient, AsyncWorker, Client, Consumer, Report, RunningJob, Worker, _watch
from pgq_sql._exchange import Exchange
from servers import Connection, wait_until
from test_concurrency import scalar
from working import PATIENCE, Gate, Record, messages, running

SECOND = timedelta(seconds=1)
ERROR = "select last_error from pgq_sql.all_jobs where last_error is not null"


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("q", retry_delay=timedelta(0))
        yield client


class TestPayloads:
    """SQL can enqueue what Python cannot decode."""

    @pytest.mark.parametrize(
        "payload",
        ["('1' || repeat('0', 5000))::jsonb", "(repeat('[', 3000) || repeat(']', 3000))::jsonb"],
        ids=["digits", "depth"],
    )
    def test_one_that_cannot_be_decoded(
        self, client: Client, conn: Connection, payload: str
    ) -> None:
        client.enqueue_many("q", [1, 2])
        conn.execute(f"select pgq_sql.enqueue('q', {payload}, max_attempts => 1)".encode())
        client.enqueue_many("q", [3, 4])
        record = Record()
        report = Worker(client, {"q": record}).run(until_idle=True)
        assert sorted(record.payloads) == [1, 2, 3, 4]
        assert report == Report(claimed=5, acked=4, dead=1)
        error = scalar(conn, "select error from pgq_sql.dead_jobs")
        assert str(error).startswith("its payload cannot be read\n")

    def test_in_the_headers(self, client: Client, conn: Connection) -> None:
        conn.execute(
            "select pgq_sql.enqueue('q', '1', max_attempts => 1, headers =>"
            " jsonb_build_object('n', ('1' || repeat('0', 5000))::jsonb))"
        )
        assert Worker(client, {"q": Record()}).run(until_idle=True).dead == 1

    def test_with_somebody_s_own_decoder(self, database: str, client: Client) -> None:
        def loads(text: str) -> object:
            if text == "13":
                raise KeyError(text)
            return text

        with Client(database, loads=loads) as mine:
            client.enqueue_many("q", [12, 13, 14], max_attempts=1)
            record = Record()
            assert Worker(mine, {"q": record}).run(until_idle=True).dead == 1
        assert sorted(record.payloads) == ["12", "14"]


class TestLocks:
    """Somebody holds the row of one job, for long."""

    @pytest.fixture(autouse=True)
    def hasty(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_watch.Patience.__init__, "__defaults__", (2.0,))

    def test_the_leases_of_the_others_are_kept(self, client: Client, connect: Connect) -> None:
        gate = Gate()
        client.enqueue_many("q", list(range(8)), visibility_timeout=6 * SECOND)
        worker = Worker(client, {"q": gate})
        with running(worker):
            gate.wait(8)
            held = gate.jobs[3]
            holder = connect(autocommit=False)
            holder.execute("select from pgq_sql.job where id = %s for update", [held.job_id])
            # Two leases: all would have run out.
            threading.Event().wait(12)
            assert [job.payload for job in gate.jobs if job.lost] in ([], [held.payload])
            gate.open.set()
            wait_until(lambda: worker.report.acked >= 7, PATIENCE)
            holder.rollback()
        assert len({job.job_id for job in gate.jobs}) == 8

    def test_the_ends_of_the_others_are_told(self, client: Client, connect: Connect) -> None:
        gate = Gate()
        client.enqueue_many("q", list(range(8)), visibility_timeout=60 * SECOND)
        worker = Worker(client, {"q": gate})
        with running(worker):
            gate.wait(8)
            holder = connect(autocommit=False)
            holder.execute(
                "select from pgq_sql.job where id = %s for update", [gate.jobs[3].job_id]
            )
            gate.open.set()
            wait_until(lambda: worker.report.acked == 7, PATIENCE)
            holder.rollback()
            wait_until(lambda: worker.report.acked + worker.report.lost == 8, PATIENCE)

    def test_a_statement_timeout_is_no_outage(
        self, client: Client, database: str, connect: Connect, caplog: pytest.LogCaptureFixture
    ) -> None:
        gate = Gate()
        client.enqueue_many("q", list(range(4)), visibility_timeout=60 * SECOND)
        with Client(f"{database}&options=-c%20statement_timeout%3D300") as mine:
            worker = Worker(mine, {"q": gate})
            with running(worker):
                gate.wait(4)
                holder = connect(autocommit=False)
                holder.execute(
                    "select from pgq_sql.job where id = %s for update", [gate.jobs[0].job_id]
                )
                gate.open.set()
                wait_until(lambda: worker.report.acked == 3, PATIENCE)
                holder.rollback()
        assert not any("database:" in one.getMessage() for one in caplog.records)


class TestConnections:
    """Handlers take all connections of the client."""

    def test_the_worker_has_its_own(self, client: Client, conn: Connection) -> None:
        entered = threading.Barrier(9, timeout=PATIENCE)
        conn.execute("begin")
        conn.execute("select pgq_sql.enqueue('q', '0', dedup_key => 'k', delay => '1 h')")

        def handle(_: RunningJob) -> None:
            entered.wait()
            client.enqueue("q", dedup_key="k", delay=SECOND * 3600)

        client.enqueue_many("q", list(range(8)), visibility_timeout=2 * SECOND)
        worker = Worker(client, {"q": handle}, concurrency=8)
        with running(worker):
            entered.wait()
            # They wait for the open transaction, for longer than their leases.
            threading.Event().wait(5)
            conn.execute("rollback")
            wait_until(lambda: worker.report.acked == 8, PATIENCE)
        assert worker.report.lost == 0

    def test_of_a_pool_too(self, client: Client, database: str) -> None:
        def handle(job: RunningJob) -> None:
            with job.transaction() as mine:
                mine.execute("select pg_sleep(3)")

        client.enqueue_many("q", [1, 2], visibility_timeout=SECOND)
        with psycopg_pool.ConnectionPool(database, min_size=1, max_size=1) as pool:
            worker = Worker(Client(pool), {"q": handle}, concurrency=2)
            assert worker.run(until_idle=True) == Report(claimed=2, acked=2)


class TestQueues:
    def test_one_that_is_not_there_costs_the_acks_of_another_nothing(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sizes: list[int] = []
        run = Exchange.run

        def watched(exchange: Exchange, settlements: list[object], *rest: object) -> None:
            sizes.append(len(settlements))
            run(exchange, settlements, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(Exchange, "run", watched)
        client.enqueue_many("q", list(range(2000)))
        record = Record()
        worker = Worker(client, {"q": record, "no": record}, poll_interval=timedelta(seconds=0.05))
        with running(worker):
            wait_until(lambda: worker.report.acked == 2000, PATIENCE)
        # One by one would be 2,000 calls.
        assert sum(size == 1 for size in sizes) < 1000

    def test_until_idle_ends_though_one_was_dropped(
        self, client: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        client.create_queue("r")
        client.enqueue("q")

        def handle(_: RunningJob) -> None:
            client.drop_queue("r")

        worker = Worker(client, {"q": handle, "r": Record()}, poll_interval=timedelta(seconds=0.05))
        assert worker.run(until_idle=True).acked == 1
        assert any("cannot claim" in one for one in messages(caplog.records, logging.ERROR))


class TestWrongClients:
    def test_they_are_refused(self, client: Client) -> None:
        with pytest.raises(TypeError, match="a Worker needs a Client"):
            Worker(AsyncClient(""), {"q": Record()})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="an AsyncWorker needs an AsyncClient"):
            AsyncWorker(client, {})  # type: ignore[arg-type]


def test_a_result_that_is_changed_afterwards(client: Client) -> None:
    """It could be stored when the handler returned, and cannot when it is sent."""
    shared: dict[str, object] = {}

    def handle(_: RunningJob) -> object:
        shared.clear()
        threading.Timer(0.001, lambda: shared.update({"x": object()})).start()
        return shared

    client.enqueue_many("q", list(range(50)))
    worker = Worker(client, {"q": handle}, concurrency=2)
    report = worker.run(until_idle=True)
    assert (report.claimed, report.acked) == (50, 50)


def test_weights_at_their_bounds(client: Client) -> None:
    client.create_queue("r")
    for queue in ("q", "r"):
        client.enqueue_many(queue, list(range(20)))
    heavy, light = Consumer(Record(), weight=1_000_000), Consumer(Record(), weight=1e-300)
    report = Worker(client, {"q": heavy, "r": light}, concurrency=1).run(until_idle=True)
    assert report.acked == 40
