"""Claims, settling calls and control functions meet at one job: each order, both ends."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from interleaving import Place, Race, Stage, meet, staged
from servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server

ENQUEUE = "job_id from enqueue('q')"
LATER = "job_id from enqueue('q', delay => '1 hour')"
CLAIM = "job_id from claim('q', 'w')"
ACK = "ack(1, 1)"
BEAT = "outcome from heartbeat(1, 1)"
CANCEL = "cancel(1)"
SUSPEND = "suspend(1)"
RESUME = "resume(1)"
PROMOTE = "promote(1)"
PRIORITY = "priority from jobs"
RAISE = "reprioritize(1, 5)"
LOWER = "reprioritize(1, -5)"

READY = [(1, "ready", 0, 0)]
RUNNING = [(1, "running", 1, 1)]
SUSPENDED = [(1, "suspended", 0, 0)]

waiting = [ENQUEUE]
claimed = [ENQUEUE, CLAIM]
scheduled = [LATER]
suspended = [ENQUEUE, SUSPEND]


@pytest.fixture(scope="module")
def opened(server: Server, template: str) -> Iterator[Stage]:
    with staged(server, template) as stage:
        yield stage


@pytest.fixture
def stage(opened: Stage) -> Stage:
    return opened.fresh("create_queue('q', retry_delay => '0')")


@pytest.mark.parametrize(
    "race",
    [
        Race(waiting, CLAIM, CLAIM, None, RUNNING, then={CLAIM: None}),
        Race(waiting, CLAIM, CLAIM, None, RUNNING, commits=False, then={CLAIM: 1}),
        Race(waiting, CLAIM, CANCEL, "cancelled", [], waits=True, then={ACK: "gone", BEAT: "gone"}),
        Race(waiting, CLAIM, CANCEL, "cancelled", [], commits=False, waits=True),
        Race(waiting, CANCEL, CLAIM, None, [], then={CLAIM: None}),
        Race(waiting, CANCEL, CLAIM, None, RUNNING, commits=False, then={CLAIM: 1}),
        Race(waiting, CANCEL, CANCEL, "gone", [], waits=True),
        Race(waiting, CANCEL, CANCEL, "cancelled", [], commits=False, waits=True),
        Race(waiting, SUSPEND, CLAIM, None, SUSPENDED, then={CLAIM: None}),
        Race(waiting, SUSPEND, CLAIM, None, RUNNING, commits=False, then={CLAIM: 1}),
        Race(waiting, CLAIM, SUSPEND, "running", RUNNING, waits=True),
        Race(waiting, CLAIM, SUSPEND, "suspended", SUSPENDED, commits=False, waits=True),
        Race(suspended, RESUME, CLAIM, None, RUNNING, then={CLAIM: 1}),
        Race(suspended, RESUME, CLAIM, None, SUSPENDED, commits=False, then={CLAIM: None}),
        Race(waiting, RAISE, CLAIM, None, RUNNING, then={CLAIM: 1, PRIORITY: 5}),
        Race(waiting, RAISE, CLAIM, None, RUNNING, commits=False, then={CLAIM: 1, PRIORITY: 0}),
        Race(waiting, CLAIM, RAISE, "running", RUNNING, waits=True, then={PRIORITY: 0}),
        Race(
            waiting,
            CLAIM,
            RAISE,
            "reprioritized",
            READY,
            commits=False,
            waits=True,
            then={PRIORITY: 5},
        ),
        Race(scheduled, PROMOTE, CLAIM, None, RUNNING, then={CLAIM: 1}),
        Race(scheduled, PROMOTE, SUSPEND, "suspended", SUSPENDED, waits=True),
        Race(scheduled, SUSPEND, PROMOTE, "suspended", SUSPENDED, waits=True),
        Race(scheduled, SUSPEND, PROMOTE, "promoted", READY, commits=False, waits=True),
        Race(scheduled, PROMOTE, PROMOTE, "ready", READY, waits=True),
        Race(scheduled, PROMOTE, PROMOTE, "promoted", READY, commits=False, waits=True),
    ],
    ids=str,
)
def test_a_waiting_job(stage: Stage, race: Race) -> None:
    stage.race(race)


@pytest.mark.parametrize("keep_done", [False, True])
@pytest.mark.parametrize(
    ("one", "commits", "other", "hears", "outcome"),
    [
        (CANCEL, True, ACK, "gone", "cancelled"),
        (CANCEL, False, ACK, "acked", "done"),
        (ACK, True, CANCEL, "gone", "done"),
        (ACK, False, CANCEL, "cancelled", "cancelled"),
        (CANCEL, True, BEAT, "gone", "cancelled"),
        (BEAT, True, CANCEL, "cancelled", "cancelled"),
        (BEAT, False, CANCEL, "cancelled", "cancelled"),
        (ACK, True, ACK, "gone", "done"),
        (ACK, False, ACK, "acked", "done"),
        ("require_lease(1, 1)", True, CANCEL, "cancelled", "cancelled"),
        (CANCEL, True, "require_lease(1, 1)", "JQ003", "cancelled"),
    ],
)
def test_a_running_job_ends_once(
    stage: Stage, keep_done: bool, one: str, commits: bool, other: str, hears: str, outcome: str
) -> None:
    if keep_done:
        stage.say("alter_queue('q', keep_done => '1 day')")
    ends = [(1, outcome, 1, 1)] if keep_done else []
    after = {ACK: "gone", BEAT: "gone", CANCEL: "gone", CLAIM: None}
    stage.race(Race(claimed, one, other, hears, ends, commits=commits, waits=True, then=after))


def test_a_required_lease_can_be_renewed(stage: Stage) -> None:
    """A handler's transaction does not hold up the heartbeats of its worker."""
    stage.race(Race(claimed, "require_lease(1, 1)", BEAT, "extended", RUNNING))


