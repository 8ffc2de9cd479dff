"""CG-Bench's scores from a file of predictions joined with the benchmark's annotation, with intervals over videos.

Long and clue accuracy, CRR, mIoU, rec.@IoU, acc.@IoU and open-ended accuracy (sections 3.3.1 to 3.3.3), under the
paper's convention or its code's (`cgbench`'s head says how they differ). An answer that could not be read is wrong in
the paper and leaves the denominator in the code. A question that was never answered (listed as failed, or absent from
the file while others are there) leaves neither: every score is bounded by what it could have been.

Open answers are judged in two steps (section 3.3.3, appendix B.3), with a verifier in place of the visual judge. Step
one: a language model compares the answer with the reference, and says yes, no, or that it needs the video. Step two,
where it does: the paper shows GPT-4o the frames of the clue intervals; here a verifier is asked whether the answer
holds in them, as a statement of question and answer. Prompts are in our own words. An answer of the language model that
is none of the three is a failure, never a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ...core import Pair, RowError, VideoSegment, is_seconds, merged
from ...data_prep.importers import Rejected, read_json_records, statement
from ...data_prep.language import Complete, LanguageModelError, ask, map_ordered
from ..metrics import Resamples
from ..uncertainty import N_DRAWS
from .cgbench import THRESHOLDS, ScoreConvention, tiou_code, tiou_paper
from .commands import read_rows
from .intervals import Bounds, Measured, Statistic, difference_over, ratio_of_sums, resampled, score_over
from .judging import JudgePairs, Judgment, Score

Unit = Literal["video", "question"]
TASKS = ("long", "clue", "intervals", "open")


@dataclass(frozen=True)
class ClueQuestion:
    """One annotated question; `right_answer` is a letter, `clue_intervals` are as annotated, not merged."""

    qid: str
    video_uid: str
    question: str
    answer: str
    right_answer: str
    clue_intervals: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class CluePrediction:
    """What a model said of one question, as one line of the file holds it; what was not asked is left out.

    Attributes:
        qid: of the annotation, as text.
        long, clue: letters chosen from the whole video, and from the clues alone.
        intervals: [[start_s, end_s], ...] named as clues; may be empty.
        open: the answer without options; `open_correct`: a verdict on it that was made elsewhere.
        unreadable: tasks (long, clue, intervals, open) whose answer could not be read.
        failed: tasks that got no answer.
    """

    qid: str
    long: str | None = None
    clue: str | None = None
    intervals: tuple[tuple[float, ...], ...] | None = None
    open: str | None = None
    open_correct: bool | None = None
    unreadable: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse tasks that do not exist."""
        if unknown := sorted({*self.unreadable, *self.failed} - set(TASKS)):
            raise RowError(f"no such task, got {unknown}; use {list(TASKS)}")


@dataclass(frozen=True)
class CGBenchScores:
    """One model's scores, by name, and every question's values.

    Attributes:
        scores: `long_accuracy`, `clue_accuracy`, `crr`, `miou`, `recall_at_iou`, `accuracy_at_iou`, `open_accuracy`:
            those whose tasks were asked.
        n_unreadable: by task.
        items: per question and score, its value at least and at most; None where it is in no mean.
    """

    convention: ScoreConvention
    unit: Unit
    scores: dict[str, Score]
    n_unreadable: dict[str, int]
    items: dict[str, dict[str, tuple[float, float] | None]]


def read_questions(path: str | Path) -> list[ClueQuestion]:
    """The benchmark's annotation (cgbench_mini.json); RowError with the line of the first question that is broken."""
    path, questions = Path(path), []
    if not path.is_file():
        raise RowError(f"{path}: no such file, got nothing to read; check the path")
    for record in read_json_records(path):
        if isinstance(record, Rejected):
            raise RowError(str(record))
        questions.append(_question(record.value, f"{record.file}:{record.line}"))
    if not questions:
        raise RowError(f"{path}: no questions, got an empty file; give the benchmark's annotation")
    return questions


def _question(value: Any, where: str) -> ClueQuestion:
    texts = ("video_uid", "question", "answer", "right_answer")
    if not isinstance(value, dict) or not all(isinstance(value.get(key), str) for key in texts) or "qid" not in value:
        raise RowError(f"{where}: a question has qid, {', '.join(texts)}, got {value!r:.60}; see docs/formats.md")
    spans = value.get("clue_intervals")
    if not isinstance(spans, list) or not spans or not all(_is_span(span) for span in spans):
        raise RowError(f"{where}: clue_intervals must be pairs of seconds, got {spans!r:.60}; write [[a, b], ...]")
    clues = tuple((float(start_s), float(end_s)) for start_s, end_s in spans)
    return ClueQuestion(qid=str(value["qid"]), clue_intervals=clues, **{key: value[key] for key in texts})


def _is_span(span: Any) -> bool:
    return isinstance(span, list) and len(span) == 2 and all(is_seconds(time) for time in span) and span[0] <= span[1]


