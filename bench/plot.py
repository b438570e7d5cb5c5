"""The plot: time courses, ours against plain, and the ratios with what was aimed at."""

from __future__ import annotations

import statistics
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course import Course
from result import Result
from scenario import Scenario

COLOURS = {"ours": "#1f5fa8", "plain": "#c2571a"}
ROWS = (
    ("cycles", "claim+ack cycles a second", "log"),
    ("claim_ms", "ms a claim", "log"),
    ("backlog", "jobs waiting", "linear"),
)

Measured = list[tuple[Scenario, Result]]


def plot(measured: Measured, target: Path) -> None:
    """Draw what there is."""
    mpl.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
    courses = [(s, r) for s, r in measured if isinstance(s, Course)]
    ratios = [(s, a, r) for s, r in measured for a in s.aims if a.against and a.measured(r)]
    bars = 0.6 + 0.17 * len(ratios)
    lines = 5.0 if courses else 0.1
    figure = Figure(figsize=(max(9.0, 3 * len(courses)), lines + bars), layout="constrained")
    parts = figure.add_gridspec(2, 1, height_ratios=[lines, bars])
    above, below = figure.add_subfigure(parts[0]), figure.add_subfigure(parts[1])
    if courses:
        grid = above.subplots(len(ROWS), len(courses), sharex="col", sharey="row", squeeze=False)
        for column, (scenario, result) in enumerate(courses):
            grid[0][column].set_title(scenario.name)
            grid[-1][column].set_xlabel("seconds")
            for row, (series, label, scale) in enumerate(ROWS):
                _lines(grid[row][column], result, series)
                grid[row][column].set_yscale(scale)
                if column == 0:
                    grid[row][0].set_ylabel(label)
        grid[0][0].legend(frameon=False)
    if ratios:
        axes = below.subplots()
        for place, (_, aim, result) in enumerate(reversed(ratios)):
            colour = "#5b8c5a" if aim.reached(result) else "#b03a3a"
            axes.barh(place, aim.value(result), color=colour, height=0.6)
            axes.plot([aim.bound] * 2, [place - 0.4, place + 0.4], color="black")
        names = [
            f"{s.name}: {a.contender} / {a.against}, {a.figure.replace('_', ' ')}"
            f"{' (at most)' if a.at_most else ''}"
            for s, a, _ in reversed(ratios)
        ]
        axes.set_yticks(range(len(names)), names)
        axes.set_title("ratios; the black stroke is the aim, red is short of it")
    figure.savefig(target, dpi=110)


def _lines(axes: Axes, result: Result, series: str) -> None:
    for contender, runs in result.runs.items():
        # Runs of a course are equally long; the median of each second.
        median = [
            statistics.median(at) for at in zip(*(run.series[series] for run in runs), strict=True)
        ]
        axes.plot(range(1, len(median) + 1), median, color=COLOURS[contender], label=contender)
