"""Generated responses for MuRGAt's scores, read from a file: their sentences, facts, citations, and labels where given.

The layouts are those of docs/formats.md, per record: facts judged by people (`facts`), a file scored by the published
evaluation (`evaluations`), and bare text (`model_generation`), whose sentences still lack everything (`pipeline`
fills it in). One more key is read: `verifiable`, a mapping from sentences to true or false; it wins over what follows
from the facts: a sentence to which people gave a fact is verifiable, one without is not (appendix A.2 and A.3: people
judge facts; a sentence is verifiable if any of its facts is).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...core import Citation, Malformed, RowError, cited_sentences, parse_citation_list, parse_citations
from ...data_prep.importers import Record, Rejected, bare_fact, murgat_problem, murgat_reasoning, read_json_records
from .scores import FactCitation, JudgedFact, JudgedResponse, JudgedSentence

Cites = tuple[Citation | Malformed, ...]
UnlabelledCitations = Literal["unknown", "as_fact"]


@dataclass(frozen=True)
class GivenFact:
    """An atomic fact as a file or a language model gives it; `relevant` has one entry for each citation."""

    text: str
    citations: Cites
    supported: bool | None = None
    relevant: tuple[bool | None, ...] = ()


@dataclass(frozen=True)
class GivenSentence:
    """A sentence with its citations in it.

    Attributes:
        verifiable: None: not known, or not yet.
        facts: None: not known, or not yet.
        error: the step that failed, and why.
    """

    text: str
    verifiable: bool | None = None
    facts: tuple[GivenFact, ...] | None = None
    error: str | None = None

    @property
    def is_cited(self) -> bool:
        """Whether it has a citation that can be read."""
        return bool(parse_citations(self.text).citations)


@dataclass(frozen=True)
class GivenResponse:
    """One response; `is_labelled`: its facts come with labels, `is_annotated`: with facts at all.

    `answer` is what follows its reasoning: the choice of an option, which is no sentence about the video.
    """

    id: str
    video: str
    sentences: tuple[GivenSentence, ...]
    is_annotated: bool
    is_labelled: bool
    answer: str = ""


def read_murgat_responses(path: str | Path) -> list[GivenResponse]:
    """The responses of a file, in order.

    The id of a response is its record's `id`, else its video and question: two systems' files match by it.

    Raises:
        RowError: no such file, a record that cannot be read (with its line), a fact of no sentence, or an id twice.
    """
    path = Path(path)
    if not path.is_file():
        raise RowError(f"{path}: no such file, got no responses; check the path")
    responses: dict[str, GivenResponse] = {}
    for record in read_json_records(path):
        if isinstance(record, Rejected):
            raise RowError(f"{record.file}:{record.line}: {record.reason}")
        where = f"{record.file}:{record.line}"
        if problem := murgat_problem(record.value) or _labels_problem(record.value):
            raise RowError(f"{where}: {problem}")
        response = _response(record, where)
        if response.id in responses:
            raise RowError(f"{where}: two responses have one id, got {response.id!r}; give each record its own `id`")
        responses[response.id] = response
    if not responses:
        raise RowError(f"{path}: no responses, got an empty file; give at least one")
    return list(responses.values())


def judged_by_labels(response: GivenResponse, unlabelled_citations: UnlabelledCitations = "unknown") -> JudgedResponse:
    """A response judged by the labels in its file.

    Args:
        response: with labels.
        unlabelled_citations: what is known of the citations of a supported fact that has several, where the file does
            not say which are needed. "unknown": nothing, scores have bounds; "as_fact": all are relevant. Of a fact
            that is not supported none is relevant (section 3.2), and an only citation has its fact's label.
    """
    sentences = []
    for sentence in response.sentences:
        facts = tuple(_judged(fact, unlabelled_citations) for fact in sentence.facts or ())
        sentences.append(JudgedSentence(sentence.text, sentence.verifiable, facts, sentence.error))
    return JudgedResponse(response.id, response.video, tuple(sentences))


def _judged(fact: GivenFact, unlabelled_citations: UnlabelledCitations) -> JudgedFact:
    cites = []
    for cite, relevant in zip(fact.citations, fact.relevant or [None] * len(fact.citations), strict=True):
        if relevant is None and (not fact.supported or len(fact.citations) == 1 or unlabelled_citations == "as_fact"):
            relevant = fact.supported
        modality = cite.modality if isinstance(cite, Citation) else None
        cites.append(FactCitation(cite.text, modality, relevant, None if relevant is not None else "no label"))
    return JudgedFact(fact.text, tuple(cites), fact.supported, None if fact.supported is not None else "no label")


def _labels_problem(item: Mapping[str, Any]) -> str | None:
    labels = item.get("verifiable")
    fits = isinstance(labels, dict) and all(isinstance(value, (bool, type(None))) for value in labels.values())
    if labels is None or fits:
        return None
    return (
        f"verifiable must map sentences to true or false, got {labels!r:.60}; write {{'He runs (visual, 0:05).': true}}"
    )


def _response(record: Record, where: str) -> GivenResponse:
    item: dict[str, Any] = record.value
    generation = item.get("model_generation") or item.get("original_full_generation") or ""
    text = murgat_reasoning(generation)
    answer = generation[generation.rfind(text) + len(text) :] if text else ""
    sentences = [GivenSentence(sentence) for sentence in cited_sentences(text)]
    question = item.get("question")
    id = str(item.get("id") or (f"{item['video']}: {question}" if question else item["video"]))
    evaluations, facts = item.get("evaluations"), item.get("facts")
    if evaluations is not None:
        sentences = [_evaluated(sentence, evaluation) for sentence, evaluation in evaluations.items()]
    elif facts is not None:
        sentences = _with_facts(sentences, [_given_fact(fact) for fact in facts], where)
    sentences = _with_verifiability(sentences, item.get("verifiable") or {}, where)
    if not sentences:
        raise RowError(f"{where}: response {id!r} has no sentence, got {text!r:.60}; leave failed generations out")
    is_annotated = evaluations is not None or facts is not None
    is_labelled = any(f.supported is not None for s in sentences for f in s.facts or ())
    return GivenResponse(id, item["video"], tuple(sentences), is_annotated, is_labelled, answer)


def _given_fact(fact: Any) -> tuple[GivenFact, bool | None, str | None]:
    """A fact judged by people, whether it is verifiable, and its sentence if that is given."""
    listed = ("fact", "citations", "supported")
    values: dict[str, Any] = dict(zip(listed, fact, strict=True)) if isinstance(fact, list) else fact
    cited = parse_citations(bare_fact(values["fact"]))
    cites = (*cited.items, *(cite for text in values["citations"] for cite in parse_citation_list(text)))
    relevant: tuple[bool | None, ...] = ()
    if (needed := values.get("needed")) is not None:
        wanted = {cite for text in needed for cite in parse_citation_list(text)}
        relevant = tuple(cite in wanted for cite in cites)
    given = GivenFact(cited.text, cites, values.get("supported"), relevant)
    return given, values.get("verifiable"), values.get("sentence")


def _with_facts(
    sentences: Sequence[GivenSentence], facts: Sequence[tuple[GivenFact, bool | None, str | None]], where: str
) -> list[GivenSentence]:
    """Sentences with people's facts: each fact at the sentence that it names, or the only one with its citations.

    A sentence that is repeated has the same facts each time.
    """
    of_sentence: dict[int, list[tuple[GivenFact, bool | None]]] = {number: [] for number in range(len(sentences))}
    for fact, verifiable, named in facts:
        for number in _sentences_of(fact, named, sentences, where):
            if (fact, verifiable) not in of_sentence[number]:
                of_sentence[number].append((fact, verifiable))
    given = []
    for number, sentence in enumerate(sentences):
        kept = tuple(fact for fact, verifiable in of_sentence[number] if verifiable is not False)
        given.append(dataclasses.replace(sentence, verifiable=bool(kept), facts=kept))
    return given


def _sentences_of(fact: GivenFact, named: str | None, sentences: Sequence[GivenSentence], where: str) -> list[int]:
    """The one sentence of a fact, or all that read as the one it names (and cite the same, if any does)."""
    wanted = {cite for cite in fact.citations if isinstance(cite, Citation)}
    cited = [parse_citations(sentence.text) for sentence in sentences]
    if named is not None:
        given = parse_citations(named)
        fitting = [n for n, each in enumerate(cited) if each.text == given.text]
        fitting = [n for n in fitting if set(cited[n].citations) == set(given.citations)] or fitting
    else:
        fitting = [n for n, each in enumerate(cited) if wanted and wanted <= set(each.citations)]
    if not fitting or (len(fitting) > 1 and named is None):
        raise RowError(
            f"{where}: fact {fact.text!r:.80} belongs to one sentence, got {len(fitting)} that cite what it cites; "
            "write it as an object with `sentence`"
        )
    return fitting


def _evaluated(sentence: str, evaluation: Mapping[str, Any]) -> GivenSentence:
    """A sentence of a scored file, with the published judge's verdicts as labels."""
    worthy = (evaluation.get("verification_worthy") or {}).get("prediction")
    facts = []
    for entry in evaluation.get("atomic_facts") or ():
        cited, scores = parse_citations(bare_fact(entry["fact"])), entry.get("scores") or {}
        judgments = scores.get("citation_judgments") or {}
        by_cite = {cite: value for text, value in judgments.items() for cite in parse_citation_list(text)}
        supported = None if scores.get("recall") is None else bool(scores["recall"])
        relevant = tuple(by_cite.get(cite) for cite in cited.items)
        facts.append(GivenFact(cited.text, cited.items, supported, relevant))
    error = "the file holds no judgment whether it is verifiable" if worthy is None else None
    return GivenSentence(sentence, worthy, tuple(facts) or None, error)


def _with_verifiability(
    sentences: Sequence[GivenSentence], labels: Mapping[str, bool | None], where: str
) -> list[GivenSentence]:
    """Sentences with the record's own labels; equal means equal without citations."""
    by_text = {parse_citations(text).text: label for text, label in labels.items()}
    known = {parse_citations(sentence.text).text for sentence in sentences}
    if unknown := sorted(set(by_text) - known):
        raise RowError(
            f"{where}: verifiable names no sentence of the response, got {unknown[0]!r:.80}; copy a sentence"
        )
    given = []
    for sentence in sentences:
        text = parse_citations(sentence.text).text
        given.append(dataclasses.replace(sentence, verifiable=by_text[text]) if text in by_text else sentence)
    return given
