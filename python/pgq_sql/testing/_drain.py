"""Running the jobs of a test: a worker's judgement, in the test's own thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from .._consumers import AnyConsumer, BatchConsumer, Handlers
from .._exchange import Ask, Exchange
from .._jobs import Batch, Hand, HeldJob, RunningJob
from .._leases import Leases
from .._looks import Source
from .._outage import Outage
from .._outcomes import TOO_LARGE, outcome
from .._settlements import DeadLetter, Retry, Settlement, Snooze, ended, failed
from .._tasks import AsyncBatch, AsyncHandlers, AsyncRunningJob
from .._watch import Patience, Watch
from ..client import AsyncClient, Client
from ..models import Job
from ..worker import AsyncWorker, Worker
from ._asserts import every_job

log = logging.getLogger("pgq_sql.testing")

RUNAWAY = 1000
"""Runs after which a drain without a limit is taken for one that never ends."""

PATIENCE = 5.0


class Runaway(AssertionError):
    """The jobs don't come to an end; probably a handler enqueues or puts off for ever."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one job."""

    job: Job
    """As its handler saw it."""
    outcome: str
    """acked, retried, dead, released, or lost: ended by somebody else, or by the lease."""
    error: str | None = None
    """What is kept with the job, unless it was acked or lost."""
    exception: BaseException | None = None
    """What the handler raised, `Retry`, `DeadLetter` and `Snooze` included."""

    def __str__(self) -> str:
        line = f"job {self.job.job_id} of {self.job.queue}, attempt {self.job.attempt}: "
        return line + self.outcome + (f": {self.error.partition(chr(10))[0]}" if self.error else "")


@dataclass(frozen=True, slots=True, repr=False)
class Drained:
    """What a drain did: its runs in their order, and how many ended in which way."""

    runs: tuple[Run, ...] = ()

    @property
    def acked(self) -> int:
        """The handler returned."""
        return self._count("acked")

    @property
    def retried(self) -> int:
        """It raised, and the job will run again."""
        return self._count("retried")

    @property
    def dead(self) -> int:
        """It raised `DeadLetter`, or anything else at the job's last attempt."""
        return self._count("dead")

    @property
    def released(self) -> int:
        """It raised `Snooze`."""
        return self._count("released")

    @property
    def lost(self) -> int:
        """Ended by somebody else, or by the lease."""
        return self._count("lost")

    def _count(self, outcome: str) -> int:
        return sum(run.outcome == outcome for run in self.runs)

    def __repr__(self) -> str:
        return f"<Drained: {'; '.join(map(str, self.runs)) or 'no job was ready'}>"


def drain(
    client: Client,
    handlers: Handlers,
    *,
    limit: int | None = None,
    with_scheduled: bool = False,
    reraise: bool = False,
) -> Drained:
    """Run the jobs that are ready, and those that become so meanwhile, until there are none.

    Handlers run in this thread, one after the other; each job is claimed and settled in the
    database as `Worker` would do it. `limit`: at most so many runs. Without it 1000 runs are a
    `Runaway`.

    `with_scheduled`: when no job is ready, the next one that is due later runs as if its time had
    come, and so on: retries go on until they succeed or are dead.

    Whatever a handler raises is judged as `Worker` does, and noted in the answer. `reraise`: an
    exception that is not a `Retry`, `DeadLetter` or `Snooze` comes out, after its job was settled.
    What isn't an `Exception`, such as KeyboardInterrupt or pytest's own, always does.
    """
    # Never run: it refuses what a worker refuses, and names the claims as a worker does.
    worker = Worker(client, handlers)
    with closing(_Bench(worker, RunningJob, client, limit, with_scheduled, reraise)) as bench:
        while (job := bench.claim()) is not None:
            assert isinstance(job, RunningJob)
            consumer = bench.consumers[job.queue]
            try:
                answer = consumer.handler(
                    Batch([job]) if isinstance(consumer, BatchConsumer) else job
                )
            except BaseException as error:
                bench.end(failed(consumer, [job], error)[0], error)
            else:
                bench.end(ended(consumer, [job], answer)[0])
        return Drained(tuple(bench.runs))


