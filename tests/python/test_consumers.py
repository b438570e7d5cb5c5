"""How a worker runs its handlers: weights, limits, timeouts, exceptions that end a job, batches."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

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
    InvalidArgument,
    LeaseLost,
    Report,
    Retry,
    RunningJob,
    Snooze,
    Worker,
    _watch,
)
from pgq_sql._consumers import AnyConsumer
from pgq_sql._looks import AT_ONCE, Source, shares
from servers import Connection, wait_until
from test_concurrency import scalar
from working import PATIENCE, Gate, Record, running, steal

EFFECTS = "select coalesce(array_agg(n order by n), '{}') from effects"
STATES = "select job_id, state from pgq_sql.all_jobs order by job_id"
ERRORS = "select last_error from pgq_sql.all_jobs order by job_id"
NOW = timedelta(0)


def waiting(conn: Connection) -> object:
    """How many sessions wait for a lock."""
    return scalar(
        conn,
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock'",
    )


@pytest.fixture
def client(database: str, conn: Connection) -> Iterator[Client]:
    conn.execute("create table effects (n integer)")
    with Client(database) as client:
        client.create_queue("q", retry_delay=NOW, max_attempts=3, keep_done=timedelta(days=1))
        yield client


def run_async(database: str, handlers: dict[str, Any], **options: Any) -> Report:
    """One run of an AsyncWorker until nothing is left."""

    async def main() -> Report:
        async with AsyncClient(database) as client:
            return await AsyncWorker(client, handlers, **options).run(until_idle=True)

    return asyncio.run(main())


class TestShares:
    def sources(self, **consumers: AnyConsumer) -> list[Source]:
        return [Source(name, 5.0, one) for name, one in consumers.items()]

    def many(self, sources: list[Source], free: int, rounds: int = 2000) -> Counter[str]:
        got: Counter[str] = Counter()
        for _ in range(rounds):
            for source, jobs in shares(sources, free).items():
                got[source.name] += jobs
        return got

    @pytest.mark.parametrize("free", [1, 3, 100])
    def test_are_in_proportion_to_weights(self, free: int) -> None:
        sources = self.sources(heavy=Consumer(print, weight=3), light=Consumer(print))
        got = self.many(sources, free)
        assert got.total() == 2000 * free
        assert 0.7 < got["heavy"] / got.total() < 0.8

    def test_a_limit_bounds_them(self) -> None:
        (source,) = sources = self.sources(q=Consumer(print, limit=5))
        assert shares(sources, 100) == {source: 5}
        source.running = 3
        assert shares(sources, 100) == {source: 2}

    def test_batches_are_counted_in_handlers(self) -> None:
        (source,) = sources = self.sources(q=BatchConsumer(print, size=30))
        assert shares(sources, 2) == {source: 60}
        assert shares(sources, 1000) == {source: AT_ONCE}

    def test_of_nothing(self) -> None:
        assert shares([], 3) == {}


class TestWeights:
    def test_decide_while_both_have_work(self, client: Client) -> None:
        client.create_queue("light")
        order: list[str] = []
        for queue in ("q", "light"):
            client.enqueue_many(queue, list(range(200)))
        Worker(
            client,
            {
                "q": Consumer(lambda job: order.append(job.queue), weight=9),
                "light": lambda job: order.append(job.queue),
            },
            concurrency=1,
            prefetch=0,
        ).run(until_idle=True)
        assert Counter(order) == {"q": 200, "light": 200}
        # Of the first 100 about 90; 60 is 10 standard deviations away.
        assert Counter(order[:100])["q"] > 60


class TestLimit:
    def test_leaves_room_for_others(self, client: Client) -> None:
        client.create_queue("r")
        slow, quick = Gate(), Record()
        client.enqueue_many("q", list(range(10)))
        client.enqueue_many("r", list(range(20)))
        worker = Worker(client, {"q": Consumer(slow, limit=2), "r": quick}, concurrency=4)
        with running(worker):
            quick.wait(20)
            slow.wait(2)
            assert len(slow.jobs) == 2
            assert client.queue_stats("q").running == 2
            slow.open.set()
            wait_until(lambda: worker.report.acked == 30, PATIENCE)


class TestTimeout:
    def test_a_thread_is_told_and_its_job_runs_again(
        self, client: Client, conn: Connection
    ) -> None:
        told: list[bool] = []

        def handle(job: RunningJob) -> None:
            if job.attempt == 1:
                told.append(job.lost.wait(PATIENCE))
                # Whatever it does now counts for nothing.
                raise DeadLetter("too late")

        client.enqueue("q")
        consumer = Consumer(handle, timeout=timedelta(milliseconds=50))
        report = Worker(client, {"q": consumer}).run(until_idle=True)
        assert told == [True]
        assert report == Report(claimed=2, acked=1, retried=1)
        assert scalar(conn, ERRORS) == "TimeoutError: the handler was not done after 0.05 s"

    def test_a_thread_keeps_its_place(self, client: Client) -> None:
        gate, entered = threading.Event(), Record()

        def handle(job: RunningJob) -> None:
            entered(job)
            assert gate.wait(PATIENCE)

        client.enqueue_many("q", [1, 2, 3])
        consumer = Consumer(handle, timeout=timedelta(milliseconds=20))
        worker = Worker(client, {"q": consumer}, concurrency=2, prefetch=0)
        with running(worker):
            wait_until(lambda: worker.report.retried == 2, PATIENCE)
            # Two places, and both are taken by handlers that nobody waits for.
            assert len(entered.jobs) == 2
            gate.set()
            wait_until(lambda: worker.report.acked == 3, PATIENCE)

    def test_a_coroutine_is_cancelled(
        self, client: Client, database: str, conn: Connection
    ) -> None:
        cancelled: list[int] = []

        async def handle(job: AsyncRunningJob) -> None:
            if job.attempt == 1:
                try:
                    await asyncio.sleep(PATIENCE)
                except asyncio.CancelledError:
                    cancelled.append(job.payload)
                    raise

        client.enqueue_many("q", [1, 2])
        consumer = Consumer(handle, timeout=timedelta(milliseconds=50))
        report = run_async(database, {"q": consumer})
        assert report == Report(claimed=4, acked=2, retried=2)
        assert sorted(cancelled) == [1, 2]
        assert scalar(conn, ERRORS) == "TimeoutError: the handler was not done after 0.05 s"

    def test_who_is_in_time_is_left_alone(self, client: Client) -> None:
        client.enqueue_many("q", list(range(20)))
        consumer = Consumer(Record(), timeout=timedelta(seconds=60))
        assert Worker(client, {"q": consumer}).run(until_idle=True) == Report(20, 20)

    def test_can_mean_death(self, client: Client) -> None:
        client.enqueue("q")
        consumer = Consumer(
            lambda job: job.lost.wait(PATIENCE),
            timeout=timedelta(milliseconds=20),
            dead_letter_on=(TimeoutError,),
        )
        assert Worker(client, {"q": consumer}).run(until_idle=True).dead == 1

    def test_of_a_whole_batch(self, client: Client) -> None:
        def handle(batch: Batch) -> None:
            if batch[0].attempt == 1:
                assert all(job.lost.wait(PATIENCE) for job in batch)

        client.enqueue_many("q", [1, 2, 3])
        consumer = BatchConsumer(handle, timeout=timedelta(milliseconds=50))
        report = Worker(client, {"q": consumer}, concurrency=1).run(until_idle=True)
        assert report == Report(claimed=6, acked=3, retried=3)

    @pytest.mark.parametrize("idle", [True, False])
    def test_of_a_transaction(self, client: Client, conn: Connection, idle: bool) -> None:
        """It is rolled back at once, so that it does not hold up how its job ends."""
        refused: list[BaseException] = []

        def handle(job: RunningJob) -> None:
            try:
                with job.transaction() as mine:
                    mine.execute("insert into effects values (%s)", [job.attempt])
                    if job.attempt == 1:
                        if idle:
                            wait_until(lambda: worker.report.retried == 1, PATIENCE)
                        mine.execute("select pg_sleep(60)")
            except psycopg.OperationalError as error:
                refused.append(error)
                raise

        client.enqueue("q")
        consumer = Consumer(handle, timeout=timedelta(milliseconds=200))
        worker = Worker(client, {"q": consumer}, concurrency=1)
        report = worker.run(until_idle=True)
        assert len(refused) == 1
        assert report == Report(claimed=2, acked=1, retried=1)
        assert scalar(conn, EFFECTS) == [2]

    def test_that_the_database_cannot_note(
        self, client: Client, conn: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Somebody holds the row of the job: the others do not wait for him for ever."""
        monkeypatch.setattr(_watch.Patience.__init__, "__defaults__", (0.5,))
        client.create_queue("r")
        quick = Record()

        def handle(_: RunningJob) -> None:
            conn.execute("begin")
            conn.execute("select from pgq_sql.job for update")

        client.enqueue("q")
        worker = Worker(client, {"q": handle, "r": quick}, concurrency=2)
        with running(worker):
            wait_until(lambda: worker.report.lost == 1, PATIENCE)
            client.enqueue("r")
            wait_until(lambda: worker.report.acked == 1, PATIENCE)
            assert quick.payloads == [{}]
            # Given up means given up: no statement of it still waits for the row.
            assert waiting(conn) == 0
            conn.execute("rollback")


