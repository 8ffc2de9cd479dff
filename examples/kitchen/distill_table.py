"""What became of the students: a table over seeds, and differences with an interval over clips and one over seeds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from examples.kitchen.over_seeds import Judged, compare, error_text, judge_folders, made_with, mean_text, seeds_text
from proofreel.data_prep.dataset import read_split
from proofreel.eval.metrics import roc_auc
from proofreel.eval.scoring import groups_of, labels_of, margins_of, read_predictions
from proofreel.models.verifier import Verifier

TIMED_CLIPS, ROUNDS = 60, 3


@dataclass(frozen=True)
class Row:
    """One trained verifier: what it is, how it was made, and where it lies."""

    name: str
    description: str
    folder: Path


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
    lines = _lines(runs, judged, speeds)
    teacher = judged[0]
    for start, alone, distilled in (("new adapters", *judged[1:3]), ("the teacher's adapter", *judged[3:5])):
        lines += [
            "",
            f"From {start}:",
            "",
            _ratio("AUC of the distilled over that of the teacher", distilled, teacher),
            _difference("AUC, distilled minus labels alone", distilled, alone),
            _difference("ECE as trained, distilled minus labels", distilled, alone, "ece_before"),
            _difference("ECE as trained, distilled minus teacher", distilled, teacher, "ece_before"),
        ]
    lines += ["", f"- claims per second, student over teacher: {speeds[2] / speeds[0]:.2f}"]
    return "\n".join([*lines, *_made_with(teacher, n_draws)]) + "\n"


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
    lines = _lines(runs, [*judged.values()], [*speeds.values()])
    for teacher, *students in kinds:
        alone = [rows for rows in students if rows[0].name != "distilled"]
        for rows in (each for each in students if each not in alone):
            found, best = judged[rows[0].folder], judged[teacher[0].folder]
            lines += ["", f"{rows[0].description}, after {teacher[0].description}:", ""]
            lines += [_ratio("AUC over that of the teacher", found, best)]
            for other in alone:
                few = judged[other[0].folder]
                lines += [_difference("AUC, distilled minus labels alone", found, few)]
            ratio = speeds[rows[0].folder] / speeds[teacher[0].folder]
            within = ", ".join(f"{auc_within_clips(row.folder):.3f}" for row in rows)
            lines += [f"- mean AUC within clips, by seed: {within}"]
            lines += [f"- claims per second over those of the teacher: {ratio:.2f}"]
    return "\n".join([*lines, *_made_with(judged[runs[0][0].folder], n_draws)]) + "\n"


def _lines(runs: Sequence[Sequence[Row]], judged: Sequence[Judged], speeds: Sequence[float]) -> list[str]:
    lines = [
        "| verifier | what it saw and learnt from | AUC (95 %) | by seed | F1 (95 %) | ECE as trained (by seed) "
        "| ECE calibrated | claims/s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for rows, found, speed in zip(runs, judged, speeds, strict=True):
        auc, f1, raw_ece = mean_text(found, "auc"), mean_text(found, "f1"), error_text(found, "ece_before")
        of_seeds, ece = seeds_text(found.of_seeds["auc"]), f"{found.observed['ece_event']:.3f}"
        cells = [rows[0].name, rows[0].description, auc, of_seeds, f1, raw_ece, ece, f"{speed:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _made_with(judged: Judged, n_draws: int) -> list[str]:
    timed = f"Claims per second: {TIMED_CLIPS} clips from files, one process, medians of {ROUNDS} rounds in turn."
    return ["", timed, made_with(judged, n_draws)]


def judge(rows: Sequence[Row], n_draws: int) -> Judged:
    """Metrics of one line over its seeds."""
    return judge_folders([row.folder for row in rows], n_draws)


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


def _difference(what: str, first: Judged, second: Judged, name: str = "auc") -> str:
    return f"- {what}: {compare(first, second, name)}"


def _ratio(what: str, first: Judged, second: Judged) -> str:
    return f"- {what}: {compare(first, second, by=np.divide, null=1.0)}"