async def async_drain(
    client: AsyncClient,
    handlers: AsyncHandlers,
    *,
    limit: int | None = None,
    with_scheduled: bool = False,
    reraise: bool = False,
) -> Drained:
    """`drain` for handlers that are coroutines: they run in this event loop, one after the other.

    Between them it waits for the database, and holds the loop up meanwhile.
    """
    worker = AsyncWorker(client, handlers)
    with (
        closing(worker._client),
        closing(_Bench(worker, AsyncRunningJob, client, limit, with_scheduled, reraise)) as bench,
    ):
        while (job := bench.claim()) is not None:
            assert isinstance(job, AsyncRunningJob)
            consumer = bench.consumers[job.queue]
            try:
                answer = await consumer.handler(
                    AsyncBatch([job]) if isinstance(consumer, BatchConsumer) else job
                )
            except BaseException as error:
                bench.end(failed(consumer, [job], error)[0], error)
            else:
                bench.end(ended(consumer, [job], answer)[0])
        return Drained(tuple(bench.runs))


class _Bench:
    """A worker's parts, put together for one thread."""

    def __init__(
        self,
        worker: Worker | AsyncWorker,
        job_kind: Callable[..., HeldJob],
        transactions: Client | AsyncClient,
        limit: int | None,
        with_scheduled: bool,
        reraise: bool,
    ) -> None:
        if limit is not None and limit < 0:
            raise ValueError("limit must not be negative")
        self.runs: list[Run] = []
        self._limit = limit
        self._with_scheduled = with_scheduled
        self._reraise = reraise
        self._client = worker._client
        self._client.check()
        self.consumers: Mapping[str, AnyConsumer] = worker._consumers
        self._sources = [Source(name, PATIENCE, one) for name, one in self.consumers.items()]
        self._watch = Watch()
        patience = Patience(self._watch)
        make_job = partial(job_kind, _hand=Hand(transactions, patience))
        self._exchange = Exchange(self._client, worker.worker, make_job, patience)
        # A handler may stop at a breakpoint for longer than its lease.
        self._leases = Leases(self._client, Outage(log, self._watch), self, self._watch, patience)

    def claim(self) -> HeldJob | None:
        """The next job to run; None: it is enough."""
        if len(self.runs) == self._limit:
            return None
        job = self._ready()
        while job is None and self._with_scheduled and self._promote():
            job = self._ready()
        if job is not None and self._limit is None and len(self.runs) == RUNAWAY:
            self._settle(Settlement(job, "release"))
            raise Runaway(f"{RUNAWAY} runs, and there is still job {job.job_id} of {job.queue}")
        return job

    def end(self, settlement: Settlement, raised: BaseException | None = None) -> None:
        """Settle a job that has run; raise again what is to come out."""
        outcome = self._settle(settlement)
        error = None if outcome in {"acked", "lost"} else settlement.error
        self.runs.append(Run(settlement.job, outcome, error, raised))
        if raised is None or isinstance(raised, Retry | DeadLetter | Snooze):
            return
        if self._reraise or not isinstance(raised, Exception):
            raise raised

    def close(self) -> None:
        """Renew no more leases."""
        self._leases.close(PATIENCE)
        self._watch.close(PATIENCE)

    def lost(self, job: HeldJob) -> None:
        """The answer of its settlement tells enough."""
        job.lost.set()

    in_vain = overran = lost

    def _ready(self) -> HeldJob | None:
        """Claim a job, of the first queue that has one."""
        for source in self._sources:
            ask = Ask(source, n=1, due=False)
            sent_at = time.monotonic()
            self._exchange.run([], [ask])
            if ask.jobs:
                self._leases.add(ask.jobs, sent_at)
                return ask.jobs[0]
        return None

    def _promote(self) -> bool:
        """Let the job that is due next run now; False if none is."""
        waiting = [
            job
            for source in self._sources
            for job in every_job(self._client, queue=source.name, state="scheduled")
        ]
        waiting.sort(key=lambda job: (job.run_at, job.job_id))
        return any(self._client.promote(job.job_id) in {"promoted", "ready"} for job in waiting)

    def _settle(self, settlement: Settlement) -> str:
        job = settlement.job
        if not self._leases.settling([job])[0] and not job._course.ended:
            return "lost"
        if settlement.result is not None and not self._exchange.storable(settlement.result):
            _leave_out_result(settlement, "is no JSON")
        self._exchange.run([settlement], [])
        if settlement.answer == TOO_LARGE:
            _leave_out_result(settlement, "is too large")
            self._exchange.run([settlement], [])
        self._leases.drop([job])
        return outcome(settlement)


def _leave_out_result(settlement: Settlement, why: str) -> None:
    log.warning("the result of job %s %s and not kept", settlement.job.job_id, why)
    settlement.result = settlement.answer = None
