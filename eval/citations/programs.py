"""Program-aided answers (MuRGAt, section 5.4, appendix C): a model plans, tools run the plan, a verifier checks steps.

    plan -> find_event (a verifier over windows) -> describe -> check -> synthesize -> check -> a response that cites

`describe` sees one span, `synthesize` descriptions alone; what they write carries citations by construction. After
each of the two, every sentence is judged on the video it cites; where one is not supported, the model writes again,
once, and is told which; what then is not supported is left out. A sentence that could not be judged stays: a failure is
no "no".

Where this departs from the paper: plans are data (`plans`); the planner of an imperative plan is shown no video; the
check of `synthesize` is against the video too, not against the descriptions (a verifier reads videos); the paper does
not say what follows a failed check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core import (
    Citation,
    MediaError,
    ModelInputError,
    Pair,
    ProofreelError,
    cited_sentences,
    evidence_key,
    parse_citations,
    render_citations,
)
from ...data_prep.language import Complete, LanguageModelError, ask
from ...models.verifier import EvidenceReader, Sources
from ..scores import JudgePairs, Judgment
from .answers import prompt, without_thoughts
from .moments import FindMoments, Found, Search
from .plans import (
    Choose,
    Condition,
    Describe,
    FindEvent,
    ForEach,
    Plan,
    Step,
    Synthesize,
    Variant,
    parse_plan,
    plan_lines,
)
from .views import CaptionView, View, evidence_at, message_of, text_part

MAX_MOMENTS = 8
_MARKS = re.compile(r"\s*((?:\[\d+(?:\s*,\s*\d+)*\]\s*)+)")
_ANSWER = re.compile(r"^\W*answer\W*:\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
_REASONING = re.compile(r"^\W*reasoning\W*:\s*", re.IGNORECASE)


class ProgramError(ProofreelError):
    """A question that got no answer: a step of its program failed."""


@dataclass(frozen=True)
class Question:
    """What is asked about a video; `record` is the row it came from."""

    id: str
    video: str
    question: str
    options: tuple[str, ...] = ()
    record: dict[str, Any] = field(default_factory=dict)


Claims = Sequence[tuple[str, tuple[Citation, ...]]]
DescribeSpan = Callable[[str, Citation, str, Sequence[str]], str]
"""From a video, a span, an instruction and sentences that are not supported to sentences about the span."""
CheckClaims = Callable[[str, Claims], list[Judgment]]
"""Whether a video shows claims where they cite it."""


@dataclass(frozen=True)
class Tools:
    """What plans run on.

    Attributes:
        complete: the model that plans and synthesizes.
        view: what it is shown for a declarative plan.
        find: find_event.
        describe: describe.
        check: the verifier.
    """

    complete: Complete
    view: View
    find: FindMoments
    describe: DescribeSpan
    check: CheckClaims


def described_by(complete: Complete, view: View) -> DescribeSpan:
    """Descriptions by a language model that is shown the span."""

    def describe(video: str, citation: Citation, instruction: str, unsupported: Sequence[str]) -> str:
        refused = "".join(f"\nNot shown there, leave it out: {sentence}" for sentence in unsupported)
        asked = text_part("\n" + prompt("murgat_describe", instruction=instruction, refused=refused))
        return ask(complete, message_of([*view.span(video, citation), asked]), _description)

    return describe


def described_by_captions(captions: CaptionView) -> DescribeSpan:
    """Descriptions that were given: the captions that overlap the span, word by word."""

    def describe(video: str, citation: Citation, instruction: str, unsupported: Sequence[str]) -> str:
        return " ".join(cue.text for cue in captions.within(video, citation))

    return describe


def checked_by(judge: JudgePairs, reader: EvidenceReader, sources: Callable[[str], Sources]) -> CheckClaims:
    """Claims judged on all they cite together."""

    def check(video: str, claims: Claims) -> list[Judgment]:
        pairs: list[Pair | str] = []  # or why there is none
        for claim, citations in claims:
            try:
                evidences = {evidence_at(cite, sources(video), reader) for cite in citations}
            except MediaError as error:
                pairs.append(str(error))
                continue
            in_order = sorted(evidences, key=lambda e: (getattr(e, "start_s", None) or 0.0, evidence_key((e,))))
            pairs.append(Pair(str(len(pairs)), claim, tuple(in_order)))
        judged = judge([pair for pair in pairs if isinstance(pair, Pair)]).of
        return [judged[pair.id] if isinstance(pair, Pair) else Judgment(None, error=pair) for pair in pairs]

    return check


def answer_by_program(question: Question, variant: Variant, tools: Tools) -> dict[str, Any]:
    """The question's record with a response that cites, its plan and its trace; or with `program_error`.

    What would fail for every question (a wrong key, an endpoint that is down) is raised. Keys are those of the
    published files: `model_generation`, `generated_plan`, `parsed_program`, `execution_trace`.
    """
    record = {**question.record, "id": question.id, "video": question.video, "question": question.question}
    run = _Run(question, tools)
    try:
        plan, text = _planned(question, variant, tools)
        record |= {"generated_plan": text, "parsed_program": [*plan_lines(plan.steps), _answer_line(plan.answer)]}
        record["model_generation"] = run.answer(plan)
    except (LanguageModelError, MediaError, ModelInputError, ProgramError) as error:
        record["program_error"] = str(error)
    return record | {"execution_trace": run.trace}


def _planned(question: Question, variant: Variant, tools: Tools) -> tuple[Plan, str]:
    def parse(text: str) -> tuple[Plan, str]:
        try:
            return parse_plan(text, variant), without_thoughts(text)
        except ValueError as error:
            raise ValueError(f"{error}; in {text.strip()[:300]!r}") from error

    calls = prompt(f"murgat_plan_{variant.name.replace('-', '_')}")
    asked = prompt("murgat_plan", calls=calls, question=question.question, options=_listed(question.options))
    shown = tools.view.whole(question.video) if variant.grounding == "declarative" else []
    return ask(tools.complete, message_of([*shown, text_part(asked)]), parse)


@dataclass(frozen=True)
class _Item:
    """A piece of evidence for the answer."""

    text: str
    citations: tuple[Citation, ...]


class _Run:
    """One plan under way: what was found and described so far."""

    def __init__(self, question: Question, tools: Tools) -> None:
        self.question, self.tools, self.trace = question, tools, list[dict[str, Any]]()
        self._found: dict[str, Found] = {}  # of every find_event, before its turn: windows are encoded once for all
        self._queries: dict[str, str] = {}
        self._events: dict[str, Found] = {}
        self._items: dict[str, list[_Item]] = {}
        self._supported: dict[str, bool] = {}  # of a description, the last time it was made

    def answer(self, plan: Plan) -> str:
        searches = {step.name: step for step in _every(plan.steps) if isinstance(step, FindEvent)}
        asked = [Search(self.question.video, step.query, (step.modality,)) for step in searches.values()]
        self._found = dict(zip(searches, self.tools.find(asked) if asked else [], strict=True))
        self._run(plan.steps)
        return self._synthesized(plan.answer)

    def _run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, FindEvent):
                self._find(step)
            elif isinstance(step, Describe):
                self._describe(step)
            elif isinstance(step, ForEach):
                for moment in self._moments(step.event):
                    self._events[step.item] = Found((moment,))
                    self._run(step.steps)
            else:
                holds = self._holds(step.condition)
                self.trace.append({"if": f"{step.condition.kind}({step.condition.subject})", "holds": holds})
                self._run(step.then if holds else step.otherwise)

    def _find(self, step: FindEvent) -> None:
        found = self._found[step.name]
        if found.error is not None and not found.moments:
            raise ProgramError(f"find_event {step.query!r}: {found.error}")
        self._events[step.name], self._queries[step.name] = found, step.query
        entry = {"find_event": step.query, "moments": [moment.citation.text for moment in found.moments]}
        self.trace.append(entry | ({"error": found.error} if found.error else {}))

    def _moments(self, event: str) -> Sequence[Any]:
        """The surest moments of an event, in order of time; none of one that a branch left out."""
        moments = self._events[event].moments if event in self._events else ()
        kept = sorted(moments, key=lambda moment: -moment.p_supported)[:MAX_MOMENTS]
        return [moment for moment in moments if moment in kept]

    def _describe(self, step: Describe) -> None:
        cites = step.at or tuple(moment.citation for moment in self._moments(step.event or ""))
        supported = []
        for cite in cites:
            text, judged = self._described(step.instruction, cite)
            kept = [sentence for sentence, judgment in judged if judgment.supported is not False]
            entry = {"describe": step.name, "at": cite.text, "text": text, "checks": _checks(judged)}
            self.trace.append(entry)
            supported.append(bool(kept) and all(judgment.supported for _, judgment in judged))
            if kept:
                self._items.setdefault(step.name, []).append(_Item(" ".join(kept), (cite,)))
        self._supported[step.name] = bool(supported) and all(supported)

    def _described(self, instruction: str, cite: Citation) -> tuple[str, list[tuple[str, Judgment]]]:
        """A description and each sentence's judgment; described again, once, where a sentence is not supported."""
        refused: list[str] = []
        while True:
            text = self.tools.describe(self.question.video, cite, instruction, refused)
            sentences = cited_sentences(text)
            judged = list(zip(sentences, self._judged([(s, (cite,)) for s in sentences]), strict=True))
            unsupported = [sentence for sentence, judgment in judged if judgment.supported is False]
            if refused or not unsupported:
                return text, judged
            refused = unsupported

    def _judged(self, claims: Claims) -> list[Judgment]:
        return self.tools.check(self.question.video, claims) if claims else []

    def _holds(self, condition: Condition) -> bool:
        if condition.kind == "supported":
            return self._supported.get(condition.subject, False)
        n = len(self._events[condition.subject].moments) if condition.subject in self._events else 0
        return n >= (1 if condition.kind == "found" else condition.at_least)

    def _synthesized(self, step: Synthesize) -> str:
        items = [item for name in dict.fromkeys(step.evidence) for item in self._evidence(name)]
        if not items:
            raise ProgramError(f"synthesize: nothing was found or described of {list(step.evidence)}")
        listed = "\n".join(f"[{n}] {item.text}" for n, item in enumerate(items, 1))
        values = {"question": self.question.question, "options": _listed(self.question.options)}
        values |= {"evidence": listed, "instruction": step.instruction}
        refused: list[str] = []
        while True:
            said = "".join(f"\nNot shown by what it cites, leave it out: {sentence}" for sentence in refused)
            asked = message_of([text_part(prompt("murgat_synthesize", **values, refused=said))])
            text, letter = ask(self.tools.complete, asked, lambda text: _cited_answer(text, items))
            sentences = cited_sentences(text)
            cited = [parse_citations(sentence) for sentence in sentences]
            claims = [(each.text, each.citations) for each in cited if each.citations]
            judged = dict(zip([claim for claim, _ in claims], self._judged(claims), strict=True))
            unsupported = [claim for claim, judgment in judged.items() if judgment.supported is False]
            if refused or not unsupported:
                break
            refused = unsupported
        kept = [
            s for s, each in zip(sentences, cited, strict=True) if each.text not in unsupported or not each.citations
        ]
        self.trace.append({"synthesize": step.instruction, "text": text, "checks": _checks(judged.items())})
        if not any(parse_citations(sentence).citations for sentence in kept):
            raise ProgramError(f"synthesize: no sentence is supported by what it cites, got {text[:300]!r}")
        self.trace.append({"final_output": (output := f"Reasoning: {' '.join(kept)}\nAnswer: {letter}")})
        return output

    def _evidence(self, name: str) -> list[_Item]:
        """Descriptions of that name, or one item for an event: how often it was found, and when."""
        if name not in self._events:
            return self._items.get(name, [])
        cites = tuple(moment.citation for moment in self._events[name].moments)
        return [_Item(f"Found {len(cites)} times: {self._queries[name]}", cites)]


