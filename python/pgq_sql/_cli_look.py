"""The commands that look and change nothing."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, cast

import psycopg
import typer

from . import _install
from ._cli_base import AsJson, Dsn, Schema, explain, lost, opened
from ._cli_output import NOTHING, cell, clip, console, grid, plain, print_json, print_table
from ._cli_values import Raw, integer, json_value, state
from ._views import all_stats, view_rows
from .client import Client
from .errors import JobNotFound
from .models import JobState, QueueState
from .words import State

if TYPE_CHECKING:
    from rich.console import RenderableType

QUEUES = (
    "queue",
    "paused",
    "max_attempts",
    "visibility_timeout",
    "retry_backoff",
    "retry_factor",
    "retry_delay",
    "retry_max_delay",
    "retry_jitter",
    "expires_in",
    "keep_done",
    "keep_dead",
    "dead_letter_queue",
    "notify",
    "max_payload",
    "created_at",
)
"""Columns of the view; the table shows those that most often differ."""
QUEUES_SHOWN = (
    "queue",
    "paused",
    "max_attempts",
    "visibility_timeout",
    "retry_backoff",
    "retry_delay",
    "expires_in",
    "keep_done",
    "keep_dead",
    "dead_letter_queue",
)

STATS_SHOWN = (
    "queue",
    "ready",
    "scheduled",
    "suspended",
    "running",
    "dead",
    "oldest",
    "done /min",
    "dead /min",
    "note",
)

NO_QUEUES = "no queues yet; make one with: pgq create NAME"

REFRESH = 1.0
"""Seconds between two frames of `top`."""

KEEP = (
    "Done jobs stay as long as their queue's keep_done says, not at all unless set: "
    "select pgq_sql.alter_queue('NAME', keep_done => '7 days')"
)

Queue = Annotated[str | None, typer.Option("--queue", "-q", help="Only of this queue.")]
Named = Annotated[str | None, typer.Argument(metavar="QUEUE", help="Only of this queue.")]
After = Annotated[
    int,
    typer.Option(parser=integer(0), metavar="INTEGER", help="Begin after this id: the next page."),
]
Number = Annotated[
    int, typer.Option("-n", parser=integer(0), metavar="INTEGER", help="No more than so many.")
]
PayloadHas = Annotated[
    Any,
    typer.Option(
        parser=json_value, metavar="JSON", help="Only those whose payload contains this (jsonb @>)."
    ),
]


def queues(dsn: Dsn = "", schema: Schema = _install.SCHEMA, as_json: AsJson = False) -> None:
    """List the queues and their settings."""
    with opened(dsn, schema, "observer") as client:
        columns = ", ".join(_COLUMNS.get(name, name) for name in QUEUES)
        found = view_rows(client, f"select {columns} from {{schema}}.queues order by queue")  # noqa: S608
    rows = [
        {name: _setting(name, value) for name, value in zip(QUEUES, row, strict=True)}
        for row in found
    ]
    if as_json:
        print_json(rows)
        return
    names = [name.replace("_", " ") for name in QUEUES_SHOWN]
    print_table(
        names,
        ([row[name] for name in QUEUES_SHOWN] for row in rows),
        none=NO_QUEUES,
        spare=names[:0:-1],
    )


# psycopg cannot read an interval of infinity.
_COLUMNS = {
    name: f"extract(epoch from {name})::double precision" for name in ("keep_done", "keep_dead")
}


def _setting(name: str, value: Any) -> object:
    if name in _COLUMNS:
        return timedelta.max if math.isinf(value) else timedelta(seconds=value)
    if name == "retry_jitter":
        return [float(value.lower), float(value.upper)]
    return value


def stats(
    queue: Annotated[list[str] | None, typer.Argument(help="Of these. Default: all.")] = None,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Count the jobs of queues by state; no queue's size makes it slow."""
    with opened(dsn, schema, "observer") as client:
        found = [client.queue_stats(name) for name in queue] if queue else all_stats(client)
    if as_json:
        print_json(found)
    else:
        print_table(STATS_SHOWN, map(_figures, found), none=NO_QUEUES)


def _figures(one: QueueState) -> list[object]:
    return [
        *(one.queue, one.ready, one.scheduled, one.suspended, one.running, one.dead),
        _seconds(one.oldest_ready),
        NOTHING if one.done_last_minute is None else one.done_last_minute,
        *(one.dead_last_minute, _note(one.paused, one.exact)),
    ]


def _note(paused: bool, exact: bool) -> str:
    return ", ".join(["paused"] * paused + ["at least"] * (not exact))


