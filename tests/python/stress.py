"""Producers and claimers that misbehave, and a check that no job was lost, doubled or stranded.

Producers keep transactions open, roll them back, wholly or to a savepoint, and use every
isolation level. Claimers roll back, retry, release. A job is *stranded* if it is ready and yet no
claim finds it: the fault that a wrong mark causes. The seed fixes what each actor does, not how
they interleave.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import psycopg

QUEUE = "stress"
OPEN_TOO_LONG = 1.9
"""Seconds after which a mark passes an open producer, with a margin."""


@dataclass(frozen=True)
class Plan:
    """What a run is made of. Times are in seconds."""

    seed: int
    duration: float = 5.0
    producers: int = 6
    claimers: int = 4
    longest_hold: float = 0.8
    claim_isolation: tuple[str, ...] = ("read committed",)
    claim_rollback: float = 0.15
    patience: float = 0.8
    priorities: tuple[int, ...] = (0, 0, 0, 7)


@dataclass
class Outcome:
    """What came of it; `stranded` holds the ids of jobs that are ready but cannot be claimed."""

    committed: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)
    claims: Counter[tuple[int, int]] = field(default_factory=Counter)
    claimed_after_ack: int = 0
    stranded: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    slow: set[int] = field(default_factory=set)
    """Of producers that were open too long: marks may pass these, for sweeps to find."""

    @property
    def lost(self) -> set[int]:
        return self.committed - self.acked - self.left

    @property
    def unexpected(self) -> set[int]:
        return (self.acked | self.left) - self.committed

    @property
    def doubled(self) -> list[tuple[int, int]]:
        return [lease for lease, times in self.claims.items() if times > 1]

    def faults(self) -> dict[str, int]:
        return {
            "lost": len(self.lost),
            "unexpected": len(self.unexpected),
            "doubled": len(self.doubled) + self.claimed_after_ack,
            "stranded": len(self.stranded - self.slow),
        }


class Stress:
    """One run of a plan against a database with the schema."""

    def __init__(self, dsn: str, plan: Plan) -> None:
        self.dsn = dsn
        self.plan = plan
        self.outcome = Outcome()
        self._lock = threading.Lock()
        self._producing = threading.Event()
        self._failures: list[BaseException] = []

    def run(self) -> Outcome:
        """Runs to the end: producers stop, claimers claim until nothing more comes."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute(
                "select pgq_sql.create_queue(%s, visibility_timeout => '10 min',"
                " max_attempts => 1000000, retry_delay => '0')",
                [QUEUE],
            )
        self._producing.set()
        producers = self._start(self.plan.producers, self._produce)
        claimers = self._start(self.plan.claimers, self._claim)
        time.sleep(self.plan.duration)
        self._producing.clear()
        for thread in producers + claimers:
            thread.join()
        if self._failures:
            raise self._failures[0]
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            for job_id, ready in conn.execute(
                "select id, lease_until is null and run_at <= clock_timestamp() from pgq_sql.job"
            ):
                (self.outcome.stranded if ready else self.outcome.left).add(job_id)
        self.outcome.left |= self.outcome.stranded
        return self.outcome

    def _start(self, count: int, target: object) -> list[threading.Thread]:
        def guarded(number: int) -> None:
            try:
                target(random.Random(f"{self.plan.seed}/{target}/{number}"))  # type: ignore[operator]
            except BaseException as error:
                self._failures.append(error)
                self._producing.clear()

        threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
        for thread in threads:
            thread.start()
        return threads

    def _produce(self, rng: random.Random) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            while self._producing.is_set():
                isolation = rng.choice(["read committed"] * 3 + ["repeatable read", "serializable"])
                conn.execute(f"begin isolation level {isolation}".encode())
                began = time.monotonic()
                try:
                    ids = self._transaction(conn, rng)
                    give_up = rng.random() < 0.15
                    conn.execute("rollback" if give_up else "commit")
                except psycopg.errors.SerializationFailure:
                    conn.execute("rollback")
                    continue
                if not give_up:
                    with self._lock:
                        self.outcome.committed.update(ids)
                        if time.monotonic() - began > OPEN_TOO_LONG:
                            self.outcome.slow.update(ids)

    def _transaction(self, conn: psycopg.Connection, rng: random.Random) -> list[int]:
        ids: list[int] = []
        for _ in range(rng.randint(1, 4)):
            if rng.random() < 0.2:
                conn.execute("savepoint s")
                self._enqueue(conn, rng)
                conn.execute("rollback to savepoint s")
            ids += self._enqueue(conn, rng)
            if rng.random() < 0.3:
                time.sleep(rng.uniform(0, 0.15))
        if rng.random() < 0.2:
            time.sleep(rng.uniform(0, self.plan.longest_hold))
        return ids

    def _enqueue(self, conn: psycopg.Connection, rng: random.Random) -> list[int]:
        priority = rng.choice(self.plan.priorities)
        delay = rng.choice([None, None, "0", "30 ms", "200 ms"])
        if rng.random() < 0.7:
            rows = conn.execute(
                "select job_id from pgq_sql.enqueue(%s, '{}', priority => %s, delay => %s)",
                [QUEUE, priority, delay],
            )
        else:
            n = rng.randint(1, 5)
            rows = conn.execute(
                "select job_id from pgq_sql.enqueue_many(%s, array_fill('{}'::jsonb, array[%s]),"
                " priorities => %s::int[], delays => %s::interval[])",
                [QUEUE, n, [rng.choice(self.plan.priorities) for _ in range(n)], [delay] * n],
            )
        return [job_id for (job_id,) in rows]

    def _claim(self, rng: random.Random) -> None:
        last_found = time.monotonic()
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            while time.monotonic() < last_found + self.plan.patience:
                if self._claim_once(conn, rng) or self._producing.is_set():
                    last_found = time.monotonic()
                else:
                    time.sleep(0.02)

    def _claim_once(self, conn: psycopg.Connection, rng: random.Random) -> bool:
        isolation = rng.choice(self.plan.claim_isolation)
        conn.execute(f"begin isolation level {isolation}".encode())
        try:
            if isolation != "read committed":
                conn.execute("select")  # the snapshot is taken here
                time.sleep(rng.uniform(0, 0.3))
            leases = conn.execute(
                "select job_id, token from pgq_sql.claim(%s, 'stress', %s)",
                [QUEUE, rng.randint(1, 20)],
            ).fetchall()
            if rng.random() < 0.4:
                time.sleep(rng.uniform(0, 0.1))
            give_up = rng.random() < self.plan.claim_rollback
            conn.execute("rollback" if give_up else "commit")
        except psycopg.errors.SerializationFailure:
            conn.execute("rollback")
            return True
        if leases and not give_up:
            self._settle(conn, rng, leases)
        return bool(leases)

    def _settle(
        self, conn: psycopg.Connection, rng: random.Random, leases: list[tuple[int, int]]
    ) -> None:
        with self._lock:
            self.outcome.claims.update(leases)
            self.outcome.claimed_after_ack += sum(i in self.outcome.acked for i, _ in leases)
        verb = rng.choices(["ack_many", "retry_many", "release_many"], [8, 1, 1])[0]
        answers = conn.execute(
            f"select job_id, outcome from pgq_sql.{verb}(%s, %s)".encode(),
            [[i for i, _ in leases], [t for _, t in leases]],
        ).fetchall()
        if verb == "ack_many":
            with self._lock:
                self.outcome.acked.update(i for i, outcome in answers if outcome == "acked")
