"""What a scenario gave, and whether that is what was aimed at."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One run of one contender."""

    figures: dict[str, float]
    series: dict[str, list[float]] = field(default_factory=dict)
    """A figure for each second."""


@dataclass(frozen=True)
class Result:
    """All runs of a scenario, by contender, and how they were made."""

    scenario: str
    date: str
    command: str
    server: dict[str, str]
    """Version, settings, and the machine's processors."""
    runs: dict[str, list[Run]]

    def median(self, contender: str, figure: str) -> float:
        """Of all the contender's runs."""
        return statistics.median(run.figures[figure] for run in self.runs[contender])

    def has(self, contender: str, figure: str) -> bool:
        """Whether the contender was measured, and has the figure."""
        return all(figure in run.figures for run in self.runs.get(contender, [Run({})]))

    def save(self, folder: Path) -> None:
        """Write it, in place of an older one."""
        folder.mkdir(parents=True, exist_ok=True)
        path(folder, self.scenario).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path, scenario: str) -> Result | None:
        """Read the one in the folder, if there is one."""
        if not path(folder, scenario).exists():
            return None
        stored = json.loads(path(folder, scenario).read_text())
        runs = {k: [Run(**run) for run in runs] for k, runs in stored.pop("runs").items()}
        return cls(**stored, runs=runs)


@dataclass(frozen=True)
class Aim:
    """A figure of one contender, as such or divided by another's, and its bound."""

    figure: str
    bound: float
    against: str = ""
    contender: str = "ours"
    at_most: bool = False

    def value(self, result: Result) -> float:
        """What was reached."""
        value = result.median(self.contender, self.figure)
        return value / result.median(self.against, self.figure) if self.against else value

    def measured(self, result: Result) -> bool:
        """Whether there is all that it compares: some contenders are not installed everywhere."""
        return all(
            result.has(contender, self.figure)
            for contender in (self.contender, self.against or self.contender)
        )

    def reached(self, result: Result) -> bool:
        """Whether it was."""
        value = self.value(result)
        return value <= self.bound if self.at_most else value >= self.bound


def path(folder: Path, scenario: str) -> Path:
    """The file of a scenario."""
    return folder / f"{''.join(c if c.isalnum() else '-' for c in scenario)}.json"
