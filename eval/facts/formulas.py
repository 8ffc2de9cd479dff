"""DualFact's measures of facts with roles: accuracy per role and video, object grounding, kinds of errors.

Paper: DualFact+, sections 5.2, 5.4, appendix B.1; its code is not available. Its tables do not follow one average
(`eval/metrics/defined.py` has the sums), so every average is offered under its own name. A verdict that could not be
had is None: it is left out and counted, and is neither right nor wrong (`scores` gives bounds and intervals).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

T = TypeVar("T")
ErrorMode = Literal["caption_only", "caption_grounded", "video_grounded"]


@dataclass(frozen=True)
class FactVerdict:
    """One fact of one video: what the verifier said (None where it failed) and what is so; true means supported."""

    video: str
    role: str
    predicted: bool | None
    expected: bool


@dataclass(frozen=True)
class RoleAccuracy:
    """Share of right verdicts under every average; NaN where nothing is left to average.

    Attributes:
        per_video: Acc(v) of section 5.2: mean over the roles a video has of the accuracy in that role.
        mean_of_videos: mean of `per_video`, what the paper's definition gives for a data set.
        per_role_by_video: per role, the mean over the videos that have it of their accuracy in it.
        per_role_pooled: per role, over all its facts.
        mean_of_roles: mean of `per_role_pooled`.
        pooled: over all facts.
        n: facts with a verdict; `n_failed` had none.
    """

    per_video: dict[str, float]
    mean_of_videos: float
    per_role_by_video: dict[str, float]
    per_role_pooled: dict[str, float]
    mean_of_roles: float
    pooled: float
    n: int
    n_failed: int


@dataclass(frozen=True)
class GroundedObject:
    """One object looked for in one video: whether it should be there, and whether it was found (None: failed)."""

    video: str
    is_there: bool
    is_found: bool | None


@dataclass(frozen=True)
class ObjectGrounding:
    """Recall over objects that are there, specificity over those that are not, and both together; NaN over none."""

    recall: float
    specificity: float
    accuracy: float
    n_there: int
    n_not_there: int
    n_failed: int


@dataclass(frozen=True)
class PredictedFact:
    """A fact of a generated caption: refuted by the verifier or not, visible in the video or not; None: failed."""

    role: str
    refuted: bool | None
    grounded: bool | None = None


@dataclass(frozen=True)
class ErrorCounts:
    """How many errors of each kind (section 5.4). `+` adds clips up.

    Attributes:
        hallucination: refuted facts that are not visible.
        saliency: refuted facts that are visible: true of the video, not of the task.
        unlocated: refuted facts of which it is not known whether they are visible.
        omission: required entities that no predicted fact names.
        n_facts: predicted facts with a verdict; `n_failed` had none.
    """

    hallucination: int = 0
    saliency: int = 0
    unlocated: int = 0
    omission: int = 0
    n_facts: int = 0
    n_failed: int = 0

    def __add__(self, other: ErrorCounts) -> ErrorCounts:
        return ErrorCounts(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def shares(self, mode: ErrorMode) -> dict[str, float]:
        """Shares of the errors by kind, adding up to 1, as Tables 7 and 9 print them; NaN without errors.

        Args:
            mode: "caption_only" (every refuted fact counts as hallucinated), "caption_grounded" (all three kinds) or
                "video_grounded" (without omissions, which a video alone cannot show). `unlocated` facts count in the
                first only.
        """
        refuted = self.hallucination + self.saliency + self.unlocated
        kinds = {
            "caption_only": {"omission": self.omission, "hallucination": refuted},
            "caption_grounded": {
                "omission": self.omission,
                "hallucination": self.hallucination,
                "saliency": self.saliency,
            },
            "video_grounded": {"hallucination": self.hallucination, "saliency": self.saliency},
        }[mode]
        total = sum(kinds.values())
        return {kind: count / total if total else math.nan for kind, count in kinds.items()}


def role_accuracy(verdicts: Iterable[FactVerdict]) -> RoleAccuracy:
    """Accuracy per role, averaged per video (section 5.2, Acc(v)), and the other averages; see `RoleAccuracy`."""
    everything = list(verdicts)
    right: dict[tuple[str, str], list[bool]] = defaultdict(list)  # in one cell: a video's facts of a role
    for verdict in everything:
        if verdict.predicted is not None:
            right[verdict.video, verdict.role].append(verdict.predicted == verdict.expected)
    cells = {cell: _mean(hits) for cell, hits in right.items()}
    per_video = {video: _mean(values) for video, values in _by(0, cells.items()).items()}
    by_role = {role: [hit for hits in lists for hit in hits] for role, lists in _by(1, right.items()).items()}
    pooled = {role: _mean(hits) for role, hits in by_role.items()}
    n = sum(map(len, right.values()))
    return RoleAccuracy(
        per_video=per_video,
        mean_of_videos=_mean(list(per_video.values())),
        per_role_by_video={role: _mean(values) for role, values in _by(1, cells.items()).items()},
        per_role_pooled=pooled,
        mean_of_roles=_mean(list(pooled.values())),
        pooled=_mean([hit for hits in right.values() for hit in hits]),
        n=n,
        n_failed=len(everything) - n,
    )


def object_grounding(objects: Iterable[GroundedObject]) -> ObjectGrounding:
    """Recall, specificity and accuracy (appendix B.1) over all objects of all videos, as its Table 12 is."""
    everything = list(objects)
    there = [o.is_found for o in everything if o.is_found is not None and o.is_there]
    not_there = [not o.is_found for o in everything if o.is_found is not None and not o.is_there]
    n_failed = len(everything) - len(there) - len(not_there)
    return ObjectGrounding(
        _mean(there), _mean(not_there), _mean(there + not_there), len(there), len(not_there), n_failed
    )


def object_grounding_per_video(objects: Iterable[GroundedObject]) -> dict[str, ObjectGrounding]:
    """The same for each video by itself, the form in which appendix B.1 writes the formulas."""
    by_video: dict[str, list[GroundedObject]] = defaultdict(list)
    for item in objects:
        by_video[item.video].append(item)
    return {video: object_grounding(items) for video, items in by_video.items()}


def error_counts(
    facts: Iterable[PredictedFact], required: Iterable[Hashable] = (), expressed: Iterable[Hashable] = ()
) -> ErrorCounts:
    """Hallucinations, saliency errors and omissions of one clip's caption (section 5.4).

    Args:
        facts: of the caption. Supported facts are no errors.
        required: entities of the gold facts, compared as they are given: normalise spelling before. Each counts once.
        expressed: entities that the predicted facts name.
    """
    everything = list(facts)
    judged = [fact for fact in everything if fact.refuted is not None]
    grounded = [fact.grounded for fact in judged if fact.refuted]
    return ErrorCounts(
        hallucination=grounded.count(False),
        saliency=grounded.count(True),
        unlocated=grounded.count(None),
        omission=len(set(required) - set(expressed)),
        n_facts=len(judged),
        n_failed=len(everything) - len(judged),
    )


def error_counts_by_role(
    facts: Iterable[PredictedFact],
    required: Mapping[str, Iterable[Hashable]],
    expressed: Mapping[str, Iterable[Hashable]],
) -> dict[str, ErrorCounts]:
    """`error_counts` of one clip for each role apart: an entity in another role than required is an omission.

    Args:
        required, expressed: entities per role, each as in `error_counts`.
    """
    everything = list(facts)
    roles = dict.fromkeys([*(fact.role for fact in everything), *required, *expressed])
    return {
        role: error_counts(
            [fact for fact in everything if fact.role == role], required.get(role, ()), expressed.get(role, ())
        )
        for role in roles
    }


def _by(part: int, cells: Iterable[tuple[tuple[str, str], T]]) -> dict[str, list[T]]:
    """Values of cells grouped by one part of their (video, role), in order."""
    grouped: dict[str, list[T]] = defaultdict(list)
    for cell, value in cells:
        grouped[cell[part]].append(value)
    return dict(grouped)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
