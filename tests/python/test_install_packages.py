"""Wheel, source archive and editable install: each works from any folder, with all of its files."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import psycopg
import pytest

import catalog
from servers import ROOT
from ways import NEWEST, Done, run

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

    def __init__(self, folder: Path, package: tuple[str, ...]) -> None:
        self.folder = folder / "elsewhere"
        self.folder.mkdir()
        venv.create(folder / "venv", with_pip=False)
        self.bin = folder / "venv/bin"
        site = run(self.bin / "python", "-c", "import sysconfig as s; print(s.get_path('purelib'))")
        # Paths alone: what is installed editable there stays out of reach.
        lent = [path for path in sys.path if path.endswith("-packages")]
        (Path(site.out.strip()) / "lent.pth").write_text("\n".join(lent) + "\n")
        pip = ("-m", "pip", "--python", str(self.bin / "python"), *INSTALL, *package)
        run(sys.executable, *pip, env=TOOLS)

    def run(self, program: str, *arguments: str | Path, dsn: str | None = None) -> Done:
        """Run a program of the environment from an unrelated folder."""
        env = {"PYTHONPATH": "", "PATH": f"{self.bin}"}
        return run(self.bin / program, *arguments, dsn=dsn, cwd=self.folder, env=env)


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


def test_what_is_in_the_packages(packages: Packages) -> None:
    files = zipfile.ZipFile(packages.wheel).namelist()
    releases = {
        path.relative_to(ROOT / "migrations").as_posix()
        for path in (ROOT / "migrations/releases").rglob("*.sql")
    }
    assert {f"pgq_sql/_migrations/{path}" for path in releases} <= set(files)
    assert {"pgq_sql/py.typed", "pgq_sql/_migrations/env.py"} <= set(files)
    assert {path.partition("/")[0] for path in files} == {"pgq_sql", "pgq_sql-0.1.0.dist-info"}
    with tarfile.open(packages.archive) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    assert {"alembic.ini", "LICENSE", "README.md", "sql/manifest.txt", "sql/pgq_sql.sql"} <= sources
    assert {f"migrations/{path}" for path in releases} <= sources


def test_core_needs_psycopg_alone() -> None:
    """The client and an upgrade work without Alembic, SQLAlchemy, Typer or Rich."""
    code = (
        "import sys\n"
        "for name in ('alembic', 'sqlalchemy', 'typer', 'rich', 'psycopg_pool'):\n"
        "    sys.modules[name] = None\n"
        "import pgq_sql, pgq_sql._install, pgq_sql.alembic\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
