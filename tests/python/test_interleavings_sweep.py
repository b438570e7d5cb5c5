"""Sweeps meet everything else: they wait for nobody, and no job is lost or there twice.

The sweeping session's clock is two hours ahead: for it, the leases are over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from interleaving import Place, Race, Stage, late, say, staged
from servers import wait_for_lock, wait_until
from test_concurrency import Call

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server

CLAIM = "job_id from claim('q', 'w')"
LATE_CLAIM = late(CLAIM)
RECOVER = late("count from sweep() where task = 'recovered'")
EXHAUST = late("count from sweep() where task = 'exhausted'")
EXPIRE = late("count from sweep() where task = 'expired'")
FETCH = late("count from sweep() where task = 'late'")
HISTORY = late("count from sweep() where task = 'history'")

ACK = "ack(1, 1)"
BEAT = "outcome from heartbeat(1, 1, '3 hours')"
RETRY = "retry(1, 1)"
RELEASE = "release(1, 1)"
BURY = "dead_letter(1, 1)"
CANCEL = "cancel(1)"
SUSPEND = "suspend(1)"
RESUME = "resume(1)"
PROMOTE = "promote(1)"
RAISE = "reprioritize(1, 5)"
PURGE = "purge_queue('q')"
DROP = "drop_queue('q', true)"
REPLACE = (
    "outcome from enqueue('q', dedup_key => 'k', dedup_mode => 'replace',"
    " expires_in => '1 minute', delay => '1 hour')"
)

FREED = [(1, "ready", 1, 1)]
BACK = [(1, "ready", 0, 1)]
RUNNING = [(1, "running", 1, 1)]
DEAD = [(1, "dead", 1, 1)]
UNBORN = [(1, "dead", 0, 0)]
NONE: list[Place] = []

claimed = ["enqueue('q')", CLAIM]


@pytest.fixture(scope="module")
def opened(server: Server, template: str) -> Iterator[Stage]:
    with staged(server, template) as stage:
        yield stage


@pytest.fixture
def stage(opened: Stage) -> Stage:
    return opened.fresh("create_queue('q', retry_delay => '0')")


of_a_lease_that_ran_out = pytest.mark.parametrize(
    ("step", "answer", "ends"),
    [
        (ACK, "acked", NONE),
        (BEAT, "extended", RUNNING),
        (RETRY, "retried", FREED),
        (RELEASE, "released", BACK),
        (BURY, "dead", DEAD),
        (CANCEL, "cancelled", NONE),
        (LATE_CLAIM, 1, [(1, "running", 2, 2)]),
    ],
)


@of_a_lease_that_ran_out
def test_a_sweep_leaves_alone_what_others_do(
    stage: Stage, step: str, answer: object, ends: list[Place]
) -> None:
    stage.race(Race(claimed, step, RECOVER, 0, ends, then={RECOVER: 0, EXPIRE: 0}))


@of_a_lease_that_ran_out
def test_a_sweep_does_what_others_rolled_back(
    stage: Stage, step: str, answer: object, ends: list[Place]
) -> None:
    after = {RECOVER: 1, FETCH: 0}
    stage.race(Race(claimed, step, RECOVER, 0, FREED, commits=False, then=after))


@of_a_lease_that_ran_out
def test_a_sweep_comes_first(stage: Stage, step: str, answer: object, ends: list[Place]) -> None:
    claims = step == LATE_CLAIM
    hears = None if claims else "cancelled" if step == CANCEL else "lost"
    left = NONE if step == CANCEL else FREED
    stage.race(Race(claimed, RECOVER, step, hears, left, waits=not claims))


@of_a_lease_that_ran_out
def test_a_sweep_comes_first_and_rolls_back(
    stage: Stage, step: str, answer: object, ends: list[Place]
) -> None:
    if step == LATE_CLAIM:
        # It sweeps for itself, but not what the other is about to.
        after = {RECOVER: 1, step: 1}
        race = Race(claimed, RECOVER, step, None, ends, commits=False, then=after)
    else:
        race = Race(claimed, RECOVER, step, answer, ends, commits=False, waits=True)
    stage.race(race)


@pytest.mark.parametrize("step", [ACK, RETRY, RELEASE, BURY, "outcome from heartbeat(1, 1)"])
def test_who_knows_that_the_lease_is_over_does_not_wait_for_the_sweep(
    stage: Stage, step: str
) -> None:
    stage.race(Race(claimed, RECOVER, late(step), "lost", FREED))


@pytest.mark.parametrize(
    ("commits", "hears", "ends"), [(True, "gone", DEAD), (False, "acked", NONE)]
)
def test_an_ack_meets_the_sweep_that_ends_the_last_attempt(
    stage: Stage, commits: bool, hears: str, ends: list[Place]
) -> None:
    given = ["enqueue('q', max_attempts => 1)", CLAIM]
    stage.race(Race(given, EXHAUST, ACK, hears, ends, commits=commits, waits=True))


def of_expired_jobs(state: str) -> list[str]:
    options = "'q', dedup_key => 'k', expires_in => '1 minute'"
    return {
        "running": [f"enqueue({options})", "claim('q', 'w', 1, '3 hours')"],
        "scheduled": [f"enqueue({options}, delay => '1 hour')"],
        "suspended": [f"enqueue({options}, delay => '1 hour')", SUSPEND],
    }[state]


# To the sweeper, what waits is ready.
of_an_expired_job = pytest.mark.parametrize(
    ("state", "step", "answer", "ends"),
    [
        ("running", ACK, "acked", NONE),
        ("running", BEAT, "extended", RUNNING),
        ("running", RETRY, "retried", FREED),
        ("running", RELEASE, "released", BACK),
        ("running", BURY, "dead", DEAD),
        ("running", CANCEL, "cancelled", NONE),
        ("scheduled", PROMOTE, "promoted", [(1, "ready", 0, 0)]),
        ("scheduled", SUSPEND, "suspended", [(1, "suspended", 0, 0)]),
        ("suspended", RESUME, "resumed", [(1, "ready", 0, 0)]),
        ("scheduled", RAISE, "reprioritized", [(1, "ready", 0, 0)]),
        ("scheduled", CANCEL, "cancelled", NONE),
        ("scheduled", PURGE, 1, NONE),
        ("scheduled", DROP, 1, NONE),
        ("scheduled", REPLACE, "replaced", [(1, "ready", 0, 0)]),
    ],
)


@of_an_expired_job
def test_the_job_is_dead_whatever_was_done_unless_that_ended_it(
    stage: Stage, state: str, step: str, answer: object, ends: list[Place]
) -> None:
    dead = [(1, "dead", attempt, token) for _, _, attempt, token in ends]
    after = {EXPIRE: sum(place[1] != "dead" for place in ends), FETCH: 0}
    stage.race(Race(of_expired_jobs(state), step, EXPIRE, 0, dead, then=after))
    assert stage.held() == []


@of_an_expired_job
def test_the_job_is_dead_if_what_was_done_is_rolled_back(
    stage: Stage, state: str, step: str, answer: object, ends: list[Place]
) -> None:
    dead = DEAD if state == "running" else UNBORN
    after = {EXPIRE: 1, FETCH: 0}
    stage.race(Race(of_expired_jobs(state), step, EXPIRE, 0, dead, commits=False, then=after))
    assert stage.held() == []


@of_an_expired_job
def test_what_is_done_after_the_sweep_finds_the_job_gone(
    stage: Stage, state: str, step: str, answer: object, ends: list[Place]
) -> None:
    hears: object = {PURGE: 0, DROP: 0, REPLACE: "inserted"}.get(step, "gone")
    dead = DEAD if state == "running" else UNBORN
    if step == REPLACE:
        dead = [*dead, (2, "ready", 0, 0)]
    stage.race(Race(of_expired_jobs(state), EXPIRE, step, hears, dead, waits=True))
    assert len(stage.held()) == (step == REPLACE)


@of_an_expired_job
def test_what_waited_for_a_sweep_that_rolls_back_is_done(
    stage: Stage, state: str, step: str, answer: object, ends: list[Place]
) -> None:
    before = of_expired_jobs(state)
    stage.race(Race(before, EXPIRE, step, answer, ends, commits=False, waits=True))
    assert len(stage.held()) == sum(place[1] != "dead" for place in ends)


def test_a_claim_meets_the_sweep_of_an_expired_job(stage: Stage) -> None:
    given = ["enqueue('q', expires_in => '1 minute')"]
    stage.race(Race(given, EXPIRE, CLAIM, None, UNBORN, then={CLAIM: None}))


def test_an_expired_job_dies_under_the_claim_that_was_first(stage: Stage) -> None:
    given = ["enqueue('q', expires_in => '1 minute')"]
    stage.race(Race(given, CLAIM, EXPIRE, 0, DEAD, then={EXPIRE: 1, ACK: "gone"}))


# Job 1 runs, and the mark that the late claim made is ahead of job 2.
behind = ["enqueue('q')", "claim('q', 'w', 1, '9 hours')", LATE_CLAIM, "enqueue('q')"]
LONG_CLAIM = "job_id from claim('q', 'w', 1, '9 hours')"


def with_job_2(state: str, run: int = 0) -> list[Place]:
    return [(1, "running", 1, 1), (2, state, run, run)]


of_a_job_behind_the_mark = pytest.mark.parametrize(
    ("step", "answer", "ends"),
    [
        ("suspend(2)", "suspended", with_job_2("suspended")),
        ("reprioritize(2, 5)", "reprioritized", with_job_2("ready")),
        ("cancel(2)", "cancelled", RUNNING),
        (LONG_CLAIM, 2, with_job_2("running", 1)),
    ],
)


@pytest.mark.parametrize(
    "step",
    [SUSPEND, CANCEL, RAISE, LONG_CLAIM, REPLACE],
    ids=["suspend", "cancel", "raise", "claim", "replace"],
)
@pytest.mark.parametrize("swept_by", ["sweep", "claims"])
def test_leases_that_run_out_behind_a_job_that_somebody_holds(
    stage: Stage, step: str, swept_by: str
) -> None:
    """Marks stop at such a job and claims pass it: what they took is above the mark."""
    brief = "count(*) from claim('q', 'w', 3, '1 ms')"
    stage.say(
        "enqueue('q', dedup_key => 'k')", "enqueue_many('q', array_fill('1'::jsonb, array[3]))"
    )
    holder = stage.session()
    with holder.transaction(force_rollback=True):
        say(holder, step)
        assert stage.say(brief) == 3
        if swept_by == "sweep":
            assert stage.say(RECOVER) == 3
        else:
            wait_until(lambda: stage.say(brief) == 3, message="three jobs claimed again")


@of_a_job_behind_the_mark
def test_a_sweep_does_not_fetch_what_others_hold(
    stage: Stage, step: str, answer: object, ends: list[Place]
) -> None:
    stage.race(Race(behind, step, FETCH, 0, ends, then={FETCH: 0, RECOVER: 0}))


@of_a_job_behind_the_mark
def test_a_sweep_fetches_what_others_rolled_back(
    stage: Stage, step: str, answer: object, ends: list[Place]
) -> None:
    after = {FETCH: 1, RECOVER: 0, late(LONG_CLAIM): 2}
    ready = with_job_2("running", 1)
    stage.race(Race(behind, step, FETCH, 0, ready, commits=False, then=after))


@pytest.mark.parametrize("commits", [True, False])
@of_a_job_behind_the_mark
def test_what_waited_for_a_sweep_is_done_to_what_it_fetched(
    stage: Stage, commits: bool, step: str, answer: object, ends: list[Place]
) -> None:
    if step == LONG_CLAIM:
        step = late(step)
        after = {FETCH: int(not commits), step: 2}
        race = Race(behind, FETCH, step, None, ends, commits=commits, then=after)
    else:
        race = Race(behind, FETCH, step, answer, ends, commits=commits, waits=True)
    stage.race(race)


def test_sweeps_share_out_what_there_is(stage: Stage) -> None:
    stage.say("enqueue_many('q', array_fill('1'::jsonb, array[5]))", "claim('q', 'w', 5)")
    some = late("count from sweep(2) where task = 'recovered'")
    ends = [(i, "ready", 1, 1) for i in range(1, 6)]
    stage.race(Race([], some, RECOVER, 3, ends, then={RECOVER: 0}))


def history(stage: Stage) -> object:
    """How many days there are beside the one that is kept forever."""
    return stage.say(
        "count(*) from pg_inherits where inhparent = 'done_job'::regclass"
        " and inhrelid <> 'done_job_forever'::regclass"
    )


@pytest.fixture
def kept(stage: Stage) -> Stage:
    """Two running jobs; the day on which the second's ack needs room has none yet."""
    stage.say(
        "alter_queue('q', keep_done => '1 day')",
        "enqueue_many('q', array['1', '2']::jsonb[])",
        "claim('q', 'w', 2, '999 hours')",
        "alter_queue('q', keep_done => '0')",
    )
    stage.conn.execute("update pgq_sql.job set keep_done = '20 days'")
    return stage


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
@pytest.mark.parametrize("commits", [True, False])
def test_the_second_to_need_a_day_of_history_waits_for_the_first(
    kept: Stage, commits: bool, isolation: str
) -> None:
    days = history(kept)
    ends = [(1, "done" if commits else "running", 1, 1), (2, "done", 1, 1)]
    kept.race(
        Race([], ACK, "ack(2, 1)", "acked", ends, commits=commits, waits=True, isolation=isolation)
    )
    assert isinstance(days, int)
    assert history(kept) == days + 1


