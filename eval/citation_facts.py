"""From a verifier's attribution of claims to the facts that MuRGAt's precision, recall and F1 count."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..models.attribution import Attributed, JudgedCitation
from ..models.citing import ProblemKind
from .attribution import Attribution, CitedFact, attribution


def cited_fact(judged: Attributed, counts_as_wrong: Collection[ProblemKind] = ()) -> CitedFact | None:
    """One claim as `attribution` counts it, each evidence once however often it is cited; None if it cites nothing.

    Relevance of a citation is its own verdict, and recall the verdict on all together (MuRGAt, section 3.3.2).

    Args:
        judged: the claim's attribution, with labels: an uncalibrated draft has none.
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
