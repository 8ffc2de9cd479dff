"""Facts of captions judged for MultiFactScore: by the video, by captions, and whether what they name is to be seen.

Everything that a verifier is asked about the videos is one call: predicted facts of all systems, gold facts, and what
the facts name, so that each clip is encoded once. Where no judge is given, people's labels in the files judge.

A fact is grounded (G of section 5.4, by PaliGemma 2 in the paper) if each thing it names is to be seen. The default
asks the verifier that: a fact such as "Tool is spoon." is false of a spoon that lies unused, so the question is a claim
of its own, "Spoon is visible.". Anything else that can tell may do so: `grounding(fact, evidence)`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from ...core import Evidence, Pair, Passage
from ...data_prep.importers import contextual_claim
from ..scores import JudgePairs, Judgment
from .captions import LAYERS, Caption, Clip, Fact, Layer, entity_key

Condition = Literal["visual", "textual_gold", "textual_predicted"]
"""What is judged: predicted facts by the video (section 5.3; F_p, V in tables 6 and 8); gold facts by the generated
caption (section 5.3, textual); predicted facts by the gold caption (F_p, C in tables 6 and 8)."""
CONDITIONS: tuple[Condition, ...] = get_args(Condition)

Grounding = Callable[[Fact, tuple[Evidence, ...]], bool | float | None]
"""Whether what a fact names is to be seen: yes or no, or a probability (yes from 0.5 on); None: not known."""


@dataclass(frozen=True)
class FactOptions:
    """What is judged and how.

    Attributes:
        conditions: which scores.
        gold_facts: also F_g+ and F_g- by the video and the gold caption: how good the judges are (tables 6 and 8).
        presence: the claim that a thing is to be seen, with {value} and, if wanted, {role}.
        object_roles: whose values are objects (appendix B.1: ingredients and tools).
    """

    layers: tuple[Layer, ...] = LAYERS
    conditions: tuple[Condition, ...] = CONDITIONS
    gold_facts: bool = True
    presence: str = "{value} is visible."
    object_roles: tuple[str, ...] = ("Ingredient", "Object", "Material", "Tool")


@dataclass(frozen=True)
class JudgedFact:
    """A fact of a generated caption; None: it was not asked.

    Attributes:
        visual: by the video.
        textual: by the gold caption.
        grounded: whether what it names is to be seen.
    """

    fact: Fact
    visual: Judgment | None = None
    textual: Judgment | None = None
    grounded: Judgment | None = None


@dataclass(frozen=True)
class JudgedCaption:
    """A generated caption.

    Attributes:
        facts: what it says (F_p).
        gold: each gold fact, and whether the caption says it; empty where it was not asked.
        errors: per layer, why its facts are not known.
    """

    clip: Clip
    text: str | None
    facts: tuple[JudgedFact, ...]
    gold: tuple[tuple[Fact, Judgment], ...] = ()
    errors: Mapping[Layer, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JudgedGold:
    """A gold fact, positive or negative (`expected`), judged by the video and by the gold caption."""

    clip: Clip
    fact: Fact
    expected: bool
    visual: Judgment | None = None
    textual: Judgment | None = None


@dataclass(frozen=True)
class JudgedObject:
    """An object of a clip that should be there, or should not, and whether it is to be seen."""

    clip: Clip
    role: str
    name: str
    is_there: bool
    grounded: Judgment


@dataclass(frozen=True)
class JudgedCaptions:
    """Everything judged.

    Attributes:
        conditions: those that somebody judged.
        n_questions, n_passes: different questions about videos, and clips encoded for them.
        n_text_questions, n_text_passes: the same about captions; a language model encodes nothing.
    """

    systems: Mapping[str, tuple[JudgedCaption, ...]]
    gold: tuple[JudgedGold, ...]
    objects: tuple[JudgedObject, ...]
    conditions: tuple[Condition, ...] = ()
    n_questions: int = 0
    n_passes: int = 0
    n_text_questions: int = 0
    n_text_passes: int = 0


def judge_captions(
    clips: Sequence[Clip],
    systems: Mapping[str, Sequence[Caption]],
    visual: JudgePairs | None = None,
    textual: JudgePairs | None = None,
    grounding: Grounding | Literal["labels"] | None = None,
    options: FactOptions | None = None,
) -> JudgedCaptions:
    """Every fact judged as `FactOptions` says.

    Args:
        clips: annotated.
        systems: captions of each system, one for each clip and in their order, with facts.
        visual: judges claims about videos, e.g. `by_verifier(verifier)`; None: the labels `visual` of facts.
        textual: judges claims about captions, e.g. `by_language_model(model)`; None: the labels `textual`.
        grounding: of refuted facts and of objects; None: `visual`, asked whether each thing is to be seen. "labels",
            and None without `visual`: the labels `grounded` of facts; there are none of objects.
    """
    options = options or FactOptions()
    if grounding is None and visual is None:
        grounding = "labels"
    asked = _Questions(clips, systems, options)
    of_videos = asked.about_videos(grounding is None) if visual is not None else []
    of_texts = asked.about_texts() if textual is not None else []
    seen = visual(of_videos) if visual is not None and of_videos else None
    read = textual(of_texts) if textual is not None and of_texts else None
    answers = {**({} if seen is None else seen.of), **({} if read is None else read.of)}
    labels = _labels(systems, options)
    judged = _Answers(answers, visual is None, textual is None, grounding, options, labels)
    judges: dict[Condition, bool] = {
        "visual": visual is not None or "visual" in labels,
        "textual_gold": textual is not None,
        "textual_predicted": "textual" in labels if textual is None else any(clip.caption for clip in clips),
    }
    return JudgedCaptions(
        {
            name: tuple(
                judged.caption(name, clip, caption) for clip, caption in zip(clips, captions, strict=True)
            )
            for name, captions in systems.items()
        },
        tuple(each for clip in clips for each in judged.gold_facts(clip)),
        tuple(each for clip in clips for each in judged.objects(clip)),
        tuple(condition for condition in CONDITIONS if condition in options.conditions and judges[condition]),
        *((0, 0) if seen is None else (seen.n_questions, seen.n_passes)),
        *((0, 0) if read is None else (read.n_questions, read.n_passes)),
    )  # fmt: skip


def objects_of(clip: Clip, roles: Sequence[str]) -> list[tuple[Fact, bool]]:
    """The objects of a clip, and whether they should be there (appendix B.1): values of gold, of negative facts.

    A negative value that gold names in any role, or that lies about as a distractor, is there after all: left out.
    """
    there = {fact.key: fact for fact in clip.gold if fact.layer == "conceptual" and fact.role in roles}
    visible = {entity_key(name) for fact in clip.gold for name in fact.entities}
    visible |= {entity_key(name) for name in clip.distractors}
    replaced = (fact for fact in clip.negative if fact.layer == "conceptual" and fact.role in roles)
    gone = {fact.key: fact for fact in replaced if entity_key(fact.text) not in visible}
    return [*((fact, True) for fact in there.values()), *((fact, False) for fact in gone.values())]


class _Questions:
    """The pairs that judges are asked; their ids say where the answers belong."""

    def __init__(self, clips: Sequence[Clip], systems: Mapping[str, Sequence[Caption]], options: FactOptions) -> None:
        self.clips, self.systems, self.options = clips, systems, options

    def about_videos(self, presence: bool) -> list[Pair]:
        """Predicted facts, gold facts, and whether what they name is to be seen, clip by clip."""
        pairs: dict[str, Pair] = {}
        for number, clip in enumerate(self.clips):
            made = {name: predicted(captions[number], self.options.layers) for name, captions in self.systems.items()}
            if "visual" in self.options.conditions:
                for name, facts in made.items():
                    for place, fact in enumerate(facts):
                        pair = _pair(f"video/{name}/{clip.id}/{place}", fact.claim, clip.evidence, clip, fact.role)
                        pairs[pair.id] = pair
            for place, (fact, _) in enumerate(_gold(clip, self.options)):
                pair = _pair(f"video-gold/{clip.id}/{place}", fact.claim, clip.evidence, clip, fact.role)
                pairs[pair.id] = pair
            if presence:
                named = [fact for facts in made.values() for fact in facts]
                for fact in (*named, *(fact for fact, _ in objects_of(clip, self.options.object_roles))):
                    for claim in _presence(fact, self.options):
                        pairs.setdefault(_seen(clip, claim), _pair(_seen(clip, claim), claim, clip.evidence, clip, ""))
        return list(pairs.values())

    def about_texts(self) -> list[Pair]:
        """Predicted and gold facts by the gold caption, gold facts by each generated one."""
        pairs: list[Pair] = []
        for number, clip in enumerate(self.clips):
            if clip.caption:
                passage = (Passage(clip.caption),)
                pairs += [
                    _pair(f"text-gold/{clip.id}/{place}", fact.claim, passage, clip, fact.role)
                    for place, (fact, _) in enumerate(_gold(clip, self.options))
                ]
            for name, captions in self.systems.items():
                if "textual_predicted" in self.options.conditions and clip.caption:
                    facts = predicted(captions[number], self.options.layers)
                    pairs += [
                        _pair(f"text/{name}/{clip.id}/{place}", fact.claim, (Passage(clip.caption),), clip, fact.role)
                        for place, fact in enumerate(facts)
                    ]
                text = captions[number].text
                if "textual_gold" in self.options.conditions and text and text.strip():
                    pairs += [
                        _pair(f"said/{name}/{clip.id}/{place}", fact.claim, (Passage(text),), clip, fact.role)
                        for place, fact in enumerate(_of_layers(clip.gold, self.options))
                    ]
        return pairs


class _Answers:
    """Judgments put back where they belong."""

    def __init__(
        self,
        answers: Mapping[str, Judgment],
        no_visual: bool,
        no_textual: bool,
        grounding: Grounding | Literal["labels"] | None,
        options: FactOptions,
        labels: frozenset[str],
    ) -> None:
        self.answers, self.grounding, self.options, self.labels = answers, grounding, options, labels
        self.no_visual, self.no_textual = no_visual, no_textual
        self._told: dict[Hashable, Judgment] = {}  # what the grounding said: each fact of a clip is asked once

    def caption(self, system: str, clip: Clip, caption: Caption) -> JudgedCaption:
        """One generated caption."""
        facts = []
        for place, fact in enumerate(predicted(caption, self.options.layers)):
            visual = self._visual(f"video/{system}/{clip.id}/{place}", fact)
            textual = self._textual(f"text/{system}/{clip.id}/{place}", fact, clip)
            refuted = any(each is not None and each.supported is False for each in (visual, textual))
            facts.append(JudgedFact(fact, visual, textual, self._grounded(fact, clip) if refuted else None))
        gold: list[tuple[Fact, Judgment]] = []
        if "textual_gold" in self.options.conditions and not self.no_textual:
            for place, fact in enumerate(_of_layers(clip.gold, self.options)):
                gold.append((fact, self._said(f"said/{system}/{clip.id}/{place}", caption)))
        errors: dict[Layer, str] = {
            layer: caption.errors[layer] for layer in self.options.layers if layer in caption.errors
        }
        return JudgedCaption(clip, caption.text, tuple(facts), tuple(gold), errors)

    def gold_facts(self, clip: Clip) -> Iterator[JudgedGold]:
        """The gold facts of a clip, where a judge was asked."""
        if self.no_visual and self.no_textual:
            return
        for place, (fact, expected) in enumerate(_gold(clip, self.options)):
            visual = None if self.no_visual else self.answers[f"video-gold/{clip.id}/{place}"]
            textual = None if self.no_textual else self.answers.get(f"text-gold/{clip.id}/{place}", _NO_CAPTION)
            yield JudgedGold(clip, fact, expected, visual, textual)

    def objects(self, clip: Clip) -> Iterator[JudgedObject]:
        """The objects of a clip, where somebody tells whether they are there."""
        if self.grounding == "labels":
            return
        for fact, is_there in objects_of(clip, self.options.object_roles):
            yield JudgedObject(clip, fact.role, fact.text, is_there, self._seen(fact, clip))

    def _visual(self, id: str, fact: Fact) -> Judgment | None:
        if "visual" not in self.options.conditions:
            return None
        return self._labelled("visual", fact.visual) if self.no_visual else self.answers[id]

    def _textual(self, id: str, fact: Fact, clip: Clip) -> Judgment | None:
        if "textual_predicted" not in self.options.conditions:
            return None
        if self.no_textual:
            return self._labelled("textual", fact.textual)
        return self.answers.get(id, _NO_CAPTION)

    def _said(self, id: str, caption: Caption) -> Judgment:
        if caption.text is None:
            return Judgment(None, error=next(iter(caption.errors.values()), "no caption"))
        return self.answers[id] if caption.text.strip() else Judgment(False, 0.0)  # an empty caption says nothing

    def _grounded(self, fact: Fact, clip: Clip) -> Judgment | None:
        return self._labelled("grounded", fact.grounded) if self.grounding == "labels" else self._seen(fact, clip)

    def _seen(self, fact: Fact, clip: Clip) -> Judgment:
        if not callable(self.grounding):
            return _all_of(self.answers[_seen(clip, claim)] for claim in _presence(fact, self.options))
        question = clip.id, fact.key
        if question not in self._told:
            self._told[question] = _told(self.grounding, fact, clip)
        return self._told[question]

    def _labelled(self, name: str, label: bool | None) -> Judgment | None:
        """What people said; nothing is asked where no fact of any system has such a label."""
        if name not in self.labels:
            return None
        return Judgment(None, error="no label") if label is None else Judgment(label, float(label))


_NO_CAPTION = Judgment(None, error="the clip has no gold caption")


def predicted(caption: Caption, layers: Iterable[Layer] = LAYERS) -> list[Fact]:
    """The facts of a caption whose layers are known."""
    return [fact for layer in layers for fact in caption.facts.get(layer, ())]


def label_judged(judged: Mapping[str, tuple[JudgedCaption, ...]]) -> dict[str, tuple[JudgedCaption, ...]]:
    """The same captions judged by people's labels alone; a fact without one is not judged."""

    def label(value: bool | None) -> Judgment:
        return Judgment(None, error="no label") if value is None else Judgment(value, float(value))

    return {
        name: tuple(
            dataclasses.replace(
                one,
                facts=tuple(
                    JudgedFact(f.fact, label(f.fact.visual), label(f.fact.textual), label(f.fact.grounded))
                    for f in one.facts
                ),
                gold=(),
            )
            for one in captions
        )
        for name, captions in judged.items()
    }


