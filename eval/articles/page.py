"""The page of MiRAGE's scores: articles side by side, their claims by verdict, the sources that they cite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..scores import Judgment, PageCitation, PageClaim, PageResponse, PageSentence, ScorePage
from .formulas import MirageResult, MirageScores
from .records import JudgedItem, MirageOptions, Response
from .reports import differences
from .shares import predicted_claims

JUDGED_ON = {
    "cite_p_collection": "the sources that its sentence cites",
    "info_p_collection": "the topic's sources",
    "ragas_faithfulness": "the sources it was written from",
    "cite_p_reference": "the reference claims of the cited sources",
    "info_p_reference": "the reference text",
}
"""Shares of a response's claims, and what these are held against; the first that is there colours a claim."""
SOURCES = 3  # that stand beside a claim where the whole collection was asked


def mirage_page(result: MirageResult, responses: Sequence[Response], options: MirageOptions) -> ScorePage:
    """The page of a result.

    Args:
        result: the scores.
        responses: that were scored.
        options: with which.
    """
    scored = [(response, result.responses[response.system][response.topic]) for response in responses]
    return ScorePage(
        title="MiRAGE",
        systems=result.systems,
        differences={f"{other} - {next(iter(result.systems))}": each for other, each in differences(result).items()},
        responses=[_response(response, scores, options) for response, scores in scored],
        notes=(
            "Mean over topics in percent [95 % interval over topics].",
            f"{result.n_questions} questions, {result.n_passes} encoder passes.",
        ),
    )


def _response(response: Response, scores: MirageScores, options: MirageOptions) -> PageResponse:
    shares = [share for share in JUDGED_ON if share in scores.items]
    claims: dict[int, list[PageClaim]] = {}
    for number, (claim, sentence, _) in enumerate(predicted_claims(response, options.duplicates)):
        judged = {share: scores.items[share][number] for share in shares}
        claims.setdefault(id(sentence), []).append(_claim(claim.text, judged))
    sentences = tuple(PageSentence(s.text, tuple(claims.get(id(s), ()))) for s in response.sentences)
    f1s = {name: score for name, score in scores.scores.items() if "f1" in name and not math.isnan(score.low)}
    return PageResponse(response.system, response.topic, sentences, f1s)


def _claim(text: str, judged: dict[str, JudgedItem]) -> PageClaim:
    judgments = {JUDGED_ON[share]: _best(item.judgments.values()) for share, item in judged.items()}
    share = next(iter(judged), None)
    if share is None:
        return PageClaim(text)
    answers = [(q.pair, judged[share].judgments[q.pair.id]) for q in judged[share].item.questions]
    if share != "cite_p_collection":  # those most sure of it
        answers = sorted(answers, key=lambda each: -_p(each[1]))[:SOURCES]
    citations = tuple(
        PageCitation(pair.id.rpartition("/")[2], pair.evidence, answer if len(answers) > 1 else None)
        for pair, answer in answers
    )
    return PageClaim(text, judgments, citations, "" if citations else "cites nothing")


def _best(answers: Iterable[Judgment]) -> Judgment:
    """The answer that counts, where one source that supports is enough; without a source, no."""
    answers = list(answers)
    failed = [answer for answer in answers if answer.supported is None]
    if failed and not any(answer.supported for answer in answers):
        return failed[0]
    return max(answers, key=lambda answer: (bool(answer.supported), _p(answer)), default=Judgment(False))


def _p(answer: Judgment) -> float:
    return -1.0 if math.isnan(answer.p_supported) else answer.p_supported
