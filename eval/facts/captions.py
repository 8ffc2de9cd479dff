"""What MultiFactScore reads: annotated clips with gold facts, and generated captions with the facts in them.

Gold is written as the format `facts` of docs/formats.md: `conceptual` maps roles to values, `contextual` lists verb
phrases, `negative_...` are the facts that contradict them. Captions are JSON lines of `id` (the clip's), `caption`, and
where they are known `conceptual` and `contextual` (else a language model extracts them). Of a caption, a fact may be an
object that also carries what people said of it: {"text", "role", "visual", "textual", "grounded"}.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from ...core import Evidence, Pair, RowError, Transcript, VideoSegment, problems_of
from ...data_prep.importers import conceptual_claim, contextual_claim
from ...data_prep.negatives import phrase_of, words_of
from ..scores import read_rows

Layer = Literal["conceptual", "contextual"]
LAYERS: tuple[Layer, ...] = get_args(Layer)
LABELS_OF_FACTS = ("visual", "textual", "grounded")
_RELATIONS = {"into": "in", "inside": "in", "onto": "on", "using": "with"}


@dataclass(frozen=True)
class Fact:
    """An atomic fact (section 3.1): a role and its value, or a predicate with an argument.

    Attributes:
        role: Action, Tool, ...; of a contextual fact its relation, such as act/with.
        text: the value, or the verb phrase.
        visual, textual: of people: does the video, the gold caption support it; None: nobody said.
        grounded: of people: is what it names to be seen at all (a refuted fact that is grounded is a saliency error).
    """

    layer: Layer
    role: str
    text: str
    visual: bool | None = None
    textual: bool | None = None
    grounded: bool | None = None

    @property
    def claim(self) -> str:
        """The sentence that is judged: "Tool is spoon.", "Stir with spoon."."""
        return conceptual_claim(self.role, self.text) if self.layer == "conceptual" else contextual_claim(self.text)

    @property
    def entities(self) -> tuple[str, ...]:
        """What it names: its value, or the arguments of its predicate; the whole text of a phrase of no pattern."""
        if self.layer == "conceptual" or (phrase := phrase_of(self.text)) is None:
            return (self.text,)
        return tuple(name for name in (phrase.object, *(r.argument for r in phrase.relations)) if name) or (self.text,)

    @property
    def key(self) -> Hashable:
        """Equal for facts that say the same: facts are sets."""
        return self.layer, self.role, entity_key(self.text)


@dataclass(frozen=True)
class Clip:
    """An annotated segment of a video.

    Attributes:
        group: what is resampled as a whole: the video.
        caption: the gold caption; None where there is none.
        gold, negative: facts that hold (F_g+), and that do not (F_g-).
        distractors: what is to be seen and belongs to no fact.
    """

    id: str
    group: str
    evidence: tuple[Evidence, ...]
    caption: str | None = None
    gold: tuple[Fact, ...] = ()
    negative: tuple[Fact, ...] = ()
    distractors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Caption:
    """What a system wrote about a clip, and the facts in it.

    Attributes:
        id: of the clip.
        text: None where generation failed.
        facts: per layer; a layer that is missing is still to be extracted.
        errors: per layer, why its facts are not known.
    """

    id: str
    text: str | None
    facts: Mapping[Layer, tuple[Fact, ...]] = field(default_factory=dict)
    errors: Mapping[Layer, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _CaptionRow:
    """A line of a file of captions."""

    id: str
    caption: str | None = None
    conceptual: dict[str, Any] | None = None
    contextual: list[Any] | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        """Refuse facts of another form, and a caption that is neither there nor said to be missing."""
        list(_facts(self.conceptual, self.contextual, LABELS_OF_FACTS))
        if self.caption is None and self.error is None:
            raise RowError(f"{self.id}: caption is missing, got null; write it, or why there is none as `error`")


@dataclass(frozen=True)
class _GoldRow:
    """A line of a file of annotated clips."""

    video: str
    start_s: float | None = None
    end_s: float | None = None
    id: str | None = None
    group: str | None = None
    caption: str | None = None
    caption_implicit: str | None = None
    conceptual: dict[str, Any] | None = None
    contextual: list[Any] | None = None
    negative_conceptual: dict[str, Any] | None = None
    negative_contextual: list[Any] | None = None
    distractors: tuple[str, ...] | None = None
    transcript: str | None = None
    split: str | None = None
    meta: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuse facts of another form, and spans that cannot be."""
        facts = [*_facts(self.conceptual, self.contextual), *_facts(self.negative_conceptual, self.negative_contextual)]
        for claim in [fact.claim for fact in facts] or ["A caption."]:
            if problems := problems_of(Pair(self.name, claim, self.evidence)):
                raise RowError(f"{self.name}: {problems[0]}")

    @property
    def name(self) -> str:
        """Its id, or video and span."""
        end = "end" if self.end_s is None else f"{self.end_s:.12g}"
        return self.id or f"{os.path.normpath(self.video)}@{self.start_s or 0:.12g}-{end}"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """The segment, and what is said in it where that is given."""
        segment = VideoSegment(os.path.normpath(self.video), self.start_s or 0.0, self.end_s)
        said = self.transcript is not None
        return (segment, Transcript(str(self.transcript), self.start_s, self.end_s)) if said else (segment,)


