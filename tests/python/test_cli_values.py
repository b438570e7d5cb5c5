"""What `pgq` reads from a command line, and how its tables fit a terminal."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
import typer
from rich.console import Console

from pgq_sql import _cli_base, _cli_output, _cli_values
from ways import pgq


def test_a_narrow_terminal_keeps_the_numbers() -> None:
    row = (123456789, "a" * 50, datetime(2030, 1, 1, tzinfo=UTC), "b" * 80, timedelta(seconds=90))
    console = Console(file=io.StringIO(), width=60, force_terminal=True, color_system=None)
    for whole in (False, True):
        table = _cli_output.grid(
            ("id", "queue", "due at", "payload", "age"), [row], 60, whole=whole
        )
        with console.capture() as capture:
            console.print(table)
        shown = capture.get()
        assert all(text in shown for text in ("123456789", "2030-01-01T00:00:00Z", "1m30s"))
        assert (shown.count("\n") == 2) != whole
        assert (shown.count("a") == 50 + 4) == whole


def shown(names: tuple[str, ...], rows: list[tuple[object, ...]], width: int) -> str:
    """A table of which worker, attempt and due at may go."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    spare = ("worker", "attempt", "due at")
    with console.capture() as capture:
        console.print(_cli_output.grid(names, rows, width, spare=spare))
    return capture.get()


def test_columns_give_way_before_texts_that_are_read() -> None:
    names = ("id", "worker", "attempt", "due at", "error")
    due = datetime(2030, 1, 1, tzinfo=UTC)
    rows: list[tuple[object, ...]] = [(1, "w" * 30, "1/3", due, "e" * 40)]
    rows.append((2, "v" * 30, "1/3", due + timedelta(days=1), "e" * 40))
    wide = shown(names, rows, 200)
    assert all(name in wide for name in names)
    # What is the same in all goes first, and then as it is named.
    for width, gone in (
        (60, ["attempt"]),
        (59, ["worker", "attempt"]),
        (42, ["worker", "attempt"]),
    ):
        assert [name for name in names if name not in shown(names, rows, width)] == gone
    assert "due at" not in shown(names, rows, 41)
    narrow = shown(names, rows, 30)
    assert narrow.split()[:2] == ["id", "error"]
    assert "e" * 20 in narrow
    # What says nothing goes before anything else.
    rows = [(1, None, "1/3", due, "e" * 40), (2, None, "2/3", due, "e" * 40)]
    assert [name for name in names if name not in shown(names, rows, 58)] == ["worker"]


def test_heads_wrap_where_they_do_not_fit() -> None:
    names = ("queue", "dead letter queue", "keep done")
    told = shown(names, [("mails", "letters", timedelta(days=7))], 24)
    heads = [*("dead", "letter", "keep"), *("queue", "queue", "done")]
    assert told.split() == [*heads, "mails", "letters", "7d"]


def test_integers() -> None:
    assert [_cli_values.integer()(text) for text in ("7", "-3", 5)] == [7, -3, 5]
    for text in ("", "x", "1.0", "1_0", "9" * 20, "٣"):
        with pytest.raises(typer.BadParameter, match="no number"):
            _cli_values.integer()(text)
    with pytest.raises(typer.BadParameter, match="-1 is less than 0"):
        _cli_values.integer(0)("-1")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("500ms", 0.5), ("10s", 10), ("5m", 300), ("2h", 7200), ("1d", 86400)),
        *(("1h30m", 5400), ("2w", 1209600), ("0s", 0), ("1.5s", 1.5)),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    span = _cli_values.duration(text)
    assert span == timedelta(seconds=seconds)
    assert _cli_values.duration(_cli_output.brief(span)) == span


@pytest.mark.parametrize(
    "text", ["", "10", "s", "10 s", "-1s", "1y", "1h-1m", "٣s", "9" * 30 + "d"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        _cli_values.duration(text)


def test_instants() -> None:
    assert _cli_values.instant("2030-01-31T12:00:00Z") == datetime(2030, 1, 31, 12, tzinfo=UTC)
    assert (
        _cli_output.plain(_cli_values.instant("2030-01-31T12:00:00+01:00"))
        == "2030-01-31T11:00:00Z"
    )
    for text in ("2030-01-31T12:00:00", "tomorrow", "2030-01-31"):
        with pytest.raises(typer.BadParameter):
            _cli_values.instant(text)


def test_usage_in_plain_words(database: str) -> None:
    for arguments, message in (
        (("job", "x"), "invalid value for 'ID': x is no number."),
        (("jobs", "-n", "-1"), "invalid value for '-n': -1 is less than 0."),
        (("jobs", "--after", "9" * 20), f"invalid value for '--after': {'9' * 20} is no number."),
        (("purge", "mails"), "needs --yes where nobody can be asked: Remove every job of mails"),
        (("enqueue", "q", "--many", "/nowhere"), "/nowhere: no such file or directory."),
    ):
        assert message in pgq(database, *arguments, fails=True).err


def test_nothing_there(empty_database: str) -> None:
    pgq(empty_database, "migrate")
    for command, message in (
        ("queues", "no queues yet; make one with: pgq create NAME\n"),
        ("stats", "no queues yet; make one with: pgq create NAME\n"),
        ("jobs", "no such jobs\n"),
        ("dead", "no such dead jobs\n"),
    ):
        told = pgq(empty_database, command)
        assert (told.out, told.err) == ("", message)
        told = pgq(empty_database, command, "--json")
        assert (json.loads(told.out), told.err) == ([], "")


def test_a_server_that_ends_is_not_reachable() -> None:
    for error, code in (
        (psycopg.OperationalError("gone"), True),
        (psycopg.errors.AdminShutdown("terminating"), True),
        (psycopg.errors.QueryCanceled("timeout"), False),
        (psycopg.errors.UniqueViolation("twice"), False),
    ):
        assert _cli_base.lost(error) == code
