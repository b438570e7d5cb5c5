"""Odd ways to raise, and odd wishes: added to the cases of `odd_exceptions`."""

from __future__ import annotations

import _thread
import itertools
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from odd_exceptions import (
    CASES,
    HOUR,
    MEGA,
    Case,
    case,
    endless,
    failing,
    hostile,
    raising,
)
from pgq_sql import DeadLetter, Retry, Snooze
from pgq_sql._settlements import LONGEST

# Groups


def nested(depth: int) -> BaseException:
    error: Any = ValueError("innermost")
    for _ in range(depth):
        error = ExceptionGroup("group", [error])
    assert isinstance(error, BaseException)
    return error


CASES["group in groups"] = Case(raising(nested(3000)), ("ExceptionGroup",))
CASES["group of many"] = Case(
    raising(ExceptionGroup("many", [ValueError(str(number)) for number in range(5000)])),
    ("ExceptionGroup", "many"),
)
CASES["group of hostile ones"] = Case(
    raising(BaseExceptionGroup("odd", [hostile("Mute", __str__=endless), GeneratorExit()])),
    ("BaseExceptionGroup", "odd"),
)
CASES["group of wishes"] = Case(
    raising(ExceptionGroup("odd", [DeadLetter(), Snooze(HOUR)])), ("ExceptionGroup",)
)


# Frames


COUNT = itertools.count()


def code(filename: str = "", name: str = "odd", **variables: Any) -> Callable[[], object]:
    """A function that fails, from a file that isn't there."""
    # Python looks for the source by the file's name, and remembers what it found.
    filename = filename or f"odd{next(COUNT)}.py"
    space: dict[str, Any] = {"__name__": "odd", **variables}
    exec("def odd():\n  raise ValueError('odd')", space)
    odd = space["odd"]
    odd.__code__ = odd.__code__.replace(co_filename=filename, co_name=name)
    return odd  # type: ignore[no-any-return]


class HostileLoader:
    get_source = failing(ZeroDivisionError("no source"))


for title, act in {
    "a file name with NUL": code("a\0b.py"),
    "a file name with a surrogate": code("\udcff.py"),
    "a file name of 10 MB": code("x" * 10 * MEGA),
    "a file name of lines": code("a\nb" * 1000),
    "a file that is a device": code("/dev/null"),
    "a file that is a folder": code("/"),
    "a function name with NUL": code(name="\0"),
    "a function name with a surrogate": code(name="\ud800"),
    "a function name of 10 MB": code(name="x" * 10 * MEGA),
    "a loader that fails": code(__loader__=HostileLoader()),
    "a loader that is a number": code(__loader__=42),
    "a module name that is a number": code(__name__=42),
}.items():
    CASES[title] = Case(act, ("ValueError", "odd"))


@case("RecursionError")
def _recursion() -> object:
    return endless()


@case("ValueError", "deep")
def _deep() -> None:
    def fall(depth: int) -> None:
        if not depth:
            raise ValueError("deep")
        fall(depth - 1)

    fall(400)


@case("SyntaxError")
def _syntax() -> None:
    raise SyntaxError("odd", ("\0", -5, 10**9, "\ud800", None, None))


@case("SyntaxError")
def _syntax_of_a_text() -> object:
    return compile("(" * 500, "\udcff", "exec")


# Ways to raise


@case("SystemExit", "3")
def _sys_exit() -> None:
    sys.exit(3)


@case("SystemExit")
def _sys_exit_hostile() -> None:
    sys.exit(hostile("Mute", __str__=endless))  # type: ignore[arg-type]


@case("SystemExit")
def _thread_exit() -> None:
    _thread.exit()


@case("TypeError")
def _not_an_exception() -> None:
    raise 42  # type: ignore[misc]  # noqa: B016


@case("OSError")
def _file_name_of_bytes() -> None:
    raise OSError(2, None, b"\xff\x00", None, b"\xfe")


@case("FileNotFoundError")
def _no_such_file() -> object:
    return open(b"/nowhere/\xff")


@case("StopAsyncIteration")
def _generator_of_errors() -> None:
    def generate() -> Iterator[int]:
        yield 1

    generate().throw(StopAsyncIteration)  # type: ignore[attr-defined]


@case("ValueError")
def _not_picklable() -> None:
    raise ValueError(threading.Lock(), lambda: 1, sys._getframe())


@case("ValueError")
def _many_arguments() -> None:
    raise ValueError(*range(100_000))


@case("ValueError", "odd")
def _without_traceback() -> None:
    raise ValueError("odd").with_traceback(None)


@case("ValueError", "odd")
def _notes() -> None:
    error = ValueError("odd")
    error.add_note("\0\ud800" * MEGA)
    raise error


@case("AttributeError")
def _attribute_error() -> object:
    return traceback.TracebackException.nowhere  # type: ignore[attr-defined]


# Wishes that cannot be granted as they are

DELAYS: dict[str, Any] = {
    "nothing": timedelta(0),
    "the least": timedelta(microseconds=1),
    "the most": LONGEST,
}
WRONG: dict[str, Any] = {
    "a text": "soon",
    "a number": 5,
    "negative": timedelta(seconds=-1),
    "the end of time": timedelta.max,
    "more than the database knows": LONGEST + timedelta(milliseconds=1),
    "hostile": hostile("Odd", __lt__=failing(KeyboardInterrupt())),
}


def late(error: BaseException, delay: Any) -> BaseException:
    """Its delay is changed when nobody looks."""
    error.delay = delay  # type: ignore[attr-defined]
    return error


for title, delay in DELAYS.items():
    CASES[f"Retry after {title}"] = Case(raising(Retry(delay, "why")), (), "any")
    CASES[f"Snooze for {title}"] = Case(raising(Snooze(delay)), (), "any")
for title, delay in WRONG.items():
    CASES[f"Retry made with {title}"] = Case(lambda delay=delay: Retry(delay), ())  # type: ignore[misc]
    CASES[f"Snooze made with {title}"] = Case(lambda delay=delay: Snooze(delay), ())  # type: ignore[misc]
    CASES[f"Retry changed to {title}"] = Case(raising(late(Retry(), delay)), ())
    CASES[f"Snooze changed to {title}"] = Case(raising(late(Snooze(HOUR), delay)), (), "any")
CASES["Snooze changed to None"] = Case(raising(late(Snooze(HOUR), None)), (), "any")

for wish in (Retry, DeadLetter, Snooze):
    forgetful: Any = type("Forgetful", (wish,), {"__init__": lambda *_: None})
    CASES[f"forgetful {wish.__name__}"] = Case(raising(forgetful("odd")), (), "any")
    for title, reason in {
        "None": None,
        "a number": 42,
        "bytes": b"\xff",
        "a class": object,
    }.items():
        odd = wish(HOUR)  # type: ignore[arg-type]
        odd.args = (reason,)
        CASES[f"{wish.__name__} because of {title}"] = Case(raising(odd), (), "any")


@case("TypeError")
def _a_class_that_wants_arguments() -> None:
    raise Snooze  # type: ignore[call-arg]


@case(ends="dead_letter")
def _a_class_that_wants_none() -> None:
    raise DeadLetter


@case("why")
def _a_wish_in_the_course_of_an_error() -> None:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise Retry(HOUR, "why") from None


ALL = dict(CASES)
