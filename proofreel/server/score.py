"""From a request to a job, and from verdicts to an answer.

`POST /attribute`: whether what a claim cites supports it, asked through the same desk as everything else.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool

from proofreel.core import (
    Evidence,
    MediaError,
    ModelInputError,
    Pair,
    VideoSegment,
    evidence_from_dict,
    evidence_key,
    evidence_to_dict,
    problems_of,
)
from proofreel.data_prep.importers import Cue
from proofreel.models.decision import Judge, Verdict, failed, with_prior
from proofreel.models.verifier import Attributed, AttributionPairs, CitedClaim, Sources

from .media_root import MediaRoot
from .queue import Desk, Job
from .schemas import (
    AttributeAnswer,
    AttributeRequest,
    CitationAnswer,
    ScoreAnswer,
    ScoreRequest,
    VerdictAnswer,
    WindowAnswer,
)
from .settings import RefusedError, Settings

T = TypeVar("T")


class Office:
    """Answers questions with one verifier's desk, within limits."""

    def __init__(self, verifier: Any, desk: Desk, root: MediaRoot, limits: Settings) -> None:
        self.verifier, self.desk, self.root, self.limits = verifier, desk, root, limits

    async def score(self, request: ScoreRequest) -> ScoreAnswer:
        """Answer `POST /score`."""
        evidence = await run_in_threadpool(self._evidence, [piece.model_dump() for piece in request.evidence])
        judge = self.judge(request.prior, request.operating_point)
        verdicts = await self.ask(request.claims, evidence, request.contexts, judge)
        point = judge.point
        return ScoreAnswer(
            verdicts=[as_answer(v, self.root) for v in verdicts],
            fingerprint=self.verifier.fingerprint,
            operating_point=point and point.name,
            threshold=point and point.threshold,
            notes=list(self.verifier.notes),
        )

    async def ask(
        self,
        claims: Sequence[str],
        evidence: tuple[Evidence, ...],
        contexts: Sequence[str | None] | None = None,
        judge: Judge | None = None,
    ) -> list[Verdict]:
        """Verdicts of claims about evidence whose paths were found, as `Verifier.score` gives them.

        Raises:
            RefusedError: too much, busy, late; or the error of an evidence that cannot be read.
        """
        if len(claims) > self.limits.max_claims:
            count = f"{len(claims)} of at most {self.limits.max_claims}"
            raise RefusedError(413, f"claims: too many for one request, got {count}; send several requests")
        contexts = [None] * len(claims) if contexts is None else contexts
        if len(contexts) != len(claims):
            raise RefusedError(
                400, f"contexts: one per claim, got {len(contexts)} for {len(claims)}; use null for none"
            )
        for i, context in enumerate(contexts):
            check_text(context or "", f"contexts[{i}]")
        pairs = [Pair(str(i), c, evidence, context=x) for i, (c, x) in enumerate(zip(claims, contexts, strict=True))]
        return await self.ask_pairs(pairs, judge or self.judge())

    async def ask_pairs(self, pairs: Sequence[Pair], judge: Judge) -> list[Verdict]:
        """Verdicts of pairs about one evidence. Raises what `ask` raises."""
        self._check(pairs[0].evidence)
        job = Job(tuple(pairs))
        await run_in_threadpool(self.desk.submit, job)
        return [restated(v, judge) for v in await self.wait(job.future)]

    async def wait(self, future: Future[T]) -> T:
        """The result of a thread, within the time limit of one request."""
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self.limits.timeout_s)
        except TimeoutError:
            waited = f"none within {self.limits.timeout_s:g} s"
            raise RefusedError(
                504, f"server: no answer, got {waited}; try again later, or raise --timeout-s", 5
            ) from None

    def judge(self, prior: float | None = None, operating_point: str | None = None) -> Judge:
        """What turns margins into labels; `CalibrationError` for what this verifier cannot be asked for."""
        decision = self.verifier.decision
        return Judge(decision if prior is None else with_prior(decision, prior), operating_point)

    def _evidence(self, pieces: list[dict[str, Any]]) -> tuple[Evidence, ...]:
        if len(pieces) > self.limits.max_evidence:
            count = f"{len(pieces)} pieces of at most {self.limits.max_evidence}"
            raise RefusedError(413, f"evidence: too much for one request, got {count}; send less")
        named = [p | ({"path": self.root.find(p["path"])} if "path" in p else {}) for p in pieces]
        return tuple(evidence_from_dict(p, f"evidence[{i}]") for i, p in enumerate(named))

    def _check(self, evidence: tuple[Evidence, ...]) -> None:
        """Everything wrong with evidence that is seen without opening it."""
        problems = problems_of(Pair("0", "A claim.", evidence))
        if problems:
            raise RefusedError(400, f"evidence: {'; '.join(problems)}")
        for i, piece in enumerate(evidence):
            check_text(getattr(piece, "text", ""), f"evidence[{i}]")
            if isinstance(piece, VideoSegment) and piece.end_s is not None:
                length_s = piece.end_s - piece.start_s
                if length_s > self.limits.max_span_s:
                    length = f"{length_s:g} of at most {self.limits.max_span_s:g} s"
                    raise RefusedError(413, f"evidence: span is too long, got {length}; shorten it, or ask in parts")
        self.verifier.reader.check_asked(evidence)


