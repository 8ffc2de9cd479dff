"""CG-Bench's clue-grounding scores: tIoU, mIoU, rec.@IoU, acc.@IoU and the clue recovery rate.

The paper (Chen et al., 2025, section 3.3.2) and its published evaluation differ in three ways, so each is named:

- tIoU. `tiou_paper` is formula (1), a sum over pairs of intervals: seconds that one side lists twice count twice.
  `tiou_code` merges the intervals of each side first, which is the share of seconds. They agree where no side overlaps
  itself.
- A tIoU must exceed a threshold in the paper (said of acc.@IoU; taken for rec.@IoU too) and reach it in the code.
- An answer that holds no readable intervals is wrong in the paper (its prompt says so) and leaves every denominator
  in the code.

How well localised intervals meet annotated ones: tIoU and its shares, beside what chance and no effort reach.

Scores are CG-Bench's (`temporal_overlap`, which says where its paper and code differ; for intervals that do not overlap
themselves, as here, the tIoU is the same). Chance keeps number and lengths of the intervals and draws their places: it
tells what is due to looking. No effort names the whole video for every claim. Claims that hold nowhere have no tIoU;
what counts is how often an interval is named for them all the same.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...core import RowError, Span, merged, overlap_s, total_s
from ...models.verifier import Localization

Intervals = Sequence[Sequence[float]]
ScoreConvention = Literal["paper", "code"]
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Over which rec.@IoU and acc.@IoU are averaged; the ablations of the paper's Table 4 use (0.0,)."""


@dataclass(frozen=True)
class GroundedAnswer:
    """What was said about one question.

    Attributes:
        predicted: [[start_s, end_s], ...]; empty where the answer names no interval, None where it cannot be read.
        reference: the annotated clue intervals, seconds.
        is_correct: whether the option chosen from the whole video is right; None where unknown.
        failed: the verifier gave no answer (broken media, ...): left out of everything and counted.
    """

    predicted: Intervals | None
    reference: Intervals
    is_correct: bool | None = None
    failed: bool = False


@dataclass(frozen=True)
class GroundingScores:
    """Scores in [0, 1] under one convention, and how many answers they rest on.

    Attributes:
        miou: mean tIoU.
        recall_at: per threshold, the share of answers whose tIoU passes it; `recall` is their mean (rec.@IoU).
        accuracy_at: the same where the chosen option must be right too; `accuracy` is their mean (acc.@IoU).
        n: answers in `miou` and `recall`.
        n_with_option: answers in `accuracy`: those whose option is known.
        n_unread: answers without readable intervals, in `n` under "paper" and not under "code".
        n_undefined: answers whose tIoU is 0/0, in no mean; only under "paper".
        n_failed: answers that were never given.
    """

    convention: ScoreConvention
    miou: float
    recall: float
    accuracy: float
    recall_at: dict[float, float]
    accuracy_at: dict[float, float]
    n: int
    n_with_option: int
    n_unread: int
    n_undefined: int
    n_failed: int


def tiou_paper(predicted: Intervals, reference: Intervals) -> float:
    """CG-Bench formula (1): overlap summed over all pairs / (both lengths summed - that overlap).

    Seconds listed twice count twice, so a side that overlaps itself can give more than 1. NaN where the denominator is
    not positive (no seconds on either side, or heavy repetition): the formula means nothing there.

    Raises:
        RowError: an interval that is reversed, negative or not finite.
    """
    one, other = _spans(predicted), _spans(reference)
    both_s = sum(overlap_s([a], [b]) for a in one for b in other)
    either_s = sum(total_s([span]) for span in (*one, *other)) - both_s
    return both_s / either_s if either_s > 0 else math.nan


