"""What the demo does: counts the lines of files, one job each, and checks that all went well."""

from __future__ import annotations

import hashlib
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from ._jobs import RunningJob
from .client import Client
from .errors import PgqError
from .worker import Report, Worker

QUEUE = "demo"
BATCH = 200
ATTEMPTS = 3
BACKOFF = timedelta(milliseconds=200)
PINGS = 20
PING_PAUSE = 0.1
"""Seconds, so that each ping finds an idle worker."""
PATIENCE = 60.0
"""Seconds without any progress, after which something is wrong."""
KEEP_DEAD = timedelta(days=1)


class Stuck(PgqError):
    """The demo has waited too long for its jobs."""


@dataclass(frozen=True)
class Counted:
    """What a job finds out about a file."""

    sha256: str
    code: int
    comment: int
    blank: int


def count_lines(path: Path) -> Counted:
    """Read a file as bytes: the standard library has some that are no text on purpose."""
    content = path.read_bytes()
    lines = [line.strip() for line in content.splitlines()]
    blank = lines.count(b"")
    comment = sum(line.startswith(b"#") for line in lines)
    digest = hashlib.sha256(content).hexdigest()
    return Counted(digest, len(lines) - blank - comment, comment, blank)


def standard_library() -> list[Path]:
    """Every Python file that came with this Python."""
    folder = Path(sysconfig.get_path("stdlib"))
    foreign = {"site-packages", "dist-packages"}
    return sorted(
        path
        for path in folder.rglob("*.py")
        if path.is_file() and foreign.isdisjoint(path.relative_to(folder).parts)
    )


@dataclass
class Work:
    """The handler and its results, which stay in memory."""

    results: dict[str, Counted] = field(default_factory=dict)
    runs: Counter[str] = field(default_factory=Counter)
    sent_at: dict[str, float] = field(default_factory=dict)
    waited: dict[str, float] = field(default_factory=dict)
    done_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def handle(self, job: RunningJob) -> None:
        """Count a file's lines; a job without a file only measures how fast it gets here."""
        begun = time.perf_counter()
        name, path = job.payload["name"], job.payload.get("path")
        counted = count_lines(Path(path)) if path else None
        with self._lock:
            self.waited[name] = begun - self.sent_at[name]
            self.runs[name] += 1
            if counted:
                self.results[name] = counted
            self.done_at = time.perf_counter()


class Demo:
    """One run of the demo against a database with the schema."""

    def __init__(self, client: Client, concurrency: int) -> None:
        self.client = client
        self.work = Work()
        self.worker = Worker(client, {QUEUE: self.work.handle}, concurrency=concurrency)
        self.report = Report()
        self.running: Future[Report] = Future()

    def prepare(self) -> None:
        """Make the queue; refuse one that somebody uses."""
        made = self.client.create_queue(QUEUE, keep_dead=KEEP_DEAD)
        if not made and self.client.next_run_at(QUEUE) is not None:
            raise PgqError(f'queue "{QUEUE}" has jobs of somebody else: run the demo elsewhere')

    def wait(self, ready: Callable[[], bool], seen: Callable[[], object]) -> None:
        """Wait until `ready`; give up when what is `seen` has not changed for a long time."""
        last, ends = seen(), time.monotonic() + PATIENCE
        while not ready():
            if self.running.done():
                self.running.result()
            if (now := seen()) != last:
                last, ends = now, time.monotonic() + PATIENCE
            elif time.monotonic() > ends:
                raise Stuck(f"nothing has happened for {PATIENCE:g} s: {self.worker.report}")
            time.sleep(0.02)

    def wait_for(
        self, names: Sequence[str], progress: Callable[[int], None] = lambda _: None
    ) -> None:
        """Wait until all of these have run."""

        def done() -> int:
            count = sum(map(self.work.runs.__contains__, names))
            progress(count)
            return count

        self.wait(lambda: done() == len(names), done)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Run the worker in a thread, and tell if it ends before its time."""
        with ThreadPoolExecutor(1, "pgq-demo") as executor:
            self.running = executor.submit(self.worker.run)
            try:
                yield
            finally:
                self.worker.stop()
            self.report = self.running.result()

    def count_files(self, paths: Sequence[Path], progress: Callable[[int], None]) -> float:
        """Enqueue the files in batches and wait for them; the answer is the jobs per second."""
        names = [str(path) for path in paths]
        begun = time.perf_counter()
        for start in range(0, len(names), BATCH):
            batch = names[start : start + BATCH]
            self.work.sent_at |= dict.fromkeys(batch, time.perf_counter())
            self.client.enqueue_many(QUEUE, [{"name": name, "path": name} for name in batch])
        self.wait_for(names, progress)
        return len(names) / (self.work.done_at - begun)

    def send(self, name: str, **options: Any) -> int:
        """Enqueue one job."""
        path = {} if name.startswith("ping") else {"path": name}
        self.work.sent_at[name] = time.perf_counter()
        return self.client.enqueue(QUEUE, {"name": name, **path}, **options).job_id

    def fail(self, missing: Path) -> tuple[int, str]:
        """Send the job of a file that isn't there; the answer is its attempts and its error."""
        job_id = self.send(str(missing), max_attempts=ATTEMPTS, retry_delay=BACKOFF)
        self.wait(lambda: self.worker.report.dead > 0, lambda: self.worker.report)
        with self.client._borrow() as conn:
            query = self.client._statements.fill(
                "select attempt, error from {schema}.dead_jobs where job_id = %(job_id)s"
            )
            attempts, error = self.client._run(conn, query, {"job_id": job_id}).fetchall()[0]
        return attempts, error.partition(":")[0]

    def ping(self) -> list[float]:
        """Send single jobs to the idle worker; the answer is how long each took to start."""
        names = [f"ping {number}" for number in range(PINGS)]
        for name in names:
            time.sleep(PING_PAUSE)
            self.send(name)
            self.wait_for([name])
        return [self.work.waited[name] for name in names]

    def mistakes(self, names: Sequence[str]) -> list[str]:
        """What is not as it must be, when the worker has ended; nothing, if all is well."""
        expected = Report(
            claimed=len(names) + ATTEMPTS + PINGS,
            acked=len(names) + PINGS,
            retried=ATTEMPTS - 1,
            dead=1,
        )
        found = [f"{name} was counted {n} times" for name, n in self.work.runs.items() if n != 1]
        found += [f"{name} was not counted" for name in names if name not in self.work.results]
        if self.report != expected:
            found.append(f"the worker reports {self.report}, not {expected}")
        if self.client.next_run_at(QUEUE) is not None:
            found.append("there are jobs left in the queue")
        return found
