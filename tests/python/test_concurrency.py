"""Two sessions at the same job: what the second is told, and that nothing else is left behind."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import psycopg
import pytest

from servers import wait_for_lock, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Connect
    from servers import Connection


class Lease(NamedTuple):
    job_id: int
    token: int


class Call:
    """A call in another session that has to wait; `answer` is there once it went on."""

    def __init__(self, conn: Connection, query: str, *params: object) -> None:
        self.answer: object = None
        self._thread = threading.Thread(target=self._run, args=(conn, query, params))
        self._thread.start()

    def _run(self, conn: Connection, query: str, params: tuple[object, ...]) -> None:
        try:
            self.answer = scalar(conn, query, *params)
        except psycopg.Error as error:
            self.answer = error.sqlstate

    def end(self) -> object:
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self.answer


def scalar(conn: Connection, query: str, *params: object) -> object:
    row = conn.execute(query.encode(), params).fetchone()
    return row and row[0]


@pytest.fixture
def queue(conn: Connection) -> Connection:
    conn.execute("select pgq_sql.create_queue('q', retry_delay => '0')")
    return conn


@pytest.fixture
def lease(queue: Connection) -> Lease:
    queue.execute("select pgq_sql.enqueue('q')")
    row = queue.execute("select job_id, token from pgq_sql.claim('q', 'w', 1)").fetchone()
    assert row is not None
    return Lease(*row)  # type: ignore[arg-type]


def jobs(conn: Connection) -> object:
    return scalar(conn, "select count(*) from pgq_sql.job")


@contextmanager
def held_up(first: Connection, second: Connection, watcher: Connection) -> Iterator[None]:
    """In the block the first transaction is open; at its end the second must be waiting for it."""
    with first.transaction():
        yield
        wait_for_lock(watcher, second.info.backend_pid)


ACK = "select pgq_sql.ack(%s, %s)"
RETRY = "select pgq_sql.retry(%s, %s)"
RELEASE = "select pgq_sql.release(%s, %s)"
DEAD = "select pgq_sql.dead_letter(%s, %s)"
BEAT = "select outcome from pgq_sql.heartbeat(%s, %s)"


@pytest.mark.parametrize(
    ("one", "other", "answer", "left"),
    [
        (BEAT, ACK, "acked", 0),
        (BEAT, RETRY, "retried", 1),
        (BEAT, RELEASE, "released", 1),
        (BEAT, DEAD, "dead", 0),
        (BEAT, BEAT, "extended", 1),
        (ACK, BEAT, "gone", 0),
        (ACK, ACK, "gone", 0),
        (ACK, RETRY, "gone", 0),
        (ACK, DEAD, "gone", 0),
        (RETRY, ACK, "lost", 1),
        (RETRY, BEAT, "lost", 1),
        (RELEASE, ACK, "lost", 1),
        (DEAD, ACK, "gone", 0),
        (DEAD, DEAD, "gone", 0),
    ],
)
def test_the_second_waits_and_is_told(
    lease: Lease, conn: Connection, connect: Connect, one: str, other: str, answer: str, left: int
) -> None:
    first, second = connect(), connect()
    with held_up(first, second, conn):
        scalar(first, one, *lease)
        call = Call(second, other, *lease)
    assert call.end() == answer
    assert jobs(conn) == left


@pytest.mark.parametrize("one", [ACK, RETRY, RELEASE, DEAD, BEAT])
def test_what_the_first_rolls_back_the_second_does(
    lease: Lease, conn: Connection, connect: Connect, one: str
) -> None:
    first, second = connect(), connect()
    with first.transaction(force_rollback=True):
        scalar(first, one, *lease)
        call = Call(second, ACK, *lease)
        wait_for_lock(conn, second.info.backend_pid)
    assert call.end() == "acked"
    assert jobs(conn) == 0


def test_claims_share_out_the_jobs(queue: Connection, connect: Connect) -> None:
    queue.execute("select pgq_sql.enqueue_many('q', array_fill('{}'::jsonb, array[5]))")
    first, second = connect(), connect()
    take = "select array_agg(job_id) from pgq_sql.claim('q', 'w', %s)"
    with first.transaction(force_rollback=True):
        one = scalar(first, take, 3)
        other = scalar(second, take, 10)  # waits for nobody
    assert isinstance(one, list)
    assert isinstance(other, list)
    assert len(one) == 3
    assert len(other) == 2
    assert not set(one) & set(other)
    assert scalar(second, take, 10) == one


def test_a_sweep_leaves_alone_what_is_being_acked(
    queue: Connection, conn: Connection, connect: Connect
) -> None:
    queue.execute("select pgq_sql.enqueue('q', visibility_timeout => '300 ms')")
    row = queue.execute("select job_id, token from pgq_sql.claim('q', 'w')").fetchone()
    assert row is not None
    first = connect()
    recovered = "select count from pgq_sql.sweep() where task = 'recovered'"
    with first.transaction():
        assert scalar(first, ACK, *row) == "acked"
        wait_until(lambda: scalar(conn, "select lease_until < clock_timestamp() from pgq_sql.job"))
        assert scalar(conn, recovered) == 0
    assert jobs(conn) == 0


def test_an_ack_after_the_sweep_is_told(
    queue: Connection, conn: Connection, connect: Connect
) -> None:
    queue.execute("select pgq_sql.enqueue('q', visibility_timeout => '250 ms')")
    row = queue.execute("select job_id, token from pgq_sql.claim('q', 'w')").fetchone()
    assert row is not None
    wait_until(lambda: scalar(conn, "select lease_until < clock_timestamp() from pgq_sql.job"))
    sweeper, acker = connect(), connect()
    with sweeper.transaction():
        recovered = "select count from pgq_sql.sweep() where task = 'recovered'"
        assert scalar(sweeper, recovered) == 1
        # Its lease is over: not even a lock is waited for.
        assert scalar(acker, ACK, *row) == "lost"
    assert jobs(conn) == 1


def test_two_sweeps_at_once_recover_a_job_once(
    queue: Connection, conn: Connection, connect: Connect
) -> None:
    queue.execute("select pgq_sql.enqueue('q', visibility_timeout => '250 ms')")
    queue.execute("select pgq_sql.claim('q', 'w')")
    wait_until(lambda: scalar(conn, "select lease_until < clock_timestamp() from pgq_sql.job"))
    one, other = connect(), connect()
    recovered = "select count from pgq_sql.sweep() where task = 'recovered'"
    with one.transaction():
        assert [scalar(one, recovered), scalar(other, recovered)] == [1, 0]


def test_acks_of_the_same_jobs_in_opposite_order_do_not_deadlock(
    queue: Connection, connect: Connect
) -> None:
    queue.execute("select pgq_sql.enqueue_many('q', array_fill('{}'::jsonb, array[200]))")
    leases = queue.execute("select job_id, token from pgq_sql.claim('q', 'w', 200)").fetchall()
    ids, tokens = [list(column) for column in zip(*leases, strict=True)]
    query = "select count(*) from pgq_sql.ack_many(%s, %s) where outcome = 'acked'"
    calls = [
        Call(connect(), query, ids, tokens),
        Call(connect(), query, ids[::-1], tokens[::-1]),
    ]
    answers = [call.end() for call in calls]
    assert all(isinstance(answer, int) for answer in answers)
    assert sum(answer for answer in answers if isinstance(answer, int)) == 200


def test_producers_do_not_wait_for_each_other(queue: Connection, connect: Connect) -> None:
    enqueue = "select job_id from pgq_sql.enqueue('q', priority => 7)"
    first, second = connect(), connect()
    second.execute("set lock_timeout = '1s'")
    with first.transaction():
        scalar(first, enqueue)  # the first job ever of that priority
        scalar(second, enqueue)
    assert scalar(queue, "select count(*) from pgq_sql.claim('q', 'w', 10)") == 2


@pytest.mark.parametrize(("commits", "answer"), [(True, False), (False, True)])
def test_the_second_to_create_a_queue_waits(
    conn: Connection, connect: Connect, commits: bool, answer: bool
) -> None:
    create = "select pgq_sql.create_queue('new')"
    first, second = connect(), connect()
    with first.transaction(force_rollback=not commits):
        assert scalar(first, create) is True
        call = Call(second, create)
        wait_for_lock(conn, second.info.backend_pid)
    assert call.end() is answer
    assert scalar(conn, "select count(*) from pgq_sql.queues") == 1


def notified(listener: Connection, act: Callable[[], object]) -> int:
    act()
    return len(list(listener.notifies(timeout=0.2)))


def test_only_idle_consumers_are_notified(queue: Connection, connect: Connect) -> None:
    listener, producer = connect(), connect()
    channel = scalar(listener, "select pgq_sql.wait_begin('q')")
    listener.execute(f'listen "{channel}"'.encode())

    def produce(*arguments: str) -> Callable[[], object]:
        given = ", ".join(["'q'", *arguments])
        return lambda: scalar(producer, f"select job_id from pgq_sql.enqueue({given})")

    assert notified(listener, produce()) == 1
    assert notified(listener, produce("delay => '30 s'")) == 1
    assert notified(listener, produce("delay => '2 min'")) == 0
    many = "select count(*) from pgq_sql.enqueue_many('q', array['1', '2']::jsonb[])"
    assert notified(listener, lambda: scalar(producer, many)) == 1

    scalar(listener, "select pgq_sql.wait_end('q')")
    assert notified(listener, produce()) == 0


def test_a_batch_of_acks_locks_in_id_order_whatever_its_own(
    queue: Connection, connect: Connect, conn: Connection
) -> None:
    """Two sessions with the same jobs, in different orders, wait for each other once at most."""
    scalar(
        queue, "select count(*) from pgq_sql.enqueue_many('q', array_fill('1'::jsonb, array[9]))"
    )
    rows = queue.execute("select job_id, token from pgq_sql.claim('q', 'w', 9)").fetchall()
    ids, tokens = [[row[i] for row in rows] for i in (0, 1)]
    holder, acker = connect(autocommit=False), connect()
    holder.execute("select * from pgq_sql.heartbeat(%s, %s)", [ids[0], tokens[0]])
    muddle = [[*ids[5:], *ids[:5]], [*tokens[5:], *tokens[:5]]]
    ack = "select count(*) filter (where outcome = 'acked') from pgq_sql.ack_many(%s, %s)"
    call = Call(acker, ack, *muddle)
    wait_for_lock(conn, acker.info.backend_pid)
    # It has locked none of the later jobs while it waits for the first.
    holder.execute("set local lock_timeout = '1s'")
    holder.execute("select * from pgq_sql.heartbeat_many(%s, %s)", [ids, tokens])
    holder.commit()
    assert call.end() == 9


def test_a_dead_worker_s_job_comes_with_the_first_claim_after_its_lease(
    queue: Connection, conn: Connection
) -> None:
    queue.execute("select pgq_sql.enqueue('q', visibility_timeout => '1200 ms')")
    take = "select attempt from pgq_sql.claim('q', 'w')"
    assert scalar(queue, take) == 1
    wait_until(lambda: scalar(conn, "select lease_until < clock_timestamp() from pgq_sql.job"))
    assert scalar(queue, take) == 2