def tiou_code(predicted: Intervals, reference: Intervals) -> float:
    """CG-Bench as published in code: seconds in both / seconds in either, each second once; 0 where there are none.

    Raises:
        RowError: as `tiou_paper`.
    """
    one, other = merged(_spans(predicted)), merged(_spans(reference))
    both_s = overlap_s(one, other)
    either_s = total_s(one) + total_s(other) - both_s
    return both_s / either_s if either_s > 0 else 0.0


def grounding_scores(
    answers: Iterable[GroundedAnswer],
    convention: ScoreConvention,
    thresholds: Sequence[float] = THRESHOLDS,
) -> GroundingScores:
    """mIoU, rec.@IoU and acc.@IoU (CG-Bench section 3.3.2) of many answers; NaN where no answer is left.

    Args:
        answers: one per question.
        convention: "paper" or "code", see the module's head.
        thresholds: on tIoU, in [0, 1].

    Raises:
        RowError: a broken interval, an unknown convention, or no threshold.
    """
    if convention not in ("paper", "code") or not thresholds:
        raise RowError(f"temporal_overlap: no such scores, got {convention}, {thresholds}; ask for paper or code")
    everything = list(answers)
    given = [answer for answer in everything if not answer.failed]
    scored = [(_tiou(answer, convention), answer.is_correct) for answer in given]
    left = [(tiou, correct) for tiou, correct in scored if not math.isnan(tiou)]
    with_option = [(tiou, correct) for tiou, correct in left if correct is not None]
    recall_at = {t: _mean([_passes(tiou, t, convention) for tiou, _ in left]) for t in thresholds}
    accuracy_at = {t: _mean([bool(ok) and _passes(tiou, t, convention) for tiou, ok in with_option]) for t in recall_at}
    n_unread = sum(answer.predicted is None for answer in given)
    return GroundingScores(
        convention=convention,
        miou=_mean([tiou for tiou, _ in left]),
        recall=_mean(list(recall_at.values())),
        accuracy=_mean(list(accuracy_at.values())),
        recall_at=recall_at,
        accuracy_at=accuracy_at,
        n=len(left),
        n_with_option=len(with_option),
        n_unread=n_unread,
        n_undefined=len(given) - len(left) - (n_unread if convention == "code" else 0),
        n_failed=len(everything) - len(given),
    )


def clue_recovery_rate(long_accuracy: float, clue_accuracy: float) -> float:
    """CRR, CG-Bench formula (2): min(long, clue) / clue, at most 1; NaN where no clue question is answered right.

    Args:
        long_accuracy: share answered right from the whole video, in [0, 1].
        clue_accuracy: share answered right from the clue intervals alone, in [0, 1].

    Raises:
        RowError: an accuracy that is NaN or outside [0, 1].
    """
    if not (0 <= long_accuracy <= 1 and 0 <= clue_accuracy <= 1):
        got = f"{long_accuracy}, {clue_accuracy}"
        raise RowError(f"temporal_overlap: accuracies must be in [0, 1], got {got}; divide percentages by 100")
    return min(long_accuracy, clue_accuracy) / clue_accuracy if clue_accuracy else math.nan


def _tiou(answer: GroundedAnswer, convention: ScoreConvention) -> float:
    """NaN for an answer that this convention leaves out."""
    if answer.predicted is None:
        return 0.0 if convention == "paper" else math.nan
    tiou = tiou_paper if convention == "paper" else tiou_code
    return tiou(answer.predicted, answer.reference)


def _passes(tiou: float, threshold: float, convention: ScoreConvention) -> bool:
    return tiou > threshold if convention == "paper" else tiou >= threshold


def _spans(intervals: Intervals) -> list[Sequence[float]]:
    """The intervals without those of no length, which cover no second; broken ones are refused, here or by `spans`."""
    for span in intervals:
        if len(span) != 2:
            raise RowError(f"temporal_overlap: an interval is not [start_s, end_s], got {span}; give two times")
    return [span for span in intervals if span[0] != span[1] or not math.isfinite(span[0])]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


