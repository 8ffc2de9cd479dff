"""Figures of a report as inline SVG that takes its colours from the page, so that one figure serves light and dark.

Figures are built on figure objects, without pyplot or any global state. Matplotlib draws in placeholder colours, which
are then replaced by CSS variables the page defines from the Okabe-Ito palette (safe for colour-blind readers); line
styles and markers tell the same things apart a second time.

Apart from the page because it alone needs matplotlib, and knows arrays only: no predictions, no calibration.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..metrics import Floats, average_precision, cumulative_counts, risk_coverage, roc_auc

INK, MUTED, FIRST, SECOND, ALARM = "#010203", "#040506", "#070809", "#0a0b0c", "#0d0e0f"
_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    FIRST: "var(--first)",
    SECOND: "var(--second)",
    ALARM: "var(--alarm)",
}
MAX_POINTS = 1_000
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, selectable, in the page's own font
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}


def reliability_figure(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], ece: tuple[float, float], watermark: str
) -> str:
    """Share of rows supported against predicted probability, before and after calibration, and how many rows that is.

    Args:
        before, after: the bins that hold rows: mean_p, share_supported, low and high of the band, from, to, n.
        ece: event ECE before and after.
    """

    def draw(figure: Figure) -> None:
        ax, below = figure.subplots(2, 1, sharex=True, height_ratios=[3.4, 1])
        ax.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=":")
        series = ((before, "before", SECOND, "--", "none", "s"), (after, "after", FIRST, "-", FIRST, "o"))
        for (bins, name, colour, line, fill, marker), value in zip(series, ece, strict=True):
            x, y = [b["mean_p"] for b in bins], [b["share_supported"] for b in bins]
            label = f"{name}: ECE {_number(value)}"
            ax.plot(x, y, color=colour, linestyle=line, linewidth=1.5, marker=marker, mfc=fill, ms=5, label=label)
            edges = [b["from"] for b in bins] + [b["to"] for b in bins[-1:]]
            below.stairs(*_steps(bins, edges), color=colour, linestyle=line, linewidth=1.5)
        known = [b for b in after if not np.isnan(b["low"])]
        band = ([b["mean_p"] for b in known], [b["low"] for b in known], [b["high"] for b in known])
        ax.fill_between(*band, color=FIRST, alpha=0.18, linewidth=0, label="after: 95 %, whole groups")
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), ylabel="share supported")
        below.set(xlabel="predicted P(supported)", ylabel="rows")
        below.yaxis.set_major_locator(MaxNLocator(2, integer=True))

    return _svg(draw, "reliability", watermark, height=5.4)


def roc_figure(margins: Floats, labels: Floats, watermark: str = "") -> str:
    """True against false positive rate over all thresholds."""

    def draw(ax: Axes) -> None:
        ax.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=":", label="chance")
        tp, fp = cumulative_counts(margins, labels)
        if tp[-1] and fp[-1]:
            some = _thinned(len(tp))
            label = f"AUC {_number(float(roc_auc(margins, labels)))}"
            ax.plot(fp[some] / fp[-1], tp[some] / tp[-1], color=FIRST, linewidth=1.8, label=label)
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="false positive rate", ylabel="true positive rate")

    return _svg(_on_axes(draw), "roc", watermark)


def pr_figure(margins: Floats, labels: Floats, watermark: str = "") -> str:
    """Precision against recall over all thresholds, as the steps whose area is the average precision."""

    def draw(ax: Axes) -> None:
        tp, fp = cumulative_counts(margins, labels)
        if tp[-1] and fp[-1]:
            rate = tp[-1] / (tp[-1] + fp[-1])
            ax.plot(
                [0, 1],
                [rate, rate],
                color=MUTED,
                linewidth=1,
                linestyle=":",
                label=f"chance: positive rate {_number(rate)}",
            )
            recall, precision = tp[1:] / tp[-1], tp[1:] / (tp[1:] + fp[1:])
            some = _thinned(len(recall))
            label = f"AP {_number(float(average_precision(margins, labels)))}"
            x, y = np.append(0, recall[some]), np.append(precision[0], precision[some])
            ax.step(x, y, where="pre", color=FIRST, linewidth=1.8, label=label)
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="recall", ylabel="precision")

    return _svg(_on_axes(draw), "pr", watermark)


def histogram_figure(p: Floats, labels: Floats, threshold: float, watermark: str = "") -> str:
    """How many rows of each label got each calibrated probability, and where the threshold lies."""

    def draw(ax: Axes) -> None:
        edges = np.linspace(0, 1, 31).tolist()
        ax.hist(p[labels == 0], edges, histtype="step", color=SECOND, hatch="////", label="not supported")
        ax.hist(p[labels == 1], edges, histtype="stepfilled", color=FIRST, alpha=0.55, label="supported")
        ax.axvline(threshold, color=INK, linewidth=1.2, linestyle="--", label=f"threshold {_number(threshold)}")
        ax.set(xlim=(-0.03, 1.03), xlabel="calibrated P(supported)", ylabel="rows")
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))

    return _svg(_on_axes(draw), "histogram", watermark)


def risk_figure(confidence: Floats, correct: Floats, areas: Mapping[str, float], watermark: str = "") -> str:
    """Error rate of the verdicts kept as the least confident are withheld, with its best and worst possible course.

    Args:
        areas: `aurc`, `e_aurc` and `augrc`.
    """

    def draw(ax: Axes) -> None:
        curve = risk_coverage(confidence, correct)
        some = _thinned(len(curve.coverage))
        error = float(curve.selective_risk[-1])
        label = f"AURC {_number(areas['aurc'])}, E-AURC {_number(areas['e_aurc'])}"
        ax.plot([0, 1], [error, error], color=MUTED, linewidth=1, linestyle=":", label="confidence that says nothing")
        best = np.linspace(max(1 - error, 1e-9), 1, 100)
        ideal = np.append(0, (best - (1 - error)) / best)
        ax.plot(np.append(0, best), ideal, color=SECOND, linewidth=1.3, linestyle="--", label="every error last")
        ax.plot(curve.coverage[some], curve.selective_risk[some], color=FIRST, linewidth=1.8, label=label)
        generalised = f"errors of all rows, AUGRC {_number(areas['augrc'])}"
        y = curve.generalised_risk[some]
        ax.plot(curve.coverage[some], y, color=FIRST, linewidth=1.3, linestyle="-.", label=generalised)
        top = max(float(np.max(curve.selective_risk[curve.coverage >= 0.02], initial=error)), error)
        y_range = (-0.03 * top, 1.05 * top or 1)
        ax.set(xlim=(-0.03, 1.03), ylim=y_range, xlabel="share of rows kept", ylabel="error rate")

    return _svg(_on_axes(draw), "risk", watermark)


def _steps(bins: Sequence[Mapping[str, Any]], edges: Sequence[float]) -> tuple[list[int], list[float]]:
    """Counts and edges of a step line; bins that hold no row are steps of 0."""
    counts, bounds = [], list(edges[:1])
    for each in bins:
        if each["from"] > bounds[-1]:
            counts.append(0)
            bounds.append(each["from"])
        counts.append(each["n"])
        bounds.append(each["to"])
    return counts, bounds


def _on_axes(draw: Callable[[Axes], None]) -> Callable[[Figure], None]:
    return lambda figure: draw(figure.add_subplot())


def _svg(draw: Callable[[Figure], None], name: str, watermark: str = "", height: float = 4.2) -> str:
    """Draw on a fresh figure; the result depends on the data alone (no date, no random ids)."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(4.2, height), layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        if any(ax.get_legend_handles_labels()[0] for ax in figure.axes):
            figure.legend(loc="outside upper left", frameon=False, alignment="left", fontsize=9)  # never over data
        if watermark:
            style: dict[str, Any] = {"rotation": 28, "ha": "center", "va": "center", "weight": "bold", "zorder": 9}
            figure.text(0.55, 0.55, watermark, fontsize=34, color=ALARM, alpha=0.3, **style)
        stored = io.StringIO()
        figure.savefig(stored, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = stored.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg))
    # Ids must differ between the figures of one page, or one figure would use another's markers.
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    for placeholder, variable in _VARIABLES.items():
        svg = svg.replace(placeholder, variable)
    return svg


def _thinned(n: int) -> np.ndarray:
    return np.unique(np.linspace(0, n - 1, min(n, MAX_POINTS)).round().astype(int))


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}"