class TestDeadLetterOn:
    def test_those_and_their_subclasses(self, client: Client, conn: Connection) -> None:
        def handle(job: RunningJob) -> None:
            raise {"key": KeyError("k"), "os": OSError("o"), "retry": Retry()}[job.payload]

        client.enqueue_many("q", ["key", "os", "retry"], max_attempts=1)
        consumer = Consumer(handle, dead_letter_on=(LookupError, Exception))
        Worker(client, {"q": Consumer(handle, dead_letter_on=(LookupError,))}).run(until_idle=True)
        reasons = conn.execute(
            "select error, reason from pgq_sql.dead_jobs order by job_id"
        ).fetchall()
        assert [str(error).partition("\n")[0] for error, _ in reasons] == [
            "KeyError: 'k'",
            "OSError: o",
            "retry",
        ]
        # The first ended by its exception, the others by their last attempt.
        assert [reason == "max attempts exceeded" for _, reason in reasons] == [False, True, True]
        assert consumer.dead_letter_on == (LookupError, Exception)


class TestBatches:
    def test_are_what_was_ready(self, client: Client) -> None:
        sizes: list[int] = []

        def handle(batch: Batch) -> None:
            assert isinstance(batch, Batch)
            assert [job.queue for job in batch] == ["q"] * len(batch)
            sizes.append(len(batch))

        client.enqueue_many("q", list(range(25)))
        worker = Worker(client, {"q": BatchConsumer(handle, size=10)}, concurrency=1)
        assert worker.run(until_idle=True) == Report(25, 25)
        assert sorted(sizes, reverse=True) == [10, 10, 5]

    def answers(self, batch: Batch | AsyncBatch) -> list[object]:
        ends: dict[str, object] = {
            "fine": {"did": 1},
            "none": None,
            "retry": Retry(timedelta(hours=1), "later"),
            "dead": DeadLetter("no"),
            "snooze": Snooze(timedelta(hours=1)),
            "error": ValueError("boom"),
            "fatal": KeyError("k"),
        }
        return [ends[job.payload] for job in batch]

    @pytest.mark.parametrize("kind", ["threads", "tasks"])
    def test_each_job_has_its_end(
        self, client: Client, database: str, conn: Connection, kind: str
    ) -> None:
        async def handle(batch: AsyncBatch) -> list[object]:
            return self.answers(batch)

        payloads = ["fine", "none", "retry", "dead", "snooze", "error", "fatal"]
        client.enqueue_many("q", payloads, retry_delay=timedelta(hours=1))
        fatal = (KeyError,)
        if kind == "threads":
            consumer = BatchConsumer(self.answers, dead_letter_on=fatal)
            report = Worker(client, {"q": consumer}).run(until_idle=True)
        else:
            report = run_async(database, {"q": BatchConsumer(handle, dead_letter_on=fatal)})
        assert report == Report(claimed=7, acked=2, retried=2, dead=2, released=1)
        states = [state for _, state in conn.execute(STATES).fetchall()]
        assert states == ["done", "done", "scheduled", "dead", "scheduled", "scheduled", "dead"]
        assert scalar(conn, "select result from pgq_sql.done_jobs order by job_id") == {"did": 1}

    @pytest.mark.parametrize("answer", [[], [None], "ab", 7, {"a": 1, "b": 2}])
    def test_an_answer_that_fits_nothing(
        self, client: Client, conn: Connection, answer: object
    ) -> None:
        client.enqueue_many("q", [1, 2], max_attempts=1)

        def handle(_: Batch) -> object:
            return answer

        Worker(client, {"q": BatchConsumer(handle)}).run(until_idle=True)
        errors = conn.execute(ERRORS).fetchall()
        assert len(errors) == 2
        for (error,) in errors:
            assert str(error).startswith("TypeError: a batch handler answers None or 2 results")

    def test_an_exception_is_that_of_all(self, client: Client) -> None:
        def handle(_: Batch) -> None:
            raise DeadLetter("all of them")

        client.enqueue_many("q", [1, 2, 3])
        assert Worker(client, {"q": BatchConsumer(handle)}).run(until_idle=True).dead == 3

    def test_effect_and_acks_commit_together(self, client: Client, conn: Connection) -> None:
        def handle(batch: Batch) -> None:
            with batch.transaction() as mine:
                mine.cursor().executemany(
                    "insert into effects values (%s)", [[job.payload] for job in batch]
                )
                if batch[0].attempt == 1:
                    raise ValueError("boom")

        client.enqueue_many("q", list(range(10)))
        report = Worker(client, {"q": BatchConsumer(handle)}, concurrency=1).run(until_idle=True)
        assert report == Report(claimed=20, acked=10, retried=10)
        assert scalar(conn, EFFECTS) == list(range(10))

    def test_effect_and_acks_commit_together_in_tasks(
        self, client: Client, database: str, conn: Connection
    ) -> None:
        async def handle(batch: AsyncBatch) -> None:
            async with batch.transaction() as mine:
                await mine.cursor().executemany(
                    "insert into effects values (%s)", [[job.payload] for job in batch]
                )
                if batch[0].attempt == 1:
                    raise ValueError("boom")

        client.enqueue_many("q", list(range(10)))
        report = run_async(database, {"q": BatchConsumer(handle)})
        assert report == Report(claimed=20, acked=10, retried=10)
        assert scalar(conn, EFFECTS) == list(range(10))

    def test_one_lost_lease_rolls_all_back(self, client: Client, conn: Connection) -> None:
        seen: list[str] = []

        def handle(batch: Batch) -> None:
            stolen = batch[0].token == 1
            try:
                with batch.transaction() as mine:
                    mine.execute("insert into effects values (%s)", [len(batch)])
                    if stolen:
                        steal(client, batch[1])
            except LeaseLost as error:
                seen.append(str(error.detail))
                raise

        ids = [one.job_id for one in client.enqueue_many("q", [1, 2, 3])]
        report = Worker(client, {"q": BatchConsumer(handle)}, concurrency=1).run(until_idle=True)
        assert seen == [f"job {ids[1]}, token 1"]
        assert (report.acked, report.lost) == (3, 1)
        assert scalar(conn, "select sum(n) from effects") == 3

    def test_one_lost_lease_cancels_no_task(self, client: Client, database: str) -> None:
        async def handle(batch: AsyncBatch) -> None:
            if batch[0].token > 1:
                return
            await asyncio.to_thread(steal, client, batch[1])
            while not batch[1].lost.is_set():
                await asyncio.sleep(0.01)

        client.enqueue_many("q", [1, 2, 3], visibility_timeout=timedelta(milliseconds=300))
        report = run_async(database, {"q": BatchConsumer(handle)}, concurrency=1)
        assert (report.acked, report.lost, report.retried) == (3, 1, 0)

    def test_those_not_begun_are_given_back(self, client: Client) -> None:
        gate = threading.Event()
        begun = threading.Event()

        def handle(batch: Batch) -> None:
            begun.set()
            assert gate.wait(PATIENCE)

        client.enqueue_many("q", list(range(40)))
        worker = Worker(client, {"q": BatchConsumer(handle, size=10)}, concurrency=1)
        with running(worker) as future:
            assert begun.wait(PATIENCE)
            worker.stop()
            wait_until(lambda: worker.report.claimed - worker.report.released <= 10, PATIENCE)
            gate.set()
            report = future.result(PATIENCE)
        assert report.acked == 10
        assert report.left == 0
        assert client.queue_stats("q").ready == 30


class TestRefusals:
    @pytest.mark.parametrize("kind", [Consumer, BatchConsumer])
    @pytest.mark.parametrize(
        "options",
        [
            {"weight": 0},
            {"weight": -1},
            {"weight": float("inf")},
            {"weight": float("nan")},
            {"limit": 0},
            {"timeout": timedelta(0)},
        ],
    )
    def test_numbers(self, kind: Any, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidArgument):
            kind(print, **options)

    @pytest.mark.parametrize(
        "options", [{"timeout": 5}, {"dead_letter_on": (1,)}, {"dead_letter_on": (int,)}]
    )
    def test_types(self, options: dict[str, Any]) -> None:
        with pytest.raises(TypeError):
            Consumer(print, **options)

    def test_sizes(self) -> None:
        with pytest.raises(InvalidArgument):
            BatchConsumer(print, size=0)

    def test_coroutines_in_threads(self, client: Client) -> None:
        async def handle(_: Any) -> None: ...

        for consumer in (Consumer(handle), BatchConsumer(handle)):
            with pytest.raises(TypeError, match="ordinary function"):
                Worker(client, {"q": consumer})
