"""The commands that change jobs and queues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, TypeVar

import typer

from . import _install
from ._cli_base import FAILED, AsJson, Dsn, Schema, Yes, confirm, opened
from ._cli_output import counted, print_json, print_table, progress
from ._cli_values import duration, integer
from ._joining import Joinable
from .client import Client
from .models import Letter, Outcome, Swept
from .words import State

Item = TypeVar("Item", Outcome, Letter)
Key = TypeVar("Key", int, str)

BATCH = 10_000
"""Jobs that one statement brings back, so that progress shows.

Not fewer: until the commit, each walks past what those before it have left behind.
"""
SWEPT = 1000
"""Jobs of a kind that one sweep looks after, unless said; the database's default."""

DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would come.")]
DeadIds = Annotated[
    list[int] | None, typer.Argument(parser=integer(), metavar="ID", help="Ids of dead jobs.")
]
JobIds = Annotated[list[int], typer.Argument(parser=integer(), metavar="ID", help="Ids of jobs.")]
OfQueue = Annotated[str | None, typer.Option("--queue", "-q", help="Those of this queue.")]
First = Annotated[
    int | None,
    typer.Option(
        "-n",
        parser=integer(0),
        metavar="INTEGER",
        help="With --queue: those that died first. Default: all.",
    ),
]
Names = Annotated[list[str], typer.Argument(metavar="QUEUE", help="Names of queues.")]


