"""What became of the students: a table over seeds, with intervals from one set of resamples of clips.

Each number is the mean over the seeds. In a resample, clips are drawn once and every seed and student is judged on the
same ones, so that differences are paired and an interval holds the chance of the test clips, not that of the seeds;
the seeds' own spread is told beside it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from proofreel.data_prep.dataset import read_split
from proofreel.data_prep.pipeline import versions
from proofreel.eval.metrics import Resamples, metric_rows, roc_auc
from proofreel.eval.scoring import groups_of, labels_of, margins_of, read_predictions
from proofreel.eval.uncertainty import as_observed, headline_values, interval_of, resample
from proofreel.models.decision import read_decision, sigmoid
from proofreel.models.verifier import Verifier

TIMED_CLIPS, ROUNDS = 60, 3
Draws = dict[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """One trained verifier: what it is, how it was made, and where it lies."""

    name: str
    told: str
    folder: Path


@dataclass(frozen=True)
class Judged:
    """Metrics of a row of the table, the mean over its seeds: as observed, in each resample, and of each seed."""

    observed: dict[str, float]
    drawn: Draws
    of_seeds: dict[str, list[float]]


def table(runs: Sequence[Sequence[Row]], out: Path, n_draws: int = 10_000) -> str:
    """The table, and the differences that matter.

    Args:
        runs: of each line of the table, its seeds; the first line is the teacher, then come those that learn from
            labels alone and are distilled, from new adapters and from the teacher's.
        out: the folder of the experiment, for its test split.
        n_draws: of clips.
    """
    judged = [judge(rows, n_draws) for rows in runs]
    speeds = claims_per_second([rows[0].folder for rows in runs], out)
    n_groups = _n_groups(runs)
    lines = _lines(runs, judged, speeds, n_groups)
    teacher = judged[0]
    for start, alone, distilled in (("new adapters", *judged[1:3]), ("the teacher's adapter", *judged[3:5])):
        lines += [
            "",
            f"From {start}:",
            "",
            _compared("AUC of the distilled over that of the teacher", distilled, teacher, "auc", np.divide, n_groups),
            _compared("AUC, distilled minus labels alone", distilled, alone, "auc", np.subtract, n_groups),
            _compared("ECE as trained, distilled minus labels", distilled, alone, "raw_ece", np.subtract, n_groups),
            _compared("ECE as trained, distilled minus teacher", distilled, teacher, "raw_ece", np.subtract, n_groups),
        ]
    lines += ["", f"- claims per second, student over teacher: {speeds[2] / speeds[0]:.2f}"]
    return "\n".join([*lines, *_made_with(n_groups, n_draws)]) + "\n"


def table_of_kinds(kinds: Sequence[Sequence[Sequence[Row]]], out: Path, n_draws: int = 10_000) -> str:
    """The table of students of other kinds, each beside its teacher.

    Args:
        kinds: of each, the lines: first the teacher's, then those of its students; each line is its seeds. A student
            named "distilled" is compared with the teacher, and with one that learns from labels alone if there is one.
        out: the folder of the experiment, for its test split.
        n_draws: of clips.
    """
    runs = list({rows[0].folder: rows for lines in kinds for rows in lines}.values())
    judged = {rows[0].folder: judge(rows, n_draws) for rows in runs}
    speeds = dict(zip(judged, claims_per_second(list(judged), out), strict=True))
    n_groups = _n_groups(runs)
    lines = _lines(runs, [*judged.values()], [*speeds.values()], n_groups)
    for teacher, *students in kinds:
        alone = [rows for rows in students if rows[0].name != "distilled"]
        for rows in (each for each in students if each not in alone):
            found, best = judged[rows[0].folder], judged[teacher[0].folder]
            lines += ["", f"{rows[0].told}, after {teacher[0].told}:", ""]
            lines += [_compared("AUC over that of the teacher", found, best, "auc", np.divide, n_groups)]
            for other in alone:
                few = judged[other[0].folder]
                lines += [_compared("AUC, distilled minus labels alone", found, few, "auc", np.subtract, n_groups)]
            ratio = speeds[rows[0].folder] / speeds[teacher[0].folder]
            within = ", ".join(f"{auc_within_clips(row.folder):.3f}" for row in rows)
            lines += [f"- mean AUC within clips, by seed: {within}"]
            lines += [f"- claims per second over those of the teacher: {ratio:.2f}"]
    return "\n".join([*lines, *_made_with(n_groups, n_draws)]) + "\n"


def _lines(
    runs: Sequence[Sequence[Row]], judged: Sequence[Judged], speeds: Sequence[float], n_groups: int
) -> list[str]:
    lines = [
        "| verifier | what it saw and learnt from | AUC (95 %) | by seed | F1 (95 %) | ECE as trained (95 %) "
        "| ECE calibrated | claims/s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for rows, found, speed in zip(runs, judged, speeds, strict=True):
        shown = {name: _shown(found.observed[name], found.drawn[name], n_groups) for name in ("auc", "f1", "raw_ece")}
        by_seed = ", ".join(f"{value:.3f}" for value in found.of_seeds["auc"])
        ece = f"{found.observed['ece']:.3f}"
        cells = [rows[0].name, rows[0].told, shown["auc"], by_seed, shown["f1"], shown["raw_ece"], ece, f"{speed:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _n_groups(runs: Sequence[Sequence[Row]]) -> int:
    return len({p.group for p in read_predictions(runs[0][0].folder / "test.parquet")[0]})


def _made_with(n_groups: int, n_draws: int) -> list[str]:
    told = ", ".join(f"{name} {number}" for name, number in versions().items())
    return [
        "",
        f"Claims per second: {TIMED_CLIPS} clips from files, one process, medians of {ROUNDS} rounds in turn.",
        f"{n_groups} test clips, {n_draws} resamples of clips; {told}",
    ]


def judge(rows: Sequence[Row], n_draws: int) -> Judged:
    """Metrics of one line over its seeds."""
    per_seed = [_metrics(row.folder, n_draws) for row in rows]
    names = per_seed[0][0]
    observed = {name: [float(found[name][0]) for found, _ in per_seed] for name in names}
    drawn = {name: np.mean([draws[name] for _, draws in per_seed], axis=0) for name in names}
    return Judged({name: statistics.mean(values) for name, values in observed.items()}, drawn, observed)


def _metrics(folder: Path, n_draws: int) -> tuple[Draws, Draws]:
    """AUC, F1, ECE of the calibrated and of the raw probabilities: as observed, and in each resample."""
    rows, _ = read_predictions(folder / "test.parquet")
    used = [p for p in rows if p.error is None and p.label is not None]
    margins, labels = margins_of(used), labels_of(used)
    decision = read_decision(folder / "calibrated")
    calibrated = metric_rows(margins, decision.calibration.predict(margins), labels, decision.point().threshold)
    raw = metric_rows(margins, sigmoid(margins), labels, 0.5)
    drawn = resample(groups_of(used), n_draws)

    def both(of: Resamples) -> Draws:
        values = headline_values(calibrated, of)
        raw_ece = headline_values(raw, of)["ece_event"]
        return {"auc": values["auc"], "f1": values["f1"], "ece": values["ece_event"], "raw_ece": raw_ece}

    return both(as_observed(drawn)), both(drawn)


def auc_within_clips(folder: Path) -> float:
    """How well a verifier orders the claims of one clip: the mean over clips of their AUC, each counting the same."""
    rows, _ = read_predictions(folder / "test.parquet")
    margins, labels, groups = margins_of(rows), labels_of(rows), groups_of(rows)
    return float(np.nanmean([roc_auc(margins[groups == g], labels[groups == g]) for g in np.unique(groups)]))


def claims_per_second(folders: Sequence[Path], out: Path) -> list[float]:
    """How fast each verifier scores the same clips, from their files, in turn."""
    clips = dict.fromkeys(pair.group for pair in read_split(out / "scarce", "test"))
    chosen = set(list(clips)[:TIMED_CLIPS])
    pairs = [pair for pair in read_split(out / "scarce", "test") if pair.group in chosen]
    verifiers = [
        Verifier.from_pretrained(folder / "run" / "draft", device="cpu", prefix_cache_gib=0) for folder in folders
    ]
    seconds: list[list[float]] = [[] for _ in folders]
    for _ in range(ROUNDS):
        for verifier, taken in zip(verifiers, seconds, strict=True):
            began = time.perf_counter()
            verifier.score_pairs(pairs)
            taken.append(time.perf_counter() - began)
    return [len(pairs) / statistics.median(taken) for taken in seconds]


def _compared(
    what: str, first: Judged, second: Judged, name: str, compare: Callable[..., np.ndarray], n_groups: int
) -> str:
    value = float(compare(first.observed[name], second.observed[name]))
    return f"- {what}: {_shown(value, compare(first.drawn[name], second.drawn[name]), n_groups)}"


def _shown(value: float, draws: np.ndarray, n_groups: int) -> str:
    found = interval_of(draws, value, n_groups=n_groups)
    return f"{value:.3f} ({found.low:.3f} to {found.high:.3f})"
