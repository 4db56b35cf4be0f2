"""The picture of a run: promised against achieved share over time, and beside it the same tenants without Gemini.

Dashed is what a tenant is owed, solid is what it got in the second around that moment, in the same colour; each line is
labelled where it ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gemini import shares

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#f0e442")  # Okabe, Ito
WINDOW_NS = 1_000_000_000
STEP_NS = 50_000_000


@dataclass(frozen=True)
class Panel:
    """One run: cumulative GPU time of `names` (gemini/shares.py says what at_ns and busy_ns are)."""

    title: str
    names: Sequence[str]
    at_ns: shares.Times
    busy_ns: shares.Times


def spread(heights: Sequence[float], apart: float) -> list[float]:
    """Positions for labels near `heights`, at least `apart` from each other, in the same order."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    placed = list(heights)
    for before, after in itertools.pairwise(order):
        placed[after] = max(placed[after], placed[before] + apart)
    shift = max(0.0, max(placed, default=0.0) - 1.0)
    return [height - shift for height in placed]


def draw(path: str, title: str, entitled: Sequence[float], runs: Sequence[Panel]) -> None:
    """Write the PNG; OSError where `path` cannot be written."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    widths = [max(1.0, float(run.at_ns[-1] - run.at_ns[0])) for run in runs]
    ratio = [max(width / max(widths), 0.3) for width in widths]
    figure, axes = pyplot.subplots(
        1, len(runs), sharey=True, squeeze=False, figsize=(11, 4.6), width_ratios=ratio, layout="constrained"
    )
    for axis, run in zip(axes[0], runs, strict=True):
        panel(axis, run, entitled, labelled=run is runs[0])
    axes[0][0].set_ylabel("share of GPU time, windows of 1 s")
    axes[0][0].set_ylim(0, max(0.6, 1.25 * max(entitled, default=0.5)))
    axes[0][0].yaxis.set_major_formatter(lambda value, _position: f"{100 * value:.0f} %")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    try:
        figure.savefig(path, dpi=130)
    finally:
        pyplot.close(figure)


def panel(axis: Any, run: Panel, entitled: Sequence[float], labelled: bool) -> None:
    starts = shares.sliding(run.at_ns, WINDOW_NS, STEP_NS)
    seconds = (starts - run.at_ns[0] + WINDOW_NS / 2) / 1e9
    lines = shares.busy_between(run.at_ns, run.busy_ns, starts, WINDOW_NS) / WINDOW_NS
    whole = shares.achieved(run.at_ns, run.busy_ns)
    length = float(run.at_ns[-1] - run.at_ns[0]) / 1e9
    for index, _name in enumerate(run.names):
        colour = COLOURS[index % len(COLOURS)]
        axis.axhline(entitled[index], color=colour, linestyle=(0, (5, 3)), linewidth=1.1, alpha=0.8)
        if len(starts):
            axis.plot(seconds, lines[:, index], color=colour, linewidth=2.0)
        else:
            axis.plot([0, length], [whole[index]] * 2, color=colour, linewidth=2.0)
    got = [f"{100 * share:.1f} %" for share in whole]
    texts = [f"{name}: {got[i]}" for i, name in enumerate(run.names)]
    if labelled:
        texts = [f"{name}: owed {100 * entitled[i]:.0f} %, got {got[i]}" for i, name in enumerate(run.names)]
    for index, height in enumerate(spread([float(share) for share in whole], 0.035)):
        axis.annotate(
            texts[index],
            (1.01, height),
            xycoords=("axes fraction", "data"),
            color=COLOURS[index % len(COLOURS)],
            va="center",
            fontsize=9,
            annotation_clip=False,
        )
    axis.set_title(run.title, loc="left", fontsize=10)
    axis.set_xlabel("seconds")
    axis.set_xlim(0, length)
    axis.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