def read_clips(path: str | Path, implicit: bool = False, relation_of_object: str = "act/ing") -> list[Clip]:
    """The annotated clips of a file.

    Args:
        path: JSON list or JSON lines, see docs/formats.md, `facts`.
        implicit: take `caption_implicit`, which leaves arguments unsaid ("Stir it."), where it is there; `caption`
            names them (section 4.2, "VIA"), as the facts do.
        relation_of_object: role of a contextual fact that names an object alone.

    Raises:
        RowError, ConfigError: the first line that is not of this form, with its number.
    """
    clips = []
    for row in read_rows(_GoldRow, path, lambda row: row.name):
        caption = (row.caption_implicit if implicit else None) or row.caption
        gold = _distinct(_facts(row.conceptual, row.contextual, (), relation_of_object))
        negative = _distinct(_facts(row.negative_conceptual, row.negative_contextual, (), relation_of_object))
        group = row.group or os.path.normpath(row.video)
        clips.append(Clip(row.name, group, row.evidence, caption, gold, negative, row.distractors or ()))
    return clips


def read_captions(path: str | Path, clips: Sequence[Clip], relation_of_object: str = "act/ing") -> list[Caption]:
    """The captions of a system, one for each clip in the clips' order; one that is missing has an error.

    Args:
        path: JSON list or JSON lines.
        clips: what they are about.
        relation_of_object: see `read_clips`.

    Raises:
        RowError, ConfigError: the first line that is not of this form, or about no clip.
    """
    known = {clip.id for clip in clips}

    def id_of(row: _CaptionRow) -> str:
        if row.id not in known:
            raise RowError(f"id names no clip of the gold file, got {row.id!r}; use ids such as {clips[0].id!r}")
        return row.id

    rows = {row.id: row for row in read_rows(_CaptionRow, path, id_of)}
    captions = []
    for clip in clips:
        row = rows.get(clip.id) or _CaptionRow(clip.id, error=f"{Path(path).name} has no caption of it")
        if row.error is not None:
            captions.append(Caption(clip.id, None, {}, dict.fromkeys(LAYERS, row.error)))
            continue
        made = list(_facts(row.conceptual, row.contextual, LABELS_OF_FACTS, relation_of_object))
        given: dict[Layer, Any] = {"conceptual": row.conceptual, "contextual": row.contextual}
        facts: dict[Layer, tuple[Fact, ...]] = {}
        for layer in LAYERS:
            if given[layer] is not None:
                facts[layer] = _distinct(f for f in made if f.layer == layer)
        captions.append(Caption(clip.id, row.caption, facts))
    return captions


def relation_of(phrase: str, of_object: str = "act/ing") -> str:
    """The relation of a contextual fact as tables 5, 6 and 8 name it: act/with for "stir with spoon".

    Args:
        phrase: the fact.
        of_object: name for a predicate with an object alone: act/ing in table 6, act/obj in table 8.

    Returns:
        "contextual" for a phrase of several relations, or of none.
    """
    parts = phrase_of(phrase)
    if parts is None or bool(parts.object) + len(parts.relations) != 1:
        return "contextual"
    return of_object if parts.object else f"act/{_RELATIONS.get(parts.relations[0].word, parts.relations[0].word)}"


def entity_key(name: str) -> Hashable:
    """Equal for names that differ only in case, articles and endings: "The tomatoes", "tomato"."""
    return words_of(name).stems or name.strip().casefold()


def _distinct(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    first: dict[Hashable, Fact] = {}
    for fact in facts:
        first.setdefault(fact.key, fact)
    return tuple(first.values())


def _facts(
    conceptual: Mapping[str, Any] | None,
    contextual: Sequence[Any] | None,
    labels: Sequence[str] = (),
    of_object: str = "act/ing",
) -> Iterator[Fact]:
    """The facts of a row; RowError for the first that is none."""
    for role, values in (conceptual or {}).items():
        if not role.strip():
            raise RowError(f"conceptual facts have an empty role, got {role!r}; name it, e.g. Action")
        for value in values if isinstance(values, list) else [values]:
            given = _members(value, ("text", "kind", *labels), labels)
            yield Fact("conceptual", role, given["text"], *(given.get(name) for name in LABELS_OF_FACTS))
    for phrase in contextual or ():
        given = _members(phrase, ("text", "kind", "role", *labels), labels)
        role = given.get("role") or relation_of(given["text"], of_object)
        yield Fact("contextual", role, given["text"], *(given.get(name) for name in LABELS_OF_FACTS))


def _members(value: Any, keys: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    given: Any = {"text": value} if isinstance(value, str) else value
    if not isinstance(given, dict) or not isinstance(given.get("text"), str) or not given["text"].strip():
        raise RowError(f"a fact must be a text or an object with `text`, got {value!r:.80}; write the value or phrase")
    for key, item in given.items():
        if key not in keys or not isinstance(item, (bool, type(None)) if key in labels else str):
            raise RowError(f"a fact has the wrong {key}, got {item!r:.40}; it has {', '.join(keys)}")
    return given
