"""Wheel, source archive and editable install: each works from any folder, with all of its files."""

from __future__ import annotations

import re
import shutil
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import psycopg
import pytest

import catalog
from servers import ROOT, Server
from ways import NEWEST, Done, run

SOURCES = ROOT / "python" / "pgq_sql"
NOT_SOURCES = shutil.ignore_patterns(
    ".*", "*.egg-info", "__pycache__", "build", "dist", "node_modules", "results"
)
INSTALL = ("install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")

TOOLS = {"PYTHONWARNINGS": ""}  # what they warn about is theirs


class Packages:
    """What `make dist` makes, from a copy of the source tree."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        shutil.copytree(ROOT, self.tree, ignore=NOT_SOURCES)
        build = ("-m", "build", "--no-isolation", "--outdir", str(folder), str(self.tree))
        run(sys.executable, *build, env=TOOLS)
        (self.wheel,) = folder.glob("*.whl")
        (self.archive,) = folder.glob("*.tar.gz")

    def of(self, kind: str) -> tuple[str, ...]:
        """What pip is asked to install."""
        if kind == "editable":
            return ("--editable", str(self.tree))
        return (str(self.wheel if kind == "wheel" else self.archive),)


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """Wheel and source archive."""
    return Packages(tmp_path_factory.mktemp("dist"))


class Environment:
    """A virtual environment with the package, and with the dependencies that run these tests."""

    def __init__(
        self, folder: Path, package: tuple[str, ...], lent: Sequence[str] | None = None
    ) -> None:
        self.folder = folder / "elsewhere"
        self.folder.mkdir()
        venv.create(folder / "venv", with_pip=False)
        self.bin = folder / "venv/bin"
        site = run(self.bin / "python", "-c", "import sysconfig as s; print(s.get_path('purelib'))")
        # Paths alone: what is installed editable there stays out of reach.
        if lent is None:
            lent = [path for path in sys.path if path.endswith("-packages")]
        (Path(site.out.strip()) / "lent.pth").write_text("\n".join(lent) + "\n")
        pip = ("-m", "pip", "--python", str(self.bin / "python"), *INSTALL, *package)
        run(sys.executable, *pip, env=TOOLS)

    def run(
        self, program: str, *arguments: str | Path, dsn: str | None = None, fails: bool = False
    ) -> Done:
        """Run a program of the environment from an unrelated folder."""
        env = {"PYTHONPATH": "", "PATH": f"{self.bin}"}
        return run(self.bin / program, *arguments, dsn=dsn, cwd=self.folder, fails=fails, env=env)


@pytest.fixture(params=["wheel", "sdist", "editable"])
def environment(request: pytest.FixtureRequest, packages: Packages, tmp_path: Path) -> Environment:
    """One environment for each form of the package."""
    return Environment(tmp_path, packages.of(request.param))


def test_up_and_down_from_anywhere(
    environment: Environment, empty_database: str, conn: psycopg.Connection[Any]
) -> None:
    where = environment.run("python", "-c", "import pgq_sql; print(pgq_sql.__file__)").out.strip()
    assert not Path(where).is_relative_to(ROOT)
    assert f"schema release {NEWEST}" in environment.run("pgq", "version").out
    assert "create table" in environment.run("pgq", "sql").out
    with psycopg.connect(empty_database, autocommit=True) as empty:
        environment.run("pgq", "migrate", dsn=empty_database)
        assert catalog.read(empty) == catalog.read(conn)
        environment.run("pgq", "migrate", "--downgrade", "--to", "base", dsn=empty_database)
        assert catalog.leftovers(empty) == {}
        # Alembic's environment is in the package too.
        migrations = "import pgq_sql._migrations as m; print(m.__path__[0])"
        folder = environment.run("python", "-c", migrations).out.strip()
        (environment.folder / "alembic.ini").write_text(f"[alembic]\nscript_location = {folder}\n")
        environment.run("python", "-m", "alembic", "upgrade", "head", dsn=empty_database)
        assert catalog.read(empty) == catalog.read(conn)


def test_the_plugin_for_pytest(environment: Environment, server: Server) -> None:
    """Pytest finds it by itself, and its fixtures work."""
    (environment.folder / "test_x.py").write_text(
        "import _pgq_sql_pytest\n"
        "from pgq_sql.testing import assert_enqueued, drain\n\n"
        "def test(pgq_client):\n"
        "    pgq_client.create_queue('mails')\n"
        "    pgq_client.enqueue('mails', 1)\n"
        "    assert_enqueued(pgq_client, 'mails', payload=1)\n"
        "    assert drain(pgq_client, {'mails': lambda job: None}).acked == 1\n"
        f"    assert not _pgq_sql_pytest.__file__.startswith({str(ROOT)!r})\n"
    )
    told = environment.run("python", "-m", "pytest", "-q", f"--pgq-dsn={server.dsn()}").out
    assert "1 passed" in told


def test_what_is_in_the_packages(packages: Packages) -> None:
    files = set(zipfile.ZipFile(packages.wheel).namelist())
    modules = {path.relative_to(ROOT / "python").as_posix() for path in SOURCES.rglob("*.py")}
    assert {name for name in modules if name.startswith("pgq_sql/_async/")}  # it has looked
    migrations = {
        path.relative_to(ROOT / "migrations").as_posix()
        for pattern in ("*.py", "releases/**/*.sql", "releases/SHA256SUMS")
        for path in (ROOT / "migrations").glob(pattern)
    }
    assert modules | {f"pgq_sql/_migrations/{path}" for path in migrations} <= files
    assert {"pgq_sql/py.typed", "_pgq_sql_pytest.py"} <= files
    assert {path.partition("/")[0] for path in files} == {
        *("pgq_sql", "pgq_sql-0.1.0.dist-info", "_pgq_sql_pytest.py")
    }
    with tarfile.open(packages.archive) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    assert {"alembic.ini", "LICENSE", "README.md", "sql/manifest.txt", "sql/pgq_sql.sql"} <= sources
    assert {f"migrations/{path}" for path in migrations} <= sources
    assert {f"python/{path}" for path in modules} <= sources
    assert {"python/pgq_sql/py.typed", "python/_pgq_sql_pytest.py"} <= sources


# Whatever else is installed, an extra is not there unless it was asked for.
CORE = """\
import importlib, pkgutil, sys
from importlib.metadata import distributions

