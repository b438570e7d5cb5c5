"""Run every static check and say, for each that fails, what mends it.

All of them run even if one fails, so that one look shows everything. `make check` calls this;
`make check ARGS=ruff` runs those whose name contains the word.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
DEBIAN_15 = Path("/usr/lib/postgresql/15/bin/initdb")
CATALOG_TESTS = ("test_catalog.py", "test_plpgsql_check.py", "test_style.py")


@dataclass(frozen=True)
class Check:
    """A command that answers 0 if all is well."""

    name: str
    command: tuple[str, ...]
    mend: str
    needs: Path | None = None


def python(*arguments: str) -> tuple[str, ...]:
    """Name a command of this interpreter."""
    return (sys.executable, *arguments)


def tool(name: str, *arguments: str) -> tuple[str, ...]:
    """Name a command of a tool installed beside this interpreter."""
    return (str(BIN / name), *arguments)


TYPED = ("python", "tests/python", "tests/typing", "tools", "migrations", "bench")

CHECKS = (
    Check("ruff check", tool("ruff", "check", "."), "make format, then by hand what is left"),
    Check("ruff format", tool("ruff", "format", "--check", "."), "make format"),
    Check("mypy", python("-m", "mypy", *TYPED), "correct the types"),
    Check("pyright", tool("pyright", "--pythonpath", sys.executable, *TYPED), "correct the types"),
    Check("client is fresh", python("tools/build_sync.py", "--check"), "make sync"),
    Check(
        "Python reference is fresh",
        python("tools/build_python_reference.py", "--check"),
        "make reference",
    ),
    Check("build is fresh", python("tools/build_sql.py", "--check"), "make sql"),
    Check("pgspot", python("tools/spot.py"), "qualify the names that it tells"),
    Check(
        "plpgsql_check, catalog and style",
        python(
            *("-m", "pytest", "-q", "--tb=short", "--pg=15", "-p", "no:cacheprovider"),
            *(f"tests/python/{name}" for name in CATALOG_TESTS),
        ),
        "see the rule's text in tests/python",
        needs=DEBIAN_15,
    ),
)


def run(check: Check) -> bool:
    """Run one check; print its output only if it fails."""
    if check.needs is not None and not check.needs.exists():
        print(f"skipped  {check.name}: there is no {check.needs}", flush=True)
        return True
    began = time.monotonic()
    done = subprocess.run(
        check.command,
        cwd=ROOT,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    verdict = "FAILED" if done.returncode else "ok"
    print(f"{verdict:8} {check.name} ({time.monotonic() - began:.1f} s)", flush=True)
    if done.returncode:
        print(f"{done.stdout.rstrip()}\nmend: {check.mend}\n", flush=True)
    return done.returncode == 0


def main(words: list[str]) -> int:
    """Run the checks whose name has one of the words; all of them without words."""
    chosen = [check for check in CHECKS if not words or any(word in check.name for word in words)]
    if not chosen:
        print(f"no check is called so; there are: {', '.join(check.name for check in CHECKS)}")
        return 2
    results = [run(check) for check in chosen]
    print(f"checks: {results.count(True)} passed, {results.count(False)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
