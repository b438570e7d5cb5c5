"""Write python/pgq_sql/_sync from _async; --check only says whether it is fresh."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "pgq_sql"
SOURCE, TARGET = PACKAGE / "_async", PACKAGE / "_sync"

# What is not simply the name without Async, as unasync knows it.
NAMES = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "AsyncConnection": "Connection",
    "AsyncConnectionPool": "ConnectionPool",
    "AsyncCursor": "Cursor",
    "AsyncJoinable": "Joinable",
    "AsyncPool": "Pool",
    "async_joined": "joined",
    "asyncio": "threading",
}
TITLES = {
    "for asyncio. `make sync` writes `_sync` from here: edit only this.": (
        "for threads. Written by `make sync` from `_async`: edit there."
    )
}


def written(source: Path, folder: Path) -> dict[str, str]:
    """The files as they should be, by name."""
    copy = folder / "_async"
    copy.mkdir()
    for path in source.glob("*.py"):
        (copy / path.name).write_text(path.read_text())
    rule = unasync.Rule("/_async/", "/_sync/", additional_replacements=NAMES)
    unasync.unasync_files([str(path) for path in copy.iterdir()], [rule])
    made = folder / "_sync"
    subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--quiet", "--fix-only", "--select=I,SIM117", made],
        check=True,
        cwd=ROOT,
    )
    subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--quiet", "--config", "pyproject.toml", made],
        check=True,
        cwd=ROOT,
    )
    texts = {path.name: path.read_text() for path in sorted(made.iterdir())}
    for old, new in TITLES.items():
        texts["__init__.py"] = texts["__init__.py"].replace(old, new)
    return texts


def main(arguments: list[str]) -> int:
    """Write the files, or tell which are stale."""
    with tempfile.TemporaryDirectory() as folder:
        texts = written(SOURCE, Path(folder))
    there = {path.name: path.read_text() for path in TARGET.glob("*.py")}
    if texts == there:
        return 0
    if "--check" in arguments:
        stale = sorted(name for name in texts | there if texts.get(name) != there.get(name))
        print(f"stale: {', '.join(stale)}; run make sync")
        return 1
    TARGET.mkdir(exist_ok=True)
    for path in TARGET.glob("*.py"):
        path.unlink()
    for name, text in texts.items():
        (TARGET / name).write_text(text)
    print(f"wrote {TARGET.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
