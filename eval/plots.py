"""Figures of a report as inline SVG that takes its colours from the page, so that one figure serves light and dark.

Figures are built on figure objects, without pyplot or any global state. Matplotlib draws in placeholder colours, which
are then replaced by CSS variables the page defines from the Okabe-Ito palette (safe for colour-blind readers); line
styles and markers tell the same things apart a second time.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .metrics import Floats, average_precision, cumulative_counts, ece_event, reliability_bins, roc_auc

INK, MUTED, FIRST, SECOND = "#010203", "#040506", "#070809", "#0a0b0c"
_VARIABLES = {INK: "var(--ink)", MUTED: "var(--muted)", FIRST: "var(--first)", SECOND: "var(--second)"}
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


def reliability_figure(p_raw: Floats, p: Floats, labels: Floats) -> str:
    """Share of supported rows against predicted probability, before and after calibration; area grows with count."""

    def draw(ax: Axes) -> None:
        ax.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=":")
        series = ((p_raw, "before", SECOND, "--", "none"), (p, "after", FIRST, "-", FIRST))
        for values, name, colour, line, fill in series:
            bins = reliability_bins(values, labels)
            some = bins.count > 0
            label = f"{name}: ECE {_number(ece_event(values, labels))}"
            ax.plot(bins.mean_p[some], bins.mean_y[some], color=colour, linestyle=line, linewidth=1.5, label=label)
            area = 12 + 180 * bins.count[some] / max(1, len(labels))
            ax.scatter(bins.mean_p[some], bins.mean_y[some], area, facecolors=fill, edgecolors=colour, zorder=3)
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="predicted P(supported)", ylabel="share supported")
        ax.legend(frameon=False, loc="upper left")

    return _svg(draw, "reliability")


def roc_figure(margins: Floats, labels: Floats) -> str:
    """True against false positive rate over all thresholds."""

    def draw(ax: Axes) -> None:
        ax.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=":", label="chance")
        tp, fp = cumulative_counts(margins, labels)
        if tp[-1] and fp[-1]:
            some = _thinned(len(tp))
            label = f"AUC {_number(float(roc_auc(margins, labels)))}"
            ax.plot(fp[some] / fp[-1], tp[some] / tp[-1], color=FIRST, linewidth=1.8, label=label)
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="false positive rate", ylabel="true positive rate")
        ax.legend(frameon=False, loc="lower right")

    return _svg(draw, "roc")


def pr_figure(margins: Floats, labels: Floats) -> str:
    """Precision against recall over all thresholds, as the steps whose area is the average precision."""

    def draw(ax: Axes) -> None:
        tp, fp = cumulative_counts(margins, labels)
        if tp[-1] and fp[-1]:
            rate = tp[-1] / (tp[-1] + fp[-1])
            ax.plot([0, 1], [rate, rate], color=MUTED, linewidth=1, linestyle=":", label=f"chance {_number(rate)}")
            recall, precision = tp[1:] / tp[-1], tp[1:] / (tp[1:] + fp[1:])
            some = _thinned(len(recall))
            label = f"AP {_number(float(average_precision(margins, labels)))}"
            x, y = np.append(0, recall[some]), np.append(precision[0], precision[some])
            ax.step(x, y, where="pre", color=FIRST, linewidth=1.8, label=label)
            ax.legend(frameon=False, loc="lower left")
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="recall", ylabel="precision")

    return _svg(draw, "pr")


def histogram_figure(p: Floats, labels: Floats, threshold: float) -> str:
    """How many rows of each label got each calibrated probability, and where the threshold lies."""

    def draw(ax: Axes) -> None:
        edges = np.linspace(0, 1, 31).tolist()
        ax.hist(p[labels == 0], edges, histtype="step", color=SECOND, hatch="////", label="not supported")
        ax.hist(p[labels == 1], edges, histtype="stepfilled", color=FIRST, alpha=0.55, label="supported")
        ax.axvline(threshold, color=INK, linewidth=1.2, linestyle="--", label=f"threshold {_number(threshold)}")
        ax.set(xlim=(-0.03, 1.03), xlabel="calibrated P(supported)", ylabel="rows")
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(frameon=False, loc="best")

    return _svg(draw, "histogram")


def _svg(draw: Callable[[Axes], None], name: str) -> str:
    """Draw on a fresh figure; the result depends on the data alone (no date, no random ids)."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(4.2, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure.add_subplot())
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