def _labels(systems: Mapping[str, Sequence[Caption]], options: FactOptions) -> frozenset[str]:
    facts = [f for captions in systems.values() for caption in captions for f in predicted(caption, options.layers)]
    return frozenset(
        name for name in ("visual", "textual", "grounded") if any(getattr(fact, name) is not None for fact in facts)
    )


def _of_layers(facts: Iterable[Fact], options: FactOptions) -> list[Fact]:
    return [fact for fact in facts if fact.layer in options.layers]


def _gold(clip: Clip, options: FactOptions) -> list[tuple[Fact, bool]]:
    if not options.gold_facts:
        return []
    return [(f, True) for f in _of_layers(clip.gold, options)] + [
        (f, False) for f in _of_layers(clip.negative, options)
    ]


def _presence(fact: Fact, options: FactOptions) -> list[str]:
    """The claims that together say that what a fact names is to be seen."""
    return [
        contextual_claim(options.presence.replace("{value}", name).replace("{role}", fact.role))
        for name in fact.entities
    ]


def _seen(clip: Clip, claim: str) -> str:
    return f"seen/{clip.id}/{claim}"


def _pair(id: str, claim: str, evidence: tuple[Evidence, ...], clip: Clip, role: str) -> Pair:
    modality = "text" if all(isinstance(piece, Passage) for piece in evidence) else "visual"
    return Pair(id, claim, evidence, group=clip.group, role=role, origin="prediction", modality=modality)


def _told(grounding: Grounding, fact: Fact, clip: Clip) -> Judgment:
    try:
        told = grounding(fact, clip.evidence)
        p = math.nan if told is None else float(told)
    except Exception as error:  # somebody else's detector: whatever it raises, one fact failed, not the score
        return Judgment(None, error=f"grounding: {type(error).__name__}: {error}")
    if not 0 <= p <= 1:
        return Judgment(None, error=f"grounding: a yes or no or a probability is needed, got {told!r}")
    return Judgment(p >= 0.5, p)


def _all_of(judgments: Iterable[Judgment]) -> Judgment:
    """Yes if all are; one no decides, whatever failed beside it."""
    several = list(judgments)
    least = min((each.p_supported for each in several if not math.isnan(each.p_supported)), default=math.nan)
    if any(each.supported is False for each in several):
        return Judgment(False, least)
    failed = next((each for each in several if each.supported is None), None)
    return failed or Judgment(True, least)
