"""What a language model does for MultiFactScore: facts from captions, and textual verification (sections 5.1, 5.2).

Prompts are in `prompts/`, in words of our own: the paper prints none but those for negative facts. An answer that
cannot be read is asked for again; then the facts of that caption are not known, and neither is that verdict.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from ...core import Pair, Passage, evidence_key
from ...data_prep.language import Complete, LanguageModelError, ask, map_ordered, parse_json, yes_or_no
from ..scores import JudgePairs, Judgment, Judgments
from .captions import LAYERS, Caption, Clip, Fact, Layer, relation_of

ROLES = ("Action", "Ingredient", "Tool", "Location")
_PROMPTS = Path(__file__).parent / "prompts"


@dataclass(frozen=True)
class SlotScores:
    """Agreement of extracted facts with gold ones (section 7.2, tables 4 and 5); NaN where nothing divides."""

    precision: float
    recall: float
    f1: float
    n_extracted: int
    n_gold: int


def prompt(name: str, **values: str) -> str:
    """A prompt from its file, with `{name}`s filled in; braces of JSON in it stay."""
    text = (_PROMPTS / f"{name}.txt").read_text(encoding="utf-8")
    return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], text)


def conceptual_facts(complete: Complete, caption: str, roles: Sequence[str] = ROLES) -> tuple[Fact, ...]:
    """The roles and values that a caption states; LanguageModelError without a usable answer."""
    named = {role.casefold(): role for role in roles}

    def parse(text: str) -> tuple[Fact, ...]:
        answer = parse_json(text)
        if not isinstance(answer, dict) or not all(role.casefold() in named for role in answer):
            raise ValueError(f"the answer is one JSON object with roles of {list(roles)}, got {text.strip()[:120]!r}")
        facts = []
        for role, given in answer.items():
            values = [given] if isinstance(given, str) else given
            if not _is_texts(values):
                raise ValueError(f"the values of {role} are a list of words or phrases, got {given!r:.80}")
            facts += [Fact("conceptual", named[role.casefold()], value.strip()) for value in values]
        return tuple({fact.key: fact for fact in facts}.values())

    return ask(complete, _user(prompt("conceptual_facts", roles=", ".join(roles), caption=caption)), parse)


def contextual_facts(complete: Complete, caption: str, relation_of_object: str = "act/ing") -> tuple[Fact, ...]:
    """The predicates with one argument each that a caption states; LanguageModelError without a usable answer."""

    def parse(text: str) -> tuple[Fact, ...]:
        phrases = parse_json(text)
        if not _is_texts(phrases):
            raise ValueError(f"the answer is one JSON list of phrases, got {text.strip()[:120]!r}")
        facts = [Fact("contextual", relation_of(p, relation_of_object), p.strip()) for p in phrases]
        return tuple({fact.key: fact for fact in facts}.values())

    return ask(complete, _user(prompt("contextual_facts", caption=caption)), parse)


def with_facts(
    captions: Sequence[Caption],
    complete: Complete,
    layers: Sequence[Layer] = LAYERS,
    roles: Sequence[str] = ROLES,
    relation_of_object: str = "act/ing",
    workers: int = 8,
) -> list[Caption]:
    """Captions with the facts of each layer that they lack, by a language model (F_p); an empty caption has none.

    Args:
        captions: as `read_captions` gives them.
        complete: the language model.
        layers: what is extracted.
        roles: of conceptual facts.
        relation_of_object: role of a contextual fact with an object alone.
        workers: captions under way at once.
    """
    work: list[tuple[int, Layer, str]] = [
        (number, layer, caption.text)
        for number, caption in enumerate(captions)
        for layer in layers
        if caption.text is not None and layer not in caption.facts
    ]

    def extract(item: tuple[int, Layer, str]) -> tuple[Fact, ...]:
        _, layer, text = item
        if not text.strip():
            return ()
        if layer == "conceptual":
            return conceptual_facts(complete, text, roles)
        return contextual_facts(complete, text, relation_of_object)

    done = list(captions)
    for (number, layer, _), facts in zip(work, map_ordered(extract, work, workers), strict=True):
        caption = done[number]
        if isinstance(facts, LanguageModelError):
            done[number] = dataclasses.replace(caption, errors={**caption.errors, layer: str(facts)})
        else:
            done[number] = dataclasses.replace(caption, facts={**caption.facts, layer: facts})
    return done


def by_language_model(complete: Complete, workers: int = 8) -> JudgePairs:
    """Judge claims against texts by a language model without training, as section 5.2 does; it encodes no evidence."""

    def judge(pairs: Sequence[Pair]) -> Judgments:
        questions: dict[Hashable, Pair] = {}
        for pair in pairs:
            questions.setdefault((pair.claim, evidence_key(pair.evidence)), pair)

        def answer(pair: Pair) -> bool:
            caption = "\n".join(piece.text for piece in pair.evidence if isinstance(piece, Passage))
            return ask(complete, _user(prompt("entailment", caption=caption, claim=pair.claim)), yes_or_no)

        said = dict(zip(questions, map_ordered(answer, questions.values(), workers), strict=True))
        answers = {
            key: Judgment(None, error=str(yes)) if isinstance(yes, LanguageModelError) else Judgment(yes, float(yes))
            for key, yes in said.items()
        }
        return Judgments({p.id: answers[p.claim, evidence_key(p.evidence)] for p in pairs}, len(questions), 0)

    return judge


def extraction_scores(extracted: Sequence[Caption], clips: Sequence[Clip]) -> dict[str, SlotScores]:
    """How well facts extracted from gold captions match the gold facts, per role, over all clips (section 7.2).

    A slot is right if the clip has a gold fact of this role and value; case, articles and endings do not count. Clips
    whose extraction failed are left out.
    """
    gold_of = {clip.id: clip.gold for clip in clips}
    known = [caption for caption in extracted if not caption.errors]
    layers = {layer for caption in known for layer in caption.facts}
    ours = Counter((c.id, f.role, f.key) for c in known for facts in c.facts.values() for f in facts)
    gold = Counter((c.id, f.role, f.key) for c in known for f in gold_of[c.id] if f.layer in layers)
    found: dict[str, SlotScores] = {}
    for role in dict.fromkeys(role for _, role, _ in [*gold, *ours]):
        right, n, m = (sum(each[1] == role for each in keys) for keys in (set(ours) & set(gold), ours, gold))
        divided = (right / n if n else float("nan"), right / m if m else float("nan"))
        found[role] = SlotScores(*divided, 2 * right / (n + m), n, m)
    return found


def _is_texts(values: object) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(value, str) and value.strip() for value in values)


def _user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]
