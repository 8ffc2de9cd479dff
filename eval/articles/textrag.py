"""The questions of ALCE, ARGUE and RAGAS, carried over to videos: MiRAGE, section 3 and appendices D, E and F.

| share | items | questions of one item | paper |
| --- | --- | --- | --- |
| ALCE claim recall | reference claims | the response | 3.1, D: equals InfoR |
| ALCE citation recall | sentences | all sources it cites, together | 3.1, D |
| ALCE citation precision | citations | its sentence: of all cited together, of this one alone, of the others | 3.1, D |
| ARGUE sentence support | sentences | each source it cites; every answer must be yes | 3.2, E |
| ARGUE nugget coverage | nuggets | each sentence of the response; the best answer counts | 3.2, E |
| RAGAS faithfulness | predicted claims | each source the response was written from; the best answer counts | 3.3, F |

Nothing is weighted. What the paper leaves open, and what is done here:

- ALCE's citation precision: 3.1 says only that a citation is irrelevant if the sentence is still supported without it;
  appendix D, that Gao et al. are followed faithfully. They also ask whether the citation supports the sentence alone,
  without which two citations that each suffice would both be irrelevant. `MirageOptions.relevance` has both.
- A sentence without a citation is not supported (`MirageOptions.uncited`). A response without any has no precision.
- The paper halves the frame rate of several videos until they fit into memory. Here a verifier reads each video as it
  reads it alone; what does not fit is a failed judgment, or judged on half the frames, and half again, if that is asked
  for (`by_verifier(..., shrink_frames=True)`).
- A nugget is a question, written by a language model, and the reference claim as its answer. A judge of claims is asked
  whether a sentence supports the answer, with the question as the claim's context. That a sentence holds is no
  condition: the paper names none.
- Sentence support asks about one citation at a time, each of which must support the whole sentence.
- The sources a response was written from are those it cites, unless its file says otherwise (`context`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...core import Passage
from .records import Item, MirageOptions, Response, Rule, Sentence, Topic, WeighedPair
from .shares import context_of, counted_claims, pair_of, predicted_claims, source_of

TEXTRAG_SHARES = (
    "alce_claim_recall",
    "alce_citation_recall",
    "alce_citation_precision",
    "argue_sentence_support",
    "argue_nugget_coverage",
    "ragas_faithfulness",
)
NO_QUESTION = "no question was written"


def textrag_items(share: str, response: Response, topic: Topic, options: MirageOptions) -> Iterator[Item]:
    """The items of one of `TEXTRAG_SHARES`."""
    start = f"{response.system}/{response.topic}/{share}"
    if share == "alce_claim_recall":
        yield from _claim_recall(start, response, topic, options)
    elif share == "argue_nugget_coverage":
        yield from _nuggets(start, response, topic, options)
    elif share == "ragas_faithfulness":
        yield from _statements(start, response, topic, options)
    else:
        for number, sentence in enumerate(_stated(response)):
            cited = tuple(dict.fromkeys(sentence.citations))
            if share == "alce_citation_precision":
                yield from _citations(f"{start}/{number}", sentence.text, cited, topic, options)
            elif cited or options.uncited == "unsupported":
                sets = [cited] if share == "alce_citation_recall" else [(source,) for source in cited]
                asked = tuple(_about(f"{start}/{number}", sentence.text, each, topic) for each in sets if each)
                yield Item(sentence.text, 1.0, asked, "every")


def written_from(response: Response) -> tuple[str, ...]:
    """The ids of the sources a response was written from: RAGAS's context."""
    if response.context is not None:
        return response.context
    return tuple(dict.fromkeys(source for sentence in response.sentences for source in sentence.citations))


def _stated(response: Response) -> list[Sentence]:
    return [sentence for sentence in response.sentences if sentence.text.strip()]


def _about(start: str, claim: str, sources: tuple[str, ...], topic: Topic, context: str | None = None) -> WeighedPair:
    """A claim about sources, all together."""
    evidence = tuple(source_of(source, topic).evidence for source in sources)
    return WeighedPair(pair_of(f"{start}/{'+'.join(sources)}", claim, evidence, context, topic.name))


def _citations(
    start: str, sentence: str, cited: tuple[str, ...], topic: Topic, options: MirageOptions
) -> Iterator[Item]:
    rule: Rule = "relevant" if options.relevance == "alce" else "necessary"
    for number, source in enumerate(cited):
        sets = [cited]
        if len(cited) > 1:
            others = tuple(other for other in cited if other != source)
            sets += [(source,), others] if rule == "relevant" else [others]
        asked = tuple(_about(f"{start}/{number}", sentence, each, topic) for each in sets)
        yield Item(sentence, 1.0, asked, rule, citation=source)


def _claim_recall(start: str, response: Response, topic: Topic, options: MirageOptions) -> Iterator[Item]:
    for number, claim in enumerate(counted_claims(topic, options)):
        evidence = (Passage(response.text),)
        context = context_of(claim.context, options)
        pair = pair_of(f"{start}/{number}/response", claim.text, evidence, context, topic.name)
        yield Item(claim.text, 1.0, (WeighedPair(pair),) if response.text.strip() else ())


def _nuggets(start: str, response: Response, topic: Topic, options: MirageOptions) -> Iterator[Item]:
    sentences = list(dict.fromkeys(sentence.text for sentence in _stated(response)))
    for number, claim in enumerate(counted_claims(topic, options)):
        if claim.question is None:
            yield Item(claim.text, 1.0, (), error=claim.question_error or NO_QUESTION)
            continue
        pairs = [
            pair_of(f"{start}/{number}/{i}", claim.text, (Passage(sentence),), claim.question, topic.name)
            for i, sentence in enumerate(sentences)
        ]
        yield Item(claim.text, 1.0, tuple(WeighedPair(pair) for pair in pairs))


def _statements(start: str, response: Response, topic: Topic, options: MirageOptions) -> Iterator[Item]:
    sources = written_from(response)
    for number, (claim, sentence, _) in enumerate(predicted_claims(response, options.duplicates)):
        context = context_of(sentence.text, options)
        asked = (_about(f"{start}/{number}", claim.text, (source,), topic, context) for source in sources)
        yield Item(claim.text, 1.0, tuple(asked))