def test_a_new_day_of_history_holds_up_no_one_else(kept: Stage) -> None:
    """Neither readers nor acks whose day is there, nor sweeps that want the same day."""
    kept.say("alter_queue('q', keep_done => '1 day')", "enqueue('q')")
    kept.say("claim('q', 'w')")
    kept.conn.execute("update pgq_sql.queue set keep_done = '20 days' where current")
    opener, other, sweeper = kept.session(), kept.session(), kept.session()
    for session in (other, sweeper):
        session.execute("set statement_timeout = '5s'")
    with opener.transaction():
        assert say(opener, ACK) == "acked"
        assert say(other, "count(*) from done_jobs") == 0
        assert say(other, "ack(3, 1)") == "acked"
        assert say(sweeper, "count from sweep() where task = 'history'") == 0
    assert kept.places() == [(1, "done", 1, 1), (2, "running", 1, 1), (3, "done", 1, 1)]


@pytest.fixture
def over(stage: Stage) -> Stage:
    """A job of a day that is over for whoever is late, and one that runs."""
    stage.say(
        "alter_queue('q', keep_done => '20 days')",
        "enqueue_many('q', array['1', '2']::jsonb[])",
        "claim('q', 'w', 2)",
        "_add_done_day(clock_timestamp() - interval '20 days')",
    )
    stage.conn.execute("update pgq_sql.job set keep_done = interval '-20 days' where id = 1")
    assert stage.say(ACK) == "acked"
    return stage


