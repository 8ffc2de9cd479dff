"""The questions of InfoF1 and CiteF1: MiRAGE, section 4 and appendix B.

| share | items | questions of one item | paper |
| --- | --- | --- | --- |
| InfoP, collection | predicted claims | each of the topic's sources, or all together | equations 7 and 6 |
| InfoP, reference | predicted claims | the reference text | 4.1.1 |
| InfoR | reference claims | the response | equations 2, 10 |
| CiteP, collection | predicted claims | each source its sentence cites, or all together | equations 3, 12 |
| CiteP, reference | predicted claims | the reference claims each cited source supports, or all together | equation 4 |
| CiteR | reference claims | what the response says citing each source that supports the claim | equations 5, 13 |

An item without a question (a claim without a citation, a cited source that supports no reference claim) is not
supported. Where the paper leaves a choice it is an option of `MirageOptions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from ...core import Evidence, Pair, Passage, RowError
from .records import Claim, Item, MirageOptions, ReferenceClaim, Response, Sentence, Source, Topic, WeighedPair

SHARES = ("info_p_collection", "info_p_reference", "info_r", "cite_p_collection", "cite_p_reference", "cite_r")


def share_items(share: str, response: Response, topic: Topic, options: MirageOptions) -> Iterator[Item]:
    """The items of one of `SHARES`."""
    if share.endswith("_r"):
        made = [(c.text, c.context, c.importance, c.sources) for c in counted_claims(topic, options)]
    else:
        made = [
            (claim.text, sentence.text, claim.importance, citations)
            for claim, sentence, citations in predicted_claims(response, options.duplicates)
        ]
    for number, (text, context, importance, sources) in enumerate(made):
        name = f"{response.system}/{response.topic}/{share}/{number}"
        asked = [(key, evidence, quality) for key, evidence, quality in _evidences(share, sources, response, topic)]
        if options.sources == "joint" and asked:
            asked = [_joined(share, asked)]
        questions = tuple(
            WeighedPair(pair_of(f"{name}/{key}", text, evidence, context_of(context, options), response.topic), quality)
            for key, evidence, quality in asked
        )
        yield Item(text, importance, questions)


def context_of(context: str | None, options: MirageOptions) -> str | None:
    """What a claim is asked with."""
    return context if options.context else None


def counted_claims(topic: Topic, options: MirageOptions) -> list[ReferenceClaim]:
    """The reference claims that count."""
    return [claim for claim in topic.claims if claim.sources or not options.grounded_only]


def predicted_claims(
    response: Response, duplicates: Literal["any", "first", "keep"] = "any"
) -> list[tuple[Claim, Sentence, tuple[str, ...]]]:
    """The claims that count, each with its (first) sentence and the sources cited for it."""
    made = [(claim, sentence) for sentence in response.sentences for claim in sentence.claims]
    if duplicates == "keep":
        return [(claim, sentence, sentence.citations) for claim, sentence in made]
    first: dict[str, tuple[Claim, Sentence, tuple[str, ...]]] = {}
    for claim, sentence in made:
        if claim.text not in first:
            first[claim.text] = claim, sentence, sentence.citations
        elif duplicates == "any":
            known = first[claim.text]
            first[claim.text] = known[0], known[1], tuple(dict.fromkeys([*known[2], *sentence.citations]))
    return list(first.values())


Asked = tuple[str, tuple[Evidence, ...], float]
"""A question's key, evidence and quality."""


def _evidences(share: str, sources: Iterable[str], response: Response, topic: Topic) -> Iterator[Asked]:
    if share == "info_p_collection":
        yield from ((key, (source.evidence,), source.quality) for key, source in topic.sources.items())
    elif share == "info_p_reference":
        yield "reference", (Passage(_reference(topic)),), 1.0
    elif share == "info_r":
        if response.text.strip():
            yield "response", (Passage(response.text),), 1.0
    elif share == "cite_p_collection":
        yield from ((key, (source_of(key, topic).evidence,), source_of(key, topic).quality) for key in sources)
    elif share == "cite_p_reference":
        for key in sources:
            if supported := [claim.text for claim in topic.claims if key in claim.sources]:
                yield key, (Passage("\n".join(supported)),), source_of(key, topic).quality
    else:
        for key in sources:
            if citing := [sentence.text for sentence in response.sentences if key in sentence.citations]:
                yield key, (Passage("\n".join(citing)),), source_of(key, topic).quality


def _joined(share: str, asked: Sequence[Asked]) -> Asked:
    """All evidence of an item as one; texts without the lines that several of them hold."""
    quality = sum(each[2] for each in asked) / len(asked)
    evidence = tuple(piece for each in asked for piece in each[1])
    if not share.endswith("p_collection"):
        lines = dict.fromkeys(
            line for piece in evidence if isinstance(piece, Passage) for line in piece.text.split("\n")
        )
        evidence = (Passage("\n".join(lines)),)
    return "+".join(each[0] for each in asked), evidence, quality


def _reference(topic: Topic) -> str:
    if topic.reference is None:
        raise RowError(f"{topic.name}: topic has no reference text, got None; add it, or ask for the collection form")
    return topic.reference


def source_of(key: str, topic: Topic) -> Source:
    """A source by its id; RowError if the topic has none of it."""
    source = topic.sources.get(key) or topic.others.get(key)
    if source is None:
        raise RowError(f"{topic.name}: cited source is unknown, got {key!r}; add it to the topic's sources or others")
    return source


def pair_of(name: str, claim: str, evidence: tuple[Evidence, ...], context: str | None, group: str) -> Pair:
    """The question whether evidence supports a claim."""
    modality = "text" if all(isinstance(piece, Passage) for piece in evidence) else "visual"
    return Pair(name, claim, evidence, context=context, group=group, origin="prediction", modality=modality)
