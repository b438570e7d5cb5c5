"""Producers with one dedup key meet each other, and whoever has or ends the job that holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interleaving import Place, Race, Stage, meet, say, staged
from servers import wait_for_lock
from test_concurrency import Call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server

CLAIM = "job_id from claim('q', 'w')"
ACK = "ack(1, 1)"
BEAT = "outcome from heartbeat(1, 1)"
CANCEL = "cancel(1)"
DROP = "drop_queue('q', true)"
DROPPED = "count from sweep() where task = 'dropped'"
PURGE = "purge_queue('q')"
KEEP = "outcome from enqueue('q', '2', dedup_key => 'k')"
REPLACE = "outcome from enqueue('q', '2', dedup_key => 'k', dedup_mode => 'replace')"
PAYLOAD = "payload from jobs where dedup_key = 'k' order by job_id desc"

READY = [(1, "ready", 0, 0)]
RUNNING = [(1, "running", 1, 1)]
SECOND = [(2, "ready", 0, 0)]
NONE: list[Place] = []

held = ["enqueue('q', '1', dedup_key => 'k')"]
running = [*held, CLAIM]


@pytest.fixture(scope="module")
def opened(server: Server, template: str) -> Iterator[Stage]:
    with staged(server, template) as stage:
        yield stage


@pytest.fixture
def stage(opened: Stage) -> Stage:
    return opened.fresh("create_queue('q', retry_delay => '0')")


FIRST = "outcome from enqueue('q', '1', dedup_key => 'k')"


@pytest.mark.parametrize(
    ("step", "isolation", "commits", "hears", "ends", "payload"),
    [
        (KEEP, "read committed", True, "existing", READY, 1),
        (KEEP, "read committed", False, "inserted", SECOND, 2),
        (KEEP, "repeatable read", True, "40001", READY, 1),
        (KEEP, "repeatable read", False, "inserted", SECOND, 2),
        (REPLACE, "read committed", True, "replaced", READY, 2),
        (REPLACE, "read committed", False, "inserted", SECOND, 2),
        (REPLACE, "repeatable read", True, "40001", READY, 1),
        (REPLACE, "repeatable read", False, "inserted", SECOND, 2),
    ],
)
def test_the_second_with_a_key_waits_for_the_first(
    stage: Stage,
    step: str,
    isolation: str,
    commits: bool,
    hears: str,
    ends: list[Place],
    payload: int,
) -> None:
    after = {PAYLOAD: payload, KEEP: "existing"}
    stage.race(
        Race(
            [],
            FIRST,
            step,
            hears,
            ends,
            commits=commits,
            waits=True,
            then=after,
            isolation=isolation,
        )
    )
    assert stage.held() == [("k", ends[0][0])]


@pytest.mark.parametrize("first", [KEEP, REPLACE])
@pytest.mark.parametrize("second", [KEEP, REPLACE])
def test_the_second_with_a_key_rolls_back(stage: Stage, first: str, second: str) -> None:
    one, other = stage.session(), stage.session()
    with other.transaction(force_rollback=True):
        heard = meet(stage.conn, (one, first), (other, second), commits=True, waits=True)
        assert heard == ("existing" if second == KEEP else "replaced")
    assert stage.places() == READY
    assert stage.held() == [("k", 1)]


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("step", [KEEP, REPLACE])
def test_a_key_whose_job_is_being_replaced(
    stage: Stage, step: str, commits: bool, isolation: str
) -> None:
    replace = REPLACE.replace("'2'", "'3'")
    hears = "existing" if step == KEEP else "replaced"
    last = 2 if step == REPLACE else 3 if commits else 1
    if commits and isolation != "read committed":
        hears, last = "40001", 3
    stage.race(
        Race(
            held,
            replace,
            step,
            hears,
            READY,
            commits=commits,
            waits=True,
            then={PAYLOAD: last},
            isolation=isolation,
        )
    )
    assert stage.held() == [("k", 1)]


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("step", [KEEP, REPLACE])
@pytest.mark.parametrize(
    ("given", "ends"),
    [(running, ACK), (running, CANCEL), (running, "dead_letter(1, 1)"), (held, PURGE)],
)
def test_a_key_whose_job_is_being_ended(
    stage: Stage, given: list[str], ends: str, step: str, commits: bool
) -> None:
    hears = "inserted"
    left = NONE if ends != "dead_letter(1, 1)" else [(1, "dead", 1, 1)]
    left = [*left, *SECOND]
    if not commits:
        hears = "existing" if step == KEEP else "replaced" if ends == PURGE else "inserted"
        left = READY if ends == PURGE else RUNNING if step == KEEP else [*RUNNING, *SECOND]
    stage.race(Race(given, ends, step, hears, left, commits=commits, waits=True))
    assert stage.held() == [("k", left[-1][0])]


@pytest.mark.parametrize(
    "race",
    [
        Race(held, REPLACE, CLAIM, None, RUNNING, then={CLAIM: 1, PAYLOAD: 2}),
        Race(held, REPLACE, CLAIM, None, RUNNING, commits=False, then={CLAIM: 1, PAYLOAD: 1}),
        Race(held, CLAIM, REPLACE, "inserted", [*RUNNING, *SECOND], waits=True),
        Race(
            held,
            CLAIM,
            REPLACE,
            "replaced",
            READY,
            commits=False,
            waits=True,
            then={PAYLOAD: 2},
        ),
        Race(held, CLAIM, REPLACE, "40001", RUNNING, waits=True, isolation="repeatable read"),
    ],
    ids=str,
)
def test_a_replacement_meets_a_claim(stage: Stage, race: Race) -> None:
    stage.race(race)
    assert stage.held() == [("k", race.ends[-1][0])]


SUSPENDED = [(1, "suspended", 0, 0)]
scheduled = ["enqueue('q', '1', dedup_key => 'k', delay => '1 hour')"]
suspended = [*held, "suspend(1)"]


@pytest.mark.parametrize(
    "race",
    [
        # The row that they waited for is gone, and the job is there all the same.
        Race(held, REPLACE, CANCEL, "cancelled", NONE, waits=True),
        Race(held, REPLACE, CANCEL, "cancelled", NONE, commits=False, waits=True),
        Race(held, REPLACE, "suspend(1)", "suspended", SUSPENDED, waits=True),
        Race(held, REPLACE, "reprioritize(1, 5)", "reprioritized", READY, waits=True),
        Race(scheduled, REPLACE, "promote(1)", "promoted", READY, waits=True),
        Race(suspended, REPLACE, "resume(1)", "resumed", READY, waits=True),
        Race(held, CANCEL, REPLACE, "inserted", SECOND, waits=True),
        Race(held, "suspend(1)", REPLACE, "replaced", SUSPENDED, waits=True),
        Race(suspended, "resume(1)", REPLACE, "replaced", READY, waits=True),
        Race(scheduled, "promote(1)", REPLACE, "replaced", READY, waits=True),
        Race(held, "reprioritize(1, 5)", REPLACE, "replaced", READY, waits=True),
    ],
    ids=str,
)
def test_a_replacement_meets_whoever_controls_the_job(stage: Stage, race: Race) -> None:
    stage.race(race)
    assert stage.held() == [("k", job_id) for job_id, *_ in race.ends]
    if race.ends:
        assert stage.say(PAYLOAD) == 2


def test_a_replaced_job_keeps_its_fence(stage: Stage) -> None:
    given = [*running, "release(1, 1)"]
    after = {CLAIM: 1, ACK: "lost", "ack(1, 2)": "acked"}
    stage.race(Race(given, REPLACE, CLAIM, None, NONE, then=after))


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize(
    ("step", "hears", "ends"),
    [
        (BEAT, "extended", RUNNING),
        (ACK, "acked", NONE),
        ("retry(1, 1, null, '1 hour')", "retried", [(1, "scheduled", 1, 1)]),
        ("release(1, 1)", "released", [(1, "ready", 0, 1)]),
        ("dead_letter(1, 1)", "dead", [(1, "dead", 1, 1)]),
        (CANCEL, "cancelled", NONE),
    ],
)
def test_a_running_job_does_not_wait_for_the_producer_of_its_successor(
    stage: Stage, step: str, hears: str, ends: list[Place], commits: bool
) -> None:
    after = [*ends, *SECOND] if commits else ends
    stage.race(Race(running, REPLACE, step, hears, after, commits=commits))
    lives = bool(ends) and ends[0][1] != "dead"
    assert stage.held() == ([("k", 2)] if commits else [("k", 1)] if lives else [])
    assert stage.say(KEEP) == ("existing" if commits or lives else "inserted")


@pytest.mark.parametrize("commits", [True, False])
def test_two_successors_of_a_running_job(stage: Stage, commits: bool) -> None:
    """The second replaces the first, if that is there; never do two wait with one key."""
    hears = "replaced" if commits else "inserted"
    waiting = (2 if commits else 3, "ready", 0, 0)
    stage.race(
        Race(running, REPLACE, REPLACE, hears, [*RUNNING, waiting], commits=commits, waits=True)
    )
    assert stage.held() == [("k", waiting[0])]


def test_two_replacements_of_a_job_that_is_given_back_meanwhile(stage: Stage) -> None:
    """The latest payload wins: no two jobs wait that each came as the key's only one."""
    stage.say(*running)
    holder, second, third = stage.session(), stage.session(), stage.session()
    with holder.transaction():
        # Holds the producers up behind the point at which each has seen who has the key.
        holder.execute("select from dedup for update")
        one = Call(second, "select " + REPLACE.replace("'2'", "'3'"))
        wait_for_lock(stage.conn, second.info.backend_pid)
        assert stage.say("release(1, 1)") == "released"
        other = Call(third, "select " + REPLACE.replace("'2'", "'4'"))
        wait_for_lock(stage.conn, third.info.backend_pid)
    assert one.end() in ("replaced", "inserted")
    assert other.end() == "replaced"
    rows = stage.conn.execute("select job_id from jobs where payload in ('3', '4')").fetchall()
    assert len(rows) == 1
    assert stage.held() == [("k", rows[0][0])]


