"""What `proofreel multifact` writes and prints of a result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..scores import Judgment, Score, plain, shown
from .captions import LAYERS, Fact
from .extraction import SlotScores
from .judged import JudgedCaption
from .scores import ERROR_MODES, MultiFactResult, ScoredCaption

AVERAGES = ("multifact", "mean_of_clips", "mean_of_roles", "pooled")
LEAST_YOUDEN = 0.2  # recall + specificity - 1; 0 is chance
HEADS = {
    "visual": "predicted facts by the video",
    "textual_gold": "gold facts by the generated caption",
    "textual_predicted": "predicted facts by the gold caption",
}


def result_of(result: MultiFactResult, extraction: Mapping[str, SlotScores] | None = None) -> dict[str, Any]:
    """A result as JSON values: NaN is None, every fact with its judgments."""
    judged = result.judged
    return {
        "n_questions": judged.n_questions,
        "n_passes": judged.n_passes,
        "n_text_questions": judged.n_text_questions,
        "n_text_passes": judged.n_text_passes,
        "systems": {
            name: {
                "scores": plain(scores.scores),
                "n_undefined": dict(scores.n_undefined),
                "agreement_with_labels": plain(scores.agreement),
                "captions": [_caption(one) for one in scores.captions],
            }
            for name, scores in result.systems.items()
        },
        "differences": plain(result.differences),
        "judges_on_gold_facts": plain(result.judges),
        "gold_facts": [
            {"clip": each.clip.id, **_fact(each.fact), "expected": each.expected,
             "visual": _judgment(each.visual), "textual": _judgment(each.textual)}
            for each in judged.gold
        ],
        "object_grounding": plain(result.objects),
        "objects": [
            {"clip": each.clip.id, "role": each.role, "name": each.name, "is_there": each.is_there,
             "grounded": _judgment(each.grounded)}
            for each in judged.objects
        ],
        "extraction": plain(dict(extraction or {})),
    }  # fmt: skip


def tables_of(result: MultiFactResult, extraction: Mapping[str, SlotScores] | None = None) -> str:
    """Scores of the systems side by side, errors, judges on gold facts, object grounding; in percent."""
    columns: dict[str, Mapping[str, Score]] = {name: system.scores for name, system in result.systems.items()}
    first = next(iter(columns))
    columns |= {f"{name} - {first}": scores for name, scores in result.differences.items()}
    lines: list[str] = []
    for condition, head in HEADS.items():
        for layer in LAYERS:
            prefix = f"{condition}/{layer}/"
            names = [name for name in _names(columns, prefix) if name in AVERAGES or name.startswith("role/")]
            lines += _block(f"{layer}: {head}", prefix, names, columns)
    for mode in ERROR_MODES:
        for layer in LAYERS:
            prefix = f"errors/{mode}/{layer}/"
            lines += _block(f"errors, {mode}, {layer}", prefix, _names(columns, prefix), columns)
    for judge, evidence in (("visual", "the video"), ("textual", "the gold caption")):
        for layer in LAYERS:
            prefix = f"{judge}/{layer}/"
            names = [
                name for name in _names({"": result.judges}, prefix) if not name.endswith(("/precision", "/recall"))
            ]
            lines += _block(f"{layer}: gold and negative facts by {evidence}", prefix, names, {"judge": result.judges})
    lines += _block("object grounding", "", list(result.objects), {"judge": result.objects})
    if extraction:
        lines += ["", "| facts extracted from gold captions | precision | recall | F1 |", "| --- | --- | --- | --- |"]
        lines += [
            f"| {role} | {_percent(each.precision)} | {_percent(each.recall)} | {_percent(each.f1)} |"
            for role, each in extraction.items()
        ]
    return "\n".join([
        *lines[1:],
        "",
        "Percent [95 % interval over resampled videos]; shares of errors add up to 100 within a role.",
        asked(result),
    ])  # fmt: skip


def asked(result: MultiFactResult) -> str:
    """How much was asked, encoded, and failed."""
    judged = result.judged
    videos = f"{judged.n_questions} questions about videos, {judged.n_passes} encoder passes"
    captions = f"{judged.n_text_questions} about captions, {judged.n_text_passes} encoder passes"
    return f"{videos}; {captions}; {sum(1 for _ in failures(result))} failures."


def grounding_caveat(result: MultiFactResult) -> str | None:
    """What a reader must know where grounding tells objects that are there from others hardly better than chance."""
    if not {"recall", "specificity"} <= set(result.objects):
        return None
    recall, specificity = (result.objects[name].low for name in ("recall", "specificity"))
    if recall + specificity >= 1 + LEAST_YOUDEN:
        return None
    return (
        f"Grounding hardly tells what is there (recall {recall:.2f}, specificity {specificity:.2f}): hallucination and "
        "saliency by it say little. Word --presence as the verifier was trained, or use --grounding labels."
    )


def failures(result: MultiFactResult) -> Iterator[str]:
    """Every caption, fact and object of which something is not known, with the reason."""
    for name, system in result.systems.items():
        for scored in system.captions:
            one = scored.judged
            for layer, error in one.errors.items():
                yield f"{name}: {one.clip.id}: {layer} facts: {error}"
            for judgment, claim in _judgments(one):
                if judgment is not None and judgment.supported is None:
                    yield f"{name}: {one.clip.id}: {claim!r:.60}: {judgment.error}"
    for each in result.judged.gold:
        for judgment in (each.visual, each.textual):
            if judgment is not None and judgment.supported is None:
                yield f"gold: {each.clip.id}: {each.fact.claim!r:.60}: {judgment.error}"
    for item in result.judged.objects:
        if item.grounded.supported is None:
            yield f"objects: {item.clip.id}: {item.name!r:.60}: {item.grounded.error}"


def _judgments(one: JudgedCaption) -> Iterator[tuple[Judgment | None, str]]:
    for each in one.facts:
        yield from ((judgment, each.fact.claim) for judgment in (each.visual, each.textual, each.grounded))
    yield from ((judgment, fact.claim) for fact, judgment in one.gold)


def _names(columns: Mapping[str, Mapping[str, Score]], prefix: str) -> list[str]:
    names = dict.fromkeys(name for scores in columns.values() for name in scores if name.startswith(prefix))
    return [name.removeprefix(prefix) for name in names]


def _block(head: str, prefix: str, names: Sequence[str], columns: Mapping[str, Mapping[str, Score]]) -> list[str]:
    """A Markdown table of some scores; nothing if there are none."""
    if not names:
        return []
    rows = [
        [name, *(shown(scores[prefix + name]) if prefix + name in scores else "-" for scores in columns.values())]
        for name in names
    ]
    rows = [row for row in rows if set(row[1:]) != {"-"}]
    cells = [[head, *columns], ["---"] * (1 + len(columns)), *rows]
    return ["", *(f"| {' | '.join(row)} |" for row in cells)]


def _caption(scored: ScoredCaption) -> dict[str, Any]:
    one = scored.judged
    return {
        "clip": one.clip.id,
        "video": one.clip.group,
        "caption": one.text,
        "errors_of_extraction": dict(one.errors),
        "scores": plain(dict(scored.scores)),
        "error_counts": plain({name: dict(by_role) for name, by_role in scored.errors.items()}),
        "omitted": list(scored.omitted),
        "facts": [
            {**_fact(each.fact), "visual": _judgment(each.visual), "textual": _judgment(each.textual),
             "grounded": _judgment(each.grounded)}
            for each in one.facts
        ],
        "gold_facts": [{**_fact(fact), "expressed": _judgment(judgment)} for fact, judgment in one.gold],
    }  # fmt: skip


def _fact(fact: Fact) -> dict[str, Any]:
    return {"layer": fact.layer, "role": fact.role, "text": fact.text, "claim": fact.claim}


def _judgment(judgment: Judgment | None) -> dict[str, Any] | None:
    return None if judgment is None else plain(judgment)


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.1f}"