def _description(text: str) -> str:
    """Sentences without citations; none for the answer NONE."""
    text = without_thoughts(text)
    if not text or parse_citations(text).items:
        raise ValueError(f"write sentences without times or citations, or NONE, got {text[:200]!r}")
    return "" if text.strip(" .").upper() == "NONE" else text


def _cited_answer(text: str, items: Sequence[_Item]) -> tuple[str, str]:
    """The reasoning with citations in the place of its marks, and the answer."""
    text = without_thoughts(text)
    answers = list(_ANSWER.finditer(text))
    if not answers:
        raise ValueError(f"the last line reads `Answer: ...`, got {text[-200:]!r}")
    reasoning = _REASONING.sub("", text[: answers[-1].start()]).strip()
    if parse_citations(reasoning).items or not _MARKS.search(reasoning):
        raise ValueError(f"cite evidence by its number, as [1], and in no other way, got {reasoning[:200]!r}")

    def cites(match: re.Match[str]) -> str:
        numbers = [int(number) for number in re.findall(r"\d+", match[1])]
        if wrong := [number for number in numbers if not 1 <= number <= len(items)]:
            raise ValueError(f"evidence has the numbers 1 to {len(items)}, got {wrong} in {reasoning[:200]!r}")
        places = dict.fromkeys(cite for number in numbers for cite in items[number - 1].citations)
        gap = " " if match[0][-1:].isspace() else ""
        return f" {render_citations(places)}{gap}" if places else gap

    return _MARKS.sub(cites, reasoning), answers[-1][1]


def _every(steps: Sequence[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        if isinstance(step, ForEach):
            yield from _every(step.steps)
        elif isinstance(step, Choose):
            yield from _every((*step.then, *step.otherwise))


def _checks(judged: Any) -> list[dict[str, Any]]:
    return [{"sentence": s, "supported": j.supported} | ({"error": j.error} if j.error else {}) for s, j in judged]


def _listed(options: Sequence[str]) -> str:
    return "\n".join(options) or "(none: answer in a few words)"


def _answer_line(step: Synthesize) -> str:
    return f"synthesize([{', '.join(step.evidence)}], {step.instruction!r})"
