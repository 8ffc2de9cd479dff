"""Learning curves: what metrics.jsonl says, drawn. No window, no global state; drawing never stops a run.

Apart from the trainer because it needs a run's folder alone, not torch: matplotlib is loaded when a curve is drawn.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

FIGURE = "curves.png"

# One panel each: its title, and the keys of its lines with their names.
PANELS: tuple[tuple[str, dict[str, str]], ...] = (
    ("loss", {"loss": "train", "eval_loss": "validation"}),
    ("learning rate", {"learning_rate": "learning rate"}),
    ("ranking and decisions", {"eval_auc": "AUC", "eval_ap": "average precision", "eval_f1": "F1 at p >= 0.5"}),
    ("calibration error", {"eval_ece": "ECE"}),
)
# Okabe and Ito's palette, which colour-blind readers can tell apart; markers say it again.
_STYLES = (("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl; a last line that is still being written is left out."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines


def points(lines: list[dict[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """Steps and values of one number, where it is one."""
    points = [(line["step"], line[key]) for line in lines if line.get(key) is not None]
    return [step for step, _ in points], [value for _, value in points]


def draw_curves(folder: Path, title: str = "", best_step: int | None = None) -> Path | None:
    """Draw <folder>/metrics.jsonl to <folder>/curves.png, replacing the last drawing at once.

    Args:
        folder: of the run.
        title: over the panels.
        best_step: marked in the panels of the validation split.

    Returns:
        The figure; None where there is nothing to draw, or where it could not be written, which is warned of.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    try:
        lines = read_metrics(folder / "metrics.jsonl")
    except OSError:
        return None
    panels = [(name, keys) for name, keys in PANELS if any(points(lines, key)[0] for key in keys)]
    if not panels:
        return None
    n_across, n_down = min(2, len(panels)), -(-len(panels) // 2)
    figure = Figure(figsize=(5.2 * n_across, 3.4 * n_down))
    FigureCanvasAgg(figure)
    figure.suptitle(title, y=1 - 0.04 / n_down)
    axes = figure.subplots(n_down, n_across, squeeze=False).ravel()
    # Fixed, because a layout that adjusts itself draws everything twice.
    figure.subplots_adjust(left=0.16 / n_across, right=0.97, top=1 - 0.2 / n_down, bottom=0.16 / n_down, hspace=0.42)
    for ax, (name, keys) in zip(axes, panels, strict=False):
        _draw_panel(ax, name, keys, lines, best_step)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    draft = folder / f".{FIGURE}"
    try:
        figure.savefig(draft, format="png", dpi=110)
        os.replace(draft, folder / FIGURE)
    except OSError as error:
        warnings.warn(f"{folder / FIGURE}: cannot be drawn, got {error}; free or unlock the disk", stacklevel=2)
        return None
    return folder / FIGURE


def _draw_panel(ax: Any, name: str, keys: dict[str, str], lines: list[dict[str, Any]], best_step: int | None) -> None:
    for (key, label), (colour, marker) in zip(keys.items(), _STYLES, strict=False):
        steps, values = points(lines, key)
        if steps:
            # Markers only where they do not overlap.
            marks = {"marker": marker, "markersize": 4} if len(steps) <= 40 else {}
            ax.plot(steps, values, color=colour, linewidth=1.4, label=label, **marks)
    if best_step and any(key.startswith("eval_") for key in keys):
        ax.axvline(best_step, color="#777777", linewidth=1, linestyle=":", label=f"best: step {best_step}")
    ax.set(title=name, xlabel="optimiser step")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    ax.xaxis.get_major_locator().set_params(integer=True)
    if name == "learning rate":
        ax.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    if "eval_auc" in keys:
        ax.set_ylim(-0.02, 1.02)
    elif name != "loss":
        ax.set_ylim(bottom=0.0)
    ax.set_xlim(0, max(line["step"] for line in lines) * 1.02 or 1)
    if len(ax.get_lines()) > 1:
        ax.legend(frameon=False, fontsize=8)
