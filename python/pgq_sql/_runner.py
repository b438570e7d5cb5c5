"""Between a worker's dispatcher and what runs its handlers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

from ._jobs import HeldJob
from ._settlements import Settlement

Unit: TypeAlias = Sequence[HeldJob]
"""What one call of a handler is for: one job, or a batch."""


class WorkerSide(Protocol):
    """What a runner tells; from any thread."""

    def begins(self, unit: Unit) -> None:
        """The handler is about to be called: its time runs."""

    def finished(self, units: Sequence[Unit], settlements: Sequence[Settlement]) -> None:
        """Handlers have ended: how each of their jobs is to end."""


class Runner(Protocol):
    """Runs handlers; asked by the dispatcher alone, in its thread or that of its leases."""

    def submit(self, units: Iterable[Unit]) -> None:
        """Run these, in this order, when it can."""

    def take_back(self) -> list[Unit]:
        """Those whose handler has not begun; they will not run."""
        ...

    def cancel(self, unit: Unit) -> None:
        """What its handler still does is in vain."""

    def close(self, patience: float) -> None:
        """Run no more; wait so many seconds for what runs."""
