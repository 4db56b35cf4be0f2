"""A board as a picture: each panel as it would look, drawn from what Prometheus answers to its queries.

No Grafana is at hand in the tests; what is shown is the queries' own answers, in the boards' own layout.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gemini.cli.plot import COLOURS
from gemini.observability import rules
from gemini.observability.boards import Board, Panel

History = list[tuple[dict[str, str], list[tuple[float, float]]]]
DASHES = {"solid": "-", "dashed": (0, (5, 3)), "dotted": (0, (1, 2))}
SHADES = {"green": "#3a8f4d", "yellow": "#c99a06", "red": "#c43c39", "blue": "#3b6fb6"}


def scaled(value: float, base: float, units: Sequence[str]) -> str:
    """With the unit in which it has one to three digits."""
    at = 0
    while abs(value) >= base and at < len(units) - 1:
        value, at = value / base, at + 1
    return f"{value:.3g} {units[at]}"


UNITS: dict[str, Callable[[float], str]] = {
    "percentunit": lambda value: f"{100 * value:.3g} %",
    "s": lambda value: "0 s" if not value else scaled(value * 1e6, 1000, ("us", "ms", "s")),
    "bytes": lambda value: scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB")),
    "binBps": lambda value: scaled(value, 1024, ("B/s", "KiB/s", "MiB/s", "GiB/s")),
    "ops": lambda value: f"{value:.3g} /s",
    "none": lambda value: f"{value:.3g}",
}


def chosen(expr: str, scrape: float, tenant: str = ".+") -> str:
    """With Grafana's variables as they are when all, or one tenant, is chosen."""
    for name, value in (("$tenant", tenant), ("$instance", ".+"), ("$namespace", ".*"), ("$pod", ".*")):
        expr = expr.replace(name, value)
    return rules.spelt(expr, scrape)


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
    heights = [1.0 if row[0].kind == "stat" else 2.5 for row in rows]
    figure = pyplot.figure(figsize=(11, sum(heights)), layout="constrained")
    draw = {"stat": draw_stat, "table": draw_table}
    parts = figure.subfigures(len(rows), 1, height_ratios=heights)
    for part, row in zip(parts, rows, strict=True):
        widths = [panel.width for panel in row]
        axes = part.subplots(1, len(row), width_ratios=widths, squeeze=False)[0]
        for axis, panel in zip(axes, row, strict=True):
            draw.get(panel.kind, draw_panel)(axis, panel, ask, begin)
    figure.suptitle(board.title, x=0.01, ha="left", fontweight="bold")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path, dpi=80)
    finally:
        pyplot.close(figure)


def draw_stat(axis: Any, panel: Panel, ask: Callable[[str], History], _begin: float) -> None:
    axis.set_axis_off()
    found = ask(panel.queries[0].expr)
    value = found[0][1][-1][1] if found else float("nan")
    colour = [shade for least, shade in panel.steps if least is None or value >= least][-1]
    axis.add_patch(axis_patch(axis, SHADES[colour]))
    title, _, unit = panel.title.partition(" (")
    shown = UNITS[panel.unit](value) if found else "none"
    axis.text(0.5, 0.4, shown, ha="center", va="center", color="white", fontsize=15, transform=axis.transAxes)
    name = title + (f" ({unit}" if unit else "")
    axis.text(0.5, 0.84, name, ha="center", va="center", color="white", fontsize=6.5, transform=axis.transAxes)


def axis_patch(axis: Any, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((0, 0), 1, 1, color=colour, transform=axis.transAxes)


def draw_table(axis: Any, panel: Panel, ask: Callable[[str], History], _begin: float) -> None:
    axis.set_axis_off()
    axis.set_title(panel.title, loc="left", fontsize=9, fontweight="bold")
    rows: dict[tuple[str, str], list[str]] = {}
    for at, (query, unit) in enumerate(zip(panel.queries, panel.units, strict=True)):
        for labels, samples in ask(query.expr):
            key = shorten(labels.get("tenant", "")), shorten(labels.get("gpu", ""))
            rows.setdefault(key, [""] * len(panel.queries))[at] = UNITS[unit](samples[-1][1])
    named = ["Tenant", "GPU"] if any(tenant for tenant, _ in rows) else ["GPU"]
    whole = [[*named, *(query.legend for query in panel.queries)]]
    whole += [[*key[-len(named) :], *cells] for key, cells in sorted(rows.items())]
    made = axis.table(cellText=whole, loc="upper left", cellLoc="left", edges="horizontal")
    made.auto_set_font_size(False)
    made.set_fontsize(7)


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
    if panel.kind == "band":
        fill_band(axis, panel, ask, begin)
    if panel.unit == "none":
        axis.set_ylim(0, max(1.0, axis.get_ylim()[1]))
    if panel.unit in ("bytes", "binBps"):
        from matplotlib.ticker import MultipleLocator

        top = max(axis.get_ylim()[1], 4)
        axis.yaxis.set_major_locator(MultipleLocator(2.0 ** round(math.log2(top / 4))))  # whole KiB, MiB, GiB
    axis.yaxis.set_major_formatter(lambda value, _position: UNITS[panel.unit](value))
    axis.set_ylim(0, 1.35 * axis.get_ylim()[1])  # room for the legend
    if panel.unit == "none":
        axis.yaxis.get_major_locator().set_params(integer=axis.get_ylim()[1] > 3)
    axis.set_xlabel("seconds", fontsize=7)
    axis.grid(axis="y", color="#e6e6e6", linewidth=0.6)
    if names:
        handles, labels = axis.get_legend_handles_labels()
        once = dict(zip(labels, handles, strict=True))  # of several series of one name, one
        axis.legend(once.values(), once.keys(), fontsize=6, loc="upper left", ncols=4 if panel.width > 12 else 2,
                    framealpha=0.7, edgecolor="none")  # fmt: skip


def fill_band(axis: Any, panel: Panel, ask: Callable[[str], History], begin: float) -> None:
    """From the request to the limit of each tenant that has both."""
    edges: dict[str, dict[str, dict[float, float]]] = {}
    for query in panel.queries:
        for labels, samples in ask(query.expr):
            edges.setdefault(f"{labels.get('tenant')} {labels.get('gpu')}", {})[query.line] = dict(samples)
    for edge in edges.values():
        lower, upper = edge.get("dashed", {}), edge.get("dotted", {})
        times = sorted(lower.keys() & upper.keys())
        axis.fill_between([at - begin for at in times], [lower[at] for at in times], [upper[at] for at in times],
                          color=COLOURS[0], alpha=0.08, linewidth=0)  # fmt: skip
