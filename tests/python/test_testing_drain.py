"""pgq_sql.testing: running a test's jobs as a worker would."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg_pool
import pytest

from pgq_sql import (
    AsyncClient,
    AsyncRunningJob,
    Client,
    DeadLetter,
    InvalidArgument,
    QueueNotFound,
    Retry,
    RunningJob,
    Snooze,
    Worker,
)
from pgq_sql.testing import Drained, Runaway, _drain, async_drain, drain
from servers import Connection, wait_until
from working import PATIENCE, Record, states, steal

HOUR = timedelta(hours=1)


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("q", max_attempts=3)
        yield client


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    wait_until(lambda: set(threading.enumerate()) <= before, message="the end of all threads")


def outcomes(drained: Drained) -> list[str]:
    return [run.outcome for run in drained.runs]


def refuse(job: RunningJob) -> None:
    raise ValueError("not today")


class TestDrain:
    def test_runs_what_is_ready_in_run_order(self, client: Client) -> None:
        for priority, payload in enumerate(["low", "middle", "high"]):
            client.enqueue("q", payload, priority=priority)
        record = Record()
        drained = drain(client, {"q": record})
        assert record.payloads == ["high", "middle", "low"]
        assert drained.acked == 3
        assert [run.job for run in drained.runs] == record.jobs
        assert client.list_jobs() == []

    def test_in_this_thread(self, client: Client) -> None:
        client.enqueue("q")
        threads: list[threading.Thread] = []
        drain(client, {"q": lambda _: threads.append(threading.current_thread())})
        assert threads == [threading.current_thread()]

    def test_runs_what_handlers_enqueue(self, client: Client) -> None:
        client.create_queue("next")
        client.enqueue("q", "first")
        record = Record()
        drained = drain(
            client, {"next": record, "q": lambda job: client.enqueue("next", job.payload)}
        )
        assert [run.job.queue for run in drained.runs] == ["q", "next"]
        assert record.payloads == ["first"]

    def test_other_queues_are_left_alone(self, client: Client, conn: Connection) -> None:
        client.create_queue("other")
        client.enqueue("other")
        assert drain(client, {"q": Record()}) == Drained()
        assert states(conn) == [("ready", 0)]

    @pytest.mark.parametrize(
        ("raised", "outcome", "state"),
        [
            (ValueError("no"), "retried", "scheduled"),
            (Retry(HOUR, "later"), "retried", "scheduled"),
            (DeadLetter("never"), "dead", "dead"),
            (Snooze(HOUR), "released", "scheduled"),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
    )
    def test_as_a_worker_judges(
        self, client: Client, raised: Exception, outcome: str, state: str
    ) -> None:
        def handle(job: RunningJob) -> None:
            raise raised

        judged = []
        for run in (drain, lambda *given: Worker(*given).run(until_idle=True)):
            job_id = client.enqueue("q").job_id
            report = run(client, {"q": handle})
            assert getattr(report, outcome) == 1
            job = client.get_job(job_id)
            assert job is not None
            error = (job.last_error or "").partition("\n")[0]
            judged.append((job.state, job.attempt, job.reason, error))
        by_drain, by_worker = judged
        assert by_drain == by_worker
        assert by_drain[0] == state

    def test_the_last_attempt(self, client: Client) -> None:
        client.enqueue("q", max_attempts=1)
        drained = drain(client, {"q": refuse})
        assert drained.dead == 1
        (run,) = drained.runs
        assert isinstance(run.exception, ValueError)
        assert run.error is not None
        assert run.error.startswith("ValueError: not today\n")

    def test_payload_comes_from_the_database(self, client: Client) -> None:
        payload: dict[str, Any] = {"names": ["ada"]}
        client.enqueue("q", payload)
        payload["names"].append("bob")
        record = Record()
        drain(client, {"q": record})
        assert record.payloads == [{"names": ["ada"]}]

    def test_what_is_due_later_is_left_alone(self, client: Client, conn: Connection) -> None:
        client.enqueue("q", delay=HOUR)
        client.enqueue("q")
        assert outcomes(drain(client, {"q": refuse})) == ["retried"]
        assert states(conn) == [("scheduled", 0), ("scheduled", 1)]

    def test_with_scheduled(self, client: Client) -> None:
        client.create_queue("other")
        client.enqueue("q", "in two hours", delay=2 * HOUR)
        client.enqueue("other", "in an hour", delay=HOUR)
        client.enqueue("q", "now")
        record = Record()
        drain(client, {"q": record, "other": record}, with_scheduled=True)
        assert record.payloads == ["now", "in an hour", "in two hours"]

    def test_with_scheduled_retries_to_the_end(self, client: Client) -> None:
        client.enqueue("q")
        drained = drain(client, {"q": refuse}, with_scheduled=True)
        assert outcomes(drained) == ["retried", "retried", "dead"]
        assert [run.job.attempt for run in drained.runs] == [1, 2, 3]
        assert (drained.retried, drained.dead, drained.acked) == (2, 1, 0)

    def test_paused_queues_give_nothing(self, client: Client) -> None:
        client.enqueue_many("q", [1, 2], delays=[None, HOUR])
        client.pause_queue("q")
        assert drain(client, {"q": Record()}, with_scheduled=True) == Drained()

    def test_limit(self, client: Client, conn: Connection) -> None:
        client.enqueue_many("q", [1, 2, 3])
        assert drain(client, {"q": Record()}, limit=2).acked == 2
        assert states(conn) == [("ready", 0)]
        assert drain(client, {"q": Record()}, limit=0) == Drained()
        with pytest.raises(ValueError, match="limit must not be negative"):
            drain(client, {"q": Record()}, limit=-1)

    def test_without_end(
        self, client: Client, conn: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_drain, "RUNAWAY", 3)
        client.enqueue_many("q", [1, 2, 3])
        assert drain(client, {"q": Record()}).acked == 3
        client.enqueue("q")
        with pytest.raises(Runaway, match="3 runs, and there is still job 7 of q"):
            drain(client, {"q": lambda _: client.enqueue("q")})
        assert states(conn) == [("ready", 0)]

    def test_reraise(self, client: Client, conn: Connection) -> None:
        client.enqueue_many("q", [1, 2])
        with pytest.raises(ValueError, match="not today"):
            drain(client, {"q": refuse}, reraise=True)
        assert sorted(states(conn)) == [("ready", 0), ("scheduled", 1)]

    @pytest.mark.parametrize("wish", [Retry(HOUR), DeadLetter(), Snooze(HOUR)])
    def test_wishes_are_no_failures(self, client: Client, wish: Exception) -> None:
        client.enqueue("q")

        def handle(job: RunningJob) -> None:
            raise wish

        (run,) = drain(client, {"q": handle}, reraise=True).runs
        assert run.exception is wish

    @pytest.mark.parametrize("kind", [KeyboardInterrupt, pytest.fail.Exception])
    def test_the_tests_own_exceptions_come_out(
        self, client: Client, conn: Connection, kind: type[BaseException]
    ) -> None:
        client.enqueue("q")

        def handle(job: RunningJob) -> None:
            raise kind("stop here")

        with pytest.raises(kind):
            drain(client, {"q": handle})
        assert states(conn) == [("scheduled", 1)]

    def test_a_job_that_was_taken_away(self, client: Client) -> None:
        client.enqueue_many("q", ["stolen", "cancelled"])

        def handle(job: RunningJob) -> None:
            if job.payload == "stolen" and job.attempt == 1 and job.token == 1:
                steal(client, job)
            elif job.payload == "cancelled":
                client.cancel(job.job_id)

        drained = drain(client, {"q": handle})
        assert sorted(outcomes(drained)) == ["acked", "lost", "lost"]
        assert (drained.acked, drained.lost) == (1, 2)

    def test_a_lease_is_renewed(self, client: Client) -> None:
        client.enqueue("q", visibility_timeout=timedelta(seconds=2))

        def handle(job: RunningJob) -> None:
            def renewed() -> bool:
                found = client.get_job(job.job_id)
                assert found is not None
                assert found.lease_until is not None
                return found.lease_until > job.lease_until

            wait_until(renewed, PATIENCE)

        assert drain(client, {"q": handle}).acked == 1

    def test_on_a_pool_of_one(self, database: str, client: Client) -> None:
        client.enqueue("q")
        with psycopg_pool.ConnectionPool(database, min_size=1, max_size=1) as pool:
            own = Client(pool)
            assert drain(own, {"q": lambda _: own.list_jobs()}).acked == 1

    def test_transaction_of_the_job(self, client: Client, conn: Connection) -> None:
        conn.execute("create table effect (payload jsonb)")
        client.enqueue_many("q", ["kept", "undone"])

        def handle(job: RunningJob) -> None:
            with job.transaction() as own:
                own.execute("insert into effect values (to_jsonb(%s::text))", [job.payload])
                if job.payload == "undone":
                    raise DeadLetter("no")
            raise ValueError("too late to matter")

        drained = drain(client, {"q": handle})
        assert [(run.outcome, run.error) for run in drained.runs] == [
            ("acked", None),
            ("dead", "no"),
        ]
        assert conn.execute("select payload from effect").fetchall() == [("kept",)]

    def test_refuses_what_a_worker_refuses(self, client: Client) -> None:
        async def handle(job: RunningJob) -> None: ...

        with pytest.raises(InvalidArgument, match="needs a handler"):
            drain(client, {})
        with pytest.raises(TypeError, match="ordinary function"):
            drain(client, {"q": handle})
        with pytest.raises(QueueNotFound):
            drain(client, {"unknown": Record()})

    def test_reads_well(self, client: Client) -> None:
        client.enqueue_many("q", [1, 2])
        handlers = {"q": lambda job: refuse(job) if job.payload == 2 else None}
        assert repr(drain(client, handlers)) == (
            "<Drained: job 1 of q, attempt 1: acked;"
            " job 2 of q, attempt 1: retried: ValueError: not today>"
        )
        assert repr(Drained()) == "<Drained: no job was ready>"


class TestResults:
    @pytest.fixture(autouse=True)
    def keep(self, client: Client) -> None:
        client.alter_queue("q", keep_done=HOUR, max_payload=100)

    def result(self, client: Client) -> object:
        job = client.get_job(1)
        assert job is not None
        assert job.state == "done"
        return job.result

    def test_is_kept(self, client: Client) -> None:
        client.enqueue("q")
        assert drain(client, {"q": lambda _: {"sent": 1}}).acked == 1
        assert self.result(client) == {"sent": 1}

    @pytest.mark.parametrize(
        ("result", "why"), [(object(), "is no JSON"), ("x" * 101, "is too large")]
    )
    def test_is_left_out(
        self, client: Client, caplog: pytest.LogCaptureFixture, result: object, why: str
    ) -> None:
        client.enqueue("q")
        assert drain(client, {"q": lambda _: result}).acked == 1
        assert self.result(client) is None
        assert f"the result of job 1 {why} and not kept" in caplog.messages


class TestAsyncDrain:
    def test_runs_coroutines_in_their_loop(self, database: str, client: Client) -> None:
        client.enqueue_many("q", ["first", "later"], delays=[None, HOUR])
        seen: list[object] = []

        async def test() -> Drained:
            loop = asyncio.get_running_loop()

            async def handle(job: AsyncRunningJob) -> None:
                await asyncio.sleep(0)
                seen.append((job.payload, asyncio.get_running_loop() is loop))
                if job.payload == "later":
                    async with job.transaction():
                        pass
                    raise DeadLetter("never")

            async with AsyncClient(database) as own:
                return await async_drain(own, {"q": handle}, with_scheduled=True)

        drained = asyncio.run(test())
        assert seen == [("first", True), ("later", True)]
        assert outcomes(drained) == ["acked", "acked"]

    def test_reraise(self, database: str, client: Client, conn: Connection) -> None:
        client.enqueue("q")

        async def handle(job: AsyncRunningJob) -> None:
            raise ValueError("not today")

        async def test() -> None:
            async with AsyncClient(database) as own:
                await async_drain(own, {"q": handle}, reraise=True)

        with pytest.raises(ValueError, match="not today"):
            asyncio.run(test())
        assert states(conn) == [("scheduled", 1)]