def many(keys: str, payloads: str, mode: str = "ignore") -> str:
    return (
        "string_agg(outcome, ' ' order by ordinal) from enqueue_many('q',"
        f" '{{{payloads}}}'::jsonb[], dedup_keys => '{{{keys}}}', dedup_mode => '{mode}')"
    )


@pytest.mark.parametrize("mode", ["ignore", "replace"])
@pytest.mark.parametrize("commits", [True, False])
def test_batches_with_the_same_keys_in_opposite_orders(
    stage: Stage, mode: str, commits: bool
) -> None:
    again = "existing existing" if mode == "ignore" else "replaced replaced"
    hears = again if commits else "inserted inserted"
    first = 1 if commits else 3
    ends = [(first, "ready", 0, 0), (first + 1, "ready", 0, 0)]
    one, other = many("a,b", "1,2", mode), many("b,a", "3,4", mode)
    stage.race(Race([], one, other, hears, ends, commits=commits, waits=True))


@pytest.mark.parametrize(
    ("given", "held_up", "first"),
    [
        ("waiting", "from job where id = 1 for update", "replaced"),
        ("waiting", "from dedup where key = 'a' for update", "replaced"),
        ("running", "from dedup where key = 'a' for update", "inserted"),
        ("finished", "from dedup where key = 'a' for update", "inserted"),
    ],
)
@pytest.mark.parametrize("mode", ["ignore", "replace"])
def test_batches_in_opposite_orders_that_are_stopped_halfway(
    stage: Stage, mode: str, given: str, held_up: str, first: str
) -> None:
    stage.say(many("a,m,z", "1,2,3"))
    if given in ("running", "finished"):
        stage.say("claim('q', 'w', 3)")
    if given == "finished":
        # Such rows are left where a job ends while its successor's producer is open.
        stage.conn.execute("delete from job")
    holder, second, third = stage.session(), stage.session(), stage.session()
    waits = mode == "replace" or given == "finished"
    with holder.transaction():
        holder.execute(f"select {held_up}".encode())
        one = Call(second, "select " + many("a,m,z", "5,6,7", mode))
        if waits:
            wait_for_lock(stage.conn, second.info.backend_pid)
        other = Call(third, "select " + many("z,m,a", "8,9,10", mode))
        if waits:
            wait_for_lock(stage.conn, third.info.backend_pid)
    answers = [str(call.end()).split(" ")[0] for call in (one, other)]
    if mode == "ignore":
        assert answers == ["inserted" if given == "finished" else "existing", "existing"]
    else:
        assert answers == [first, "replaced"]
    waiting = 0 if (given, mode) == ("running", "ignore") else 3
    assert stage.say("count(*) from jobs where state = 'ready'") == waiting
    assert [row[0] for row in stage.held()] == ["a", "m", "z"]


