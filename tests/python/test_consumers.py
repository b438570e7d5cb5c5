"""How a worker runs its handlers: weights, limits, exceptions that end a job, batches."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from pgq_sql import (
    AsyncBatch,
    AsyncClient,
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


class TestDeadLetterOn:
    @pytest.mark.parametrize(
        ("fatal", "dead"),
        [((LookupError,), ["key"]), ((LookupError, Exception), ["key", "os"])],
    )
    def test_those_and_their_subclasses(
        self,
        client: Client,
        conn: Connection,
        fatal: tuple[type[BaseException], ...],
        dead: list[str],
    ) -> None:
        """A wish is no failure, whatever classes it belongs to."""

        def handle(job: RunningJob) -> None:
            if job.attempt == 1:
                raise {"key": KeyError("k"), "os": OSError("o"), "retry": Retry()}[job.payload]

        client.enqueue_many("q", ["key", "os", "retry"])
        report = Worker(client, {"q": Consumer(handle, dead_letter_on=fatal)}).run(until_idle=True)
        again = 3 - len(dead)
        assert (report.dead, report.retried, report.acked) == (len(dead), again, again)
        rows = conn.execute("select payload, error from pgq_sql.dead_jobs order by job_id")
        errors = {"key": "KeyError: 'k'", "os": "OSError: o"}
        assert [(payload, str(error).partition("\n")[0]) for payload, error in rows] == [
            (name, errors[name]) for name in dead
        ]


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

        client.enqueue_many("q", [1, 2, 3], visibility_timeout=timedelta(seconds=3))
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
