"""Videos -> annotations in the project's neutral format, one object per step, and narrations as SRT and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from .filming import Step, Video
from .negatives import Shown, deal_negatives
from .sampling import generator
from .vocabulary import ROLES, Facts, caption, concept, conceptual, contextual

Dealt = dict[str, tuple[Facts, str]]  # family of claims -> facts whose claim is false here, and kind of falsehood
CONTEXTUAL_FAMILIES = ("act/ing", "act/with", "act/where", "act/all")


def annotate(seed: int, videos: Sequence[Video], where: str) -> list[dict[str, Any]]:
    """The annotation of every step of one split, with as many refuted as supported claims of each sentence.

    Raises:
        ConfigError: the split is too small for that; `where` names it.
    """
    placed = [(video, i) for video in videos for i in range(len(video.steps))]
    dealt = deal_negatives(generator(seed, f"negatives/{where}"), [_shown(*at) for at in placed], where)
    rows = []
    for (video, i), negatives in zip(placed, dealt, strict=True):
        step = video.steps[i]
        lying = step.scene.distractors()
        rows.append(
            {
                **describe(video, step),
                **_facts(step.scene.facts, negatives),
                "distractors": [name for names in lying.values() for name in names],
                "transcript": step.narration.text if step.narration else None,
                "meta": {**_step_tags(video, i), "lying": lying},
            }
        )
    return rows


def describe(video: Video, step: Step) -> dict[str, Any]:
    """Where a step is and its captions: all that pretraining may know."""
    return {
        "video": video.path,
        "start_s": step.start_s,
        "end_s": step.end_s,
        "caption": caption(step.scene.facts),
        "caption_implicit": caption(step.scene.facts, step.implicit),
        "group": video.name,
        "split": video.split,
    }


def cues(video: Video) -> list[dict[str, Any]]:
    """The narration of a video: start_s, end_s, text."""
    return [{"start_s": s.start_s, "end_s": s.end_s, "text": s.narration.text} for s in video.steps if s.narration]


def to_srt(video: Video) -> str:
    """The narration as SubRip text."""
    blocks = [
        f"{number}\n{_clock(cue['start_s'])} --> {_clock(cue['end_s'])}\n{cue['text']}\n"
        for number, cue in enumerate(cues(video), start=1)
    ]
    return "\n".join(blocks)


def count_claims(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many claims there are: supported, and refuted by kind."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts["supported"] += len(row["conceptual"]) + len(row["contextual"])
        negatives = [*row["negative_conceptual"].values(), *row["negative_contextual"]]
        counts.update(f"refuted/{negative['kind']}" for negative in negatives)
    return dict(sorted(counts.items()))


def _shown(video: Video, i: int) -> Shown:
    step = video.steps[i]
    beside = [*video.steps[max(i - 1, 0) : i], *video.steps[i + 1 : i + 2]]
    narrated = step.narration.facts if step.narration else None
    return Shown(step.scene.facts, step.scene.distractors(), tuple(s.scene.facts for s in beside), narrated)


def _facts(facts: Facts, dealt: Dealt) -> dict[str, Any]:
    """The facts of a step, tagged: the relation of each phrase, and the kind of each falsehood."""
    relations = {family: _relation(family, dealt[family][0]) for family in CONTEXTUAL_FAMILIES}
    return {
        "conceptual": conceptual(facts),
        "contextual": [{"text": text, "role": role} for role, text in contextual(facts).items()],
        "negative_conceptual": {
            role: {"text": concept(role, dealt[role][0].value(role)), "kind": dealt[role][1]} for role in ROLES
        },
        "negative_contextual": [
            {"text": text, "role": role, "kind": dealt[family][1]} for family, (role, text) in relations.items()
        ],
    }


def _relation(family: str, facts: Facts) -> tuple[str, str]:
    """The relation ("act/where" is act/in or act/on, as the location has it) and its sentence."""
    return list(contextual(facts).items())[CONTEXTUAL_FAMILIES.index(family)]


def _step_tags(video: Video, i: int) -> dict[str, Any]:
    step = video.steps[i]
    shown, narrated = step.scene.facts, step.narration.facts if step.narration else step.scene.facts
    conflict = [
        {"role": role, "said": concept(role, narrated.value(role)), "shown": concept(role, shown.value(role))}
        for role in ROLES
        if narrated.value(role) != shown.value(role)
    ]
    return {"step": i, "steps": len(video.steps), "implicit": list(step.implicit), "narration_conflict": conflict}


def _clock(seconds: float) -> str:
    total_ms = round(seconds * 1000)
    minutes, ms = divmod(total_ms, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{ms // 1000:02d},{ms % 1000:03d}"