names = {one.name.lower().replace("_", "-") for one in distributions()}
assert names <= {"pgq-sql", "psycopg", "psycopg-binary", "typing-extensions"}, names
import pgq_sql, pgq_sql.alembic, pgq_sql.testing
from pgq_sql import _install

for name in pgq_sql.__all__:
    getattr(pgq_sql, name)
unfit = set()
for module in pkgutil.walk_packages(pgq_sql.__path__, "pgq_sql."):
    if "_migrations" in module.name or module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except (ModuleNotFoundError, SystemExit):
        unfit.add(module.name)
print(*unfit)
with pgq_sql.Client() as client:
    _install.migrate()
    client.create_queue("mails")
    client.enqueue("mails")
    done = pgq_sql.Worker(client, {"mails": lambda job: None}).run(until_idle=True)
    assert done.acked == 1
"""


def test_core_needs_psycopg_alone(packages: Packages, tmp_path: Path, empty_database: str) -> None:
    """The client, a worker and an upgrade work without any extra; what needs one says so."""
    lent = tmp_path / "lent"
    lent.mkdir()
    for name in ("psycopg", "psycopg-binary", "typing-extensions"):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or ()} - {"__pycache__"}:
            (lent / top).symlink_to(Path(str(found.locate_file(top))))
    alone = Environment(tmp_path, packages.of("wheel"), lent=[str(lent)])
    unfit = alone.run("python", "-c", CORE, dsn=empty_database).out.split()
    assert "pgq_sql.demo" in unfit
    of_extras = re.compile(r"pgq_sql\.(_?cli\w*|demo|metrics|tracing)")
    assert [name for name in unfit if not of_extras.fullmatch(name)] == []
    refused = alone.run("pgq", "version", fails=True)
    assert refused.err == "pgq needs typer: pip install 'pgq_sql[cli]'\n"
