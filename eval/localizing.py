"""How well localised intervals meet annotated ones: tIoU and its shares, beside what chance and no effort reach.

Scores are CG-Bench's (`temporal_overlap`, which says where its paper and code differ; for intervals that do not overlap
themselves, as here, the tIoU is the same). Chance keeps number and lengths of the intervals and draws their places: it
tells what is due to looking. No effort names the whole video for every claim. Claims that hold nowhere have no tIoU;
what counts is how often an interval is named for them all the same.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core.errors import RowError
from ..core.spans import Span, merged
from ..models.localization import Localization
from .temporal_overlap import THRESHOLDS, GroundedAnswer, GroundingScores, Intervals, grounding_scores


@dataclass(frozen=True)
class LocalizationScores:
    """Scores of claims that hold somewhere, and of those that hold nowhere.

    Attributes:
        found: of the intervals.
        chance: of intervals of the same lengths, drawn anywhere; the mean over all draws.
        whole: of the whole video for every claim.
        false_alarms: share of claims that hold nowhere for which an interval is named; NaN without any.
        n_nowhere: such claims; `n_nowhere_failed` more could not be looked for.
    """

    found: GroundingScores
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
    somewhere = [(found, merged(ref)) for found, ref in zip(localizations, references, strict=True) if len(ref)]
    nowhere = [found for found, ref in zip(localizations, references, strict=True) if not len(ref)]
    answers = [GroundedAnswer(_predicted_spans(found), ref, failed=found.error is not None) for found, ref in somewhere]
    rng, random, whole = np.random.default_rng(seed), list[GroundedAnswer](), list[GroundedAnswer]()
    for answer, (found, _) in zip(answers, somewhere, strict=True):
        if answer.failed:
            continue
        searched = _searched(found)
        places = (at_random(rng, _predicted_spans(found), searched) for _ in range(draws))
        random += [dataclasses.replace(answer, predicted=place) for place in places]
        whole.append(dataclasses.replace(answer, predicted=[searched]))
    judged = [bool(found.intervals) for found in nowhere if found.error is None]
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


def _predicted_spans(found: Localization) -> list[Span]:
    return [(interval.start_s, interval.end_s) for interval in found.intervals]


def _searched(found: Localization) -> Span:
    """From the start of the first window to the end of the last."""
    end_s = found.windows[-1].segment.end_s
    assert end_s is not None  # known of every video that was read
    return found.windows[0].segment.start_s, end_s
