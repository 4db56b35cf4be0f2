"""The picture of who held the card when: a row for each tenant of each card, out of a recorded run's trace events.

A full bar is the token, from the grant to the drain confirmed; a thin one in the same colour is waiting for it. Marks:
the token asked back early, a lease lost, a quota overrun, the end of a process. What stands at the end of a row is the
tenant's part of the time shown. Pure but for the file that is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gemini.cli.plot import COLOURS

MARKS = {"revoked": ("v", "asked back"), "lease lost": ("x", "lease lost"), "overran": ("P", "overran"),
         "process ended": ("X", "process ended")}  # fmt: skip
Span = tuple[float, float]  # begin and length, seconds


@dataclass
class Row:
    """One tenant on one card."""

    card: str
    tenant: str
    held: list[Span] = field(default_factory=list)
    waited: list[Span] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)

    def share(self, begin: float, end: float) -> float:
        """Its part of the time between."""
        return sum(length for _, length in cut(self.held, begin, end)) / (end - begin)


def rows_of(events: Iterable[dict[str, Any]]) -> list[Row]:
    """The rows, by card and by name, of Chrome trace events (gemini/chrome.py)."""
    cards: dict[int, str] = {}
    rows: dict[tuple[int, int], Row] = {}
    for event in events:
        key = event["pid"], event["tid"]
        if event["ph"] == "M" and event["name"] == "process_name":
            cards[event["pid"]] = event["args"]["name"]
        elif event["ph"] == "M":
            rows[key] = Row(cards.get(event["pid"], ""), event["args"]["name"])
        elif event["ph"] == "X":
            spans = rows[key].held if event["name"] == "token" else rows[key].waited
            spans.append((event["ts"] / 1e6, event["dur"] / 1e6))
        elif event["ph"] == "i" and event["name"] in MARKS:
            rows[key].marks.append((event["ts"] / 1e6, event["name"]))
    return [rows[key] for key in sorted(rows, key=lambda key: (key[0], rows[key].tenant))]


def last_moment(rows: Iterable[Row]) -> float:
    """When the last of what is recorded ended; 0 where nothing is."""
    return max((begin + length for row in rows for begin, length in (*row.held, *row.waited)), default=0.0)


def cut(spans: Iterable[Span], begin: float, end: float) -> list[Span]:
    """What of the spans lies between."""
    found = []
    for at, length in spans:
        low, high = max(at, begin), min(at + length, end)
        if low < high:
            found.append((low, high - low))
    return found


def draw(path: str, title: str, rows: list[Row], begin: float, end: float) -> None:
    """Write the picture; OSError where `path` cannot be written, ValueError for a format that is none."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(11, 1.6 + 0.42 * len(rows)), layout="constrained")
    tenants = list(dict.fromkeys(row.tenant for row in rows))
    shown: set[str] = set()
    for y, row in enumerate(rows):
        colour = COLOURS[tenants.index(row.tenant) % len(COLOURS)]
        axis.broken_barh(cut(row.waited, begin, end), (y - 0.06, 0.12), facecolors=colour, alpha=0.35)
        axis.broken_barh(cut(row.held, begin, end), (y - 0.36, 0.72), facecolors=colour)
        for at, name in row.marks:
            if begin <= at <= end:
                marker, label = MARKS[name]
                legend = None if name in shown else label
                shown.add(name)
                axis.plot([at], [y - 0.44], marker=marker, color="black", markersize=5, linestyle="none", label=legend)
        text = f"{100 * row.share(begin, end):.1f} %"
        axis.annotate(text, (1.01, y), xycoords=("axes fraction", "data"), va="center", fontsize=9, color=colour)
    several = len({row.card for row in rows}) > 1
    axis.set_yticks(range(len(rows)), [f"{row.card}: {row.tenant}" if several else row.tenant for row in rows])
    axis.set_ylim(len(rows) - 0.4, -0.7)
    axis.set_xlim(begin, end)
    axis.set_xlabel("seconds since the daemon's start: full the token, thin waiting for it")
    axis.set_title(title, loc="left", fontsize=11, fontweight="bold")
    if shown:
        axis.legend(fontsize=8, frameon=False, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(shown))
        axis.set_title(title, loc="right", fontsize=11, fontweight="bold")
        axis.set_title("", loc="left")
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.tick_params(axis="y", length=0)
    try:
        figure.savefig(path, dpi=110)
    finally:
        pyplot.close(figure)
