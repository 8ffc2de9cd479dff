"""`POST /attribute`: whether what a claim cites supports it, asked through the same desk as everything else."""

from __future__ import annotations

import asyncio

from starlette.concurrency import run_in_threadpool

from proofreel.core.errors import MediaError, ModelInputError
from proofreel.core.pairs import Pair, evidence_key, evidence_to_dict
from proofreel.data_prep.transcripts import Cue
from proofreel.models.decision.verdict import Judge, Verdict, failed
from proofreel.models.verifier.attribution import Attributed, CitedClaim, Questions, Sources

from .questions import Office, as_answer, check_text
from .refusals import RefusedError
from .schemas import AttributeAnswer, AttributeRequest, CitationAnswer


async def attribute(office: Office, request: AttributeRequest) -> AttributeAnswer:
    """Answer one request; as `Verifier.attribute`, except that a video that cannot be opened refuses it."""
    judge = office.judge(request.prior, request.operating_point)
    questions = await _questions(office, request)
    if len(questions.pairs) > office.limits.max_claims:
        told = f"{len(questions.pairs)} questions of at most {office.limits.max_claims}"
        raise RefusedError(413, f"citations: too many for one request, got {told}; cite less at once")
    (found,) = questions.answered(await _verdicts(office, questions.pairs, judge))
    point = judge.point
    return AttributeAnswer(
        claim=found.claim,
        recall=as_answer(found.recall, office.root),
        is_complete=found.is_complete,
        citations=_citations(office, found),
        fingerprint=office.verifier.fingerprint,
        operating_point=point and point.name,
        threshold=point and point.threshold,
    )


async def _questions(office: Office, request: AttributeRequest) -> Questions:
    """What must be asked. The video is opened by a child first, as resolving citations opens it here."""
    cues = None if request.transcript is None else [Cue(c.start_s, c.end_s, c.text) for c in request.transcript]
    given = [request.citations] if isinstance(request.citations, str) else request.citations or []
    for text in (request.context or "", *given, *(c.text for c in cues or ())):
        check_text(text, "attribute")
    video = None
    if request.video is not None:
        video = await run_in_threadpool(office.root.find, request.video)
        await office.wait(office.desk.examine(video))
    claim = CitedClaim(request.claim, request.citations, Sources(video, cues), request.context)
    return await run_in_threadpool(Questions, [claim], office.verifier.reader)


async def _verdicts(office: Office, pairs: list[Pair], judge: Judge) -> list[Verdict]:
    """Verdicts of pairs in order, those about one evidence as one job. What cannot be read fails its own."""
    places: dict[str, list[int]] = {}
    for i, pair in enumerate(pairs):
        places.setdefault(evidence_key(pair.evidence), []).append(i)
    asked = [_ask(office, [pairs[i] for i in some], judge) for some in places.values()]
    answers = await asyncio.gather(*asked)
    order = [i for some in places.values() for i in some]
    found = dict(zip(order, [v for verdicts in answers for v in verdicts], strict=True))
    return [found[i] for i in range(len(pairs))]


async def _ask(office: Office, pairs: list[Pair], judge: Judge) -> list[Verdict]:
    try:
        return await office.ask_pairs(pairs, judge)
    except (MediaError, ModelInputError) as error:
        return [failed(str(error))] * len(pairs)


def _citations(office: Office, found: Attributed) -> list[CitationAnswer]:
    return [
        CitationAnswer(
            citation=getattr(cite.citation, "text", ""),
            evidence=cite.evidence and evidence_to_dict(cite.evidence),
            problem=cite.problem and office.root.hide(cite.problem.message),
            problem_kind=cite.problem and cite.problem.kind,
            same_as=cite.same_as,
            note=cite.note,
            alone=cite.alone and as_answer(cite.alone, office.root),
            without=cite.without and as_answer(cite.without, office.root),
            relevant=relevant,
            necessary=necessary,
        )
        for cite, relevant, necessary in zip(found.citations, found.relevant, found.necessary, strict=True)
    ]
