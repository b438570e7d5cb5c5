"""The loop of a worker: what to settle, how much to claim, when to sleep."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence

from ._conninfo import Connection
from ._exchange import Ask, Exchange
from ._handling import HeldJob, Runner, Settlement, Verb
from ._leases import Leases
from ._listener import Listener
from ._looks import Source
from ._outage import UNREACHABLE, Outage, one_line
from .client import Client

log = logging.getLogger("pgq_sql.worker")

AHEAD = 0.05
"""Seconds of work to claim ahead of the handlers."""
RATE_OVER = 0.2
"""Seconds over which to measure how fast the handlers are."""
TOO_LARGE = "result too large"
"""The answer of ack_many for such a job, which is not ended."""
REFUSALS = 3
"""After so many a claim is left to its lease: its end cannot be written."""

ANSWERS: Mapping[Verb, str] = {
    "ack": "acked",
    "dead_letter": "dead",
    "release": "released",
    "retry": "retried",
}
# What the second sending is told if the first was carried out and only its answer got lost.
ANSWERS_IF_DONE: Mapping[Verb, Collection[str]] = {
    "ack": {"gone"},
    "dead_letter": {"gone"},
    "release": {"lost", "gone"},
    "retry": {"lost", "gone"},
}


class Dispatcher:
    """One run of a worker: owns its claims, and the conversation with the database."""

    def __init__(
        self,
        client: Client,
        queues: Collection[str],
        start_runner: Callable[[Callable[[Settlement], None]], Runner],
        make_job: Callable[..., HeldJob],
        counts: Counter[str],
        *,
        worker: str,
        concurrency: int,
        prefetch: int,
        poll_interval: float,
        drain_timeout: float,
        connect_listener: Callable[[], Connection] | None,
    ) -> None:
        self._client = client
        self._counts = counts
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._drain_timeout = drain_timeout
        # Guards what other threads touch. Reentrant, because signal handlers call stop().
        self._changed = threading.Condition(threading.RLock())
        self._stopping = self._now = self._draining = False
        self._finished: deque[Settlement] = deque()
        self._held: dict[tuple[int, int], HeldJob] = {}
        self._sources = {name: Source(name, poll_interval) for name in queues}
        self._turn = 0
        self._rate, self._rated_at = 0.0, 0.0
        self._resume_at = 0.0
        self._outage = Outage(log)
        self._exchange = Exchange(client, worker, make_job)
        self._runner = start_runner(self._finish)
        self._leases = Leases(client, self._outage, self._lease_lost, self._runner.cancel)
        self._listener = connect_listener and Listener(
            client, connect_listener, self._outage, self._wake, log
        )

    # Called from other threads

    def stop(self, now: bool) -> None:
        """Let `run` end; `now` without waiting for the handlers."""
        with self._changed:
            self._stopping = True
            self._now = self._now or now
            self._changed.notify_all()

    def _finish(self, settlement: Settlement) -> None:
        if settlement.result is not None and not self._exchange.storable(settlement.result):
            # The work is done, and that is what counts.
            job = settlement.job
            log.warning("job %s of %s: its result is no JSON and not kept", job.job_id, job.queue)
            settlement.result = None
        with self._changed:
            self._finished.append(settlement)
            if len(self._finished) == 1:  # else the loop has been told, and takes all it finds
                self._changed.notify()

    def _wake(self, queues: Collection[str]) -> None:
        with self._changed:
            for name in queues:
                self._sources[name].wake()
            self._changed.notify()

    def _lease_lost(self, job: HeldJob) -> None:
        with self._changed:
            self._counts["lost"] += 1
        log.warning("job %s of %s: the lease was lost while it ran", job.job_id, job.queue)

    # The loop

    def run(self, until_idle: bool) -> None:
        """Work until stopped, or until no job is ready."""
        try:
            self._begin()
            self._work(until_idle)
            self._drain()
        finally:
            if not self._now:
                self._release_rest()
            self._counts["left"] += len(self._held)
            self._close()

    def _begin(self) -> None:
        """Check the schema and the queues; wait for a database that cannot be reached."""
        while not self._stopping:
            try:
                self._client.check()
                for name in self._sources:
                    self._client.next_run_at(name)
            except UNREACHABLE as error:
                self._pause(error)
                self._sleep()
            else:
                self._outage.over("worker")
                return

    def _work(self, until_idle: bool) -> None:
        while not self._stopping:
            settlements = self._take_finished()
            # Only a look with empty hands can tell that all is done.
            last = until_idle and not self._held
            asks = self._plan(everything=last, settling=bool(settlements))
            self._trade(settlements, asks)
            if self._listener:
                watched = (source.name for source in self._sources.values() if source.watched)
                self._listener.watch(frozenset(watched))
            if last and not self._held and not self._finished and all(ask.idle for ask in asks):
                return
            self._sleep()

    def _drain(self) -> None:
        """Settle what runs, for as long as is allowed."""
        self._draining = True
        for job in self._runner.take_back():
            self._finish(Settlement(job, "release"))
        ends = time.monotonic() + self._drain_timeout
        while (self._held or self._finished) and not self._now and time.monotonic() < ends:
            self._sleep(ends)
            self._trade(self._take_finished(), [])

    def _release_rest(self) -> None:
        """Give back what is not finished, at no cost: the answers of its handlers are too late."""
        settlements = self._take_finished()
        for job in self._runner.take_back():
            del self._held[job.key]
            settlements.append(Settlement(job, "release"))
        for job in self._held.values():
            job.lost.set()
            self._runner.cancel(job)
            settlements.append(Settlement(job, "release"))
        ours = [one for one in settlements if self._leases.settling(one.job)]
        if ours:
            self._trade(ours, [])
        # A handler may end just now; its claim was released all the same.
        left = [one for one in ours if one.answer is None]
        if left:
            log.warning("claims left to their leases, not settled: %d", len(left))

    def _close(self) -> None:
        patience = 0.0 if self._now else 5.0
        if self._listener:
            self._listener.close(patience)
        self._runner.close(0.0 if self._held else patience)
        self._leases.close(patience)

    # What to do next

    def _sleep(self, until: float = math.inf) -> None:
        """Until something is to be done, or that time."""
        with self._changed:
            while not self._now and (self._draining or not self._stopping):
                pause = min(self._next_act(), until) - time.monotonic()
                if pause <= 0:
                    return
                self._changed.wait(None if pause == math.inf else pause)

    def _next_act(self) -> float:
        if self._resume_at > time.monotonic():
            return self._resume_at
        if self._finished:
            return -math.inf
        if self._draining or self._free <= 0:
            return math.inf
        return min(source.looks_at() for source in self._sources.values())

    @property
    def _free(self) -> int:
        """How many more jobs to hold: more than the threads, if they are done before we're back."""
        return self._concurrency + min(self._prefetch, int(self._rate * AHEAD)) - len(self._held)

    def _take_finished(self) -> list[Settlement]:
        with self._changed:
            finished = list(self._finished)
            self._finished.clear()
        for settlement in finished:
            self._held.pop(settlement.job.key, None)
        now = time.monotonic()
        elapsed, self._rated_at = now - self._rated_at, now
        rate = len(finished) / max(elapsed, 1e-6)
        self._rate += (rate - self._rate) * min(1.0, elapsed / RATE_OVER)
        # What is lost has been counted when that was learnt.
        return [one for one in finished if self._leases.settling(one.job)]

    def _plan(self, *, everything: bool, settling: bool) -> list[Ask]:
        """Share what is free among the queues that are due, or that ride along with an ack."""
        now, free = time.monotonic(), self._free
        with self._changed:
            due = [
                source
                for source in self._sources.values()
                if everything or source.looks_at() <= now or (settling and not source.empty)
            ]
            if not due or free <= 0:
                return []
            self._turn = (self._turn + 1) % len(due)
            due = due[self._turn :] + due[: self._turn]
            share, rest = divmod(free, len(due))
            asks = [
                # A busy queue has no use for the time of its next job.
                Ask(source, share + (place < rest), everything or source.empty)
                for place, source in enumerate(due)
                if share or place < rest
            ]
            for ask in asks:
                ask.source.woken = False
        return asks

    # The database

    def _trade(self, settlements: Sequence[Settlement], asks: Sequence[Ask]) -> None:
        """Settle and claim; what fails comes back later, and stops nothing else."""
        if not settlements and not asks:
            return
        sent_at = time.monotonic()
        error = self._try(settlements, asks)
        for ask in asks:
            if ask.answered:
                self._claimed(ask, sent_at)
        for settlement in settlements:
            if settlement.answer is not None:
                self._settled(settlement, settlement.answer)
        if error is None:
            return
        open_settlements = [one for one in settlements if one.answer is None]
        open_asks = [ask for ask in asks if not ask.answered]
        if isinstance(error, UNREACHABLE):
            self._pause(error)
            self._put_back(open_settlements)
            with self._changed:
                for ask in open_asks:
                    ask.source.woken = True
        elif len(open_settlements) + len(open_asks) == 1:
            self._refused(error, open_settlements, open_asks)
        else:
            # One of them is at fault: the others must not suffer for it.
            for settlement in open_settlements:
                self._trade([settlement], [])
            for ask in open_asks:
                self._trade([], [ask])

    def _try(self, settlements: Sequence[Settlement], asks: Sequence[Ask]) -> Exception | None:
        try:
            self._exchange.run(settlements, asks)
        except Exception as error:
            return error
        self._outage.over("worker")
        return None

    def _pause(self, error: Exception) -> None:
        self._resume_at = time.monotonic() + self._outage.failed("worker", error)

    def _put_back(self, settlements: Sequence[Settlement]) -> None:
        for settlement in settlements:
            settlement.sent = True
            self._leases.settling(settlement.job, False)
            self._finish(settlement)

    def _refused(
        self, error: Exception, settlements: Sequence[Settlement], asks: Sequence[Ask]
    ) -> None:
        """The one call that was made can't be carried out."""
        for ask in asks:
            with self._changed:
                ask.source.failed()
            if not ask.source.told:
                ask.source.told = True
                log.error("queue %s: cannot claim: %s", ask.source.name, one_line(error))
        for settlement in settlements:
            settlement.refused += 1
            if settlement.refused < REFUSALS:
                self._pause(error)
                self._put_back([settlement])
                continue
            job = settlement.job
            self._leases.drop(job)
            with self._changed:
                self._counts["lost"] += 1
            log.error("job %s: cannot %s it: %s", job.job_id, settlement.verb, one_line(error))

    def _claimed(self, ask: Ask, sent_at: float) -> None:
        with self._changed:
            ask.source.found(ask.n, len(ask.jobs), ask.due_in)
            self._counts["claimed"] += len(ask.jobs)
        self._held.update((job.key, job) for job in ask.jobs)
        self._leases.add(ask.jobs, sent_at)
        self._runner.submit(ask.jobs)

    def _settled(self, settlement: Settlement, answer: str) -> None:
        job, verb = settlement.job, settlement.verb
        if answer == TOO_LARGE:
            log.warning("job %s of %s: its result is too large and not kept", job.job_id, job.queue)
            settlement.result, settlement.answer = None, None
            self._put_back([settlement])
            return
        self._leases.drop(job)
        if settlement.sent and answer in ANSWERS_IF_DONE[verb]:
            answer = ANSWERS[verb]
        if job.ended:
            # Released when the worker stopped, perhaps, but its ack was committed before.
            verb, answer = "ack", "acked"
            if settlement.error is not None:
                log.error(
                    "job %s of %s failed after its ack: %s",
                    *(job.job_id, job.queue, settlement.headline),
                )
        lost = answer in {"lost", "gone"}
        with self._changed:
            self._counts["lost" if lost else answer] += 1
        if lost:
            log.warning("job %s of %s: %s before its %s", job.job_id, job.queue, answer, verb)
        elif answer == "dead":
            log.error("job %s of %s is dead: %s", job.job_id, job.queue, settlement.headline)
        elif verb == "retry":
            log.warning(
                "job %s of %s will run again: %s", job.job_id, job.queue, settlement.headline
            )
