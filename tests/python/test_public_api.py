"""The public names of the package, and the page that shows them with their signatures."""

from __future__ import annotations

import importlib
import inspect
import re
from types import FunctionType

import pytest

import pgq_sql
from build_python_reference import MEND, MODULES, PAGE, public, render

TEXT = PAGE.read_text()
TITLES = re.findall(r"^#{3,4} (.*)$", TEXT, re.MULTILINE)


def test_the_reference_is_fresh() -> None:
    """A change of names, signatures or meanings is to be seen in a diff of the page."""
    assert render() == TEXT, f"the reference is stale; mend: {MEND}"


def test_the_reference_has_every_name() -> None:
    assert list(pgq_sql.__all__) == sorted(pgq_sql.__all__)
    for name, value in public(pgq_sql).items():
        if (
            isinstance(value, type)
            and issubclass(value, pgq_sql.PgqError)
            and value is not pgq_sql.PgqError
        ):
            assert f"\n| {name} | " in TEXT
        elif value is not pgq_sql.PgqError:
            assert name in TITLES
    for module in MODULES:
        assert set(public(importlib.import_module(module))) <= set(TITLES)


def test_the_reference_has_every_method_of_the_clients() -> None:
    methods = [name for name, _ in inspect.getmembers(pgq_sql.Client, inspect.isfunction)]
    assert {name for name in methods if not name.startswith("_")} <= set(TITLES)
    assert {"enqueue", "claim", "create_queue", "get_job", "close"} <= set(methods)


@pytest.mark.parametrize("module", ["pgq_sql", *MODULES])
def test_every_name_has_a_meaning(module: str) -> None:
    silent = []
    for name, value in public(importlib.import_module(module)).items():
        members = vars(value) if isinstance(value, type) else {}
        silent += [] if (value.__doc__ or "").strip() else [name]
        silent += [
            f"{name}.{member}"
            for member, one in members.items()
            if isinstance(one, property | FunctionType)
            if not member.startswith("_") and not inspect.getdoc(getattr(value, member))
        ]
    assert silent == []
