"""The command that makes jobs."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from . import _install
from ._cli_base import AsJson, Dsn, Schema, opened
from ._cli_output import counted, print_json, progress
from ._cli_values import (
    Raw,
    backoff,
    dedup_mode,
    duration,
    instant,
    integer,
    jitter,
    json_object,
    json_value,
)
from .client import Client
from .models import Outcome
from .words import Backoff, DedupMode

BATCH = 1000
"""Jobs that one statement of `enqueue --many` sends."""


def _duration(text: str) -> Any:
    return typer.Option(parser=duration, metavar="DURATION", help=text)


def _integer(text: str) -> Any:
    return typer.Option(parser=integer(), metavar="INTEGER", help=text)


def enqueue(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.")],
    payload: Annotated[
        str | None,
        typer.Argument(metavar="PAYLOAD", help="JSON; - reads it from stdin. Default: {}."),
    ] = None,
    many: Annotated[
        str | None,
        typer.Option(
            "--many",
            metavar="FILE",
            help="A job for each line of a file of JSON, all or none; - reads stdin.",
        ),
    ] = None,
    priority: Annotated[int | None, _integer("Higher runs first.")] = None,
    delay: Annotated[timedelta | None, _duration("Run so long from now.")] = None,
    run_at: Annotated[
        datetime | None,
        typer.Option(parser=instant, metavar="INSTANT", help="Run then: 2030-01-31T12:00:00Z."),
    ] = None,
    max_attempts: Annotated[int | None, _integer("Runs in all.")] = None,
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
    dedup_field: Annotated[
        str | None, typer.Option(help="The key is what the payload has under this name.")
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
    if many is not None and payload is not None:
        raise typer.BadParameter("give either PAYLOAD or --many", param_hint="PAYLOAD")
    if dedup_key is not None and (many is not None or dedup_field is not None):
        raise typer.BadParameter(
            "with --many or --dedup-field no job has the key", param_hint="--dedup-key"
        )
    if many is None:
        text = "{}" if payload is None else _stdin() if payload == "-" else payload
        payloads = [_read(text, "PAYLOAD")]
    else:
        payloads = list(_lines(many))
    keys = None if dedup_field is None else _keys(payloads, dedup_field)
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
    with opened(dsn, schema, "producer") as client:
        if many is not None:
            with progress("enqueued", len(payloads), quiet=as_json) as show:
                made = _send(client, queue, payloads, keys, own, common, show)
            _told_many(made, as_json)
            return
        key = dedup_key if keys is None else keys[0]
        one = client.enqueue(queue, payloads[0], dedup_key=key, **own, **common)
    if as_json:
        print_json(one)
    else:
        print(f"job {one.job_id}: {one.outcome}")


def _lines(file: str) -> Iterator[Raw]:
    """What the lines of a file hold, checked before anything is sent."""
    if file == "-":
        text = _stdin()
    else:
        try:
            text = Path(file).read_text(encoding="utf-8-sig")
        except OSError as error:
            why = f"{file}: {(error.strerror or str(error)).lower()}"
            raise typer.BadParameter(why, param_hint="--many") from error
        except ValueError as error:  # a NUL in the name comes here, too
            raise typer.BadParameter(f"{file}: {error}", param_hint="--many") from error
    # Not splitlines(), which also splits at what JSON allows inside a text.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _read(line, f"line {number}")


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


def _keys(payloads: Sequence[Raw], field: str) -> list[str]:
    """The texts and numbers that payloads have under a name."""
    keys = []
    for number, payload in enumerate(payloads, 1):
        # Numbers as they were typed.
        value = json.loads(payload.text, parse_float=str, parse_int=str)
        key = value.get(field) if isinstance(value, dict) else None
        if not isinstance(key, str):
            raise typer.BadParameter(
                f"payload {number} has no text or number named {field}", param_hint="--dedup-field"
            )
        keys.append(key)
    return keys


def _send(
    client: Client,
    queue: str,
    payloads: Sequence[Raw],
    keys: Sequence[str] | None,
    own: dict[str, Any],
    common: dict[str, Any],
    show: Callable[[int], None],
) -> list[Outcome]:
    """Enqueue them all, or none."""
    made: list[Outcome] = []
    plural = {"priority": "priorities", "delay": "delays", "run_at": "run_ats"}
    own = {plural.get(name, name): value for name, value in own.items() if value is not None}
    with client._borrow() as conn, conn.transaction():
        for first in range(0, len(payloads), BATCH):
            batch = payloads[first : first + BATCH]
            each: dict[str, Any] = {name: [value] * len(batch) for name, value in own.items()}
            if keys is not None:
                each["dedup_keys"] = keys[first : first + BATCH]
            made += client.enqueue_many(queue, batch, conn=conn, **each, **common)
            show(len(made))
    return [replace(one, ordinal=number) for number, one in enumerate(made, 1)]


def _told_many(made: Sequence[Outcome], as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
    line = counted(len(made), "job")
    if made:
        low, high = min(one.job_id for one in made), max(one.job_id for one in made)
        line += f": {low}" if low == high else f": {low} to {high}"
    outcomes = Counter(one.outcome for one in made)
    line += "".join(
        f", {count} {outcome}" for outcome, count in outcomes.items() if outcome != "inserted"
    )
    print(line)


commands = (enqueue,)
