"""The figures of a data set card: small PNGs on white ground, readable on light and dark pages and in grey.

Apart from card.py, which writes text: drawing is a kind of its own. Built on figure objects, without pyplot or any
global state; the same counts give the same bytes.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image as PILImage

from ...core import LABELS, SPLITS
from .card_statistics import CardStatistics, sizes

# Okabe-Ito, safe for colour-blind readers; hatches and line styles tell the same apart a second time.
_LOOKS: dict[str | None, tuple[str, str, str]] = {
    "supported": ("#0072B2", "", "-"),
    "refuted": ("#E69F00", "////", "--"),
    "not_enough": ("#8A8A8A", "....", ":"),
    None: ("#CC79A7", "xxxx", "-."),
}
_NAMES: dict[str | None, str] = {"not_enough": "not enough", None: "no label"}
_STYLE: dict[Any, Any] = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "hatch.linewidth": 0.6}
_MIN_BINS, _MAX_BINS = 8, 40


def draw_pictures(statistics: CardStatistics, folder: Path) -> dict[str, str]:
    """Write the pictures that these counts allow; gives {file name: what it shows}."""
    if not statistics.rows:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {
        "labels.png": ("Rows of each label in every split", _labels(statistics)),
        "claim_words.png": ("Length of the claims of each label, in words", _claim_words(statistics)),
        "group_rows.png": ("Rows per group", _histogram(sizes(statistics.group_rows), "rows of a group", "groups")),
    }
    if statistics.durations_ds:
        tenths = {ds / 10: n for ds, n in statistics.durations_ds.items()}
        shown = _histogram(tenths, "duration of a video segment (s)", "segments")
        drawn["durations.png"] = ("Durations of the distinct video segments", shown)
    for name, (_, draw) in drawn.items():
        _save(draw, folder / name)
    return {name: title for name, (title, _) in drawn.items()}


def _labels(statistics: CardStatistics) -> Callable[[Axes], None]:
    table = statistics.table("split")
    splits = [split for split in SPLITS if split in table] + [name for name in table if name not in SPLITS]

    def draw(ax: Axes) -> None:
        left = np.zeros(len(splits))
        places = np.arange(len(splits))
        for label in _present(table[name] for name in splits):
            rows = np.array([table[split][label] for split in splits], dtype=float)
            colour, hatch, _ = _LOOKS[label]
            name = _NAMES.get(label, label)
            ax.barh(places, rows, left=left, color=colour, hatch=hatch, edgecolor="white", label=name)
            left += rows
        for place, total in enumerate(left.tolist()):
            ax.text(total, place, f" {int(total):,}", va="center")
        ax.set_yticks(places, ["no split" if split == "None" else split for split in splits])
        ax.invert_yaxis()
        ax.set(xlabel="rows", xlim=(0, left.max() * 1.18))
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)

    return draw


def _claim_words(statistics: CardStatistics) -> Callable[[Axes], None]:
    by_label = statistics.claim_words()
    merged: Counter[int] = sum(by_label.values(), Counter())

    def draw(ax: Axes) -> None:
        edges = _edges(merged, whole=True)
        for label in _present(Counter({label: 1}) for label in by_label):
            counted = by_label[label]
            values, rows = np.array(list(counted)), np.array(list(counted.values()), dtype=float)
            colour, _, line = _LOOKS[label]
            shares = 100 * np.histogram(np.minimum(values, edges[-1]), edges, weights=rows)[0] / rows.sum()
            name = f"{_NAMES.get(label, label)} ({int(rows.sum()):,})"
            ax.stairs(shares, edges, color=colour, linestyle=line, linewidth=2, label=name)
        ax.set(xlabel=_axis_name("words of a claim", merged, edges), ylabel="% of the label's rows", ylim=(0, None))
        ax.legend(frameon=False, loc="best")

    return draw


def _histogram(counted: Mapping[Any, int], xlabel: str, ylabel: str) -> Callable[[Axes], None]:
    values, weights = np.array(list(counted), dtype=float), np.array(list(counted.values()), dtype=float)
    edges = _edges(counted, whole=all(isinstance(value, int) for value in counted))

    def draw(ax: Axes) -> None:
        ax.hist(np.minimum(values, edges[-1]), edges.tolist(), weights=weights, color="#0072B2", edgecolor="white")
        ax.set(xlabel=_axis_name(xlabel, counted, edges), ylabel=ylabel)
        ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))

    return draw


def _edges(counted: Mapping[Any, int], whole: bool) -> np.ndarray:
    """Bins up to the 99th percentile, so that a few huge values do not hide the rest; the last bin holds those too."""
    values = np.array(sorted(counted), dtype=float)
    shares = np.cumsum([counted[value] for value in sorted(counted)]) / sum(counted.values())
    low, high = values[0], values[int(np.searchsorted(shares, 0.99))]
    bins = min(_MAX_BINS, max(_MIN_BINS, int(2 * sum(counted.values()) ** 0.5)))
    if whole:
        width = max(1, int(np.ceil((high - low + 1) / bins)))
        return np.arange(low - 0.5, high + 0.5 + width, width)
    return np.linspace(low, high, bins + 1) if high > low else np.array([low - 0.5, low + 0.5])


def _axis_name(name: str, counted: Mapping[Any, int], edges: np.ndarray) -> str:
    beyond = sum(n for value, n in counted.items() if value > edges[-1])
    return f"{name}; the last bar holds {beyond:,} longer, up to {max(counted):,g}" if beyond else name


def _present(tables: Any) -> list[str | None]:
    present = {label for table in tables for label, rows in table.items() if rows}
    return [label for label in (*LABELS, None) if label in present]


def _save(draw: Callable[[Axes], None], path: Path) -> None:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(6.0, 3.2), dpi=100, layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        draw(figure.add_subplot())
        stored = io.BytesIO()
        figure.savefig(stored, format="png")
    with PILImage.open(stored) as image:  # 64 colours are enough and take a third of the bytes
        image.convert("RGB").quantize(64).save(path, optimize=True)
