"""A board as a picture: each panel as it would look, drawn from what Prometheus answers to its queries.

No Grafana is at hand in the tests; what is shown is the queries' own answers, in the boards' own layout.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemini.cli.plot import COLOURS
from gemini.observability.boards import Board, Panel

History = list[tuple[dict[str, str], list[tuple[float, float]]]]
DASHES = {"solid": "-", "dashed": (0, (5, 3)), "dotted": (0, (1, 2))}
UNITS: dict[str, Callable[[float], str]] = {
    "percentunit": lambda value: f"{100 * value:.3g} %",
    "s": lambda value: f"{1000 * value:.3g} ms",
    "bytes": lambda value: f"{value / 2**30:.3g} GiB",
    "Bps": lambda value: f"{value / 2**20:.3g} MiB/s",
    "ops": lambda value: f"{value:.3g} /s",
    "none": lambda value: f"{value:.3g}",
}


def legend(template: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: shorten(labels.get(found[1], "")), template)


def shorten(text: str) -> str:
    """A pod's name without the namespace that a test made; the first digits of a card."""
    return re.sub(r"(GPU-\w{8})[\w-]*", r"\1", re.sub(r"^pod\.e2e-\w{8}\.(.+)-\w{8}$", r"\1", text))


def draw(board: Board, ask: Callable[[str], History], begin: float, path: Path) -> None:
    """`ask` gives the history of an expression of the board; times are shown since `begin`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows: list[list[Panel]] = []
    for panel in board.panels:
        if not rows or sum(one.width for one in rows[-1]) + panel.width > 24:
            rows.append([])
        rows[-1].append(panel)
    figure = pyplot.figure(figsize=(11, 2.5 * len(rows)), layout="constrained")
    grid = figure.add_gridspec(len(rows), 2)
    for y, row in enumerate(rows):
        x = 0
        for panel in row:
            columns = panel.width // 12
            draw_panel(figure.add_subplot(grid[y, x : x + columns]), panel, ask, begin)
            x += columns
    figure.suptitle(board.title, x=0.01, ha="left", fontweight="bold")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path, dpi=80)
    finally:
        pyplot.close(figure)


def draw_panel(axis: Any, panel: Panel, ask: Callable[[str], History], begin: float) -> None:
    axis.set_title(panel.title, loc="left", fontsize=9, fontweight="bold")
    axis.tick_params(labelsize=7)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    lines = [
        (legend(query.legend, labels), query.line, samples)
        for query in panel.queries
        for labels, samples in sorted(ask(query.expr), key=lambda one: sorted(one[0].items()))
    ]
    if panel.kind == "bars":
        last = [(name, samples[-1][1]) for name, _, samples in lines]
        axis.barh([name for name, _ in last], [value for _, value in last], color=COLOURS[0], height=0.6)
        axis.xaxis.set_major_formatter(lambda value, _position: UNITS[panel.unit](value))
        axis.set_xlim(0)
        return
    names = list(dict.fromkeys(name for name, _, _ in lines))
    if panel.kind == "stacked":
        times = sorted({at for _, _, samples in lines for at, _ in samples})
        heights = [[dict(samples).get(at, 0.0) for at in times] for _, _, samples in lines]
        labels = [name for name, _, _ in lines]
        axis.stackplot([at - begin for at in times], heights, labels=labels, colors=COLOURS, alpha=0.6)
    else:
        colours: dict[str, str] = {}
        for name, line, samples in lines:
            whose = name.removesuffix(" request").removesuffix(" limit")  # what belongs together has one colour
            colour = colours.setdefault(whose, COLOURS[len(colours) % len(COLOURS)])
            shown = {"linestyle": DASHES[line], "linewidth": 1.6 if line == "solid" else 1.0, "color": colour}
            axis.plot([at - begin for at, _ in samples], [value for _, value in samples], label=name, **shown)
    axis.yaxis.set_major_formatter(lambda value, _position: UNITS[panel.unit](value))
    axis.set_ylim(0, 1.35 * axis.get_ylim()[1])  # room for the legend
    axis.set_xlabel("seconds", fontsize=7)
    axis.grid(axis="y", color="#e6e6e6", linewidth=0.6)
    if names:
        handles, labels = axis.get_legend_handles_labels()
        once = dict(zip(labels, handles, strict=True))  # of several series of one name, one
        axis.legend(once.values(), once.keys(), fontsize=6, loc="upper left", ncols=4 if panel.width > 12 else 2,
                    framealpha=0.7, edgecolor="none")  # fmt: skip
