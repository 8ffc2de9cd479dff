"""MuRGAt's measures: does a judge agree with people, are facts cut well, do citations travel and support them.

Paper: MuRGAt, sections 3.3.2 (attribution), 4.2 to 4.5 (agreement of the automatic judge). Its code averages precision
otherwise than its text, so both are here by name. The published judge reads an unreadable answer as "no"; here it is
None, is left out and counted, and `unread_is_no` gives the published reading beside it.

From a verifier's attribution of claims to the facts that MuRGAt's precision, recall and F1 count.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ...core import Citation, RowError, parse_citations
from ...models.verifier import Attributed, JudgedCitation, ProblemKind
from ..metrics import balanced_accuracy, confusion

Words = Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class JudgeAgreement:
    """Balanced accuracy of a judge's verdicts (section 4.2), over readable ones and as the published code reads them.

    `n` verdicts were readable and `n_unread` were not; NaN where a class is absent.
    """

    balanced_accuracy: float
    balanced_accuracy_unread_is_no: float
    n: int
    n_unread: int


@dataclass(frozen=True)
class Correlations:
    """Pearson's r, Spearman's rho and Kendall's tau-b; NaN below two rows or where one side is constant."""

    pearson: float
    spearman: float
    kendall: float
    n: int


@dataclass(frozen=True)
class Decomposition:
    """How well generated atomic facts match those of people, each in [0, 1]."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class DecompositionOfMany:
    """Over many sentences: the mean of their scores, and all facts in one pool. The paper does not say which."""

    mean: Decomposition
    pooled: Decomposition
    n: int


@dataclass(frozen=True)
class Propagation:
    """Share of atomic facts that carry exactly their sentence's citations; NaN over none."""

    accuracy: float
    n_correct: int
    n: int


@dataclass(frozen=True)
class CitedFact:
    """One cited atomic fact: does each citation support it, and do all together; None where no verdict was had."""

    each_supports: Sequence[bool | None]
    all_support: bool | None


@dataclass(frozen=True)
class Attribution:
    """Attribution of one response's cited facts (section 3.3.2); NaN where nothing is left.

    Attributes:
        precision_pooled, f1_pooled: over all citations of the response at once, as the paper writes it.
        precision_per_fact, f1_per_fact: the mean over facts of the share that supports, as its code does.
        recall: share of facts that their citations together support; the same in both.
        n: facts with all their verdicts; `n_failed` lack one and are left out whole.
    """

    precision_pooled: float
    precision_per_fact: float
    recall: float
    f1_pooled: float
    f1_per_fact: float
    n: int
    n_failed: int


def judge_agreement(verdicts: Sequence[bool | None], labels: Sequence[bool]) -> JudgeAgreement:
    """Balanced accuracy of verdicts against people's labels, both shape (n,); None where an answer was unreadable."""
    if len(verdicts) != len(labels):
        raise RowError(f"attribution: one label per verdict, got {len(verdicts)}, {len(labels)}; align the two")
    read = [(bool(v), bool(y)) for v, y in zip(verdicts, labels, strict=True) if v is not None]
    verdicts_N2 = np.array(read, dtype=bool).reshape(-1, 2)
    as_published = confusion([bool(v) for v in verdicts], [bool(y) for y in labels])
    return JudgeAgreement(
        balanced_accuracy=balanced_accuracy(confusion(verdicts_N2[:, 0], verdicts_N2[:, 1])),
        balanced_accuracy_unread_is_no=balanced_accuracy(as_published),
        n=len(read),
        n_unread=len(verdicts) - len(read),
    )


