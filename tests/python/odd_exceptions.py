"""Exceptions that no handler should raise, and that some handler will, with `odd_raisers` 300.

A case raises one. It names what the kept text must say, where that can be had at all.
"""

from __future__ import annotations

import _thread
import asyncio
import builtins
import concurrent.futures
import json
import queue
import socket
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import InvalidOperation
from typing import Any, Literal, TypeVar

import psycopg
import psycopg_pool
import pytest

from pgq_sql import Closed, DeadLetter, InvalidState, JobNotFound, LeaseLost, Retry, Snooze

Ends = Literal["retry", "dead_letter", "release", "any"]

Act = TypeVar("Act", bound=Callable[[], object])

MEGA = 1_000_000
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Case:
    """What a handler does, and what must come of it."""

    act: Callable[[], object]
    says: tuple[str, ...]
    ends: Ends = "retry"


CASES: dict[str, Case] = {}


def case(*says: str, ends: Ends = "retry") -> Callable[[Act], Act]:
    """Make a case of a function."""

    def add(act: Act) -> Act:
        name = act.__name__.strip("_")
        assert name not in CASES
        CASES[name] = Case(act, says, ends)
        return act

    return add


def raising(error: BaseException) -> Callable[[], object]:
    def act() -> object:
        raise error

    return act


# Texts, each as the message of several types

TEXTS = {
    "plain": "plain",
    "empty": "",
    "nul": "a\0b",
    "nuls": "\0" * 5000,
    "lone surrogate": "a\ud800b",
    "lone surrogates": "\udfff" * 5000,
    "nuls and surrogates": "\0\ud800" * 2500,
    "astral": "\U0001f9ea" * 5000,
    "10 MB": "x" * 10 * MEGA,
    "10 MB of umlauts": "ü" * 5 * MEGA,
    "10 MB of lines": "x\n" * 5 * MEGA,
    "lines": "\n" * 5000,
    "carriage returns": "\r\r\r",
    "spaces": " " * 5000,
    "escapes": "\x1b[31m\x07\x08",
    "right to left": "\u202eabc\u2066",
    "placeholders": "%s %(x)s {} {0.__class__} $1 :x",
    "quotes": "'; drop schema pgq_sql cascade; --",
    "backslashes": "\\" * 5000,
    "combining": "e" + "\u0301" * 5000,
    "byte order mark": "\ufeffx\ufffe\uffff",
    "null": "null",
}
TYPES: dict[str, tuple[Callable[[str], BaseException], str, Any]] = {
    "ValueError": (ValueError, "ValueError", "retry"),
    "KeyError": (KeyError, "KeyError", "retry"),
    "OSError": (lambda text: OSError(5, text, text, None, text), "OSError", "retry"),
    "Retry": (lambda text: Retry(HOUR, text), "", "retry"),
    "DeadLetter": (DeadLetter, "", "dead_letter"),
}
for kind, (make, says, ends) in TYPES.items():
    for title, text in TEXTS.items():
        CASES[f"{kind} of {title}"] = Case(raising(make(text)), (says,), ends)

# All that Python has

GIVEN: dict[str, tuple[object, ...]] = {
    "UnicodeDecodeError": ("utf-8", b"\xff\x00", 0, 99, "odd"),
    "UnicodeEncodeError": ("utf-8", "\ud800\0", 0, 99, "odd"),
    "UnicodeTranslateError": ("\ud800", 5, 1, "odd"),
    "ExceptionGroup": ("odd", [ValueError("a"), TypeError("b")]),
    "BaseExceptionGroup": ("odd", [KeyboardInterrupt(), SystemExit(3)]),
}
for kind_of in dict.fromkeys(
    value
    for value in vars(builtins).values()
    if isinstance(value, type) and issubclass(value, BaseException)
):
    # A coroutine turns a StopIteration into a RuntimeError, before anybody sees it.
    said = "" if kind_of is StopIteration else kind_of.__name__
    arguments = GIVEN.get(kind_of.__name__, ("odd",))
    CASES[f"builtin {kind_of.__name__}"] = Case(raising(kind_of(*arguments)), (said,))

# Libraries' own, which mean something to a worker where it raises them itself

for foreign in (
    psycopg.OperationalError("the connection was lost"),
    psycopg.InterfaceError("the connection is closed"),
    psycopg.errors.AdminShutdown("terminating connection"),
    psycopg.errors.QueryCanceled("canceling statement"),
    psycopg.errors.SerializationFailure("could not serialize"),
    psycopg.errors.ConnectionTimeout("connection timeout expired"),
    psycopg_pool.PoolTimeout("no connection"),
    LeaseLost("the lease is lost"),
    JobNotFound("no such job"),
    InvalidState("not in this state", detail="\0", hint="\ud800"),
    Closed("the client is closed"),
    asyncio.CancelledError("not by the worker"),
    asyncio.InvalidStateError("odd"),
    asyncio.IncompleteReadError(b"\xff", 99),
    asyncio.QueueEmpty("odd"),
    concurrent.futures.CancelledError("odd"),
    concurrent.futures.BrokenExecutor("odd"),
    queue.Empty("odd"),
    threading.BrokenBarrierError("odd"),
    json.JSONDecodeError("odd", "\0", 0),
    subprocess.CalledProcessError(-9, [b"\xff", "x"], b"\xff"),
    subprocess.TimeoutExpired("x", 1),
    socket.gaierror(-2, "odd"),
    InvalidOperation([object]),
    pytest.skip.Exception("odd"),
    pytest.fail.Exception("odd"),
    pytest.exit.Exception("odd"),
    _thread.error("odd"),
):
    CASES[f"foreign {type(foreign).__name__}"] = Case(raising(foreign), (type(foreign).__name__,))