def test_a_heartbeat_goes_on_after_a_cancel_that_did_not_come_off(stage: Stage) -> None:
    stage.race(Race(claimed, CANCEL, BEAT, "extended", RUNNING, commits=False, waits=True))


@pytest.mark.parametrize(
    "race",
    [
        Race(scheduled, PROMOTE, RAISE, "reprioritized", READY, waits=True, then={PRIORITY: 5}),
        Race(
            scheduled,
            PROMOTE,
            RAISE,
            "reprioritized",
            [(1, "scheduled", 0, 0)],
            commits=False,
            waits=True,
            then={PRIORITY: 5},
        ),
        Race(scheduled, RAISE, PROMOTE, "promoted", READY, waits=True, then={PRIORITY: 5}),
        Race(
            scheduled,
            RAISE,
            PROMOTE,
            "promoted",
            READY,
            commits=False,
            waits=True,
            then={PRIORITY: 0},
        ),
        Race(suspended, RESUME, RAISE, "reprioritized", READY, waits=True, then={PRIORITY: 5}),
        Race(
            suspended,
            RESUME,
            RAISE,
            "reprioritized",
            SUSPENDED,
            commits=False,
            waits=True,
            then={PRIORITY: 5, CLAIM: None},
        ),
        Race(suspended, RAISE, RESUME, "resumed", READY, waits=True, then={PRIORITY: 5}),
        Race(
            suspended,
            RAISE,
            RESUME,
            "resumed",
            READY,
            commits=False,
            waits=True,
            then={PRIORITY: 0},
        ),
        Race(waiting, RAISE, LOWER, "reprioritized", READY, waits=True, then={PRIORITY: -5}),
        Race(waiting, RAISE, RAISE, "ready", READY, waits=True, then={PRIORITY: 5}),
        Race(suspended, RESUME, RESUME, "ready", READY, waits=True),
    ],
    ids=str,
)
def test_a_job_that_changes_its_place_is_claimed_there(stage: Stage, race: Race) -> None:
    stage.say(*race.given)
    # The mark of the lane above goes past the place that the job has in its own.
    wait_until(lambda: stage.say("_slot(_now()) > enqueued_at from job"))
    stage.say("enqueue('q', priority => 5)", CLAIM, "sweep()")
    assert stage.say("max(head) > (select j.enqueued_at from job j where j.id = 1) from mark")
    stage.say("cancel(2)")
    stage.race(replace(race, given=[]))
    if race.ends == READY:
        assert stage.say(CLAIM) == 1
        assert stage.say(CLAIM, ACK) == "acked"
        assert stage.places() == []


@pytest.mark.parametrize(
    ("given", "one", "other", "priority"),
    [
        (scheduled, RAISE, PROMOTE, 5),
        (suspended, RAISE, RESUME, 5),
        (waiting, RAISE, LOWER, -5),
        (scheduled, PROMOTE, RAISE, 5),
        (suspended, RESUME, RAISE, 5),
    ],
)
def test_the_second_is_announced_where_the_job_ends_up(
    stage: Stage, given: list[str], one: str, other: str, priority: int
) -> None:
    """So no mark of that lane goes past the job while it is not committed."""
    stage.say(*given)
    first, second = stage.session(), stage.session()
    with second.transaction():
        meet(stage.conn, (first, one), (second, other), commits=True, waits=True)
        announced = stage.conn.execute(
            "select count(*) from pg_locks where pid = %s and locktype = 'advisory'"
            " and (classid::bigint << 32) | objid::bigint = _lane_key((1 << 16) + 32768 + %s)",
            [second.info.backend_pid, priority],
        ).fetchone()
        assert announced == (1,)
    assert stage.say(CLAIM, PRIORITY) == priority


@pytest.mark.parametrize(("commits", "purged", "ends"), [(True, 0, RUNNING), (False, 1, [])])
def test_a_purge_waits_for_claims_and_leaves_alone_what_they_took(
    stage: Stage, commits: bool, purged: int, ends: list[Place]
) -> None:
    stage.race(Race(waiting, CLAIM, "purge_queue('q')", purged, ends, commits=commits, waits=True))
