"""How a worker ends: what runs is finished, the rest is given back, and nothing is left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from pgq_sql import Client, Report, RunningJob, Worker
from pgq_sql._dispatcher import Dispatcher
from servers import Connection, wait_until
from working import PATIENCE, Gate, Record, running, states


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("q")
        yield client


@pytest.fixture
def greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker hold five jobs, however slow its handlers are."""
    monkeypatch.setattr(Dispatcher, "_free", property(lambda self: 5 - len(self._held)))


def test_what_runs_is_finished(client: Client, conn: Connection) -> None:
    gate = Gate()
    client.enqueue_many("q", [1, 2, 3])
    worker = Worker(client, {"q": gate}, concurrency=2)
    with running(worker):
        gate.wait(2)
        worker.stop()
        worker.stop()
        gate.open.set()
    assert worker.report == Report(claimed=2, acked=2)
    assert states(conn) == [("ready", 0)]


@pytest.mark.usefixtures("greedy")
def test_what_has_not_begun_is_given_back_at_once(client: Client, conn: Connection) -> None:
    gate = Gate()
    client.enqueue_many("q", list(range(5)))
    worker = Worker(client, {"q": gate}, concurrency=1)
    with running(worker):
        gate.wait(1)
        worker.stop()
        wait_until(lambda: worker.report.released == 4)
        assert states(conn) == [("running", 1)] + 4 * [("ready", 0)]
        gate.open.set()
    assert worker.report == Report(claimed=5, acked=1, released=4)
    # None of them lost an attempt.
    record = Record()
    Worker(client, {"q": record}).run(until_idle=True)
    assert [job.attempt for job in record.jobs] == [1, 1, 1, 1]


@pytest.mark.usefixtures("greedy")
def test_what_is_not_finished_in_time_is_given_back(client: Client, conn: Connection) -> None:
    gate, late = Gate(), threading.Event()

    def slow(job: RunningJob) -> None:
        gate(job)
        # It was told, and takes its time.
        assert job.lost.is_set()
        late.wait(PATIENCE)

    client.enqueue_many("q", list(range(5)))
    worker = Worker(client, {"q": slow}, concurrency=2, drain_timeout=timedelta(seconds=0.1))
    with running(worker):
        gate.wait(2)
    assert worker.report == Report(claimed=5, released=5)
    assert states(conn) == 5 * [("ready", 0)]
    late.set()
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("pgq-")])


def test_at_once(client: Client, conn: Connection) -> None:
    late = threading.Event()
    begun = threading.Event()

    def slow(_: RunningJob) -> None:
        begun.set()
        late.wait(PATIENCE)

    client.enqueue("q")
    worker = Worker(client, {"q": slow})
    with running(worker) as future:
        begun.wait(PATIENCE)
        worker.stop()
        assert not future.done()
        worker.stop(now=True)
        assert future.result(PATIENCE) == Report(claimed=1, left=1)
    # Its lease runs out: nothing was asked of the database any more.
    assert states(conn) == [("running", 1)]
    late.set()
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("pgq-")])


def test_an_exception_in_the_loop_gives_all_back(
    client: Client, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    client.enqueue("q")

    def interrupt(*_: object) -> None:
        gate.wait(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(Dispatcher, "_sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Worker(client, {"q": gate}).run()
    assert states(conn) == [("ready", 0)]
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("pgq-")])


SCRIPT = """
import sys, threading
from pgq_sql import Client, Worker

finish = threading.Event()

def handle(job):
    print("begun", flush=True)
    finish.wait()

class Loud(Worker):
    def stop(self, *, now=False):
        super().stop(now=now)
        print("stopping", now, flush=True)

def wait_for_word():
    sys.stdin.readline()
    finish.set()

threading.Thread(target=wait_for_word, daemon=True).start()
with Client(sys.argv[1]) as client:
    report = Loud(client, {"q": handle}, concurrency=1).run(signals=True)
print(report, flush=True)
"""


class Process:
    """A worker in a process of its own, that says what it does."""

    def __init__(self, database: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-X", "dev", "-c", SCRIPT, database],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.stderr = self.process.stderr

    def hears(self, line: str) -> None:
        assert self.stdout.readline().strip() == line

    def end(self, word: str = "") -> tuple[int, str]:
        """Let the handler finish, if there is a word; the answer is exit code and last words."""
        self.stdin.write(word)
        self.stdin.close()
        # Not communicate: it would miss what has been read ahead of the last line.
        out, err = self.stdout.read(), self.stderr.read()
        assert err == ""
        return self.process.wait(PATIENCE), out.strip()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal(client: Client, database: str, conn: Connection, number: signal.Signals) -> None:
    client.enqueue_many("q", [1, 2])
    with Process(database) as process:
        process.hears("begun")
        process.process.send_signal(number)
        process.hears("stopping False")
        assert process.end("finish\n") == (0, str(Report(claimed=1, acked=1)))
    assert states(conn) == [("ready", 0)]


def test_second_signal(client: Client, database: str, conn: Connection) -> None:
    client.enqueue("q")
    with Process(database) as process:
        process.hears("begun")
        process.process.send_signal(signal.SIGTERM)
        process.hears("stopping False")
        process.process.send_signal(signal.SIGTERM)
        process.hears("stopping True")
        assert process.process.wait(PATIENCE) == 0
        assert process.end() == (0, str(Report(claimed=1, left=1)))
    assert states(conn) == [("running", 1)]


def test_signal_just_before_the_sleep(
    client: Client, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop has looked, and is about to wait: it must not wait for another word."""
    client.enqueue("q")
    gate = Gate()
    look = Dispatcher._next_act
    told: list[bool] = []

    def interrupted(self: Dispatcher) -> float:
        answer = look(self)
        if gate.jobs and self._draining not in told:
            told.append(self._draining)
            signal.raise_signal(signal.SIGTERM)
        return answer

    monkeypatch.setattr(Dispatcher, "_next_act", interrupted)
    began = time.monotonic()
    report = Worker(client, {"q": gate}, concurrency=1).run(signals=True)
    took = time.monotonic() - began
    gate.open.set()
    assert told == [False, True]
    assert report == Report(claimed=1, left=1)
    assert took < PATIENCE
    assert states(conn) == [("running", 1)]


def test_killed_worker_loses_nothing(client: Client, database: str, conn: Connection) -> None:
    conn.execute("select pgq_sql.create_queue('short')")
    client.enqueue("q", 1)
    with Process(database) as process:
        process.hears("begun")
        process.process.kill()
        process.process.wait(PATIENCE)
    # Not before its lease has ended; here an hour passes in one statement.
    conn.execute("update pgq_sql.job set lease_until = lease_until - interval '1 hour'")
    record = Record()
    with running(Worker(client, {"q": record})):
        record.wait(1)
    assert record.jobs[0].attempt == 2


def test_handlers_of_the_process_come_back(client: Client) -> None:
    before = signal.getsignal(signal.SIGTERM)
    Worker(client, {"q": Record()}).run(signals=True, until_idle=True)
    assert signal.getsignal(signal.SIGTERM) is before


def test_signals_need_the_main_thread(client: Client) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            Worker(client, {"q": Record()}).run(signals=True)
        except ValueError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE)
    assert "main thread" in str(errors[0])
