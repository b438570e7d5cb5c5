"""What all scenarios have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from result import Aim, Run
from server import Server


@dataclass(frozen=True)
class Size:
    """How long and how much."""

    seconds: float = 5
    """Of a run, where the scenario does not say otherwise."""
    part: float = 1
    """Of the jobs and the times that scenarios name."""


@dataclass(frozen=True, kw_only=True)
class Scenario(ABC):
    """A kind of measurement. Each round is a run of each contender, side by side."""

    name: str
    about: str
    """What is done, in a line."""
    figures: tuple[str, ...]
    """Those to show."""
    aims: tuple[Aim, ...] = ()
    long: bool = False
    """Takes so long that it is measured only when named."""
    repeat: int = 0
    """At most so many rounds, if not 0."""

    @abstractmethod
    def round(self, server: Server, size: Size, number: int, /) -> dict[str, Run]:
        """Measure all contenders once."""
