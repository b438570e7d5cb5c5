"""The loop of a worker: what to settle, how much to claim, when to sleep."""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ._bell import Bell
from ._conninfo import Connection
from ._consumers import AnyConsumer, BatchConsumer
from ._exchange import Ask, Exchange
from ._jobs import HeldJob
from ._leases import Leases
from ._listener import Listener
from ._log import log, note
from ._looks import Source, shares
from ._outage import Outage, one_line
from ._outcomes import TOO_LARGE, outcome, tell
from ._pace import Pace
from ._runner import Runner, Unit, WorkerSide
from ._settlements import Settlement, too_slow, unreadable
from ._trader import Trader
from ._watch import Patience, Watch
from .client import Client


class Dispatcher:
    """One run of a worker: owns its claims, and the conversation with the database."""

    def __init__(
        self,
        client: Client,
        consumers: Mapping[str, AnyConsumer],
        start_runner: Callable[[WorkerSide], Runner],
        make_job: Callable[..., HeldJob],
        make_batch: Callable[[Iterable[Any]], Unit],
        counts: Counter[str],
        *,
        worker: str,
        concurrency: int,
        prefetch: int,
        poll_interval: float,
        drain_timeout: float,
        watch: Watch,
        patience: Patience,
        connect_listener: Callable[[], Connection] | None,
    ) -> None:
        self._counts = counts
        self._concurrency = concurrency
        self._prefetch = prefetch
        self._drain_timeout = drain_timeout
        # Guards what other threads touch.
        self._lock = threading.RLock()
        self._bell = Bell()
        self._stopping = self._now = self._draining = False
        self._finished: deque[Settlement] = deque()
        self._held: dict[tuple[int, int], Unit] = {}
        # Claims that were ended because their handler's time was over, and it still runs.
        self._overrun: set[tuple[int, int]] = set()
        self._make_batch = make_batch
        self._sources = {
            name: Source(name, poll_interval, consumer) for name, consumer in consumers.items()
        }
        self._pace = Pace()
        self._watch = watch
        outage = Outage(log, watch)
        self._exchange = Exchange(client, worker, make_job, patience)
        self._runner = start_runner(self)
        self._leases = Leases(client, outage, self, watch, patience)
        self._trader = Trader(self._exchange, self._leases, outage, self)
        self._listener = connect_listener and Listener(
            client, connect_listener, outage, self._wake, patience
        )

    # Called from other threads

    def stop(self, now: bool) -> None:
        """Let `run` end; `now` without waiting for the handlers. Signal handlers call this."""
        self._stopping = True
        if now:
            self._now = True
            self._watch.hurry()
        self._bell.ring()

    def begins(self, unit: Unit) -> None:
        """A handler is about to be called."""
        timeout = self._sources[unit[0].queue].consumer.timeout
        if timeout is not None:
            self._leases.limit(unit, time.monotonic() + timeout.total_seconds())

    def finished(self, units: Sequence[Unit], settlements: Sequence[Settlement]) -> None:
        """Handlers have ended."""
        for settlement in settlements:
            if settlement.result is not None and not self._exchange.storable(settlement.result):
                # The work is done, and that is what counts.
                note(logging.WARNING, settlement.job, ": its result is no JSON and not kept")
                settlement.result = None
        with self._lock:
            for unit in units:
                self._sources[unit[0].queue].running -= 1
            self._pace.ended += len(units)
            if self._overrun:
                late = {one.job.key for one in settlements} & self._overrun
                settlements = [one for one in settlements if one.job.key not in late]
                self._overrun -= late
            self._finish(settlements)

    def overran(self, job: HeldJob) -> None:
        """A handler's time is over: end its job without it."""
        with self._lock:
            if job.key not in self._held or any(one.job is job for one in self._finished):
                return
            # First, because what is finished is held no more.
            self.in_vain(job)
            self._overrun.add(job.key)
            self._finish([too_slow(self._sources[job.queue].consumer, job)])
        if job._course.line is not None:
            # It holds the job's row, which would hold up its end, and all that is sent with it.
            job._course.line.cut()

    def lost(self, job: HeldJob) -> None:
        """A lease was lost while its handler ran."""
        with self._lock:
            self._counts["lost"] += 1
        note(logging.WARNING, job, ": the lease was lost while it ran")
        self.in_vain(job)

    def in_vain(self, job: HeldJob) -> None:
        """What the handler still does for the job is in vain."""
        job.lost.set()
        unit = self._held.get(job.key)
        if unit is not None and all(one.lost.is_set() for one in unit):
            self._runner.cancel(unit)

    def _finish(self, settlements: Sequence[Settlement]) -> None:
        with self._lock:
            told = bool(self._finished)  # and the loop takes all it finds
            self._finished.extend(settlements)
            if not told:
                self._bell.ring()

    def _wake(self, queues: Collection[str]) -> None:
        with self._lock:
            for name in queues:
                self._sources[name].wake()
        self._bell.ring()

    # The loop

    def run(self, until_idle: bool) -> None:
        """Work until stopped, or until no job is ready."""
        try:
            self._begin(until_idle)
            self._work(until_idle)
            self._drain()
        except Exception as error:
            # Whoever waits for it may do so much later.
            log.error("the worker ends: %s", one_line(error))
            raise
        finally:
            try:
                self._leave()
            finally:
                self._close()

    def _leave(self) -> None:
        if self._now:
            for unit in self._held.values():
                self._runner.cancel(unit)
            self._counts["left"] += len(self._held) + len(self._finished)
        else:
            self._counts["left"] += self._release_rest()

    def _begin(self, until_idle: bool) -> None:
        """Check the schema; wait for a database that cannot be reached.

        A queue that isn't there may be made yet; but who wants to see it empty is told.
        """
        while not self._stopping:
            if self._trader.check(list(self._sources) if until_idle else []):
                return
            self._sleep()

    def _work(self, until_idle: bool) -> None:
        while not self._stopping:
            settlements = self._take_finished()
            # Only a look with empty hands can tell that all is done.
            last = until_idle and not self._running
            if until_idle and settlements:
                # Their handlers may have made jobs, for any queue.
                with self._lock:
                    for source in self._sources.values():
                        source.look_again()
            asks = self._plan(last, bool(settlements))
            self._trader.trade(settlements, asks)
            if self._listener:
                watched = (source.name for source in self._sources.values() if source.watched)
                self._listener.watch(frozenset(watched))
            idle = all(source.idle for source in self._sources.values())
            if last and idle and not self._running and not self._finished:
                return
            self._sleep()

    def _drain(self) -> None:
        """Settle what runs, for as long as is allowed."""
        self._draining = True
        for unit in self._runner.take_back():
            self.finished([unit], [Settlement(job, "release") for job in unit])
        ends = time.monotonic() + self._drain_timeout
        while self._alive and not self._now and time.monotonic() < ends:
            self._sleep(ends)
            self._trader.trade(self._take_finished(), [])

    @property
    def _alive(self) -> bool:
        """Whether anything runs, or has an end that could still count."""
        return bool(self._held) or any(not one.job.lost.is_set() for one in self._finished)

    def _release_rest(self) -> int:
        """Give back what is not finished, at no cost: the answers of its handlers are too late.

        The answer is how many are left to their leases.
        """
        settlements = self._take_finished()
        for unit in self._runner.take_back():
            self.finished([unit], [Settlement(job, "release") for job in unit])
        settlements += self._take_finished()
        for unit in {id(unit): unit for unit in self._held.values()}.values():
            for job in unit:
                if job.key in self._held:
                    self.in_vain(job)
                    settlements.append(Settlement(job, "release"))
        ours = self._ours(settlements)
        if ours:
            self._trader.trade(ours, [])
        # A handler may end just now; its claim was released all the same.
        left = [one for one in ours if one.answer is None]
        if left:
            log.warning("claims left to their leases, not settled: %d", len(left))
        return len(left)

    def _close(self) -> None:
        patience = 0.0 if self._now else 5.0
        if self._listener:
            self._listener.close(patience)
        self._runner.close(0.0 if self._held else patience)
        self._leases.close(patience)
        self._watch.close(patience)

    # What to do next

    def _sleep(self, until: float = math.inf) -> None:
        """Until something is to be done, or that time."""
        while not self._now and (self._draining or not self._stopping):
            with self._lock:
                pause = min(self._next_act(), until) - time.monotonic()
            if pause <= 0:
                return
            self._bell.wait(pause)

    def _next_act(self) -> float:
        if self._trader.resume_at > time.monotonic():
            return self._trader.resume_at
        if self._finished:
            return -math.inf
        if self._draining or self._free <= 0:
            return math.inf
        looks = (source.looks_at() for source in self._sources.values() if source.room > 0)
        return min(looks, default=math.inf)

    @property
    def _free(self) -> int:
        """For how many more handlers to claim: more than may run, if they end before we're back."""
        return self._concurrency + min(self._prefetch, self._pace.ahead) - self._running

    @property
    def _running(self) -> int:
        """How many handlers run, or wait for a place."""
        return sum(source.running for source in self._sources.values())

    def _take_finished(self) -> list[Settlement]:
        with self._lock:
            finished = list(self._finished)
            self._finished.clear()
            for settlement in finished:
                self._held.pop(settlement.job.key, None)
            self._pace.measure()
        # What is lost has been counted when that was learnt.
        return self._ours(finished)

    def _ours(self, settlements: Sequence[Settlement]) -> list[Settlement]:
        """Those whose claim is still held; it is not renewed from here on."""
        held = self._leases.settling(one.job for one in settlements)
        return list(itertools.compress(settlements, held))

    def _plan(self, last: bool, settling: bool) -> list[Ask]:
        """Share what is free among the queues that are due, or that ride along with an ack."""
        now, free = time.monotonic(), self._free
        if free <= 0:
            return []
        with self._lock:
            due = [
                source
                for source in self._sources.values()
                if source.room > 0 and (source.looks_at() <= now or (settling and not source.empty))
            ]
            asks = [
                Ask(source, jobs, last or source.asks_when)
                for source, jobs in shares(due, free).items()
            ]
            for ask in asks:
                ask.source.looking()
        return asks

    # What the trader tells

    @property
    def hurried(self) -> bool:
        """Whether to try nothing any more."""
        return self._now

    def put_back(self, settlements: Sequence[Settlement]) -> None:
        """They are to be sent again."""
        self._leases.not_settled(one.job for one in settlements)
        self._finish(settlements)

    def given_up(self, settlement: Settlement) -> None:
        """It cannot be carried out, and is left to its lease."""
        self._leases.drop([settlement.job])
        with self._lock:
            self._counts["lost"] += 1

    def claimed(self, ask: Ask, sent_at: float) -> None:
        """Jobs have come, or none."""
        if ask.source.told:
            log.info("queue %s: can be claimed from", ask.source.name)
        with self._lock:
            ask.source.found(ask.n, len(ask.jobs), ask.due, ask.due_in)
            self._counts["claimed"] += len(ask.jobs)
        if not ask.jobs:
            return
        consumer, jobs = ask.source.consumer, ask.jobs
        spoilt = [one for one in map(unreadable, jobs) if one is not None]
        if spoilt:
            bad = {one.job.key for one in spoilt}
            jobs = [job for job in jobs if job.key not in bad]
            self._leases.add([one.job for one in spoilt], sent_at)
            self._finish(spoilt)
        make = self._make_batch if isinstance(consumer, BatchConsumer) else tuple
        units = [make(jobs[at : at + consumer.size]) for at in range(0, len(jobs), consumer.size)]
        with self._lock:
            self._held.update((job.key, unit) for unit in units for job in unit)
            ask.source.running += len(units)
        if consumer.timeout is None:
            # First, because the leases' thread may wake and stand in the way of the handlers'.
            self._runner.submit(units)
            self._leases.add(jobs, sent_at)
        else:
            # Here `begins` must find the leases.
            self._leases.add(jobs, sent_at)
            self._runner.submit(units)

    def settled(self, settlements: Sequence[Settlement]) -> None:
        """Answers have come."""
        too_large = [one for one in settlements if one.answer == TOO_LARGE]
        for settlement in too_large:
            note(logging.WARNING, settlement.job, ": its result is too large and not kept")
            settlement.result, settlement.answer = None, None
        self.put_back(too_large)
        ended = [one for one in settlements if one.answer is not None]
        self._leases.drop(one.job for one in ended)
        outcomes = Counter(map(outcome, ended))
        with self._lock:
            self._counts.update(outcomes)
        if outcomes.keys() - {"acked", "released"} or any(one.error for one in ended):
            for settlement in ended:
                tell(settlement, outcome(settlement))
