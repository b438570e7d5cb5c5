"""Testing what enqueues and what handles jobs, on a real PostgreSQL.

The pytest plugin that goes with it is loaded wherever this package and pytest are installed. It
starts nothing before a test asks for one of its fixtures:

    def test_signup(pgq_client):
        pgq_client.create_queue("mails")
        sign_up("ada", pgq_client)
        assert_enqueued(pgq_client, "mails", payload={"to": "ada"})
        assert drain(pgq_client, {"mails": send}).acked == 1

`pgq_database` is the connection string of a database of the test's own, `pgq_client` and
`pgq_async_client` are clients on it. The functions take any other client just as well.
"""

from ._asserts import assert_enqueued, assert_not_enqueued, enqueued
from ._drain import Drained, Run, Runaway, async_drain, drain

__all__ = [
    "Drained",
    "Run",
    "Runaway",
    "assert_enqueued",
    "assert_not_enqueued",
    "async_drain",
    "drain",
    "enqueued",
]
