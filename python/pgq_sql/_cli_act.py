"""The commands that make jobs, and change jobs and queues."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.progress import Progress

from . import _install
from ._cli_base import (
    AsJson,
    Dsn,
    Raw,
    Schema,
    backoff,
    dedup_mode,
    duration,
    instant,
    jitter,
    json_object,
    json_value,
    opened,
    print_json,
    print_table,
)
from .client import Client
from .models import Outcome
from .words import Backoff, DedupMode

BATCH = 1000
"""Jobs that one statement of `enqueue --many` sends."""


def _duration(text: str) -> Any:
    return typer.Option(parser=duration, metavar="DURATION", help=text)


Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would come.")]
DeadIds = Annotated[list[int] | None, typer.Argument(metavar="ID", help="Ids of dead jobs.")]
OfQueue = Annotated[str | None, typer.Option("--queue", "-q", help="Those of this queue.")]
First = Annotated[
    int | None, typer.Option("-n", min=0, help="With --queue: those that died first. Default: all.")
]
Names = Annotated[list[str], typer.Argument(metavar="QUEUE", help="Names of queues.")]


def enqueue(
    queue: Annotated[str, typer.Argument(help="The name of the queue.")],
    payload: Annotated[
        str | None,
        typer.Argument(help="JSON; - reads it from stdin. Default: {}, with --many -."),
    ] = None,
    many: Annotated[
        bool, typer.Option("--many", help="A job for each line of the payload, all or none.")
    ] = False,
    priority: Annotated[int | None, typer.Option(help="Higher runs first.")] = None,
    delay: Annotated[timedelta | None, _duration("Run so long from now.")] = None,
    run_at: Annotated[
        datetime | None,
        typer.Option(parser=instant, metavar="INSTANT", help="Run then: 2030-01-31T12:00:00Z."),
    ] = None,
    max_attempts: Annotated[int | None, typer.Option(help="Runs in all.")] = None,
    visibility_timeout: Annotated[timedelta | None, _duration("Length of a lease.")] = None,
    expires_in: Annotated[
        timedelta | None, _duration("Dead if not finished so long after its run time.")
    ] = None,
    retry_backoff: Annotated[
        str | None,
        typer.Option(parser=backoff, metavar="CURVE", help="fixed, linear or exponential."),
    ] = None,
    retry_factor: Annotated[float | None, typer.Option(help="Base of the exponential.")] = None,
    retry_delay: Annotated[timedelta | None, _duration("Delay before the second run.")] = None,
    retry_max_delay: Annotated[timedelta | None, _duration("Longest delay.")] = None,
    retry_jitter: Annotated[
        Any,
        typer.Option(parser=jitter, metavar="LOW,HIGH", help="A delay is multiplied within these."),
    ] = None,
    dedup_key: Annotated[
        str | None, typer.Option(help="One live job of the queue has this key.")
    ] = None,
    dedup_mode: Annotated[
        str | None,
        typer.Option(
            parser=dedup_mode, metavar="MODE", help="ignore keeps the old job, replace this one."
        ),
    ] = None,
    headers: Annotated[
        Any, typer.Option(parser=json_object, metavar="JSON", help="An object beside the payload.")
    ] = None,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Put a job into a queue, or with --many one for each line."""
    if many and dedup_key is not None:
        raise typer.BadParameter(
            "with --many every job would have the key", param_hint="--dedup-key"
        )
    payloads = _payloads(payload, many)
    common: dict[str, Any] = {
        "max_attempts": max_attempts,
        "visibility_timeout": visibility_timeout,
        "expires_in": expires_in,
        "retry_backoff": cast("Backoff | None", retry_backoff),
        "retry_factor": retry_factor,
        "retry_delay": retry_delay,
        "retry_max_delay": retry_max_delay,
        "retry_jitter": retry_jitter,
        "dedup_mode": cast("DedupMode | None", dedup_mode),
    }
    own = {"priority": priority, "delay": delay, "run_at": run_at, "headers": headers}
    with opened(dsn, schema) as client:
        if many:
            _told_many(list(_send(client, queue, payloads, own, common)), as_json)
            return
        made = client.enqueue(queue, payloads[0], dedup_key=dedup_key, **own, **common)
    if as_json:
        print_json(made)
    else:
        print(f"job {made.job_id}: {made.outcome}")


def _payloads(payload: str | None, many: bool) -> list[Raw]:
    """What was typed, read and checked before anything is sent."""
    if payload is None:
        payload = "-" if many else "{}"
    text = _stdin() if payload == "-" else payload
    if not many:
        return [_read(text, "PAYLOAD")]
    # Not splitlines(), which also splits at what JSON allows inside a text.
    lines = enumerate(text.split("\n"), 1)
    return [_read(line, f"line {number}") for number, line in lines if line.strip()]