def test_a_sweep_does_not_wait_for_a_long_reader_of_history_nor_do_acks(over: Stage) -> None:
    reader, sweeper, acker = over.session(), over.session(), over.session()
    for session in (sweeper, acker):
        session.execute("set statement_timeout = '5s'")
    sweep = "count from sweep() where task = 'history'"
    with reader.transaction():
        assert say(reader, "count(*) from done_job") == 1
        assert say(sweeper, sweep) == 0
        assert say(acker, "ack(2, 1)") == "acked"
        assert say(reader, "count(*) from done_job") == 2
    assert say(sweeper, sweep) == 1
    assert over.places() == [(2, "done", 1, 1)]


@pytest.mark.parametrize("commits", [True, False])
def test_acks_go_on_when_the_sweep_that_drops_a_day_ends(over: Stage, commits: bool) -> None:
    sweeper, acker = over.session(), over.session()
    with sweeper.transaction(force_rollback=not commits):
        assert say(sweeper, "count from sweep() where task = 'history'") == 1
        call = Call(acker, "select ack(2, 1)")
        wait_for_lock(over.conn, acker.info.backend_pid)
    assert call.end() == "acked"
    left = over.conn.execute("select id from pgq_sql.done_job order by id").fetchall()
    assert left == ([(2,)] if commits else [(1,), (2,)])