def test_a_batch_takes_the_rows_of_jobs_in_id_order(stage: Stage) -> None:
    """As purge_queue and drop_queue do: while it waits for job 1 it has not taken job 2 yet."""
    stage.say(many("a,b", "1,2"))
    holder, second = stage.session(), stage.session()
    with holder.transaction():
        holder.execute("select from job where id = 1 for update")
        batch = Call(second, "select " + many("b,a", "3,4", "replace"))
        wait_for_lock(stage.conn, second.info.backend_pid)
        rows = stage.conn.execute("select id from job for update skip locked").fetchall()
        assert rows == [(2,)]
    assert batch.end() == "replaced replaced"


def test_a_batch_takes_no_key_out_of_order(stage: Stage) -> None:
    """A key that was another's when its turn came is not taken later, beside those after it."""
    stage.say(FIRST.replace("'k'", "'a'"))
    holder, second = stage.session(), stage.session()
    with holder.transaction(force_rollback=True):
        say(holder, FIRST.replace("'k'", "'b'"))
        batch = Call(second, "select " + many("a,b", "3,4"))
        wait_for_lock(stage.conn, second.info.backend_pid)
        assert stage.say("cancel(1)") == "cancelled"
    assert batch.end() == "existing inserted"
    assert [key for key, _ in stage.held()] == ["b"]


@pytest.mark.parametrize(
    "race",
    [
        Race(held, REPLACE, DROP, 1, NONE, waits=True, then={DROPPED: 0}),
        Race(held, REPLACE, DROP, 1, NONE, commits=False, waits=True, then={DROPPED: 0}),
        Race(held, DROP, REPLACE, "inserted", [(2, "dead", 0, 0)], waits=True, then={DROPPED: 1}),
        Race(held, DROP, REPLACE, "replaced", READY, commits=False, waits=True, then={DROPPED: 0}),
        Race(running, REPLACE, DROP, 2, NONE, waits=True, then={DROPPED: 0}),
        # What its producer has not committed yet is not seen, and its queue is gone when it does.
        Race([], KEEP, DROP, 0, [(1, "dead", 0, 0)], then={DROPPED: 1}),
    ],
    ids=str,
)
def test_a_key_of_a_queue_that_is_dropped(stage: Stage, race: Race) -> None:
    stage.race(race)
    rows = stage.conn.execute("select job_id from dedup").fetchall()
    assert rows == ([(1,)] if race.ends == READY else [])
