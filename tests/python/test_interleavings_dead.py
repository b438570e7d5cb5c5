"""Dead jobs and dead letters: each comes back once, or is discarded once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interleaving import Place, Race, Stage, late, staged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server

CLAIM = "job_id from claim('q', 'w', 2)"
IDS = "array_agg(job_id order by job_id) from redrive(array[1, 2])"
SDI = "array_agg(job_id order by job_id) from redrive(array[2, 1])"
ONE = "array_agg(job_id) from redrive(array[2])"
QUEUE = "array_agg(job_id order by job_id) from redrive(queue => 'q')"
FIRST = "array_agg(job_id) from redrive(queue => 'q', n => 1)"
DISCARD = "discard_dead(array[1, 2])"
DISCARD_QUEUE = "discard_dead(queue => 'q')"
PURGE_DEAD = late("count from sweep() where task = 'purged'")

DEAD = [(1, "dead", 1, 1), (2, "dead", 1, 1)]
BACK = [(1, "ready", 0, 1), (2, "ready", 0, 1)]
NONE: list[Place] = []

dead = [
    "enqueue_many('q', array['1', '2']::jsonb[])",
    "claim('q', 'w', 2)",
    "dead_letter(1, 1)",
    "dead_letter(2, 1)",
]


@pytest.fixture(scope="module")
def opened(server: Server, template: str) -> Iterator[Stage]:
    with staged(server, template) as stage:
        yield stage


@pytest.fixture
def stage(opened: Stage) -> Stage:
    return opened.fresh("create_queue('q', keep_dead => '1 hour')")


@pytest.mark.parametrize(
    "race",
    [
        Race(dead, IDS, IDS, "JQ003", BACK, waits=True),
        Race(dead, IDS, IDS, [1, 2], BACK, commits=False, waits=True),
        Race(dead, IDS, SDI, "JQ003", BACK, waits=True),
        Race(dead, IDS, SDI, [1, 2], BACK, commits=False, waits=True),
        # All or none: the one that is still dead stays so.
        Race(dead, ONE, IDS, "JQ003", [DEAD[0], BACK[1]], waits=True),
        Race(dead, ONE, IDS, [1, 2], BACK, commits=False, waits=True),
        Race(dead, IDS, ONE, "JQ003", BACK, waits=True),
        Race(dead, QUEUE, QUEUE, None, BACK, then={QUEUE: None}),
        Race(dead, QUEUE, QUEUE, None, BACK, commits=False, then={QUEUE: [1, 2]}),
        Race(dead, FIRST, QUEUE, [2], BACK),
        Race(dead, FIRST, QUEUE, [2], [DEAD[0], BACK[1]], commits=False),
        Race(dead, FIRST, FIRST, [2], BACK),
        Race(dead, QUEUE, IDS, "JQ003", BACK, waits=True),
        Race(dead, QUEUE, IDS, [1, 2], BACK, commits=False, waits=True),
        Race(dead, IDS, QUEUE, None, BACK),
        Race(dead, IDS, IDS, "40001", BACK, waits=True, isolation="repeatable read"),
        Race(dead, IDS, DISCARD, "JQ003", BACK, waits=True),
        Race(dead, IDS, DISCARD, 2, NONE, commits=False, waits=True),
        Race(dead, DISCARD, IDS, "JQ003", NONE, waits=True),
        Race(dead, DISCARD, IDS, [1, 2], BACK, commits=False, waits=True),
        Race(dead, QUEUE, DISCARD_QUEUE, 0, BACK),
        Race(dead, QUEUE, DISCARD_QUEUE, 0, DEAD, commits=False),
        Race(dead, DISCARD_QUEUE, QUEUE, None, NONE),
        Race(dead, FIRST, DISCARD_QUEUE, 1, [BACK[0]]),
        Race(dead, DISCARD, DISCARD, "JQ003", NONE, waits=True),
        Race(dead, DISCARD, DISCARD, 2, NONE, commits=False, waits=True),
        Race(
            dead,
            "count(*) from redrive(array[1, 2], dry_run => true)",
            IDS,
            [1, 2],
            BACK,
            waits=True,
        ),
        Race(dead, QUEUE, PURGE_DEAD, 0, BACK),
        Race(dead, QUEUE, PURGE_DEAD, 0, NONE, commits=False, then={PURGE_DEAD: 2}),
        Race(dead, PURGE_DEAD, IDS, "JQ003", NONE, waits=True),
        Race(dead, PURGE_DEAD, IDS, [1, 2], BACK, commits=False, waits=True),
        Race(dead, PURGE_DEAD, QUEUE, None, NONE),
    ],
    ids=str,
)
def test_a_dead_job_has_one_fate(stage: Stage, race: Race) -> None:
    stage.race(race)
    if race.ends == BACK:
        # Whoever holds a lease from before the death stays locked out.
        assert stage.say(CLAIM) == 1
        assert stage.say("ack(1, 1)") == "lost"
        assert stage.say("ack(1, 2)") == "acked"


LETTERS = "array_agg(letter_id order by letter_id) from redrive_queue('letters')"
LETTER = "array_agg(letter_id) from redrive_queue('letters', 1)"
TAKE = "job_id from claim('letters', 'w')"

sent = [
    "create_queue('letters')",
    "alter_queue('q', dead_letter_queue => 'letters')",
    *dead,
]


def fresh(*ids: int) -> list[Place]:
    return [(job_id, "ready", 0, 0) for job_id in ids]


@pytest.mark.parametrize(
    "race",
    [
        Race(sent, LETTERS, LETTERS, None, fresh(5, 6), then={LETTERS: None}),
        Race(sent, LETTERS, LETTERS, None, fresh(7, 8), commits=False, then={LETTERS: [3, 4]}),
        Race(sent, LETTER, LETTERS, [4], fresh(5, 6)),
        Race(sent, LETTER, LETTERS, [4], fresh(3, 6), commits=False),
        Race(sent, LETTERS, TAKE, None, fresh(5, 6)),
        Race(sent, LETTERS, TAKE, None, fresh(3, 4), commits=False),
        Race(sent, TAKE, LETTERS, [4], [(3, "running", 1, 1), *fresh(5)]),
        Race(sent, TAKE, LETTERS, [4], fresh(3, 5), commits=False),
        Race(sent, LETTERS, "cancel(3)", "gone", fresh(5, 6), waits=True),
        Race(sent, LETTERS, "cancel(3)", "cancelled", fresh(4), commits=False, waits=True),
        Race(sent, "cancel(3)", LETTERS, [4], fresh(5)),
        Race(sent, "cancel(3)", LETTERS, [4], fresh(3, 5), commits=False),
        Race(
            sent,
            LETTERS,
            "drop_queue('q')",
            0,
            [(5, "dead", 0, 0), (6, "dead", 0, 0)],
            then={"count from sweep() where task = 'dropped'": 2},
        ),
        Race(
            sent,
            "drop_queue('q')",
            LETTERS,
            [3, 4],
            [(5, "dead", 0, 0), (6, "dead", 0, 0)],
            then={"count from sweep() where task = 'dropped'": 2},
        ),
    ],
    ids=str,
)
def test_a_letter_is_replayed_once(stage: Stage, race: Race) -> None:
    stage.race(race)
    payloads = stage.conn.execute(
        "select coalesce(payload -> 'payload', payload) as n from all_jobs"
        " where coalesce(payload -> 'payload', payload) is not null order by 1"
    ).fetchall()
    left = [(1,), (2,)] if len(race.ends) == 2 else [(2,)]
    assert payloads == left


BURY = "dead_letter(1, 1)"
running = ["create_queue('letters')", "enqueue('q')", "claim('q', 'w')"]
DIVERT = "alter_queue('q', dead_letter_queue => 'letters')"
UNDIVERT = "alter_queue('q', reset => '{dead_letter_queue}')"
DROP_LETTERS = "drop_queue('letters')"


@pytest.mark.parametrize(
    "race",
    [
        Race(running, DIVERT, BURY, "dead", [(1, "dead", 1, 1)]),
        Race(running, BURY, DIVERT, True, [(1, "dead", 1, 1)]),
        Race([*running, DIVERT], UNDIVERT, BURY, "dead", [(2, "ready", 0, 0)]),
        Race([*running, DIVERT], BURY, UNDIVERT, True, [(2, "ready", 0, 0)]),
        Race([*running, DIVERT], BURY, UNDIVERT, True, [(1, "running", 1, 1)], commits=False),
    ],
    ids=str,
)
def test_a_job_dies_as_its_queue_s_letters_are_diverted(stage: Stage, race: Race) -> None:
    stage.race(race)


def test_a_letter_outlives_the_queue_that_it_was_sent_to(stage: Stage) -> None:
    """Its sender was open when that queue was dropped: it is found among the dead."""
    stage.say(*running, DIVERT)
    sender = stage.session()
    with sender.transaction():
        assert sender.execute(f"select {BURY}".encode()).fetchone() == ("dead",)
        assert stage.say(UNDIVERT) is True
        assert stage.say(DROP_LETTERS) == 0
    assert stage.say("count from sweep() where task = 'dropped'") == 1
    assert stage.places() == [(2, "dead", 0, 0)]
    assert stage.say("reason || (payload ->> 'job_id') from dead_jobs") == "queue dropped1"


GONE = "count(*) from queues where queue = 'letters'"
DIVERTED = "count(*) from queues where dead_letter_queue = 'letters'"


@pytest.mark.parametrize(
    "race",
    [
        Race(
            running,
            DIVERT,
            DROP_LETTERS,
            "JQ004",
            [(1, "running", 1, 1)],
            waits=True,
            then={GONE: 1, DIVERTED: 1},
        ),
        Race(
            running,
            DIVERT,
            DROP_LETTERS,
            0,
            [(1, "running", 1, 1)],
            commits=False,
            waits=True,
            then={GONE: 0, DIVERTED: 0},
        ),
        Race(
            running,
            DROP_LETTERS,
            DIVERT,
            "JQ001",
            [(1, "running", 1, 1)],
            waits=True,
            then={GONE: 0, DIVERTED: 0},
        ),
        Race(
            running,
            DROP_LETTERS,
            DIVERT,
            True,
            [(1, "running", 1, 1)],
            commits=False,
            waits=True,
            then={GONE: 1, DIVERTED: 1},
        ),
        Race(
            [*running, DIVERT],
            UNDIVERT,
            DROP_LETTERS,
            0,
            [(1, "running", 1, 1)],
            waits=True,
            then={GONE: 0, DIVERTED: 0},
        ),
        Race(
            [*running, DIVERT],
            UNDIVERT,
            DROP_LETTERS,
            "JQ004",
            [(1, "running", 1, 1)],
            commits=False,
            waits=True,
            then={GONE: 1, DIVERTED: 1},
        ),
        Race(
            running,
            "create_queue('r', dead_letter_queue => 'letters')",
            DROP_LETTERS,
            "JQ004",
            [(1, "running", 1, 1)],
            waits=True,
            then={GONE: 1, DIVERTED: 1},
        ),
        Race(
            running,
            DROP_LETTERS,
            "create_queue('r', dead_letter_queue => 'letters')",
            "JQ001",
            [(1, "running", 1, 1)],
            waits=True,
            then={GONE: 0, DIVERTED: 0},
        ),
        # Two that would send in a circle.
        Race(
            running,
            DIVERT,
            "alter_queue('letters', dead_letter_queue => 'q')",
            "JQ004",
            [(1, "running", 1, 1)],
            waits=True,
            then={DIVERTED: 1},
        ),
    ],
    ids=str,
)
def test_a_queue_that_takes_letters_is_there(stage: Stage, race: Race) -> None:
    stage.race(race)
