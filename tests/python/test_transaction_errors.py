"""What a handler's own statements raise in `job.transaction()`."""

from __future__ import annotations

import psycopg
import pytest

from pgq_sql import Client, RunningJob, Worker


@pytest.mark.parametrize("statement", ["select no_such_function()", "select 1 / 0"])
def test_errors_of_the_handler_s_own_statements_stay_psycopg_s(
    database: str, statement: str
) -> None:
    """None of them is the queue's: `pgq migrate` would not help."""
    raised: list[Exception] = []

    def handle(job: RunningJob) -> None:
        try:
            with job.transaction() as conn:
                conn.execute(statement.encode())
        except Exception as error:
            raised.append(error)

    with Client(database) as client:
        client.create_queue("q")
        client.enqueue("q")
        Worker(client, {"q": handle}).run(until_idle=True)
    (error,) = raised
    if not isinstance(error, psycopg.Error):
        pytest.fail(f"it became {error!r}")
