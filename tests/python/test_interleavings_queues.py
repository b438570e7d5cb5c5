"""Queues are changed, paused and dropped while others use them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from interleaving import Place, Race, Stage, say, staged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server

CLAIM = "job_id from claim('q', 'w')"
LEASE = "extract(epoch from lease_until - observed_at)::int from claim('q', 'w')"
ENQUEUE = "job_id from enqueue('q')"
ALTER = "alter_queue('q', visibility_timeout => '50 s')"
OTHER = "alter_queue('q', max_attempts => 9)"
PAUSE = "pause_queue('q')"
RESUME = "resume_queue('q')"
DROP = "drop_queue('q')"
FORCE = "drop_queue('q', true)"
CREATE = "create_queue('q')"
DROPPED = "count from sweep() where task = 'dropped'"

READY = [(1, "ready", 0, 0)]
RUNNING = [(1, "running", 1, 1)]
DEAD = [(1, "dead", 0, 0)]
NONE: list[Place] = []
waiting = [ENQUEUE]
claimed = [ENQUEUE, CLAIM]


@pytest.fixture(scope="module")
def opened(server: Server, template: str) -> Iterator[Stage]:
    with staged(server, template) as stage:
        yield stage


@pytest.fixture
def stage(opened: Stage) -> Stage:
    return opened.fresh("create_queue('q')")


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
@pytest.mark.parametrize(
    "race",
    [
        # A job keeps the settings that it was enqueued under.
        Race(waiting, ALTER, LEASE, 30, RUNNING),
        Race(waiting, ALTER, LEASE, 30, RUNNING, commits=False),
        Race(waiting, CLAIM, ALTER, True, RUNNING),
        Race(waiting, CLAIM, ALTER, True, READY, commits=False),
        Race([], ALTER, ENQUEUE, 1, RUNNING, then={LEASE: 30}),
        Race([], ENQUEUE, ALTER, True, RUNNING, then={LEASE: 30}),
        Race(claimed, ALTER, "ack(1, 1)", "acked", NONE),
        Race(claimed, "ack(1, 1)", ALTER, True, NONE),
        # Who began before the pause was there still takes jobs.
        Race(waiting, PAUSE, CLAIM, 1, RUNNING),
        Race(waiting, PAUSE, CLAIM, 1, RUNNING, commits=False),
        Race(waiting, CLAIM, PAUSE, True, RUNNING),
        Race(waiting, CLAIM, PAUSE, True, READY, commits=False, then={CLAIM: None}),
        Race([], PAUSE, ENQUEUE, 1, READY, then={CLAIM: None}),
        Race([*waiting, PAUSE], RESUME, CLAIM, None, RUNNING, then={CLAIM: 1}),
        Race([*waiting, PAUSE], RESUME, CLAIM, None, READY, commits=False, then={CLAIM: None}),
    ],
    ids=str,
)
def test_users_do_not_wait_for_who_changes_a_queue(
    stage: Stage, race: Race, isolation: str
) -> None:
    stage.race(replace(race, isolation=isolation))


SETTINGS = "array[max_attempts, extract(epoch from visibility_timeout)::int] from queues"
PAUSED = "paused from queues"


@pytest.mark.parametrize(
    ("one", "commits", "other", "hears", "settings", "paused"),
    [
        (ALTER, True, OTHER, True, [9, 50], False),
        (ALTER, False, OTHER, True, [9, 30], False),
        (ALTER, True, ALTER, False, [5, 50], False),
        (ALTER, False, ALTER, True, [5, 50], False),
        (ALTER, True, PAUSE, True, [5, 50], True),
        (ALTER, False, PAUSE, True, [5, 30], True),
        (PAUSE, True, ALTER, True, [5, 50], True),
        (PAUSE, False, ALTER, True, [5, 50], False),
        (PAUSE, True, PAUSE, False, [5, 30], True),
        (PAUSE, False, PAUSE, True, [5, 30], True),
        (PAUSE, True, RESUME, True, [5, 30], False),
        (PAUSE, False, RESUME, False, [5, 30], False),
        (DROP, True, ALTER, "JQ001", None, None),
        (DROP, False, ALTER, True, [5, 50], False),
        (DROP, True, PAUSE, "JQ001", None, None),
        (DROP, True, DROP, "JQ001", None, None),
        (DROP, False, DROP, 0, None, None),
        (ALTER, True, DROP, 0, None, None),
        (ALTER, False, DROP, 0, None, None),
        ("create_queue('r')", True, "create_queue('r')", False, [5, 30], False),
    ],
)
def test_changes_come_one_after_the_other(
    stage: Stage,
    one: str,
    commits: bool,
    other: str,
    hears: object,
    settings: object,
    paused: object,
) -> None:
    after = {SETTINGS: settings, PAUSED: paused}
    stage.race(Race([], one, other, hears, NONE, commits=commits, waits=True, then=after))


@pytest.mark.parametrize(
    ("one", "other"),
    [(ALTER, OTHER), (ALTER, PAUSE), (PAUSE, ALTER), (DROP, ALTER)],
)
@pytest.mark.parametrize("commits", [True, False])
def test_no_change_is_made_to_what_an_old_snapshot_shows(
    stage: Stage, one: str, other: str, commits: bool
) -> None:
    hears = "40001" if commits else True
    stage.race(
        Race([], one, other, hears, NONE, commits=commits, waits=True, isolation="repeatable read")
    )


@pytest.mark.parametrize(
    "step",
    [
        DROP,
        "alter_queue('q', dead_letter_queue => 'r')",
        "create_queue('s', dead_letter_queue => 'r')",
        "grant_access('pg_monitor', 'observer')",
        "revoke_access('pg_monitor', 'observer')",
    ],
)
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_an_old_snapshot_changes_no_links_and_grants(
    stage: Stage, step: str, isolation: str
) -> None:
    """Letters could end nowhere, or in a circle; what others have revoked would come back."""
    stage.say("create_queue('r')")
    assert say(stage.session(isolation=isolation), step) == "25001"


@pytest.mark.parametrize(
    "race",
    [
        Race([], ENQUEUE, DROP, 0, DEAD, then={DROPPED: 1, "redrive(array[1])": "JQ001"}),
        Race([], ENQUEUE, DROP, 0, NONE, commits=False, then={DROPPED: 0}),
        Race([], ENQUEUE, FORCE, 0, DEAD, then={DROPPED: 1, CREATE: True, CLAIM: None}),
        Race([], DROP, ENQUEUE, 1, DEAD, then={DROPPED: 1, ENQUEUE: "JQ001"}),
        Race([], DROP, ENQUEUE, 1, READY, commits=False, then={DROPPED: 0}),
        Race(waiting, CLAIM, DROP, "JQ004", RUNNING),
        Race(waiting, CLAIM, FORCE, 1, NONE, waits=True, then={"ack(1, 1)": "gone"}),
        Race(waiting, CLAIM, FORCE, 1, NONE, commits=False, waits=True),
        Race(waiting, FORCE, CLAIM, None, NONE, then={CLAIM: "JQ001"}),
        Race(waiting, FORCE, CLAIM, None, RUNNING, commits=False, then={CLAIM: 1}),
        Race(claimed, "ack(1, 1)", FORCE, 0, NONE, waits=True),
        Race(claimed, "ack(1, 1)", FORCE, 1, NONE, commits=False, waits=True),
        Race(claimed, FORCE, "ack(1, 1)", "gone", NONE, waits=True),
        Race(claimed, FORCE, "ack(1, 1)", "acked", NONE, commits=False, waits=True),
        Race(claimed, FORCE, "retry(1, 1)", "gone", NONE, waits=True),
        Race(claimed, "retry(1, 1, null, '0')", FORCE, 1, NONE, waits=True),
        Race(waiting, FORCE, "suspend(1)", "gone", NONE, waits=True),
        Race(waiting, FORCE, "reprioritize(1, 5)", "gone", NONE, waits=True),
        Race(waiting, "reprioritize(1, 5)", FORCE, 1, NONE, waits=True, then={DROPPED: 0}),
        Race(waiting, FORCE, "purge_queue('q')", 0, NONE, waits=True),
        Race(waiting, "purge_queue('q')", FORCE, 0, NONE, waits=True),
    ],
    ids=str,
)
def test_a_dropped_queue_leaves_no_job_behind(stage: Stage, race: Race) -> None:
    stage.race(race)


def test_a_redriven_job_of_a_queue_that_is_dropped_meanwhile_is_dead_again(stage: Stage) -> None:
    given = [*claimed, "dead_letter(1, 1)"]
    ends = [(1, "dead", 0, 1)]
    stage.race(Race(given, "redrive(array[1])", DROP, 0, ends, then={DROPPED: 1}))
    assert stage.say("discard_dead(queue => 'q')") == 1


def test_a_late_job_of_a_dropped_queue_does_not_reach_its_namesake(stage: Stage) -> None:
    producer = stage.session()
    with producer.transaction():
        assert say(producer, "job_id from enqueue('q', priority => 7)") == 1
        assert stage.say(DROP, CREATE) is True
        assert stage.say(ENQUEUE) == 2
    assert stage.say("array_agg(job_id) from claim('q', 'w', 9)") == [2]
    assert stage.say(DROPPED) == 1
    assert stage.places() == [(1, "dead", 0, 0), (2, "running", 1, 1)]


def test_a_snapshot_from_before_the_drop_still_enqueues(stage: Stage) -> None:
    producer = stage.session(isolation="repeatable read")
    with producer.transaction():
        assert say(producer, "count(*) from queues") == 1
        assert stage.say(DROP) == 0
        assert say(producer, ENQUEUE) == 1
    assert stage.say(DROPPED) == 1
    assert stage.places() == DEAD
