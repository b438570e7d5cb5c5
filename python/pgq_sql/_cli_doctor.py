"""`pgq doctor`: what the database finds, and what shows only from where workers stand."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

import psycopg
import typer
from psycopg import sql

from . import _install
from ._cli_base import FAILED, AsJson, Dsn, Schema, lost, opened
from ._cli_output import print_json, print_table
from ._listener import HEARS_WITHIN, TRIAL
from ._views import view_rows
from .client import Client
from .errors import VersionMismatch
from .models import Finding

SKEW = 2.0
"""Seconds by which two clocks may differ."""
LOOKS = 3


def doctor(dsn: Dsn = "", schema: Schema = _install.SCHEMA, as_json: AsJson = False) -> None:
    """Say what is wrong, or about to be, and what to do; exit code 1 if it is an error."""
    try:
        with opened(dsn, schema, "observer") as client:
            found = [*client.doctor(), *_clocks(client), *_notifications(client)]
    except VersionMismatch as error:
        found = [Finding("error", "does not fit", "schema", str(error), error.hint or "")]
    if as_json:
        print_json(found)
    elif found:
        print_table(
            ("severity", "finding", "subject", "detail", "hint"),
            ((one.severity, one.finding, one.subject, one.detail, one.hint) for one in found),
            whole=True,
        )
    else:
        print("nothing found: the schema fits, notifications arrive, the clocks agree")
    if any(one.severity == "error" for one in found):
        raise typer.Exit(FAILED)


def _clocks(client: Client) -> Iterator[Finding]:
    ahead, unsure = min((_ahead(client) for _ in range(LOOKS)), key=lambda look: look[1])
    if abs(ahead) - unsure > SKEW:
        way = "behind" if ahead > 0 else "ahead of"
        yield Finding(
            "warning",
            "clocks differ",
            "this machine",
            f"its clock is {abs(ahead):.1f} s {way} the database's",
            "Synchronize both: jobs run by the database's clock, and run_at is often made by ours.",
        )


def _ahead(client: Client) -> tuple[float, float]:
    """How far the database's clock is ahead of ours, and how far that may be wrong; in seconds."""
    asked, before = time.time(), time.monotonic()
    ((theirs,),) = view_rows(client, "select extract(epoch from clock_timestamp())::float8")
    half = (time.monotonic() - before) / 2
    return theirs - asked - half, half


def _notifications(client: Client) -> Iterator[Finding]:
    """A round trip, as a worker hears of a new job."""
    channel, word = sql.Identifier(TRIAL), secrets.token_hex(8)
    try:
        with client._connect() as listener:
            listener.execute(sql.SQL("listen {}").format(channel))
            view_rows(client, f"select pg_notify('{TRIAL}', '{word}')")
            # Workers and other doctors try that, too.
            heard = any(one.payload == word for one in listener.notifies(timeout=HEARS_WITHIN))
            # A pooler's session goes on.
            listener.execute(sql.SQL("unlisten {}").format(channel))
            if heard:
                return
            detail = "the connection does not get notifications: a pooler swallows them"
    except psycopg.Error as error:
        if lost(error):
            raise
        detail = f"LISTEN is refused: {_install.with_hint(error)}"
    yield Finding(
        "warning",
        "no notifications",
        "LISTEN",
        detail,
        "Workers will only poll. Give them a --listener-dsn that leads to the server itself.",
    )


commands = (doctor,)
