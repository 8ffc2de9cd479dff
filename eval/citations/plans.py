"""Plans of program-aided answers (MuRGAt, section 5.4 and appendix C): parsed data, never code that is run.

Two axes make four variants. Reasoning: a narrative plan is a list of `describe` steps that ends in one `synthesize`; a
logic plan may branch (`if`) and repeat (`for_each`) as well. Grounding: in a declarative plan `describe` names times,
in an imperative plan it names what an earlier `find_event` finds.

    {"steps": [{"do": "find_event", "name": "notes", "query": "A high note is played.", "modality": "audio"},
               {"do": "for_each", "of": "notes", "as": "note", "steps": [
                   {"do": "describe", "name": "heard", "event": "note", "instruction": "Is the note high?"}]},
               {"do": "if", "condition": {"count": "notes", "at_least": 2}, "then": [...], "else": [...]},
               {"do": "synthesize", "evidence": ["heard", "notes"], "instruction": "Count the high notes."}]}

The paper writes logic plans as Python and runs them; a plan here is JSON with the same calls, loops and conditions. A
condition is one of: an event was found (`found`), it was found at least so often (`count`, `at_least`), the verifier
supports a description (`supported`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ...core import Citation, CitedModality, parse_citation_list
from ...data_prep.language import parse_json

Reasoning = Literal["logic", "narrative"]
Grounding = Literal["declarative", "imperative"]
MAX_STEPS = 40
MAX_DEPTH = 4
_MODALITIES = get_args(CitedModality)


@dataclass(frozen=True)
class Variant:
    """One of the four ways to plan."""

    reasoning: Reasoning
    grounding: Grounding

    @property
    def name(self) -> str:
        """E.g. "logic-imperative"."""
        return f"{self.reasoning}-{self.grounding}"


VARIANTS = {v.name: v for v in (Variant(r, g) for r in get_args(Reasoning) for g in get_args(Grounding))}


@dataclass(frozen=True)
class FindEvent:
    """Finds where `query`, a claim, holds."""

    name: str
    query: str
    modality: CitedModality


@dataclass(frozen=True)
class Describe:
    """Describes times that the plan names (`at`), or each moment of an event."""

    name: str
    instruction: str
    at: tuple[Citation, ...] = ()
    event: str | None = None


@dataclass(frozen=True)
class Synthesize:
    """Answers from descriptions and found events, without the video."""

    evidence: tuple[str, ...]
    instruction: str


@dataclass(frozen=True)
class Condition:
    """`subject` is an event for "found" and "count", a description for "supported"."""

    kind: Literal["found", "count", "supported"]
    subject: str
    at_least: int = 1


@dataclass(frozen=True)
class Choose:
    """One of two lists of steps."""

    condition: Condition
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@dataclass(frozen=True)
class ForEach:
    """Steps for each moment of an event, which they call `item`; their descriptions add up under their names."""

    event: str
    item: str
    steps: tuple[Step, ...]


Step = FindEvent | Describe | Choose | ForEach


@dataclass(frozen=True)
class Plan:
    """Steps and the answer made of them."""

    steps: tuple[Step, ...]
    answer: Synthesize


def parse_plan(text: str, variant: Variant) -> Plan:
    """The plan that a language model wrote.

    Raises:
        ValueError: it is no plan of this variant; the message quotes what is wrong.
    """
    value = parse_json(text)
    steps = value.get("steps") if isinstance(value, dict) else None
    if not isinstance(steps, list) or not steps or not all(isinstance(step, dict) for step in steps):
        raise ValueError(f'a plan is {{"steps": [{{"do": ...}}, ...]}}, got {_quoted(value)}')
    if steps[-1].get("do") != "synthesize":
        raise ValueError(f"the last step is synthesize, got {_quoted(steps[-1])}")
    reading = _Reading(variant)
    parsed = reading.steps(steps[:-1])
    return Plan(parsed, reading.answer(steps[-1]))


class _Reading:
    """Reads steps in order: a name must stand before it is used, and stands once."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.kinds: dict[str, Literal["event", "description"]] = {}
        self.n_steps = 0

    def steps(self, given: Any, depth: int = 1) -> tuple[Step, ...]:
        if not isinstance(given, list) or not all(isinstance(step, dict) for step in given):
            raise ValueError(f"steps are a list of objects, got {_quoted(given)}")
        if depth > MAX_DEPTH:
            raise ValueError(f"steps stand at most {MAX_DEPTH} deep, got {_quoted(given)}")
        return tuple(self._step(step, depth) for step in given)

    def _step(self, step: Mapping[str, Any], depth: int) -> Step:
        self.n_steps += 1
        if self.n_steps > MAX_STEPS:
            raise ValueError(f"a plan has at most {MAX_STEPS} steps, got more, from {_quoted(step)} on; plan less")
        logic, imperative = self.variant.reasoning == "logic", self.variant.grounding == "imperative"
        do = step.get("do")
        if do == "describe":
            return self._describe(step)
        if do == "find_event" and imperative:
            return self._find_event(step)
        if do == "for_each" and imperative and logic:
            return self._for_each(step, depth)
        if do == "if" and logic:
            return self._choose(step, depth)
        calls = ["describe", *(["find_event"] if imperative else []), *(["if"] if logic else [])]
        calls += ["for_each"] if imperative and logic else []
        raise ValueError(f"a {self.variant.name} plan does one of {calls}, then synthesize, got {_quoted(step)}")

    def _find_event(self, step: Mapping[str, Any]) -> FindEvent:
        _keys(step, {"do", "name", "query"}, {"modality"})
        modality = step.get("modality", "visual")
        if modality not in _MODALITIES:
            raise ValueError(f"modality is one of {list(_MODALITIES)}, got {_quoted(step)}")
        return FindEvent(self._new(step, "name", "event"), _words(step, "query"), modality)

    def _describe(self, step: Mapping[str, Any]) -> Describe:
        place = "event" if self.variant.grounding == "imperative" else "at"
        _keys(step, {"do", "name", place, "instruction"})
        if place == "event":
            event = self._known(step["event"], "event", step)
            return Describe(self._new(step, "name", "description"), _words(step, "instruction"), event=event)
        cites = parse_citation_list(_words(step, "at"))
        at = tuple(cite for cite in cites if isinstance(cite, Citation))
        if len(at) < len(cites):
            raise ValueError(f'at is a time such as "visual, 0:03-0:05", got {_quoted(step)}')
        return Describe(self._new(step, "name", "description"), _words(step, "instruction"), at)

    def _for_each(self, step: Mapping[str, Any], depth: int) -> ForEach:
        _keys(step, {"do", "of", "as", "steps"})
        event, item = self._known(step["of"], "event", step), self._new(step, "as", "event")
        steps = self.steps(step["steps"], depth + 1)
        del self.kinds[item]  # stands for one moment, inside alone
        return ForEach(event, item, steps)

    def _choose(self, step: Mapping[str, Any], depth: int) -> Choose:
        _keys(step, {"do", "condition", "then"}, {"else"})
        return Choose(
            self._condition(step["condition"]),
            self.steps(step["then"], depth + 1),
            self.steps(step.get("else", []), depth + 1),
        )

    def _condition(self, given: Any) -> Condition:
        forms = '{"found": event}, {"count": event, "at_least": number}, {"supported": description}'
        keys = set(given) if isinstance(given, dict) else set()
        if keys == {"found"}:
            return Condition("found", self._known(given["found"], "event", given))
        if keys == {"count", "at_least"} and type(given["at_least"]) is int:
            return Condition("count", self._known(given["count"], "event", given), given["at_least"])
        if keys == {"supported"}:
            return Condition("supported", self._known(given["supported"], "description", given))
        raise ValueError(f"a condition is one of {forms}, got {_quoted(given)}")

    def answer(self, step: Mapping[str, Any]) -> Synthesize:
        _keys(step, {"do", "evidence", "instruction"}, {"name"})
        names = step["evidence"]
        if not isinstance(names, list) or not names or any(name not in self.kinds for name in map(str, names)):
            raise ValueError(f"evidence lists names of earlier steps, {sorted(self.kinds)}, got {_quoted(step)}")
        return Synthesize(tuple(map(str, names)), _words(step, "instruction"))

    def _new(self, step: Mapping[str, Any], key: str, kind: Literal["event", "description"]) -> str:
        name = _words(step, key)
        if name in self.kinds:
            raise ValueError(f"a name stands for one step, got {name!r} twice: {_quoted(step)}")
        self.kinds[name] = kind
        return name

    def _known(self, name: Any, kind: str, step: Any) -> str:
        if not isinstance(name, str) or self.kinds.get(name) != kind:
            known = sorted(each for each, of in self.kinds.items() if of == kind)
            raise ValueError(f"{kind} must be one of the earlier steps {known}, got {_quoted(step)}")
        return name