def correlations(scores: ArrayLike, human: ArrayLike) -> Correlations:
    """Correlation of a metric with people's scores (section 4.5, Table 12), both shape (n,). SciPy computes them.

    Raises:
        RowError: other shapes, or a value that is not finite: a failed row has no score.
    """
    both = np.asarray(scores, dtype=np.float64), np.asarray(human, dtype=np.float64)
    if both[0].shape != both[1].shape or both[0].ndim != 1 or not all(np.isfinite(x).all() for x in both):
        shapes = f"{both[0].shape}, {both[1].shape}"
        raise RowError(f"attribution: two finite rows of one length are needed, got {shapes}; leave failed rows out")
    n = len(both[0])
    if n < 2 or any(np.all(x == x[0]) for x in both):
        return Correlations(math.nan, math.nan, math.nan, n)
    # Indexed rather than by name: the annotations of SciPy's results lack their fields.
    values = np.array([measure(*both)[0] for measure in (stats.pearsonr, stats.spearmanr, stats.kendalltau)], float)
    return Correlations(*values.tolist(), n=n)


def ascii_words(text: str) -> list[str]:
    """Runs of a-z and 0-9 in lower case: what the usual ROUGE tool counts without stemming. English only."""
    return re.findall(r"[a-z0-9]+", text.lower())


def unicode_words(text: str) -> list[str]:
    """Runs of letters and digits of any script, case-folded: for texts that are not English."""
    return re.findall(r"[^\W_]+", text.casefold())


def rouge1_f1(one: str, other: str, words: Words = ascii_words) -> float:
    """ROUGE-1 F1: 2 x shared words / words of both, each shared as often as both have it (Lin, 2004).

    Symmetric. 0 where one text has no word, NaN where neither has.
    """
    ours, theirs = Counter(words(one)), Counter(words(other))
    total = ours.total() + theirs.total()
    return 2 * (ours & theirs).total() / total if total else math.nan


def decomposition_f1(generated: Sequence[str], reference: Sequence[str], words: Words = ascii_words) -> Decomposition:
    """Atomic facts against people's, matched greedily by ROUGE-1 F1 without citations (section 4.3).

    Precision: mean over generated facts of the best match among the references; recall: the same the other way round.
    A fact may be the best match of several. F1: their harmonic mean, 0 where nothing matches or one side is empty
    (whose own mean is NaN), NaN where both are.
    """
    return _decomposition(*_best_matches(generated, reference, words))


def decomposition_of_many(
    sentences: Iterable[tuple[Sequence[str], Sequence[str]]], words: Words = ascii_words
) -> DecompositionOfMany:
    """`decomposition_f1` over (generated, reference) facts of many sentences, under both averages.

    `mean` leaves a sentence's undefined values out of the mean they would be in.
    """
    matches = [_best_matches(generated, reference, words) for generated, reference in sentences]
    single = [_decomposition(*match) for match in matches]
    mean = Decomposition(*(_mean_defined([getattr(s, f) for s in single]) for f in ("precision", "recall", "f1")))
    pooled = _decomposition([x for m in matches for x in m[0]], [x for m in matches for x in m[1]])
    return DecompositionOfMany(mean, pooled, len(single))


def citations_kept(fact: str, sentence: str) -> bool:
    """Whether a fact cites exactly what its sentence cites (section 4.3): none missing, none added, in any order.

    Equal means the same modality and times however they are written; text that cannot be read must be repeated as is.
    """
    return _cited(fact) == _cited(sentence)


def citation_propagation(sentences: Iterable[tuple[str, Sequence[str]]]) -> Propagation:
    """Share of atomic facts whose citations are their sentence's (section 4.3), over all facts.

    Args:
        sentences: (sentence, its atomic facts), with citations as in `(visual, 0:15; audio, 0:12-0:14)`.
    """
    kept = [citations_kept(fact, sentence) for sentence, facts in sentences for fact in facts]
    return Propagation(_mean(kept), sum(kept), len(kept))