def _seconds(span: timedelta | None) -> timedelta | None:
    return None if span is None else timedelta(seconds=span // timedelta(seconds=1))


def jobs(
    named: Named = None,
    queue: Queue = None,
    state: Annotated[
        str | None,
        typer.Option("--state", parser=state, metavar="STATE", help="Only in this state."),
    ] = None,
    worker: Annotated[str | None, typer.Option(help="Only those this worker claimed last.")] = None,
    payload_has: PayloadHas = None,
    after: After = 0,
    n: Number = 100,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """List jobs in the order of their ids: live, dead and done."""
    with opened(dsn, schema, "observer") as client:
        found = client.list_jobs(
            queue=_one(named, queue),
            state=cast("State | None", state),
            worker=worker,
            payload_has=_not_null(payload_has),
            after=after,
            n=n,
        )
    if as_json:
        print_json(found)
        return
    names = ("id", "queue", "state", "priority", "attempt", "run at", "worker", "error", "payload")
    print_table(
        names,
        (
            (
                *(job.job_id, job.queue, job.state, job.priority),
                *(f"{job.attempt}/{job.max_attempts}", job.run_at, job.worker),
                *(_headline(job.last_error), clip(cell(job.payload))),
            )
            for job in found
        ),
        none="no such jobs",
        spare=("priority", "worker", "attempt", "run at"),
    )
    _tell_more(found, n)


def dead(
    named: Named = None,
    queue: Queue = None,
    payload_has: PayloadHas = None,
    after: After = 0,
    n: Number = 100,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """List dead jobs in the order of their ids, and what they died of."""
    with opened(dsn, schema, "observer") as client:
        found = client.list_jobs(
            queue=_one(named, queue),
            state="dead",
            payload_has=_not_null(payload_has),
            after=after,
            n=n,
        )
    if as_json:
        print_json(found)
        return
    print_table(
        ("id", "queue", "died at", "attempt", "reason", "error", "payload"),
        (
            (
                *(job.job_id, job.queue, job.ended_at, f"{job.attempt}/{job.max_attempts}"),
                *(job.reason, _headline(job.last_error), clip(cell(job.payload))),
            )
            for job in found
        ),
        none="no such dead jobs",
        spare=("attempt", "reason", "died at"),
    )
    _tell_more(found, n)


def _one(named: str | None, queue: str | None) -> str | None:
    """The queue, which may be said in either way."""
    if named is not None and queue is not None:
        raise typer.BadParameter("give the queue once", param_hint="--queue")
    return queue if named is None else named


def _not_null(value: Raw | None) -> Raw | None:
    if value is not None and value.text.strip() == "null":
        raise typer.BadParameter("null would be no filter", param_hint="--payload-has")
    return value


def _headline(error: str | None) -> str:
    return clip(cell((error or "").partition("\n")[0]))


def _tell_more(found: Sequence[JobState], n: int) -> None:
    if found and len(found) == n:
        print(f"There may be more: --after {found[-1].job_id}", file=sys.stderr)


def job(
    job_id: Annotated[
        int, typer.Argument(parser=integer(), metavar="ID", help="The id of the job.")
    ],
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Show all of a job: live, dead or done."""
    with opened(dsn, schema, "observer") as client:
        found = client.get_job(job_id)
    if found is None:
        raise JobNotFound(f"there is no job {job_id}", hint=KEEP)
    if as_json:
        print_json(found)
        return
    values = {name: getattr(found, name) for name in plain(found)}
    print_table(
        ("field", "value"),
        ((name, cell(value)) for name, value in values.items() if value is not None),
        whole=True,
    )


def top(
    once: Annotated[bool, typer.Option("--once", help="Print it once, and end.")] = False,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Watch all queues, with new figures every second, until Ctrl-C."""
    with opened(dsn, schema, "observer") as client:
        found = all_stats(client)
        if as_json:
            print_json(found)
            return
        on = console()
        if once or not on.is_terminal:
            print_table(STATS_SHOWN, _all_figures(found))
            return
        from rich.live import Live

        try:
            with Live(_frame(found, on.width), console=on, screen=True, auto_refresh=False) as live:
                while True:
                    time.sleep(REFRESH)
                    found, trouble = _look(client, found)
                    live.update(_frame(found, on.width, trouble), refresh=True)
        except KeyboardInterrupt:
            return


def _look(client: Client, before: list[QueueState]) -> tuple[list[QueueState], str]:
    """New figures; while the database is away the old ones, and why."""
    try:
        return all_stats(client), ""
    except psycopg.Error as error:
        if not lost(error):
            raise
        return before, f"not reachable, trying again: {explain(error)}"


def _frame(found: Sequence[QueueState], width: int, trouble: str = "") -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    now = f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}   Ctrl-C ends"
    return Group(
        Text(trouble or now, style="red" if trouble else "dim"),
        grid(STATS_SHOWN, _all_figures(found), width),
    )


def _all_figures(found: Sequence[QueueState]) -> list[list[object]]:
    ages = [one.oldest_ready for one in found if one.oldest_ready is not None]
    done = [one.done_last_minute for one in found if one.done_last_minute is not None]
    total: list[object] = [
        *("all", sum(one.ready for one in found), sum(one.scheduled for one in found)),
        *(sum(one.suspended for one in found), sum(one.running for one in found)),
        sum(one.dead for one in found),
        _seconds(max(ages, default=None)),
        sum(done) if done else NOTHING,
        sum(one.dead_last_minute for one in found),
        _note(False, all(one.exact for one in found)),
    ]
    return [*map(_figures, found), total]


commands = (queues, stats, jobs, job, dead, top)