def _keys(step: Mapping[str, Any], needed: set[str], optional: Sequence[str] | set[str] = ()) -> None:
    if not needed <= set(step) <= needed | set(optional):
        raise ValueError(f"{step.get('do')} has {sorted(needed)}, got {_quoted(step)}")


def _words(step: Mapping[str, Any], key: str) -> str:
    if not isinstance(step[key], str) or not step[key].strip():
        raise ValueError(f"{key} must be words, got {_quoted(step)}")
    return step[key].strip()


def _quoted(value: Any) -> str:
    return f"{value!r:.200}"


def plan_lines(steps: Sequence[Step], indent: str = "") -> list[str]:
    """Steps as people read them, a line each."""
    lines = []
    for step in steps:
        if isinstance(step, FindEvent):
            lines.append(f"{indent}{step.name} = find_event({step.query!r}, {step.modality!r})")
        elif isinstance(step, Describe):
            place = step.event or "; ".join(cite.text for cite in step.at)
            lines.append(f"{indent}{step.name} = describe({place}, {step.instruction!r})")
        elif isinstance(step, ForEach):
            lines += [f"{indent}for {step.item} in {step.event}:", *plan_lines(step.steps, f"{indent}    ")]
        else:
            c = step.condition
            at_least = f" >= {c.at_least}" if c.kind == "count" else ""
            lines += [f"{indent}if {c.kind}({c.subject}){at_least}:", *plan_lines(step.then, f"{indent}    ")]
            lines += [f"{indent}else:", *plan_lines(step.otherwise, f"{indent}    ")] if step.otherwise else []
    return lines