def create(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Its name.")],
    max_attempts: Annotated[
        int | None, typer.Option(parser=integer(), metavar="INTEGER", help="Runs in all.")
    ] = None,
    visibility_timeout: Annotated[
        timedelta | None,
        typer.Option(parser=duration, metavar="DURATION", help="Length of a lease."),
    ] = None,
    keep_done: Annotated[
        timedelta | None,
        typer.Option(parser=duration, metavar="DURATION", help="How long done jobs stay."),
    ] = None,
    dead_letter_queue: Annotated[
        str | None, typer.Option(help="The queue in which its dead jobs become jobs.")
    ] = None,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Make a queue; one that is there stays as it is.

    It has more settings, and they can be changed: by SQL, with create_queue and alter_queue.
    """
    with opened(dsn, schema, "admin") as client:
        made = client.create_queue(
            queue,
            max_attempts=max_attempts,
            visibility_timeout=visibility_timeout,
            keep_done=keep_done,
            dead_letter_queue=dead_letter_queue,
        )
    if as_json:
        print_json({"queue": queue, "made": made})
    else:
        print(f'queue "{queue}" {"made" if made else "was there already, and stays as it is"}')


def redrive(
    dead_ids: DeadIds = None,
    queue: OfQueue = None,
    letters: Annotated[
        str | None,
        typer.Option(help="Replay the letters of this dead letter queue, where they died."),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "-n",
            parser=integer(0),
            metavar="INTEGER",
            help="With --queue or --letters: so many. Default: all.",
        ),
    ] = None,
    dry_run: DryRun = False,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Bring dead jobs back, all or none, each with all its attempts."""
    _one_of(n, {"ids": dead_ids, "--queue": queue, "--letters": letters})
    with opened(dsn, schema, "admin") as client:
        if letters is not None:
            _replay(client, letters, n, dry_run, as_json)
            return
        if dead_ids or dry_run:
            found = client.redrive(dead_ids or None, queue=queue, n=n, dry_run=dry_run)
        else:
            found = _in_batches(
                client,
                "redriven",
                _count(client, queue, "dead", n),
                lambda size, conn: client.redrive(queue=queue, n=size, conn=conn),
                quiet=as_json,
            )
    if as_json:
        print_json(found)
    else:
        would = "would be " if dry_run else ""
        rows = ((one.job_id, would + one.outcome) for one in found)
        print_table(("id", "outcome"), rows, none="no dead jobs")


def _replay(client: Client, letters: str, n: int | None, dry_run: bool, as_json: bool) -> None:
    if dry_run:
        found = client.redrive_queue(letters, n, dry_run=True)
    else:
        found = _in_batches(
            client,
            "replayed",
            _count(client, letters, "ready", n),
            lambda size, conn: client.redrive_queue(letters, size, conn=conn),
            quiet=as_json,
        )
    if as_json:
        print_json(found)
    else:
        names = ("letter", "would come back in") if dry_run else ("letter", "queue", "new id")
        rows = ((one.letter_id, one.queue, one.job_id)[: len(names)] for one in found)
        print_table(names, rows, none="no letters")


def discard(
    dead_ids: DeadIds = None,
    queue: OfQueue = None,
    n: First = None,
    yes: Yes = False,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Remove dead jobs for good, all or none."""
    _one_of(n, {"ids": dead_ids, "--queue": queue})
    if queue is not None:
        which = "all dead jobs" if n is None else f"the first {n} dead jobs"
        confirm(f"Remove {which} of {queue} for good?", yes=yes)
    with opened(dsn, schema, "admin") as client:
        count = client.discard_dead(dead_ids or None, queue=queue, n=n)
    if as_json:
        print_json({"discarded": count})
    else:
        print(f"{counted(count, 'dead job')} discarded")


def _one_of(n: int | None, given: Mapping[str, object]) -> None:
    """Refuse all but one choice of jobs, and a number where each is named."""
    chosen = [name for name, value in given.items() if value not in (None, [])]
    if len(chosen) != 1:
        *some, last = given
        raise typer.BadParameter(f"give either {', '.join(some)} or {last}", param_hint="ID")
    if n is not None and chosen == ["ids"]:
        raise typer.BadParameter("goes with the name of a queue, not with ids", param_hint="-n")


def _count(client: Client, queue: str | None, state: State, n: int | None) -> int:
    """How many there are, but `n` at most."""
    found = client.count_jobs(queue=queue, state=state)
    count = sum(one.count for one in found)
    return count if n is None else min(count, n)


def _in_batches(
    client: Client,
    what: str,
    total: int,
    step: Callable[[int, Joinable], list[Item]],
    *,
    quiet: bool,
) -> list[Item]:
    """Take that many steps, a batch at a time and all in one transaction."""
    found: list[Item] = []
    with (
        progress(what, total, quiet=quiet) as show,
        client._borrow() as conn,
        conn.transaction(),
    ):
        while len(found) < total:
            size = min(total - len(found), BATCH)
            batch = step(size, conn)
            found += batch
            show(len(found))
            if len(batch) < size:
                break
    return [replace(one, ordinal=number) for number, one in enumerate(found, 1)]


def cancel(
    job_ids: JobIds,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """End live jobs, also those that run; exit code 1 if one is not there."""
    _each(job_ids, dsn, schema, "cancel", ("cancelled",), as_json)


def promote(
    job_ids: JobIds,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Let scheduled or retrying jobs run now; exit code 1 if one cannot."""
    _each(job_ids, dsn, schema, "promote", ("promoted", "ready", "running"), as_json)


def _each(
    job_ids: Sequence[int],
    dsn: str,
    schema: str,
    method: str,
    done: Sequence[str],
    as_json: bool,
) -> None:
    found = _change(job_ids, dsn, schema, method)
    if as_json:
        print_json([{"job_id": job_id, "outcome": outcome} for job_id, outcome in found])
    else:
        print_table(("id", "outcome"), found)
    if not {outcome for _, outcome in found} <= set(done):
        raise typer.Exit(FAILED)


def purge(
    queue: Names,
    yes: Yes = False,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Remove every job of queues that does not run, for good; dead ones stay."""
    which = ", ".join(queue)
    confirm(f"Remove every job of {which} that does not run, for good?", yes=yes)
    removed = _change(queue, dsn, schema, "purge_queue")
    if as_json:
        print_json([{"queue": name, "removed": count} for name, count in removed])
        return
    for name, count in removed:
        print(f'queue "{name}": {counted(count, "job")} removed')


def sweep(
    n: Annotated[
        int,
        typer.Option(
            "-n",
            parser=integer(0),
            metavar="INTEGER",
            help="No more than so many of a kind at a time.",
        ),
    ] = SWEPT,
    until_done: Annotated[
        bool, typer.Option("--until-done", help="Again and again, until nothing is left to do.")
    ] = False,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Do the upkeep: leases that ran out, expiries, history; for cron, every minute."""
    done: dict[str, int] = {}
    with opened(dsn, schema, "admin") as client, progress("swept", None, quiet=as_json) as show:
        while True:
            counts = {one.task: one.count for one in client.sweep(n)}
            done = {task: done.get(task, 0) + count for task, count in counts.items()}
            show(sum(done.values()))
            # Below the limit of one queue: then no queue came up against it.
            if not until_done or max(counts.values()) < max(n, 1):
                break
    found = [Swept(task, count) for task, count in done.items()]
    if as_json:
        print_json(found)
    else:
        print_table(("task", "count"), ((one.task, one.count) for one in found))


def pause(
    queue: Names,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Let claims of queues find nothing, until resume; running jobs go on, enqueue works."""
    changed = _change(queue, dsn, schema, "pause_queue")
    _told(changed, "paused", "was paused already", as_json)


def resume(
    queue: Names,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """End the pause of queues."""
    changed = _change(queue, dsn, schema, "resume_queue")
    _told(changed, "resumed", "was not paused", as_json)


def _change(of: Sequence[Key], dsn: str, schema: str, method: str) -> list[tuple[Key, Any]]:
    """What a method of the client answers for each; all of them, or none."""
    with opened(dsn, schema, "admin") as client, client._borrow() as conn, conn.transaction():
        # In one order, so that two of these do not wait for each other.
        answers = {each: getattr(client, method)(each, conn=conn) for each in sorted(set(of))}
    return [(each, answers[each]) for each in dict.fromkeys(of)]


def _told(answers: Sequence[tuple[str, bool]], new: str, same: str, as_json: bool) -> None:
    if as_json:
        print_json([{"queue": name, "changed": changed} for name, changed in answers])
        return
    for name, changed in answers:
        print(f'queue "{name}" {new if changed else same}')


commands = (redrive, discard, cancel, promote, purge, pause, resume, sweep)
