"""The page of MultiFactScore: captions with each fact coloured by its verdict, the clip's frames beside them."""

from __future__ import annotations

from collections.abc import Mapping

from ..scores import Judgment, PageCitation, PageClaim, PageResponse, PageSentence, Score, ScorePage
from .captions import Fact
from .judged import JudgedCaption, JudgedFact
from .scores import MultiFactResult, ScoredCaption
from .tables import HEADS, asked, grounding_caveat


def multifact_page(result: MultiFactResult, judge: str = "the labels of the files") -> ScorePage:
    """What `write_page` shows of a result.

    Args:
        result: of `multifact_scores`.
        judge: who judged by the video.
    """
    notes = [
        *(f"{_words(condition)}: {head}." for condition, head in HEADS.items()),
        f"Facts are judged by {judge}; the colour is the first verdict listed. A refuted fact whose things are to be "
        "seen is a saliency error, else a hallucination. Percent, with 95 % intervals over resampled videos.",
        asked(result),
        *([caveat] if (caveat := grounding_caveat(result)) else []),
    ]
    return ScorePage(
        "MultiFactScore",
        {name: _on_top(system.scores) for name, system in result.systems.items()},
        {f"{name} - {next(iter(result.systems))}": _on_top(scores) for name, scores in result.differences.items()},
        [_response(name, one) for name, system in result.systems.items() for one in system.captions],
        notes,
    )


def _on_top(scores: Mapping[str, Score]) -> dict[str, Score]:
    """MultiFactScore by condition, layer and role, and the conceptual errors of all roles; result.json holds all."""
    shown = {}
    for name, score in scores.items():
        condition, layer, *rest = _words(name).split("/")
        if rest == ["multifact"]:
            shown[f"{layer}, {condition}"] = score
        elif rest[0] == "role":
            shown[f"{'/'.join(rest[1:])}, {condition}"] = score
        elif condition == "errors" and rest[:2] == ["conceptual", "all"]:
            shown[f"{rest[2]}, {layer}"] = score
    return shown


def _response(system: str, scored: ScoredCaption) -> PageResponse:
    one = scored.judged
    error = "; ".join(f"{layer} facts: {reason}" for layer, reason in one.errors.items()) or None
    claims = [_claim(each) for each in one.facts]
    if claims:
        claims[0] = PageClaim(claims[0].text, claims[0].judgments, _evidence(one), claims[0].note)
    omitted = f"It does not name: {', '.join(scored.omitted)}." if scored.omitted else ""
    note = " ".join([*(["No fact."] if not claims and error is None else []), omitted]).strip()
    sentences = [PageSentence(one.text or "", tuple(claims), note, error)]
    if one.gold:
        gold = tuple(PageClaim(fact.claim, {"by this caption": said}, note=fact.role) for fact, said in one.gold)
        sentences.append(PageSentence("Gold facts", gold))
    scores = {_words(name).replace("/", ", "): value for name, value in scored.scores.items()}
    return PageResponse(system, one.clip.id, tuple(sentences), scores)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _claim(each: JudgedFact) -> PageClaim:
    judgments: dict[str, Judgment | None] = {
        "by the video": each.visual,
        "by the gold caption": each.textual,
        "to be seen": each.grounded,
    }
    return PageClaim(
        each.fact.claim,
        {name: judgment for name, judgment in judgments.items() if judgment is not None},
        note=_note(each.fact, each),
    )


def _note(fact: Fact, each: JudgedFact) -> str:
    refuted = any(judgment is not None and judgment.supported is False for judgment in (each.visual, each.textual))
    if not refuted or each.grounded is None or each.grounded.supported is None:
        return fact.role
    return f"{fact.role}: {'saliency error' if each.grounded.supported else 'hallucination'}"


def _evidence(one: JudgedCaption) -> tuple[PageCitation, ...]:
    """The clip and its gold caption, which stand beside the first fact."""
    clip = PageCitation("the clip", one.clip.evidence)
    caption = one.clip.caption
    return (clip, PageCitation(f"gold caption: {caption}")) if caption else (clip,)
