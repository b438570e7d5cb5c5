"""One run of many producers and claimers that misbehave, and what came of it.

`Plan` says who takes part, `stress_actors` what they do, `stress_ledger` what is counted. The seed
fixes the plan and what each actor does, not how they interleave.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import psycopg

from stress_actors import ACTORS, QUEUE, claim_all, rows
from stress_ledger import Ledger, Stray
from stress_plants import NO_SWEEP, SLOW_SPOTS
from test_marks import patch

if TYPE_CHECKING:
    from servers import Connection
    from stress_actors import Actor

ISOLATION = ("read committed", "repeatable read", "serializable")


@dataclass(frozen=True)
class Plan:
    """What a run is made of. Times are in seconds."""

    seed: int
    duration: float = 4.0
    producers: int = 6
    claimers: int = 4
    holders: int = 0
    """Sessions that hold a snapshot or an idle transaction."""
    killers: int = 0
    """Sessions that end or cancel producers and claimers."""
    sweepers: int = 0
    renewers: int = 0
    """Sessions that send heartbeats for what others work on."""
    longest_hold: float = 0.8
    """A fifth of the producers' transactions stay open up to this long."""
    produce_isolation: tuple[str, ...] = ("read committed", *ISOLATION)
    claim_isolation: tuple[str, ...] = ("read committed",)
    claim_rollback: float = 0.15
    retry: float = 0.1
    release: float = 0.1
    work: float = 0.1
    """Half of the batches take up to this long."""
    abandon: float = 0.0
    """How often a claimer forgets its leases."""
    visibility_timeout: float = 600.0
    max_attempts: int = 1_000_000
    priorities: tuple[int, ...] = (0, 0, 0, 7)
    sweeps: bool = True
    """Without, what a mark has passed wrongly is never found: the faults show."""
    slow_spots: bool = False
    """Pauses inside the engine, where a race would have to happen."""
    patience: float = 30.0
    """How long the jobs that are left may take to come, once all is quiet."""
    stop_at_fault: bool = False

    @classmethod
    def drawn(cls, seed: int, duration: float) -> Plan:
        """A plan that a seed chooses."""
        rng = random.Random(f"plan/{seed}")
        sweeps = rng.random() < 0.4
        plan = cls(
            seed,
            duration=duration,
            producers=rng.randint(2, 14),
            claimers=rng.randint(1, 12),
            holders=rng.choice([0, 0, 1, 3]),
            killers=rng.choice([0, 0, 1]),
            renewers=rng.choice([0, 1, 3]),
            longest_hold=rng.choice([0.05, 0.3, 0.8, 1.5]),
            produce_isolation=rng.choice([ISOLATION[:1], ISOLATION]),
            claim_isolation=rng.choice([ISOLATION[:1], ISOLATION[:2], ISOLATION]),
            claim_rollback=rng.choice([0, 0.15, 0.4]),
            retry=rng.choice([0, 0.1, 0.3]),
            release=rng.choice([0, 0.1, 0.3]),
            work=rng.choice([0, 0.1, 0.5]),
            priorities=rng.choice([(0,), (0, 0, 0, 7), tuple(range(-3, 8))]),
            sweeps=sweeps,
            slow_spots=rng.random() < 0.5,
        )
        if not sweeps:
            return plan
        return replace(
            plan,
            longest_hold=rng.choice([plan.longest_hold, 4.0]),
            sweepers=rng.choice([0, 0, 1]),
            abandon=rng.choice([0, 0.1, 0.3]),
            visibility_timeout=rng.choice([0.2, 0.5, 600.0]),
            max_attempts=rng.choice([3, 1_000_000]),
        )

    def __str__(self) -> str:
        """What differs from the usual."""
        usual = Plan(self.seed)
        told = (f"{k}={v}" for k, v in vars(self).items() if v != getattr(usual, k))
        return f"seed={self.seed} " + " ".join(told)


class Stress:
    """A run of a plan against a fresh database with the schema."""

    def __init__(self, dsn: str, plan: Plan, *faults: tuple[str, str, str]) -> None:
        self.dsn = dsn
        self.plan = plan
        self.faults = faults
        self.ledger = Ledger()
        self._going = threading.Event()
        self._failures: list[BaseException] = []

    def run(self) -> Ledger:
        """To the end: the actors stop, and one last claimer takes all that can be had."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            self._prepare(conn)
            self._act()
            if self._failures:
                raise self._failures[0]
            claim_all(self, conn, random.Random(self.plan.seed))
            self._look_at_what_is_left(conn)
        return self.ledger

    def _prepare(self, conn: Connection) -> None:
        conn.execute(
            "select pgq_sql.create_queue(%s, max_attempts => %s, retry_delay => '0',"
            " visibility_timeout => make_interval(secs => %s))",
            [QUEUE, self.plan.max_attempts, self.plan.visibility_timeout],
        )
        # Faults first: a pause may stand where a fault has its place.
        changes = [*self.faults]
        if not self.plan.sweeps:
            changes.append(NO_SWEEP)
        if self.plan.slow_spots:
            changes += SLOW_SPOTS
        for change in changes:
            patch(conn, *change)

    def _act(self) -> None:
        self._going.set()
        counts = {
            "producer": self.plan.producers,
            "claimer": self.plan.claimers,
            "holder": self.plan.holders,
            "killer": self.plan.killers,
            "renewer": self.plan.renewers,
            "sweeper": self.plan.sweepers,
            "watcher": 1,
        }
        threads = [
            threading.Thread(target=partial(self._guard, kind, number))
            for kind, count in counts.items()
            for number in range(count)
        ]
        for thread in threads:
            thread.start()
        ends = time.monotonic() + self.plan.duration
        while self._going.is_set() and time.monotonic() < ends:
            if self.plan.stop_at_fault and self.ledger.faulty():
                break
            time.sleep(0.1)
        self._going.clear()
        for thread in threads:
            thread.join()

    def _guard(self, kind: str, number: int) -> None:
        rng = random.Random(f"{self.plan.seed}/{kind}/{number}")
        actor: Actor = ACTORS[kind]
        try:
            actor(self, rng)
        except BaseException as error:
            error.add_note(f"in {kind} {number}")
            self._failures.append(error)
            self._going.clear()

    def going(self) -> bool:
        return self._going.is_set()

    def connect(self, kind: str) -> Connection:
        return psycopg.connect(self.dsn, autocommit=True, application_name=f"stress {kind}")

    def _look_at_what_is_left(self, conn: Connection) -> None:
        ledger = self.ledger
        query = (
            "select id, lease_until > clock_timestamp(), token, enqueued_at, run_at"
            " from pgq_sql.job"
        )
        for job_id, running, token, enqueued_at, run_at in rows(conn, query):
            ledger.left.add(job_id)
            if not running:
                stamp = enqueued_at if token == 0 else run_at
                stray = Stray(job_id, stamp, run_at, token, excusable=not self.plan.sweeps)
                ledger.strays.setdefault(job_id, stray)
        ledger.dead = {i for (i,) in rows(conn, "select id from pgq_sql.dead_job")}