@dataclass(frozen=True)
class LocalizationScores:
    """Scores of claims that hold somewhere, and of those that hold nowhere.

    Attributes:
        named: of the intervals that are named.
        chance: of intervals of the same lengths, drawn anywhere; the mean over all draws.
        whole: of the whole video for every claim.
        false_alarms: share of claims that hold nowhere for which an interval is named; NaN without any.
        n_nowhere: such claims; `n_nowhere_failed` more could not be looked for.
    """

    named: GroundingScores
    chance: GroundingScores
    whole: GroundingScores
    false_alarms: float
    n_nowhere: int
    n_nowhere_failed: int


def localization_scores(
    localizations: Sequence[Localization],
    references: Sequence[Intervals],
    thresholds: Sequence[float] = THRESHOLDS,
    draws: int = 20,
    seed: int = 0,
) -> LocalizationScores:
    """Localisations against where the claims hold.

    Args:
        localizations: one per claim and video.
        references: [[start_s, end_s], ...] of each, merged here; empty where the claim holds nowhere.
        thresholds: on tIoU, for `GroundingScores.recall_at`.
        draws: of random places, for each claim.
        seed: of the draws.

    Raises:
        RowError: not one reference per localisation; a broken interval; an interval beyond the windows.
    """
    if len(localizations) != len(references):
        got = f"{len(localizations)} localisations, {len(references)} references"
        raise RowError(f"localizing: one list of intervals per localisation, got {got}; align the two")
    somewhere = [(each, merged(ref)) for each, ref in zip(localizations, references, strict=True) if len(ref)]
    nowhere = [each for each, ref in zip(localizations, references, strict=True) if not len(ref)]
    answers = [GroundedAnswer(_predicted_spans(each), ref, failed=each.error is not None) for each, ref in somewhere]
    rng, random, whole = np.random.default_rng(seed), list[GroundedAnswer](), list[GroundedAnswer]()
    for answer, (localization, _) in zip(answers, somewhere, strict=True):
        if answer.failed:
            continue
        searched = _searched(localization)
        places = (at_random(rng, _predicted_spans(localization), searched) for _ in range(draws))
        random += [dataclasses.replace(answer, predicted=place) for place in places]
        whole.append(dataclasses.replace(answer, predicted=[searched]))
    judged = [bool(each.intervals) for each in nowhere if each.error is None]
    return LocalizationScores(
        *(grounding_scores(some, "code", thresholds) for some in (answers, random, whole)),
        false_alarms=sum(judged) / len(judged) if judged else math.nan,
        n_nowhere=len(judged),
        n_nowhere_failed=len(nowhere) - len(judged),
    )


def at_random(rng: np.random.Generator, spans: Sequence[Span], searched: Span) -> list[Span]:
    """Spans of these lengths in random order, anywhere in the searched one, not overlapping; each place is as likely.

    Raises:
        RowError: they do not fit.
    """
    lengths_s = rng.permutation([end_s - start_s for start_s, end_s in spans])
    free_s = searched[1] - searched[0] - math.fsum(lengths_s)
    if free_s < -1e-6:
        raise RowError(f"localizing: intervals must lie in {searched} and not overlap, got {list(spans)}; merge them")
    starts_s = searched[0] + np.sort(rng.uniform(0.0, max(free_s, 0.0), len(lengths_s)))
    starts_s += np.concatenate([[0.0], np.cumsum(lengths_s)])[: len(lengths_s)]
    return [(float(start_s), float(start_s + length_s)) for start_s, length_s in zip(starts_s, lengths_s, strict=True)]


def _predicted_spans(localization: Localization) -> list[Span]:
    return [(interval.start_s, interval.end_s) for interval in localization.intervals]


def _searched(localization: Localization) -> Span:
    """From the start of the first window to the end of the last."""
    end_s = localization.windows[-1].segment.end_s
    assert end_s is not None  # known of every video that was read
    return localization.windows[0].segment.start_s, end_s
