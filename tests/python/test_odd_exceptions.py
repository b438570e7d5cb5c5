"""Whatever a handler raises, its job ends as it should, and the worker works on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta

import pytest

import odd_raisers
from afar import PATIENCE, AnyJob, Work, at_work, both
from odd_exceptions import HOUR, Case
from pgq_sql import Client
from servers import Connection, wait_until

CASES: Mapping[str, Case] = odd_raisers.ALL

LIMIT = 4000
"""Characters that are kept of an error."""

ORDINARY = "an ordinary job"

ENDS = """
select payload #>> '{}', last_error,
  case when state = 'running' then 'running' when attempt = 0 then 'release' else 'retry' end
from pgq_sql.jobs
union all select payload #>> '{}', error, 'dead_letter' from pgq_sql.dead_jobs"""

# What runs, or will run again at once.
SOON = """
select from pgq_sql.jobs where state = 'running' or run_at < clock_timestamp() + interval '1 min'"""


class Acts(Work):
    """Does what the case says that the payload names; once, if it is run again."""

    def __init__(self) -> None:
        super().__init__(act=self.do)
        self.done: set[object] = set()

    def do(self, job: AnyJob) -> object:
        if job.payload == ORDINARY or job.payload in self.done:
            return None
        self.done.add(job.payload)
        return CASES[job.payload].act()


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.create_queue("q", retry_delay=HOUR, visibility_timeout=timedelta(minutes=5))
        yield client


def judge(
    client: Client,
    conn: Connection,
    kind: str,
    names: Collection[str],
    patience: float = PATIENCE,
) -> list[str]:
    """Run these cases through a worker; the answer is what is wrong with the ends of the jobs."""
    client.enqueue_many("q", list(names))
    work = Acts()
    wrong: list[str] = []

    def ended() -> bool:
        soon = conn.execute(SOON).rowcount
        return not soon and work.done >= set(names)

    with at_work(
        kind, conn.info.dsn, work, concurrency=4, drain_timeout=timedelta(seconds=0.1)
    ) as worker:
        with suppress(AssertionError):
            wait_until(ended, patience)
        ends = {str(name): (str(text or ""), verb) for name, text, verb in conn.execute(ENDS)}
        client.enqueue("q", ORDINARY, priority=1)
        acked = worker.report.acked
        with suppress(AssertionError):
            wait_until(lambda: worker.report.acked > acked, patience)
        if worker.report.acked == acked:
            wrong.append("the worker is dead")
    if (worker.report.lost, worker.report.left) != (0, 0):
        wrong.append(str(worker.report))
    for name in names:
        case = CASES[name]
        # What comes back at once has run again, and is done.
        text, verb = ends.get(name, ("", "any"))
        if verb != case.ends and (verb == "running" or "any" not in (verb, case.ends)):
            wrong.append(f"{name}: {verb}")
        if len(text) > LIMIT:
            wrong.append(f"{name}: {len(text)} characters")
        wrong += [
            f"{name}: {says!r} not in {text[:80]!r}" for says in case.says if says not in text
        ]
    return wrong


def test_there_are_enough() -> None:
    assert len(CASES) >= 200


@both
def test_all(client: Client, conn: Connection, kind: str) -> None:
    assert judge(client, conn, kind, list(CASES)) == []
