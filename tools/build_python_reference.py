"""Write docs/reference/python.md from the package: `make reference`.

Names, signatures and meanings are those of the code, so the page says what the code says; and a
change of what callers rely on shows in the page's diff.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from types import FunctionType, ModuleType
from typing import Any, Literal, get_args, get_origin

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "python.md"
MEND = "make reference"
WIDTH = 96

HEAD = """\
<!-- Written by tools/build_python_reference.py: edit the docstrings, then `make reference`. -->
# Python reference

What each call does is said in full in the [SQL reference](sql.md), under the same name. What is not
on this page is not for callers, and may change at any time. Types are written as in the code.

"""

MODULES = (
    "pgq_sql.testing",
    "pgq_sql.alembic",
    "pgq_sql.metrics",
    "pgq_sql.tracing",
)
"""Beside `pgq_sql` itself, which has sections of its own."""

PARTS = {
    "Producing": "Make jobs",
    "Consuming": "Take jobs and settle them",
    "Controlling": "Change queues and jobs",
    "Looking": "Look, and keep in order",
    "Caller": "Close",
}
"""The classes that a client is made of."""


def public(module: ModuleType) -> dict[str, Any]:
    """What a module offers, in its order."""
    if hasattr(module, "__all__"):
        return {name: getattr(module, name) for name in module.__all__}
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
        if isinstance(value, type | FunctionType)
    }


def render() -> str:
    """The page."""
    package = importlib.import_module("pgq_sql")
    everything = public(package)
    offered = {name: value for name, value in everything.items() if isinstance(value, type)}
    aliases = [name for name in everything if name not in offered]
    answers = [one for one in offered.values() if one.__module__ == "pgq_sql.models"]
    errors = [one for one in offered.values() if issubclass(one, package.PgqError)]
    clients = [package.Client, package.AsyncClient]
    modules = [importlib.import_module(name) for name in MODULES]
    known = {*offered.values(), *(v for module in modules for v in public(module).values())}
    parts = [HEAD, "## Clients\n", *_clients(package.Client, package.AsyncClient)]
    parts.append("\n## Workers\n")
    rest = [one for one in offered.values() if one not in [*answers, *errors, *clients]]
    for one in sorted(rest, key=_place):
        parts += _class(one, known)
    parts += ["\n## Types of arguments\n", *_aliases(aliases)]
    parts.append("\n## Answers\n\nFrozen; their fields are the columns of the SQL function.\n")
    for one in sorted(answers, key=_place):
        parts += _class(one, known)
    parts += ["\n## Errors\n", *_errors(errors)]
    for module in modules:
        parts.append(f"\n## {module.__name__}\n\n{_doc(module)}\n")
        for value in public(module).values():
            parts += _class(value, known) if isinstance(value, type) else [_function(value)]
        if module.__name__ == "pgq_sql.testing":
            parts += _fixtures()
    parts += ["\n## Words\n", *_words()]
    return "".join(parts)


def _aliases(names: list[str]) -> Iterator[str]:
    """What stands for several types: where it is defined says what it is for."""
    for name in names:
        for path in sorted((ROOT / "python" / "pgq_sql").glob("_*.py")):
            body = ast.parse(path.read_text()).body
            for one, after in pairwise(body):
                if isinstance(one, ast.AnnAssign) and ast.unparse(one.target) == name:
                    assert isinstance(after, ast.Expr)
                    yield f"\n### {name}\n\n{ast.literal_eval(after.value)}\n"


def _clients(client: Any, twin: Any) -> Iterator[str]:
    for one in (client, twin):
        yield f"\n### {one.__name__}\n\n{_code(one.__name__, one.__init__)}\n{_doc(one)}\n"
    for name, title in PARTS.items():
        (part,) = (base for base in client.__mro__ if base.__name__ == name)
        yield f"\n### {title}\n"
        for function in _own(part).values():
            yield _function(function, level=4)


def _class(one: type, known: set[Any]) -> Iterator[str]:
    """A class: what it is made with, its fields, its properties and methods."""
    shown_above = {above for base in one.__mro__[1:] if base in known for above in base.__mro__}
    own = [base for base in one.__mro__ if base not in shown_above and _ours(base)]
    nearest = [base.__name__ for base in one.__mro__[1:] if base in known][:1]
    yield f"\n### {one.__name__}\n\n"
    members: dict[str, Any] = {}
    for base in reversed(own):
        members |= _own(base)
    if dataclasses.is_dataclass(one):
        yield f"{_doc(one)}\n"
        yield from _fields(one, nearest, shown_above)
    else:
        if "__init__" in vars(one):
            yield f"{_code(one.__name__, vars(one)['__init__'])}\n"
        yield f"{_doc(one)}\n"
        for base in getattr(one, "__orig_bases__", ()):
            if get_origin(base) is tuple:
                items = re.sub(r"(\w+\.)+(?=\w)", "", str(base))
                yield f"\nIt is a `{items}`.\n"
        if nearest:
            yield f"\nAll else is as in `{nearest[0]}`.\n"
    for name, member in members.items():
        if isinstance(member, property):
            assert member.fget is not None
            kind = _annotation(member.fget.__annotations__["return"])
            yield f"\n#### {one.__name__}.{name}\n\n`{kind}`: {_doc(member)}\n"
        elif _doc(member):
            yield _function(member, f"{one.__name__}.", level=4)


def _ours(one: type) -> bool:
    return one.__module__.startswith("pgq_sql")


def _place(one: type) -> tuple[bool, str, int]:
    """Public modules first, and all as in the source."""
    module = one.__module__
    return "._" in module, module, inspect.getsourcelines(one)[1]


def _own(one: type) -> dict[str, Any]:
    """The public properties and methods that a class itself defines."""
    return {
        name: value
        for name, value in vars(one).items()
        if not name.startswith("_") and isinstance(value, property | FunctionType)
    }


def _fields(one: Any, nearest: list[str], shown_above: set[type]) -> Iterator[str]:
    inherited = {
        field.name
        for base in shown_above
        if dataclasses.is_dataclass(base)
        for field in dataclasses.fields(base)
    }
    shown = [f for f in dataclasses.fields(one) if f.name not in inherited and f.name[0] != "_"]
    if nearest:
        yield f"\nAll fields of `{nearest[0]}`{', and:' if shown else '.'}\n"
    if shown:
        notes = _notes(one)
        yield "\n| field | type | |\n|---|---|---|\n"
        for field in shown:
            default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
            kind = f"{_annotation(field.type)}{default}".replace("|", "\\|")
            yield f"| {field.name} | `{kind}` | {notes.get(field.name, '')} |\n"


def _notes(one: type) -> dict[str, str]:
    """The texts below the fields of a class and of its bases."""
    found: dict[str, str] = {}
    for base in reversed(one.__mro__):
        if not _ours(base):
            continue
        body = ast.parse(dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                assert isinstance(field.target, ast.Name)
                found[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return found


def _function(function: Callable[..., Any], prefix: str = "", level: int = 3) -> str:
    name = prefix + function.__name__
    return f"\n{'#' * level} {name}\n\n{_code(function.__name__, function)}\n{_doc(function)}\n"


def _code(name: str, function: Callable[..., Any]) -> str:
    """The signature, in lines that fit."""
    signature = inspect.signature(function)
    parts, star = [], False
    for one in signature.parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.KEYWORD_ONLY and not star:
            star = True
            parts.append("*")
        kind = "" if one.annotation is one.empty else f": {_annotation(one.annotation)}"
        default = "" if one.default is one.empty else f" = {one.default!r}"
        stars = "*" * ((one.kind is one.VAR_POSITIONAL) + 2 * (one.kind is one.VAR_KEYWORD))
        parts.append(f"{stars}{one.name}{kind}{default}")
    answer = ""
    if function.__name__ != "__init__":
        answer = f" -> {_answer(function, signature.return_annotation)}"
    line = f"{name}({', '.join(parts)}){answer}"
    if inspect.iscoroutinefunction(function):
        line = f"await {line}"
    if len(line) > WIDTH:
        lines = "".join(f"    {part},\n" for part in parts)
        line = f"{line.partition('(')[0]}(\n{lines}){answer}"
    return f"```python\n{line}\n```\n"


def _answer(function: Callable[..., Any], annotation: object) -> str:
    text = _annotation(annotation)
    if hasattr(function, "__wrapped__"):
        # Made by contextlib: who calls it writes `with`.
        return re.sub(r"^(Async)?Iterator\[", r"\1ContextManager[", text)
    return text


def _annotation(annotation: object) -> str:
    if annotation is None:
        return "None"
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return re.sub(r"\b_\w+\.", "", text)


def _doc(of: object) -> str:
    return (inspect.getdoc(of) or "").replace("<", "&lt;")


def _errors(errors: list[type]) -> Iterator[str]:
    base, *others = sorted(errors, key=_place)
    yield f"\n{_doc(base)} All are a `{base.__name__}` and have `sqlstate`, `detail` and `hint`.\n"
    yield "\n| exception | SQLSTATE | |\n|---|---|---|\n"
    for one in others:
        yield f"| {one.__name__} | {getattr(one, 'code', '')} | {' '.join(_doc(one).split())} |\n"


def _fixtures() -> Iterator[str]:
    source = ROOT / "python" / "_pgq_sql_pytest.py"
    yield "\n### Fixtures\n\n| fixture | type | |\n|---|---|---|\n"
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("pgq_"):
            assert node.returns is not None
            kind = re.sub(r"^Iterator\[(.*)\]$", r"\1", ast.unparse(node.returns))
            text = " ".join((ast.get_docstring(node) or "").split())
            yield f"| {node.name} | `{kind}` | {text} |\n"


def _words() -> Iterator[str]:
    yield "\nThe types that stand for a few words, in `pgq_sql.words`.\n"
    yield "\n| type | words |\n|---|---|\n"
    for name, value in vars(importlib.import_module("pgq_sql.words")).items():
        if get_origin(value) is Literal:
            yield f"| {name} | {', '.join(f'`{word}`' for word in get_args(value))} |\n"


def main(arguments: list[str]) -> int:
    """Write the page, or with --check say whether it is fresh."""
    page = render()
    if "--check" in arguments:
        if not PAGE.exists() or PAGE.read_text() != page:
            print(f"{PAGE.relative_to(ROOT)} is stale\nmend: {MEND}")
            return 1
        return 0
    PAGE.write_text(page)
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