def read_predictions_of(path: str | Path) -> list[CluePrediction]:
    """A model's predictions from JSON lines; RowError or ConfigError with the line of the first that is broken."""
    return read_rows(CluePrediction, path, lambda row: row.qid)


class _Values:
    """Each question's values at least and at most, and whether it counts, for one score."""

    def __init__(self, n: int) -> None:
        self.low, self.high, self.counts = np.zeros(n), np.zeros(n), np.ones(n)

    def put(self, i: int, bounds: tuple[float, float] | None) -> None:
        if bounds is None:
            self.counts[i] = 0
        else:
            self.low[i], self.high[i] = bounds

    def statistic(self) -> Statistic:
        return ratio_of_sums(self.low, self.high, self.counts)


def cgbench_measures(
    questions: Sequence[ClueQuestion],
    predictions: Sequence[CluePrediction],
    convention: ScoreConvention,
    thresholds: Sequence[float] = THRESHOLDS,
) -> dict[str, _Values]:
    """Each question's values for every score whose task was asked (crr is made of two of them)."""
    by_qid = {prediction.qid: prediction for prediction in predictions}
    if unknown := sorted(set(by_qid) - {question.qid for question in questions}):
        raise RowError(f"cgbench: predictions of questions that are not annotated, got {unknown[:3]}; check the files")
    asked = {task for p in predictions for task in TASKS if _given(p, task) or task in (*p.unreadable, *p.failed)}
    names = {"long": "long_accuracy", "clue": "clue_accuracy", "open": "open_accuracy"}
    values = {names[task]: _Values(len(questions)) for task in names if task in asked}
    if "intervals" in asked:
        values |= {name: _Values(len(questions)) for name in ("miou", "recall_at_iou")}
        values |= {"accuracy_at_iou": _Values(len(questions))} if "long" in asked else {}
    for i, question in enumerate(questions):
        prediction = by_qid.get(question.qid, CluePrediction(question.qid, failed=TASKS))
        right = {task: _right(question, prediction, task, convention) for task in names}
        for task, name in names.items():
            if name in values:
                values[name].put(i, right[task])
        if "intervals" not in asked:
            continue
        tiou = _tiou_bounds(question, prediction, convention)
        values["miou"].put(i, tiou)
        low, high = (_recall(each, thresholds, convention) for each in tiou or (0.0, 0.0))
        share = None if tiou is None else (low, high)
        values["recall_at_iou"].put(i, share)
        if "accuracy_at_iou" in values:
            long = right["long"]
            both = None if share is None or long is None else (share[0] * long[0], share[1] * long[1])
            values["accuracy_at_iou"].put(i, both)
    return values


def _given(prediction: CluePrediction, task: str) -> bool:
    return (prediction.open_correct if task == "open" else getattr(prediction, task)) is not None


def _right(
    question: ClueQuestion, prediction: CluePrediction, task: str, convention: ScoreConvention
) -> tuple[float, float] | None:
    """Whether the answer is right, at least and at most; None: in no mean."""
    if task in prediction.unreadable:
        return (0.0, 0.0) if convention == "paper" else None
    if not _given(prediction, task):
        return 0.0, 1.0
    if task == "open":
        right = bool(prediction.open_correct)
    else:
        right = str(getattr(prediction, task)).strip().casefold() == question.right_answer.strip().casefold()
    return float(right), float(right)


def _tiou_bounds(
    question: ClueQuestion, prediction: CluePrediction, convention: ScoreConvention
) -> tuple[float, float] | None:
    if "intervals" in prediction.unreadable:
        return (0.0, 0.0) if convention == "paper" else None
    if prediction.intervals is None:
        return 0.0, 1.0
    tiou = (tiou_paper if convention == "paper" else tiou_code)(prediction.intervals, question.clue_intervals)
    return None if math.isnan(tiou) else (tiou, tiou)


def _recall(tiou: float, thresholds: Sequence[float], convention: ScoreConvention) -> float:
    """Share of the thresholds that a tIoU exceeds (paper) or reaches (code)."""
    return sum(tiou > each if convention == "paper" else tiou >= each for each in thresholds) / len(thresholds)


def _statistics(values: dict[str, _Values]) -> dict[str, Statistic]:
    statistics = {name: each.statistic() for name, each in values.items()}
    if "long_accuracy" in values and "clue_accuracy" in values:
        long, clue = statistics["long_accuracy"], statistics["clue_accuracy"]

        def crr(drawn: Resamples) -> Bounds:
            (long_low, long_high), (clue_low, clue_high) = long(drawn), clue(drawn)
            with np.errstate(divide="ignore", invalid="ignore"):
                low, high = np.minimum(long_low / clue_high, 1), np.minimum(long_high / clue_low, 1)
            undefined = clue_high == 0
            return np.where(undefined, np.nan, low), np.where(undefined, np.nan, np.where(clue_low == 0, 1.0, high))

        statistics["crr"] = crr
    return statistics


