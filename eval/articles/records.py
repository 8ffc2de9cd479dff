"""What MiRAGE's scores are made from: responses, topics, the options, and the questions that a judge is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...core import Evidence, Pair
from ..scores import Judgment


@dataclass(frozen=True)
class Claim:
    """A claim of a response; its author's importance weighs it."""

    text: str
    importance: float = 1.0


@dataclass(frozen=True)
class Sentence:
    """A sentence of a response, the ids of sources it cites, and its claims (still to be extracted: `needs_claims`)."""

    text: str
    citations: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    needs_claims: bool = False


@dataclass(frozen=True)
class Response:
    """What a system wrote about a topic.

    Attributes:
        context: ids of the sources it was given to write from; None: not known, and taken to be those it cites.
    """

    topic: str
    system: str
    text: str
    sentences: tuple[Sentence, ...]
    context: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ReferenceClaim:
    """A claim of the reference, the ids of the sources that support it, and its sentence.

    Attributes:
        question: what the claim answers; the two are a nugget of ARGUE. None: still to be written, or it failed.
        question_error: why there is no question.
    """

    text: str
    sources: tuple[str, ...] = ()
    context: str | None = None
    importance: float = 1.0
    question: str | None = None
    question_error: str | None = None


@dataclass(frozen=True)
class Source:
    """A piece of evidence and its quality, a factor of at least 0."""

    evidence: Evidence
    quality: float = 1.0


@dataclass(frozen=True)
class Topic:
    """What responses about a topic are held against.

    Attributes:
        reference: its text; None: there is none, and only the collection form of precision can be had.
        sources: the collection, by id.
        others: sources outside the collection that responses cite or were written from.
        query: what was asked for; None: the topic's name.
    """

    name: str
    reference: str | None
    claims: tuple[ReferenceClaim, ...]
    sources: Mapping[str, Source]
    others: Mapping[str, Source] = field(default_factory=dict)
    query: str | None = None


@dataclass(frozen=True)
class MirageOptions:
    """Choices the paper leaves, or that its code makes in another way.

    Attributes:
        sources: `single` asks about each source and takes the best (equation 7, what the paper ran); `joint` asks about
            all of them together (equation 6). Quality of joint sources is the mean of theirs; the paper gives none.
        duplicates: a claim that several sentences make counts once, with the citations of all of them (`any`) or of
            the first (`first`), as B.2.1 recommends; `keep` counts it each time, as the released InfoF1 does.
        weights: `mean` divides by the number of claims (equations 8, 9, 11: a claim of importance 0.5 can add half);
            `normalised` by the sum of importances.
        uncited: what a sentence without a citation is in ALCE's citation recall and ARGUE's sentence support:
            `unsupported`, as in Gao et al.; or `left_out`.
        relevance: which citations count in ALCE's citation precision: `alce` as Gao et al. define it (the citing
            sentence is supported, and by this citation alone or no longer without it); `leave_one_out` as MiRAGE's
            section 3.1 words it (supported, and no longer without it).
        context: a claim is asked with the sentence it comes from, as in the paper (appendix H.1); a verifier that was
            trained without context may need none. A nugget has its question in any case.
        grounded_only: only reference claims that some source supports count, as in the released scores and human
            judgments; otherwise all.
    """

    sources: Literal["single", "joint"] = "single"
    duplicates: Literal["any", "first", "keep"] = "any"
    weights: Literal["mean", "normalised"] = "mean"
    uncited: Literal["unsupported", "left_out"] = "unsupported"
    relevance: Literal["alce", "leave_one_out"] = "alce"
    grounded_only: bool = True
    context: bool = True


@dataclass(frozen=True)
class WeighedPair:
    """A pair to judge, and the quality of its sources."""

    pair: Pair
    quality: float = 1.0


Rule = Literal["best", "every", "relevant", "necessary"]
"""What the answers to an item's questions come to.

- best: the best of them counts, with the quality of its sources; without a question 0.
- every: 1 if all are yes; without a question 0.
- relevant: of a citation, 1 if its sentence is supported by all its citations together (the first question), and by
  this one alone (the second) or not by the others (the third). With the first question alone, its answer.
- necessary: the same without the second question.
"""


@dataclass(frozen=True)
class Item:
    """One claim, sentence, citation or nugget of a share.

    Attributes:
        claim: its text.
        importance: how much it matters.
        questions: that are asked about it.
        rule: what their answers come to.
        citation: the source that the item is about, if it is about one.
        error: why it could not be asked about; it then adds anything from nothing to all.
    """

    claim: str
    importance: float
    questions: tuple[WeighedPair, ...]
    rule: Rule = "best"
    citation: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class JudgedItem:
    """An item, what it adds (NaN where a failed judgment decides: low to high), and its judgments by pair id."""

    item: Item
    value: float
    low: float
    high: float
    judgments: Mapping[str, Judgment]
