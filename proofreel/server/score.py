"""From a request to a job, and from verdicts to an answer.

`POST /attribute`: whether what a claim cites supports it, asked through the same desk as everything else.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from proofreel.core import (
    Evidence,
    Frames,
    MediaError,
    ModelInputError,
    Moving,
    Pair,
    VideoSegment,
    evidence_from_dict,
    evidence_key,
    evidence_to_dict,
    media_name,
    problems_of,
    problems_of_evidence,
)
from proofreel.data_prep.importers import Cue
from proofreel.models.decision import Judge, Verdict, failed, with_prior
from proofreel.models.verifier import Attributed, AttributionPairs, CitedClaim, Sources

from .media_root import MediaRoot
from .queue import Desk, Job
from .schemas import (
    PIECE,
    AttributeAnswer,
    AttributeRequest,
    CitationAnswer,
    ScoreAnswer,
    ScoreRequest,
    VerdictAnswer,
    WindowAnswer,
)
from .settings import Faults, RefusedError, Settings

T = TypeVar("T")


class Office:
    """Answers questions with one verifier's desk, within limits."""

    def __init__(self, verifier: Any, desk: Desk, root: MediaRoot, limits: Settings) -> None:
        self.verifier, self.desk, self.root, self.limits = verifier, desk, root, limits

    async def score(self, request: ScoreRequest) -> ScoreAnswer:
        """Answer `POST /score`."""
        faults = Faults()
        pieces = [piece.model_dump() for piece in request.evidence]
        evidence = await run_in_threadpool(self.find_evidence, pieces, "evidence", faults)
        self._check_claims(request.claims, request.contexts, faults)
        judge = None
        with faults.at("operating_point" if request.prior is None else "prior"):
            judge = self.judge(request.prior, request.operating_point)
        faults.check()
        assert judge is not None
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
        faults = Faults()
        self._check_claims(claims, contexts, faults)
        faults.check()
        contexts = [None] * len(claims) if contexts is None else contexts
        pairs = [Pair(str(i), c, evidence, context=x) for i, (c, x) in enumerate(zip(claims, contexts, strict=True))]
        return await self.ask_pairs(pairs, judge or self.judge())

    async def ask_pairs(self, pairs: Sequence[Pair], judge: Judge) -> list[Verdict]:
        """Verdicts of pairs about one evidence. Raises what `ask` raises."""
        faults = Faults()
        self._check(pairs[0].evidence, faults)
        faults.check()
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

    def find_evidence(self, pieces: Sequence[dict[str, Any]], where: str, faults: Faults) -> tuple[Evidence, ...]:
        """Evidence of validated pieces, its media found below the root or kept from a data URL; faults are added."""
        with faults.at(where):
            check_count(len(pieces), self.limits.max_evidence)
        evidence: list[Evidence] = []
        for i, piece in enumerate(pieces[: self.limits.max_evidence]):
            with faults.at(f"{where}[{i}]"):
                named = _named_paths(piece, self.root.find)
                evidence.append(evidence_from_dict(named, f"{where}[{i}]"))
                self._check_piece(evidence[-1], f"{where}[{i}]", faults)
        with faults.at(where):
            self.verifier.reader.check_asked(tuple(evidence))
        return tuple(evidence)

    def _check_claims(self, claims: Sequence[str], contexts: Sequence[str | None] | None, faults: Faults) -> None:
        """What refuses a whole request; a claim that alone is wrong fails alone, later."""
        if len(claims) > self.limits.max_claims:
            count = f"{len(claims)} of at most {self.limits.max_claims}"
            message = f"claims: too many for one request, got {count}; send several requests"
            faults.add(RefusedError(413, message), "claims")
        if contexts is not None and len(contexts) != len(claims):
            count = f"{len(contexts)} for {len(claims)}"
            faults.add(RefusedError(400, f"contexts: one per claim, got {count}; use null for none"), "contexts")
        for i, context in enumerate(contexts or ()):
            with faults.at(f"contexts[{i}]"):
                check_text(context or "", f"contexts[{i}]")

    def _check(self, evidence: tuple[Evidence, ...], faults: Faults, where: str = "evidence") -> None:
        """Everything wrong with evidence that is seen without opening it."""
        for i, piece in enumerate(evidence):
            self._check_piece(piece, f"{where}[{i}]", faults)
        with faults.at(where):
            self.verifier.reader.check_asked(evidence)

    def _check_piece(self, piece: Evidence, where: str, faults: Faults) -> None:
        for problem in problems_of(Pair("0", "A claim.", (piece,))):
            faults.add(RefusedError(400, f"{where}: {problem}"), where)
        with faults.at(where):
            check_text(getattr(piece, "text", ""), where)
        end_s = _end_s(piece)
        if isinstance(piece, Moving) and end_s is not None:
            length_s = end_s - piece.start_s
            if length_s > self.limits.max_span_s:
                length = f"{length_s:g} of at most {self.limits.max_span_s:g} s"
                message = f"{where}: span is too long, got {length}; shorten it, or ask in parts"
                faults.add(RefusedError(413, message), where)