# Texts that cannot be had


def hostile(name: str, **attributes: Any) -> BaseException:
    """An exception of a class of its own that has these attributes."""
    made: BaseException = type(name, (Exception,), attributes)("odd")
    return made


def failing(error: Any) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def endless(*_: object) -> Any:
    return endless()


class Text(str):
    """A text that fights back."""

    __slots__ = ()
    __getitem__ = encode = replace = partition = __len__ = failing(ZeroDivisionError("text"))
    __str__ = __format__ = __iter__ = failing(ZeroDivisionError("text"))


for title, wrong in {
    "raises": failing(ValueError("no text")),
    "raises KeyboardInterrupt": failing(KeyboardInterrupt()),
    "raises SystemExit": failing(SystemExit()),
    "raises GeneratorExit": failing(GeneratorExit()),
    "raises CancelledError": failing(asyncio.CancelledError()),
    "recurses": endless,
    "is a number": lambda *_: 42,
    "is None": lambda *_: None,
    "is bytes": lambda *_: b"\xff",
    "fights back": lambda *_: Text("odd"),
}.items():
    CASES[f"str {title}"] = Case(raising(hostile("Mute", __str__=wrong)), ("Mute",))
    CASES[f"repr {title}"] = Case(raising(KeyError(hostile("Mute", __repr__=wrong))), ("KeyError",))
    CASES[f"reason {title}"] = Case(
        raising(DeadLetter(hostile("Mute", __str__=wrong))),  # type: ignore[arg-type]
        (),
        "dead_letter",
    )

for name in (
    *("__eq__", "__hash__", "__bool__", "__len__", "__iter__", "__reduce_ex__", "__getattr__"),
    *("__getattribute__", "__setattr__", "__format__", "__dir__", "__sizeof__", "with_traceback"),
):
    CASES[f"hostile {name}"] = Case(
        raising(hostile("Hostile", **{name: failing(ValueError("odd"))})), ("Hostile",)
    )

for name in ("__class__", "__cause__", "__context__", "__traceback__", "__notes__", "args"):
    for title, value in {
        "raises": property(failing(ValueError("odd"))),
        "is None": None,
        "is a number": 42,
    }.items():
        CASES[f"{name} {title}"] = Case(raising(hostile("Odd", **{name: value})), ("Odd",))

for wish in (Retry, DeadLetter, Snooze):
    CASES[f"disguised as {wish.__name__}"] = Case(
        raising(hostile("Disguised", __class__=wish)), (), "any"
    )


# Classes that fight back


def of_class(meta: dict[str, Any], **attributes: Any) -> BaseException:
    """An exception whose class has a class of its own."""
    metaclass = type("Meta", (type,), meta)
    made: BaseException = metaclass("Odd", (Exception,), attributes)("odd")
    return made


def names(wanted: str, value: Callable[[], object]) -> Callable[[type, str], object]:
    """A lookup of attributes that has its own answer for one."""
    return lambda kind, name: value() if name == wanted else type.__getattribute__(kind, name)


for title, told in {
    "raises": failing(ValueError("no name")),
    "is None": lambda: None,
    "is 10 MB": lambda: "x" * 10 * MEGA,
    "is odd": lambda: "\0\ud800\n",
}.items():
    for name in ("__name__", "__qualname__", "__module__"):
        made = of_class({"__getattribute__": names(name, told)})
        CASES[f"{name} {title}"] = Case(raising(made), ("odd",))
for name in ("__getattribute__", "__eq__", "__hash__", "__repr__", "__subclasscheck__"):
    CASES[f"metaclass {name}"] = Case(
        raising(of_class({name: failing(ValueError("odd"))})), ("odd",)
    )


# Causes and contexts


@case("ValueError", "around")
def _causes_in_a_loop() -> None:
    first, second = ValueError("around"), TypeError("and around")
    first.__cause__, second.__cause__ = second, first
    raise first


@case("ValueError", "its own cause")
def _its_own_cause() -> None:
    error = ValueError("its own cause")
    raise error from error


@case("ValueError", "odd")
def _contexts_in_a_loop() -> None:
    first, second = ValueError("odd"), TypeError()
    first.__context__, second.__context__ = second, first
    raise first


@case("ValueError", "caused by", "Mute")
def _a_cause_without_text() -> None:
    raise ValueError from hostile("Mute", __str__=endless)


@case("ValueError", "first")
def _a_long_line_of_causes() -> None:
    error = ValueError("last")
    for _ in range(5000):
        before = ValueError("first")
        before.__cause__ = error
        error = before
    raise error


@case("no", ends="dead_letter")
def _a_wish_with_a_huge_cause() -> None:
    raise DeadLetter("no") from ValueError("\0" * MEGA)