def attribution(facts: Iterable[CitedFact]) -> Attribution:
    """Precision, recall and F1 of one response's citations (section 3.3.2), under the paper's and its code's average.

    Args:
        facts: the response's cited atomic facts; uncited ones belong to coverage.

    Raises:
        RowError: a fact without citations.
    """
    everything = list(facts)
    if any(not fact.each_supports for fact in everything):
        raise RowError("attribution: every fact must be cited, got one without citations; leave those to coverage")
    judged = [f for f in everything if f.all_support is not None and None not in f.each_supports]
    pooled = _mean([bool(hit) for fact in judged for hit in fact.each_supports])
    per_fact = _mean([_mean([bool(hit) for hit in fact.each_supports]) for fact in judged])
    recall = _mean([bool(fact.all_support) for fact in judged])
    f1s = _harmonic(pooled, recall), _harmonic(per_fact, recall)
    return Attribution(pooled, per_fact, recall, *f1s, n=len(judged), n_failed=len(everything) - len(judged))


def _best_matches(generated: Sequence[str], reference: Sequence[str], words: Words) -> tuple[list[float], list[float]]:
    """The best match of each generated and of each reference fact; a fact without words matches nothing."""
    ours, theirs = ([parse_citations(fact).text for fact in facts] for facts in (generated, reference))
    scores = [[rouge1_f1(a, b, words) for b in theirs] for a in ours]
    table = np.nan_to_num(np.array(scores, dtype=np.float64).reshape(len(ours), len(theirs)))
    return table.max(axis=1, initial=0.0).tolist(), table.max(axis=0, initial=0.0).tolist()


def _decomposition(of_generated: Sequence[float], of_reference: Sequence[float]) -> Decomposition:
    precision, recall = _mean(of_generated), _mean(of_reference)
    one_is_empty = bool(of_generated) != bool(of_reference)
    return Decomposition(precision, recall, 0.0 if one_is_empty else _harmonic(precision, recall))


def _cited(text: str) -> Counter[Citation | str]:
    return Counter(item if isinstance(item, Citation) else item.text for item in parse_citations(text).items)


def _harmonic(precision: float, recall: float) -> float:
    """0 where both are 0, as F1 over counts is; NaN where one is."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _mean_defined(values: Sequence[float]) -> float:
    return _mean([value for value in values if not math.isnan(value)])


def cited_fact(judged: Attributed, counts_as_wrong: Collection[ProblemKind] = ()) -> CitedFact | None:
    """One claim as `attribution` counts it, each evidence once however often it is cited; None if it cites nothing.

    Relevance of a citation is its own verdict, and recall the verdict on all together (MuRGAt, section 3.3.2).

    Args:
        judged: the claim's attribution, with labels: an uncalibrated verifier has none.
        counts_as_wrong: kinds of problems whose citations support nothing. Of the others, as of failures, there is no
            verdict: `attribution` then leaves the fact out and counts it, as the published evaluation does where a
            span cannot be cut. With "beyond_end" and "malformed" here, a model cannot gain by citing what is not there.
    """
    cites = [cite for cite in judged.citations if cite.same_as is None]
    if not cites:
        return None
    each = [_supports(cite, counts_as_wrong) for cite in cites]
    none_to_judge = all(cite.problem is not None for cite in cites)
    together = None if judged.recall.label is None else judged.recall.label == "supported"
    return CitedFact(each, False if none_to_judge and None not in each else together)


def attribution_of(judged: Iterable[Attributed], counts_as_wrong: Collection[ProblemKind] = ()) -> Attribution:
    """MuRGAt's attribution scores of one response; claims that cite nothing are left to coverage. See `cited_fact`."""
    facts = (cited_fact(one, counts_as_wrong) for one in judged)
    return attribution(fact for fact in facts if fact is not None)


def _supports(cite: JudgedCitation, counts_as_wrong: Collection[ProblemKind]) -> bool | None:
    if cite.problem is not None:
        return False if cite.problem.kind in counts_as_wrong else None
    return None if cite.alone is None or cite.alone.label is None else cite.alone.label == "supported"