def cgbench_scores(
    questions: Sequence[ClueQuestion],
    predictions: Sequence[CluePrediction],
    convention: ScoreConvention = "paper",
    unit: Unit = "video",
    thresholds: Sequence[float] = THRESHOLDS,
    n_draws: int = N_DRAWS,
) -> CGBenchScores:
    """All scores of one model.

    Args:
        questions: of the benchmark.
        predictions: of the model, at most one for each question.
        convention: "paper" or "code".
        unit: what is resampled as a whole.
        thresholds: on tIoU.
        n_draws: resamples.

    Raises:
        RowError: a prediction of no annotated question, or a broken interval.
    """
    values = cgbench_measures(questions, predictions, convention, thresholds)
    drawn = resampled([_unit_of(question, unit) for question in questions], n_draws)
    n_open = {name: int(np.sum(each.low < each.high)) for name, each in values.items()}
    n_open["crr"] = n_open.get("long_accuracy", 0) + n_open.get("clue_accuracy", 0)
    scores = {name: score_over((drawn, s), len(questions), n_open[name]) for name, s in _statistics(values).items()}
    items = {
        question.qid: {
            name: (float(each.low[i]), float(each.high[i])) if each.counts[i] else None for name, each in values.items()
        }
        for i, question in enumerate(questions)
    }
    unreadable = {task: sum(task in p.unreadable for p in predictions) for task in TASKS}
    return CGBenchScores(convention, unit, scores, unreadable, items)


def cgbench_differences(
    questions: Sequence[ClueQuestion],
    first: Sequence[CluePrediction],
    second: Sequence[CluePrediction],
    convention: ScoreConvention = "paper",
    unit: Unit = "video",
    n_draws: int = N_DRAWS,
) -> dict[str, Score]:
    """First minus second in every score that both have, over the same resamples; arguments as `cgbench_scores`."""
    drawn = resampled([_unit_of(question, unit) for question in questions], n_draws)
    measured: list[dict[str, Measured]] = [
        {name: (drawn, s) for name, s in _statistics(cgbench_measures(questions, each, convention)).items()}
        for each in (first, second)
    ]
    return {
        name: difference_over(measured[0][name], measured[1][name], len(questions))
        for name in measured[0]
        if name in measured[1]
    }


def _unit_of(question: ClueQuestion, unit: Unit) -> str:
    return question.video_uid if unit == "video" else question.qid


FirstStep = Literal["yes", "no", "need visual clue"]
_ANSWERS: dict[str, FirstStep] = {
    "yes": "yes",
    "no": "no",
    "need visual clue": "need visual clue",
    "need visual clues": "need visual clue",
    "i need visual clues": "need visual clue",
}


@dataclass(frozen=True)
class OpenAnswer:
    """What the judge said of one answer.

    Attributes:
        first: of the language model; None where it failed.
        judgment: whether the answer is right.
    """

    first: FirstStep | None
    judgment: Judgment


def parse_first_step(text: str) -> FirstStep:
    """Yes, no, or need visual clue, whatever the case and punctuation around; otherwise ValueError with the text."""
    words = " ".join(text.split()).strip(" .!?\"'`*[](){}:").casefold()
    if words not in _ANSWERS:
        raise ValueError(f"the answer must be yes, no or need visual clue, got {text.strip()[:80]!r}; write one")
    return _ANSWERS[words]


def judge_open_answers(
    questions: Sequence[ClueQuestion],
    answers: Sequence[str],
    model: Complete,
    judge: JudgePairs,
    concurrency: int = 8,
    extension: str = ".mp4",
) -> list[OpenAnswer]:
    """Both steps for every answer.

    Args:
        questions, answers: in the same order.
        model: of step one.
        judge: of step two, such as `by_verifier`.
        concurrency: questions put to the model at once.
        extension: of the video files.
    """
    prompt = (files(__name__.rpartition(".")[0]) / "prompts" / "cg_open_ended.txt").read_text(encoding="utf-8")

    def first(both: tuple[ClueQuestion, str]) -> FirstStep:
        question, answer = both
        text = f"Question: {question.question}\nReference answer: {question.answer}\nModel's answer: {answer}"
        return ask(model, [{"role": "system", "content": prompt}, {"role": "user", "content": text}], parse_first_step)

    firsts = list(map_ordered(first, zip(questions, answers, strict=True), concurrency))
    pairs = {}
    for number, (question, answer, said) in enumerate(zip(questions, answers, firsts, strict=True)):
        if said == "need visual clue":
            spans = merged(question.clue_intervals)
            shown = tuple(VideoSegment(question.video_uid + extension, start_s, end_s) for start_s, end_s in spans)
            pairs[number] = Pair(
                f"cgbench/{question.qid}/open", statement(question.question, answer), shown, group=question.video_uid
            )
    judgments = judge(list(pairs.values())).of if pairs else {}
    opened = []
    for number, said in enumerate(firsts):
        if isinstance(said, LanguageModelError):
            opened.append(OpenAnswer(None, Judgment(None, error=str(said))))
        elif number in pairs:
            opened.append(OpenAnswer(said, judgments[pairs[number].id]))
        else:
            opened.append(OpenAnswer(said, Judgment(said == "yes", float(said == "yes"))))
    return opened