def _stdin() -> str:
    try:
        # JSON is UTF-8, whatever the locale; Windows begins files with a mark.
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"stdin is not UTF-8: {error}", param_hint="PAYLOAD") from error


def _read(text: str, where: str) -> Raw:
    try:
        return json_value(text)
    except typer.BadParameter as error:
        raise typer.BadParameter(error.message, param_hint=where) from error


def _send(
    client: Client,
    queue: str,
    payloads: Sequence[Raw],
    own: dict[str, Any],
    common: dict[str, Any],
) -> Iterator[Outcome]:
    plural = {"priority": "priorities", "delay": "delays", "run_at": "run_ats"}
    own = {plural.get(name, name): value for name, value in own.items() if value is not None}
    progress = Progress(console=Console(stderr=True), transient=True)
    progress.disable = not progress.console.is_terminal
    with progress, client._borrow() as conn, conn.transaction():
        for first in progress.track(range(0, len(payloads), BATCH), description="sent"):
            batch = payloads[first : first + BATCH]
            each: dict[str, Any] = {name: [value] * len(batch) for name, value in own.items()}
            for made in client.enqueue_many(queue, batch, conn=conn, **each, **common):
                yield Outcome(first + made.ordinal, made.job_id, made.outcome)


def _told_many(made: Sequence[Outcome], as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    print(_counted(len(made), "job") + (f": {_ids(made)}" if made else ""))


def _ids(made: Sequence[Outcome]) -> str:
    low, high = min(one.job_id for one in made), max(one.job_id for one in made)
    return f"{low}" if low == high else f"{low} to {high}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def redrive(
    dead_ids: DeadIds = None,
    queue: OfQueue = None,
    n: First = None,
    dry_run: DryRun = False,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Bring dead jobs back, all or none, each under its id and with all its attempts."""
    ids = _chosen(dead_ids, queue, n)
    with opened(dsn, schema) as client:
        found = client.redrive(ids, queue=queue, n=n, dry_run=dry_run)
    if as_json:
        print_json(found)
        return
    print_table(("id", "outcome"), ((one.job_id, one.outcome) for one in found))


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
    ids = _chosen(dead_ids, queue, n)
    if queue is not None and not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter(
                "say --yes to remove what you did not name", param_hint="--queue"
            )
        which = "all dead jobs" if n is None else f"the first {n} dead jobs"
        typer.confirm(f"Remove {which} of {queue} for good?", abort=True, err=True)
    with opened(dsn, schema) as client:
        count = client.discard_dead(ids, queue=queue, n=n)
    if as_json:
        print_json({"discarded": count})
    else:
        print(f"{_counted(count, 'dead job')} discarded")


def _chosen(ids: list[int] | None, queue: str | None, n: int | None) -> list[int] | None:
    if bool(ids) == (queue is not None):
        raise typer.BadParameter("give either ids or --queue", param_hint="ID")
    if n is not None and queue is None:
        raise typer.BadParameter("-n goes with --queue", param_hint="-n")
    return ids or None


def sweep(
    n: Annotated[
        int | None, typer.Option("-n", min=0, help="No more than so many of a kind at a time.")
    ] = None,
    dsn: Dsn = "",
    schema: Schema = _install.SCHEMA,
    as_json: AsJson = False,
) -> None:
    """Do the upkeep: leases that ran out, expiries, history; for cron, every minute."""
    with opened(dsn, schema) as client:
        done = client.sweep(n)
    if as_json:
        print_json(done)
    else:
        print_table(("task", "count"), ((one.task, one.count) for one in done))


def pause(queue: Names, dsn: Dsn = "", schema: Schema = _install.SCHEMA) -> None:
    """Let claims of queues find nothing, until resume; running jobs go on, enqueue works."""
    _switch(queue, dsn, schema, "pause_queue", "paused", "was paused already")


def resume(queue: Names, dsn: Dsn = "", schema: Schema = _install.SCHEMA) -> None:
    """End the pause of queues."""
    _switch(queue, dsn, schema, "resume_queue", "resumed", "was not paused")


def _switch(
    names: Sequence[str], dsn: str, schema: str, method: str, changed: str, same: str
) -> None:
    with opened(dsn, schema) as client:
        with client._borrow() as conn, conn.transaction():
            # In one order, so that two of these do not wait for each other.
            answers = {
                name: getattr(client, method)(name, conn=conn) for name in sorted(set(names))
            }
        for name in dict.fromkeys(names):
            print(f'queue "{name}" {changed if answers[name] else same}')


commands = (enqueue, redrive, discard, sweep, pause, resume)
