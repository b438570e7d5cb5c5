"""Six sessions call everything at once, at random; afterwards the books must balance.

Each payload is a number that is used once. A job that ends without a trace is counted where it
ends; every other number must be found exactly once, as a live, dead or done job or in a letter.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psycopg
import pytest

from interleaving import staged
from servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from interleaving import Stage
    from servers import Connection, Server

SECONDS = 5.0
THREADS = 6
SEED = 4

QUEUES = {
    # Jobs fail and expire quickly, so that sweeps have work.
    "plain": "visibility_timeout => '250 ms', retry_delay => '0', max_attempts => 3",
    "kept": "retry_delay => '20 ms', keep_done => '1 day'",
    "letters": "visibility_timeout => '250 ms'",
    "sending": "retry_delay => '0', max_attempts => 2, dead_letter_queue => 'letters'",
    "fleeting": "expires_in => '300 ms'",
}

DOCUMENTED = {
    "JQ001",  # fleeting is dropped now and then
    "JQ003",  # dead jobs that somebody else brought back
    "JQ004",  # fleeting has jobs
}


@pytest.fixture
def stage(server: Server, template: str) -> Iterator[Stage]:
    with staged(server, template) as stage:
        stage.fresh(*(f"create_queue('{name}', {options})" for name, options in QUEUES.items()))
        yield stage


@dataclass
class Page:
    """What came in and what ended without a trace: in one transaction, or in all."""

    accepted: set[object] = field(default_factory=set)
    acked: set[object] = field(default_factory=set)
    ended: Counter[str] = field(default_factory=Counter)
    leases: list[tuple[object, ...]] = field(default_factory=list)

    def add(self, other: Page) -> None:
        self.accepted |= other.accepted
        self.acked |= other.acked
        self.ended += other.ended
        self.leases += other.leases


class Actor:
    """Calls at random; counts what came in and what ended."""

    def __init__(self, conn: Connection, number: int) -> None:
        self.random = random.Random(SEED * 100 + number)
        self.conn = conn
        self.numbers = iter(range(number * 10**6, (number + 1) * 10**6))
        self.book = self.page = Page()
        self.calls: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def run(self, until: float) -> None:
        weights: dict[Callable[[], None], float] = {
            self.enqueue: 12,
            self.enqueue_many: 3,
            self.claim: 12,
            self.settle: 18,
            self.beat: 3,
            self.cancel: 1,
            self.pop: 1,
            self.control: 8,
            self.redrive: 2,
            self.discard: 1,
            self.replay: 1,
            self.purge: 0.3,
            self.sweep: 1,
            self.queues: 1,
            self.drop: 0.3,
        }
        while time.monotonic() < until:
            (act,) = self.random.choices([*weights], [*weights.values()])
            self.calls[act.__name__] += 1
            self.page = Page()
            back = self.random.random() < 0.05
            try:
                with self.conn.transaction(force_rollback=back):
                    act()
            except psycopg.Error as error:
                self.errors[str(error.sqlstate)] += 1
            else:
                if not back:
                    self.book.add(self.page)

    def rows(self, query: str, *params: object) -> list[tuple[object, ...]]:
        return self.conn.execute(f"select {query}".encode(), params).fetchall()

    def queue(self) -> str:
        return self.random.choice(list(QUEUES))

    def job(self) -> int:
        """An id, mostly of a job of lately."""
        (latest,) = self.rows("last_value from job_id_seq")[0]
        assert isinstance(latest, int)
        return max(1, latest - int(self.random.expovariate(1 / 30)))

    def options(self) -> str:
        """At random; with a key in half of the cases, of which there are few."""
        chosen = [
            option
            for option in (
                "delay => '50 ms'",
                "delay => '1 hour'",
                "expires_in => '200 ms'",
                f"priority => {self.random.randint(-2, 2)}",
            )
            if self.random.random() < 0.15
        ]
        chosen = [o for i, o in enumerate(chosen) if "delay" not in o or i == 0]
        if self.random.random() < 0.5:
            chosen.append(f"dedup_key => 'k{self.random.randint(1, 5)}'")
            chosen.append(f"dedup_mode => '{self.random.choice(['ignore', 'replace'])}'")
        return "".join(f", {option}" for option in chosen)

    def take_in(self, number: int, outcome: object) -> None:
        if outcome != "existing":
            self.page.accepted.add(number)
        self.page.ended["replaced"] += outcome == "replaced"

    def enqueue(self) -> None:
        number = next(self.numbers)
        query = f"outcome from enqueue(%s, %s::text::jsonb{self.options()})"
        self.take_in(number, self.rows(query, self.queue(), number)[0][0])

    def enqueue_many(self) -> None:
        numbers = [next(self.numbers) for _ in range(4)]
        keys = [self.random.choice([None, "k1", "k2", "k3", "k4", "k5"]) for _ in numbers]
        mode = self.random.choice(["ignore", "replace"])
        rows = self.rows(
            "outcome from enqueue_many(%s, %s::jsonb[], dedup_keys => %s::text[], dedup_mode => %s)"
            " order by ordinal",
            self.queue(),
            [str(number) for number in numbers],
            keys,
            mode,
        )
        for number, (outcome,) in zip(numbers, rows, strict=True):
            self.take_in(number, outcome)

    def claim(self) -> None:
        query = (
            "job_id, token, queue, coalesce(payload -> 'payload', payload) from claim(%s, 'w', %s)"
        )
        self.page.leases += self.rows(query, self.queue(), self.random.randint(1, 5))

    def held(self) -> list[tuple[object, ...]]:
        """Some leases, in any order; they stay known, and so are settled twice at times."""
        chosen = self.random.sample(self.book.leases, min(len(self.book.leases), 3))
        for lease in chosen:
            if self.random.random() < 0.8:
                self.book.leases.remove(lease)
        return chosen

    def settle(self) -> None:
        leases = self.held()
        how = self.random.choice(["ack", "ack", "retry", "release", "dead_letter"])
        rows = self.rows(
            f"outcome from {how}_many(%s::bigint[], %s::bigint[]) order by ordinal",
            [lease[0] for lease in leases],
            [lease[1] for lease in leases],
        )
        for (_, _, queue, number), (outcome,) in zip(leases, rows, strict=True):
            if outcome == "acked" and queue != "kept":
                self.page.ended["acked"] += 1
                self.page.acked.add(number)

    def beat(self) -> None:
        # In one call: a transaction of several would lock jobs in an order of its own.
        leases = self.held()
        self.rows(
            "outcome from heartbeat_many(%s::bigint[], %s::bigint[])",
            [lease[0] for lease in leases],
            [lease[1] for lease in leases],
        )

    def cancel(self) -> None:
        job_id = self.job()
        # An id never changes its queue.
        queue = self.rows("queue from all_jobs where job_id = %s", job_id)
        if queue and self.rows("cancel(%s)", job_id) == [("cancelled",)]:
            self.page.ended["cancelled"] += queue != [("kept",)]

    def pop(self) -> None:
        queue = self.queue()
        count = len(self.rows("job_id from pop(%s, 2)", queue))
        self.page.ended["popped"] += count if queue != "kept" else 0

    def control(self) -> None:
        how = self.random.choice(["suspend", "resume", "promote", "reprioritize"])
        more = f", {self.random.randint(-2, 2)}" if how == "reprioritize" else ""
        self.rows(f"{how}(%s{more})", self.job())

    def dead(self) -> tuple[str, object]:
        if self.random.random() < 0.3:
            return "queue => %s, n => 5", self.queue()
        ids = self.rows("job_id from dead_jobs order by random() limit 3")
        return "%s::bigint[]", [job_id for (job_id,) in ids]

    def redrive(self) -> None:
        which, value = self.dead()
        self.rows(f"redrive({which})", value)

    def discard(self) -> None:
        which, value = self.dead()
        ((count,),) = self.rows(f"discard_dead({which})", value)
        assert isinstance(count, int)
        self.page.ended["discarded"] += count

    def replay(self) -> None:
        self.rows("redrive_queue('letters', 5)")

    def purge(self) -> None:
        ((count,),) = self.rows("purge_queue(%s)", self.queue())
        assert isinstance(count, int)
        self.page.ended["purged"] += count

    def sweep(self) -> None:
        self.rows("sweep()")

    def queues(self) -> None:
        queue = self.queue()
        change = self.random.choice(
            [
                "pause_queue(%s)",
                "resume_queue(%s)",
                "resume_queue(%s)",
                f"alter_queue(%s, max_attempts => {self.random.randint(1, 5)})",
            ]
        )
        self.rows(change, queue)
        if queue == "sending":
            box = self.random.choice(
                ["dead_letter_queue => 'letters'", "reset => '{dead_letter_queue}'"]
            )
            self.rows(f"alter_queue('sending', {box})")

    def drop(self) -> None:
        force = self.random.random() < 0.5
        ((count,),) = self.rows("drop_queue('fleeting', %s)", force)
        assert isinstance(count, int)
        self.page.ended["dropped"] += count
        self.rows(f"create_queue('fleeting', {QUEUES['fleeting']})")


def test_the_books_balance(stage: Stage) -> None:
    actors = [Actor(stage.session(), number) for number in range(THREADS)]
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(THREADS) as executor:
        for running in [executor.submit(actor.run, until) for actor in actors]:
            running.result(SECONDS + 60)

    errors: Counter[str] = sum((actor.errors for actor in actors), Counter())
    assert errors.keys() <= DOCUMENTED, errors
    calls: Counter[str] = sum((actor.calls for actor in actors), Counter())
    assert len(calls) == 15, calls

    stage.say(*(f"resume_queue('{name}')" for name in QUEUES), "sweep()")
    numbers = [
        number
        for (number,) in stage.conn.execute(
            "select case when payload ? 'schema' then payload -> 'payload' else payload end"
            " from all_jobs"
        )
    ]
    book = Page()
    for actor in actors:
        book.add(actor.book)
    assert [number for number, count in Counter(numbers).items() if count > 1] == []
    assert set(numbers) <= book.accepted - book.acked
    assert len(book.accepted) - len(numbers) == book.ended.total(), book.ended

    claimable_is_claimed(stage)


def claimable_is_claimed(stage: Stage) -> None:
    """No job that is ready lies where claims do not look."""
    stage.say("set_config('test.ahead', '1 hour', false)")
    ready = "count(*) from jobs where state = 'ready'"

    def drained() -> bool:
        for name in QUEUES:
            stage.say(f"count(*) from pop('{name}', 10000)")
        return stage.say(ready) == 0

    wait_until(drained, message="every ready job claimed")
