"""Workers in processes of their own, under load, and one who torments them and their server.

`chaos_handlers` is what they run, `chaos_ledger` what is counted. The seed fixes who is struck
when, not how things interleave.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psycopg

from chaos_ledger import Tally, count, watch
from pgq_sql import Client
from servers import wait_until

if TYPE_CHECKING:
    from chaos_server import PrivateServer
    from servers import Connection

HERE = Path(__file__).parent
LEASE = 2.0
STOPPED = 1.75 * LEASE
"""Seconds that a worker is stopped: past its leases."""
QUEUES = ("exact", "loose", "hand")
LISTENER = "chaos-listener"

Kind = Literal["threads", "tasks", "hand"]
KINDS: tuple[Kind, ...] = ("hand", "threads", "tasks")
FAULTS = {
    "worker killed": 4,
    "worker stopped": 4,
    "listeners ended": 3,
    "all sessions ended": 3,
    "restart fast": 1,
    "restart immediate": 1,
}
"""What is done, and how likely it is."""


@dataclass(frozen=True)
class Plan:
    """What a run is made of. Times are in seconds."""

    seed: int
    script: tuple[str, ...]
    """The faults, in order."""
    every: float = 1.2
    """From one to the next, on average."""
    workers: int = 2
    """Of each kind."""
    producers: int = 2
    pause: float = 0.04
    """Between two transactions of a producer."""
    patience: float = 90.0
    """How long all may take to come right once there is quiet."""

    @classmethod
    def drawn(cls, seed: int, duration: float, **options: Any) -> Plan:
        """Faults that a seed chooses; each kind comes at least once."""
        rng = random.Random(f"chaos/{seed}")
        plan = cls(seed, (), **options)
        more = max(0, int(duration / plan.every) - len(FAULTS))
        script = [*FAULTS, *rng.choices([*FAULTS], [*FAULTS.values()], k=more)]
        rng.shuffle(script)
        return cls(seed, tuple(script), **options)


@dataclass
class Process:
    """A worker."""

    kind: Kind
    label: str
    popen: subprocess.Popen[bytes]
    log: Path
    goes_on_at: float | None = None
    """It is stopped until then."""


@dataclass
class Chaos:
    """One run in a fresh database with the schema."""

    private: PrivateServer
    dbname: str
    plan: Plan
    folder: Path
    """For what the workers say."""
    tally: Tally = field(default_factory=Tally)
    workers: list[Process] = field(default_factory=list)
    stopped: set[str] = field(default_factory=set)
    _failures: list[BaseException] = field(default_factory=list)
    _pause: float = 0.0
    _made: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(f"chaos/{self.plan.seed}/run")
        server = self.private.server
        self.dsn = server.dsn(self.dbname, server.owner)

    def run(self) -> Tally:
        """Faults, then quiet, in which all has to come right."""
        with self._connect() as conn:
            watch(conn)
            for queue in QUEUES:
                conn.execute(
                    "select pgq_sql.create_queue(%s, max_attempts => 1000, retry_delay => '100 ms',"
                    " retry_backoff => 'fixed', visibility_timeout => make_interval(secs => %s))",
                    [queue, LEASE],
                )
        try:
            with self._producing():
                for kind in KINDS:
                    for _ in range(self.plan.workers):
                        self._start(kind)
                self._all_work("at the start")
                self._torment()
                self._all_work("after the last fault")
            self._queues_empty()
            self._stop_all()
        finally:
            for worker in self.workers:
                worker.popen.kill()
                worker.popen.wait()
        if self._failures:
            raise self._failures[0]
        with self._connect() as conn:
            count(conn, self.tally, self.stopped)
        return self.tally

    def _connect(self) -> Connection:
        return psycopg.connect(self.dsn, autocommit=True, application_name="chaos")

    # Who takes part

    def _start(self, kind: Kind) -> None:
        self._made += 1
        label = f"{kind}-{self._made}"
        dsn = f"{self.dsn}&application_name={label}"
        command = [sys.executable, "-W", "ignore"]
        if kind == "hand":
            command += ["chaos_handlers.py"]
        else:
            command += ["-m", "pgq_sql.cli", "worker", f"chaos_handlers:{kind.upper()}"]
            command += ["--dsn", dsn, "--worker", label, "--concurrency", "4"]
            command += ["--listener-dsn", f"{self.dsn}&application_name={LISTENER}"]
            command += ["--poll-interval", "1s", "--log-level", "warning"]
        log = self.folder / f"{label}.log"
        with log.open("w") as output:
            popen = subprocess.Popen(
                command,
                cwd=HERE,
                env={**os.environ, "CHAOS_DSN": dsn, "CHAOS_LABEL": label},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self.workers.append(Process(kind, label, popen, log))

    @contextmanager
    def _producing(self) -> Iterator[None]:
        going = threading.Event()
        going.set()
        self._pause = self.plan.pause
        threads = [
            threading.Thread(target=self._produce, args=(number, going))
            for number in range(self.plan.producers)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            going.clear()
            for thread in threads:
                thread.join()

    def _produce(self, number: int, going: threading.Event) -> None:
        rng = random.Random(f"chaos/{self.plan.seed}/producer/{number}")
        try:
            with Client(self.dsn) as client:
                while going.is_set():
                    with suppress(psycopg.OperationalError), self._connect() as conn:
                        while going.is_set():
                            enqueue(client, conn, rng)
                            time.sleep(self._pause)
                    time.sleep(0.05)
        except BaseException as error:
            self._failures.append(error)

    # What is done to them

    def _torment(self) -> None:
        actions: dict[str, Callable[[], int]] = {
            "worker killed": self._kill_one,
            "worker stopped": self._stop_one,
            "listeners ended": lambda: self._end_sessions("application_name = %s", [LISTENER]),
            "all sessions ended": lambda: self._end_sessions("pid <> pg_backend_pid()", []),
            "restart fast": lambda: self._restart("fast"),
            "restart immediate": lambda: self._restart("immediate"),
        }
        for name in self.plan.script:
            if struck := actions[name]():
                self.tally.faults[name] += 1
                self.tally.sessions += struck if "ended" in name else 0
            next_at = time.monotonic() + self.rng.uniform(0.3, 1.7) * self.plan.every
            while time.monotonic() < next_at:
                self._let_go_on()
                time.sleep(0.05)
        while any(worker.goes_on_at for worker in self.workers):
            self._let_go_on()
            time.sleep(0.05)

    def _pick(self, kind: Kind) -> Process | None:
        """One that goes on; rather one that holds a claim at this moment."""
        going = [one for one in self.workers if one.kind == kind and one.goes_on_at is None]
        busy: list[Process] = []
        with self.private.server.admin(self.dbname) as admin, suppress(AssertionError):

            def found() -> list[Process]:
                rows = admin.execute("select distinct worker from pgq_sql.job").fetchall()
                busy[:] = [one for one in going if (one.label,) in rows]
                return busy

            wait_until(found, 2 if going else 0)
        return self.rng.choice(busy or going or [None])

    def _kill_one(self) -> int:
        worker = self._pick(self.rng.choice(KINDS))
        if worker is None:
            return 0
        self._note_the_ended()
        worker.popen.send_signal(signal.SIGKILL)
        worker.popen.wait()
        self.workers.remove(worker)
        self._start(worker.kind)
        return 1

    def _stop_one(self) -> int:
        # In turn, those that will not know better first.
        worker = self._pick(KINDS[self.tally.faults["worker stopped"] % len(KINDS)])
        if worker is None:
            return 0
        worker.popen.send_signal(signal.SIGSTOP)
        worker.goes_on_at = time.monotonic() + STOPPED
        self.stopped.add(worker.label)
        return 1

    def _let_go_on(self) -> None:
        for worker in self.workers:
            if worker.goes_on_at is not None and worker.goes_on_at < time.monotonic():
                worker.popen.send_signal(signal.SIGCONT)
                worker.goes_on_at = None

    def _end_sessions(self, which: str, values: list[str]) -> int:
        with self.private.server.admin(self.dbname) as admin:
            ended = admin.execute(
                b"select pg_terminate_backend(pid) from pg_stat_activity"
                b" where datname = current_database() and backend_type = 'client backend' and "
                + which.encode(),
                values,
            )
            return ended.rowcount

    def _restart(self, mode: Literal["fast", "immediate"]) -> int:
        self.private.restart(mode)
        return 1

    # What must come of it

    def _note_the_ended(self) -> None:
        for worker in self.workers:
            code = worker.popen.poll()
            if code is not None and worker.label not in self.tally.ended:
                self.tally.ended.append(worker.label)

    def _all_work(self, when: str) -> None:
        """Each process works by itself again: what it does now is noted under its number."""
        self._pause = 0.1
        with self._connect() as conn:
            ((since,),) = conn.execute("select clock_timestamp()").fetchall()

            def mute() -> list[str]:
                self._note_the_ended()
                rows = conn.execute("select distinct pid from chaos.effect where at > %s", [since])
                back = {pid for (pid,) in rows}
                labels = (one.label for one in self.workers if one.popen.pid not in back)
                return [label for label in labels if label not in self.tally.ended]

            with suppress(AssertionError):
                wait_until(lambda: not mute(), self.plan.patience)
            self.tally.mute = [f"{label} {when}" for label in mute()]
        self._pause = self.plan.pause
        if self.tally.mute:
            raise AssertionError("\n".join(self.explain()))

    def _queues_empty(self) -> None:
        with self._connect() as conn, suppress(AssertionError):
            wait_until(
                lambda: not conn.execute("select from pgq_sql.job limit 1").fetchall(),
                self.plan.patience,
            )

    def _stop_all(self) -> None:
        self._note_the_ended()
        for worker in self.workers:
            worker.popen.send_signal(signal.SIGTERM)
        for worker in self.workers:
            if worker.popen.wait(self.plan.patience) != 0:
                self.tally.ended.append(worker.label)

    def explain(self) -> list[str]:
        """What is wrong, and the last words of those concerned."""
        lines = [f"{name}: {value}" for name, value in self.tally.wrong().items()]
        told = {label.split()[0] for label in (*self.tally.ended, *self.tally.mute)}
        for worker in self.workers:
            if worker.label in told:
                lines += [f"{worker.label}, exit code {worker.popen.poll()}:"]
                lines += [f"  {line}" for line in worker.log.read_text().splitlines()[-15:]]
        return lines


def enqueue(client: Client, conn: Connection, rng: random.Random) -> None:
    """A few jobs, noted in the same transaction; some are rolled back."""
    (queue,) = rng.choices(QUEUES, (4, 4, 1))
    moods, works = [*["good"] * 40, "fails", "waits", "snoozes", "dies"], [0, 0.02, 0.1, 0.3]
    if queue == "hand":
        moods, works = ["good"], [0.1, 0.2]
    payloads = [
        {"mood": rng.choice(moods), "work": rng.choice(works)} for _ in range(rng.randint(1, 4))
    ]
    with conn.transaction(force_rollback=rng.random() < 0.05):
        made = client.enqueue_many(queue, payloads, conn=conn)
        conn.execute(
            "insert into chaos.wanted select unnest(%s::bigint[]), %s",
            [[one.job_id for one in made], queue],
        )