def check_count(n: int, most: int) -> None:
    """`RefusedError` for more pieces of evidence than a question may have."""
    if n > most:
        raise RefusedError(413, f"evidence: too much for one request, got {n} pieces of at most {most}; send less")


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
        windows=[WindowAnswer(**_span(w.segment, root), verdict=as_answer(w.verdict, root)) for w in verdict.windows],
    )


def _span(segment: Moving, root: MediaRoot) -> dict[str, Any]:
    return {"path": root.hide(media_name(segment)), "start_s": segment.start_s, "end_s": _end_s(segment)}


def _end_s(piece: Evidence) -> float | None:
    """When a video or frames end, as far as their piece says; None for other pieces, and for faulty frames."""
    if isinstance(piece, Frames):
        return None if problems_of_evidence(piece) else piece.until_s
    return piece.end_s if isinstance(piece, VideoSegment) else None


def _named_paths(piece: dict[str, Any], rename: Callable[[str], str]) -> dict[str, Any]:
    """A piece as JSON with every path renamed."""
    one = {"path": rename(piece["path"])} if "path" in piece else {}
    return piece | one | ({"paths": [*map(rename, piece["paths"])]} if "paths" in piece else {})


def body_faults(office: Office, body: Any, faults: Faults) -> None:
    """What else is wrong with the evidence of a body that breaks its schema, so that all is said at once."""
    pieces = body.get("evidence") if isinstance(body, dict) else None
    for i, given in enumerate(pieces[: office.limits.max_evidence] if isinstance(pieces, list) else ()):
        try:
            piece = PIECE.validate_python(given).model_dump()
        except ValidationError:
            continue  # said already
        with faults.at(f"evidence[{i}]"):
            _named_paths(piece, office.root.find)


async def attribute(office: Office, request: AttributeRequest) -> AttributeAnswer:
    """Answer one request; as `Verifier.attribute`, except that a video that cannot be opened refuses it."""
    judge = office.judge(request.prior, request.operating_point)
    questions = await _questions(office, request)
    if len(questions.pairs) > office.limits.max_claims:
        count = f"{len(questions.pairs)} questions of at most {office.limits.max_claims}"
        raise RefusedError(413, f"citations: too many for one request, got {count}; cite less at once")
    (attributed,) = questions.attributions(await verdicts_of(office, questions.pairs, judge))
    point = judge.point
    return AttributeAnswer(
        claim=attributed.claim,
        recall=as_answer(attributed.recall, office.root),
        is_complete=attributed.is_complete,
        contradiction=attributed.contradiction,
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


def _shown(piece: dict[str, Any], root: MediaRoot) -> dict[str, Any]:
    return _named_paths(piece, root.hide)


async def verdicts_of(office: Office, pairs: list[Pair], judge: Judge) -> list[Verdict]:
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
            evidence=cite.evidence and _shown(evidence_to_dict(cite.evidence), office.root),
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
