"""What every paper's score shares: judgments of claims, which may fail, and scores with bounds and intervals.

A score asks for all its judgments at once. Equal questions are asked once, and claims about one evidence stand
together, so that a verifier encodes each evidence once however many claims rest on it. A judgment that failed is
neither yes nor no: a score that rests on one is not a number, and is bounded by what it would be if all failures were
no, and yes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...core import Pair, evidence_key
from ..scoring import predict, read_predictions, score_to
from ..uncertainty import Interval

if TYPE_CHECKING:
    from ...models.verifier import Verifier
    from ..scoring import Prediction


@dataclass(frozen=True)
class Judgment:
    """The answer to one claim about one evidence.

    Attributes:
        supported: None where there is none.
        p_supported: in [0, 1]; NaN where there is none. Of a person 0 or 1.
        error: why there is none.
    """

    supported: bool | None
    p_supported: float = math.nan
    error: str | None = None


@dataclass(frozen=True)
class Judgments:
    """Answers by the id of the pair.

    Attributes:
        of: each pair's.
        n_questions: different questions among the pairs.
        n_passes: evidences that were encoded: one for each that any claim is about.
    """

    of: Mapping[str, Judgment]
    n_questions: int
    n_passes: int


JudgePairs = Callable[[Sequence[Pair]], Judgments]
"""Answers pairs whose ids differ: a verifier (`by_verifier`), people's labels (`by_labels`), anything else."""


def by_verifier(
    verifier: Verifier,
    out: str | Path | None = None,
    operating_point: str | None = None,
    progress: bool = True,
    shrink_frames: bool = False,
) -> JudgePairs:
    """Judge by a verifier at one of its operating points; an uncalibrated one says supported from p = 0.5 on.

    Args:
        verifier: who judges.
        out: predictions file (Parquet) that grows while pairs are judged: a run that was killed goes on from it.
        operating_point: of the verifier; None: its default.
        progress: a bar on stderr.
        shrink_frames: where memory runs out, judge on fewer frames; otherwise such a judgment fails.
    """

    def answer(asked: Sequence[Pair]) -> list[Judgment]:
        if out is None:
            predictions = predict(verifier, asked, progress, shrink_frames)
        else:
            score_to(out, verifier, asked, progress=progress, shrink_frames=shrink_frames)
            predictions = read_predictions(out)[0]
        return [_judgment(verifier, prediction, operating_point) for prediction in predictions]

    return by_questions(answer)


def by_questions(answer: Callable[[Sequence[Pair]], Sequence[Judgment]]) -> JudgePairs:
    """Judge by a function that is given each question once, those about one evidence together.

    Args:
        answer: judgments of pairs, in order.
    """

    def judge(pairs: Sequence[Pair]) -> Judgments:
        questions: dict[Hashable, Pair] = {}
        for pair in pairs:
            questions.setdefault(_question(pair), pair)
        different = list(questions.values())
        keys = [evidence_key(pair.evidence) for pair in different]
        first = {key: i for i, key in reversed(list(enumerate(keys)))}
        asked = [different[i] for i in sorted(range(len(keys)), key=lambda i: (first[keys[i]], i))]
        answers = {_question(pair): judgment for pair, judgment in zip(asked, answer(asked), strict=True)}
        return Judgments({pair.id: answers[_question(pair)] for pair in pairs}, len(questions), len(first))

    return judge


@dataclass
class CountedJudge:
    """A judge that adds up what it cost.

    Attributes:
        judge: who answers.
        n_claims: pairs that it was given.
        n_questions: different ones among those of a call.
        n_passes: evidences that were encoded for them.
    """

    judge: JudgePairs
    n_claims: int = 0
    n_questions: int = 0
    n_passes: int = 0

    def __call__(self, pairs: Sequence[Pair]) -> Judgments:
        """As `judge`."""
        judgments = self.judge(pairs)
        self.n_claims += len(pairs)
        self.n_questions += judgments.n_questions
        self.n_passes += judgments.n_passes
        return judgments

    @property
    def counts(self) -> dict[str, int]:
        """For a result."""
        return {name: getattr(self, name) for name in ("n_claims", "n_questions", "n_passes")}

    def __str__(self) -> str:
        return f"{self.n_claims} claims, {self.n_questions} questions, {self.n_passes} encoder passes"


def by_labels(labels: Mapping[str, bool | None]) -> JudgePairs:
    """Judge by labels of people, by pair id; one that is None or absent is a failure."""

    def judge(pairs: Sequence[Pair]) -> Judgments:
        answers = {}
        for pair in pairs:
            label = labels.get(pair.id)
            error = None if label is not None else f"pair {pair.id}: no label"
            answers[pair.id] = Judgment(label, math.nan if label is None else float(label), error)
        return Judgments(answers, len({_question(p) for p in pairs}), len({evidence_key(p.evidence) for p in pairs}))

    return judge


def _question(pair: Pair) -> Hashable:
    return pair.claim, pair.context, evidence_key(pair.evidence), pair.modality, pair.role, pair.origin


def _judgment(verifier: Verifier, prediction: Prediction, operating_point: str | None) -> Judgment:
    if prediction.error is not None or math.isnan(prediction.margin):
        return Judgment(None, error=prediction.error or "the margin is not a number")
    label = verifier.verdict(prediction.margin, operating_point).label
    supported = prediction.p_supported >= 0.5 if label is None else label == "supported"
    return Judgment(supported, prediction.p_supported)


@dataclass(frozen=True)
class Score:
    """A score and how far it can be trusted.

    Attributes:
        value: NaN where a judgment it depends on failed, or where it is not defined.
        low, high: what it would be if all failed judgments were no, and yes; the value itself where none failed.
        n: judgments it rests on, failed ones included.
        n_failed: those without an answer.
        interval: 95 % over the paper's units; None where it was not asked for.
    """

    value: float
    low: float
    high: float
    n: int
    n_failed: int
    interval: Interval | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON values: NaN is None."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "interval"}
        ends = None if self.interval is None else [self.interval.low, self.interval.high]
        interval = None if ends is None or any(map(math.isnan, ends)) else ends
        plain = {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in values.items()}
        return plain | {"interval_95": interval}


def bounded(statistic: Callable[[NDArray[np.bool_]], float], supported: Sequence[bool | None]) -> Score:
    """A statistic of judgments, where some may have failed.

    Args:
        statistic: of (n,) booleans; it must not fall when a no becomes a yes, or not rise.
        supported: the judgments; None: failed.
    """
    failed = np.array([s is None for s in supported], dtype=bool)
    as_no = np.array([bool(s) for s in supported], dtype=bool)
    low, high = sorted((float(statistic(as_no)), float(statistic(as_no | failed))))
    return Score(low if low == high else math.nan, low, high, len(failed), int(failed.sum()))
