"""What is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Scenario:
    """One script of each contender, with a number of clients and a batch size."""

    name: str
    script: Literal["enqueue", "enqueue_many", "claim_ack"]
    clients: int
    n: int = 1
    backlog: int = 0
    """Jobs in the queue at the start."""
    reach: tuple[float, float] | None = None
    """The least ratio to plain and to floor that is aimed at; 0 means none."""


SCENARIOS = (
    Scenario("enqueue, 1 client", "enqueue", 1),
    Scenario("enqueue, 8 clients", "enqueue", 8, reach=(0.9, 0)),
    Scenario("enqueue_many of 100", "enqueue_many", 2, n=100, reach=(0.8, 0)),
    Scenario("claim+ack, 1 client", "claim_ack", 1, backlog=100_000, reach=(1.1, 0)),
    Scenario("claim+ack, 8 clients", "claim_ack", 8, backlog=100_000, reach=(1.1, 0)),
    Scenario("claim+ack, batches of 10", "claim_ack", 2, n=10, backlog=400_000),
    Scenario(
        "claim+ack, batches of 100", "claim_ack", 2, n=100, backlog=1_000_000, reach=(1.2, 0.75)
    ),
)
