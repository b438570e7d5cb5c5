"""Workers to measure: how their queues are made and filled, and how one is run.

Each runs in a process of its own (worker_main.py) and on a database of its own.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO

from contenders import OURS, PAYLOAD

PROGRAM = Path(__file__).with_name("worker_main.py")
PATIENCE = 60.0
"""Seconds in which a worker must show that it does something."""


@dataclass(frozen=True)
class Subject:
    """A worker, and the queue it works on."""

    name: str
    worker: str
    """Its name in worker_main.py."""
    schema: Callable[[], str] = lambda: OURS.setup
    fill: str = OURS.fill
    table: str = OURS.table
    """What is done is deleted from it."""
    needs: tuple[str, ...] = ()
    """Packages that are not ours."""

    @property
    def setup(self) -> str:
        """Makes the queue."""
        return self.schema()

    @property
    def installed(self) -> bool:
        """Whether it can be run here."""
        return all(map(importlib.util.find_spec, self.needs))


class Running:
    """A worker that runs."""

    def __init__(self, name: str, process: subprocess.Popen[str], errors: IO[str]) -> None:
        self.pid = process.pid
        self._name = name
        self._lines = process.stdout
        self._errors = errors
        self._told: SimpleQueue[str] = SimpleQueue()

    def told(self, patience: float = PATIENCE) -> tuple[float, float]:
        """When a handler was called, on the monotonic clock, and the processor time until then."""
        try:
            line = self._told.get(timeout=patience)
        except Empty:
            raise RuntimeError(f"{self._name}: no job for {patience:.0f} s") from None
        if not line:
            self._errors.seek(0)
            raise RuntimeError(f"{self._name} has ended:\n{self._errors.read()}")
        called, worked = line.split()
        return float(called), float(worked)

    def listen(self) -> None:
        """Hear what it writes, until it ends."""
        for line in self._lines or ():
            self._told.put(line)
        self._told.put("")


@contextmanager
def running(subject: Subject, dsn: str, jobs: int) -> Iterator[Running]:
    """Run it; its handlers tell of the first and the last of so many jobs, or of each if 0."""
    command = [sys.executable, str(PROGRAM), subject.worker, dsn, str(jobs)]
    with (
        # A file: a pipe that nobody reads could fill up.
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        worker = Running(subject.name, process, errors)
        ear = threading.Thread(target=worker.listen, daemon=True)
        ear.start()
        try:
            yield worker
        finally:
            process.terminate()
            ear.join(PATIENCE)
            process.kill()  # if it did not end


def _pgqueuer_schema() -> str:
    # The autovacuum settings are on its checklist for throughput. Durable, as all others are.
    from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment

    queries = QueryBuilderEnvironment()
    return queries.build_install_query() + queries.build_optimize_autovacuum_query()


def _procrastinate_schema() -> str:
    from procrastinate.schema import SchemaManager

    return f"set client_min_messages = warning;\n{SchemaManager.get_schema()}"


BARE = Subject("bare", "bare")
LISTENER = Subject(
    "bare",
    "bare listener",
    schema=lambda: (
        "create table bare (id bigint generated always as identity primary key,"
        " payload jsonb not null)"
    ),
    table="bare",
)
ASYNC = Subject("ours", "ours")
BATCHES = Subject("ours, batch handler", "ours, batches")
THREADS = Subject("ours, Worker", "ours, threads")
PGQUEUER = Subject(
    "pgqueuer",
    "pgqueuer",
    schema=_pgqueuer_schema,
    # It logs each job that is enqueued.
    fill=f"""
with new as (
  insert into pgqueuer (priority, entrypoint, payload, status)
  select 0, 'bench', {PAYLOAD}::bytea, 'queued' from generate_series(1, %s)
  returning id, priority, entrypoint)
insert into pgqueuer_log (job_id, status, entrypoint, priority)
select id, 'queued', entrypoint, priority from new
""",
    table="pgqueuer",
    needs=("pgqueuer", "asyncpg", "uvloop"),
)
PGQUEUER_TUNED = replace(PGQUEUER, name="pgqueuer, tuned", worker="pgqueuer, tuned")
PGQUEUER_ONE = replace(PGQUEUER, worker="pgqueuer, one")
PROCRASTINATE = Subject(
    "procrastinate",
    "procrastinate",
    schema=_procrastinate_schema,
    fill=f"""
insert into procrastinate_jobs (queue_name, task_name, args)
select 'default', 'bench', {PAYLOAD} from generate_series(1, %s)
""",
    table="procrastinate_jobs",
    needs=("procrastinate", "uvloop"),
)