def check_text(text: str, where: str) -> None:
    """Refuse half of a surrogate pair, which JSON can hold and no tokenizer can read. Claims are checked one by one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RefusedError(400, f"{where}: not Unicode text, got a lone surrogate; send whole characters") from None


def restated(verdict: Verdict, judge: Judge) -> Verdict:
    """A verdict with the probability and label that `judge` gives its margin, as `Verifier.score` would."""
    windows = tuple(dataclasses.replace(w, verdict=restated(w.verdict, judge)) for w in verdict.windows)
    if verdict.error is not None:
        return dataclasses.replace(verdict, windows=windows)
    new = judge.verdict(verdict.margin)
    return dataclasses.replace(
        verdict, p_supported=new.p_supported, label=new.label, answer=new.answer, windows=windows
    )


def as_answer(verdict: Verdict, root: MediaRoot) -> VerdictAnswer:
    """A verdict in JSON, where NaN is null."""
    numbers = {n: None if math.isnan(x) else x for n, x in (("p", verdict.p_supported), ("m", verdict.margin))}
    return VerdictAnswer(
        p_supported=numbers["p"],
        margin=numbers["m"],
        label=verdict.label,
        answer=verdict.answer,
        error=verdict.error and root.hide(verdict.error),
        note=verdict.note,
        route=verdict.route,
        windows=[WindowAnswer(**_span(w.segment), verdict=as_answer(w.verdict, root)) for w in verdict.windows],
    )


def _span(segment: VideoSegment) -> dict[str, Any]:
    return {"path": segment.path, "start_s": segment.start_s, "end_s": segment.end_s}


async def attribute(office: Office, request: AttributeRequest) -> AttributeAnswer:
    """Answer one request; as `Verifier.attribute`, except that a video that cannot be opened refuses it."""
    judge = office.judge(request.prior, request.operating_point)
    questions = await _questions(office, request)
    if len(questions.pairs) > office.limits.max_claims:
        count = f"{len(questions.pairs)} questions of at most {office.limits.max_claims}"
        raise RefusedError(413, f"citations: too many for one request, got {count}; cite less at once")
    (attributed,) = questions.attributions(await _verdicts(office, questions.pairs, judge))
    point = judge.point
    return AttributeAnswer(
        claim=attributed.claim,
        recall=as_answer(attributed.recall, office.root),
        is_complete=attributed.is_complete,
        citations=_citations(office, attributed),
        fingerprint=office.verifier.fingerprint,
        operating_point=point and point.name,
        threshold=point and point.threshold,
    )


async def _questions(office: Office, request: AttributeRequest) -> AttributionPairs:
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
    return await run_in_threadpool(AttributionPairs, [claim], office.verifier.reader)


async def _verdicts(office: Office, pairs: list[Pair], judge: Judge) -> list[Verdict]:
    """Verdicts of pairs in order, those about one evidence as one job. What cannot be read fails its own."""
    places: dict[str, list[int]] = {}
    for i, pair in enumerate(pairs):
        places.setdefault(evidence_key(pair.evidence), []).append(i)
    requests = [_ask(office, [pairs[i] for i in some], judge) for some in places.values()]
    answers = await asyncio.gather(*requests)
    order = [i for some in places.values() for i in some]
    by_place = dict(zip(order, [v for verdicts in answers for v in verdicts], strict=True))
    return [by_place[i] for i in range(len(pairs))]


async def _ask(office: Office, pairs: list[Pair], judge: Judge) -> list[Verdict]:
    try:
        return await office.ask_pairs(pairs, judge)
    except (MediaError, ModelInputError) as error:
        return [failed(str(error))] * len(pairs)


def _citations(office: Office, attributed: Attributed) -> list[CitationAnswer]:
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
        for cite, relevant, necessary in zip(
            attributed.citations, attributed.relevant, attributed.necessary, strict=True
        )
    ]
