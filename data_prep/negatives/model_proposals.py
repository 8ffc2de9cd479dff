"""Make refuted pairs by asking a language model for what does not hold (DualFact, appendix E), under checked rules.

The model proposes only what replaces a part of a true fact; the sentence around it is ours, so its structure is kept by
construction. Every proposal is checked by the rules of the rule-based negatives (claim_changes.py) and for what only a
model gets wrong: form, length, the fact's pattern, and repeats. A proposal that breaks a rule goes back to the model
with the complaint. Whether a proposal is plausible is left to the model.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core import ConfigError, Pair, RowError, evidence_key
from ..dataset import rank
from ..importers import Rejected, conceptual_claim, kind_of
from ..language import AnswerError, Complete, LanguageModelError, ask, parse_json
from .claim_changes import Change, Truths, changes_of, violations
from .phrases import Phrase, conceptual_value, contextual_phrase, phrase_of, segment_facts, stem
from .swapped import normal_claim
from .vocabulary import Candidate, Vocabulary, family

LONGEST_PART = 4
"""Words in a new part, unless the true one has more."""
LONGEST_WORD = 30
"""Letters of a word."""


@dataclass
class AlteringTask:
    """One claim that is to be altered in one way; `claim` and `parts` once a proposal has passed."""

    number: int
    pair: Pair
    change: Change
    phrase: Phrase | None
    claim: str | None = None
    parts: Candidate = ()
    problems: list[str] = field(default_factory=list)


@dataclass
class ProposalChecker:
    """Decides which proposals become claims; remembers the claims that are taken."""

    vocabulary: Vocabulary
    truths: Truths
    known_only: bool
    taken: set[str]
    true_in_group: Collection[str]

    @classmethod
    def of(
        cls, pairs: Sequence[Pair], vocabulary: Vocabulary, known_only: bool, true_in_group: Collection[str]
    ) -> ProposalChecker:
        texts = [pair.meta.get(key) for pair in pairs for key in ("caption", "caption_implicit")]
        captions = {caption for caption in texts if isinstance(caption, str)}
        truths = Truths.of(segment_facts(pairs), captions, vocabulary.groups)
        return cls(vocabulary, truths, known_only, {normal_claim(pair.claim) for pair in pairs}, true_in_group)

    def take(self, task: AlteringTask, answer: Any) -> None:
        """Give the task its claim if the answer passes, else its problems."""
        parts = [answer] if isinstance(answer, str) else answer
        wanted = len(task.change.roles)
        if not isinstance(parts, list) or len(parts) != wanted or not all(isinstance(part, str) for part in parts):
            task.problems = [f"needs a list of {wanted} new parts, got {answer!r}; write them as texts"]
            return
        task.parts = tuple(map(_tidied, task.change.roles, parts, task.change.true))
        task.problems = list(self._problems(task))
        if not task.problems:
            task.claim = task.change.render(task.parts)
            self.taken.add(normal_claim(task.claim))

    def _problems(self, task: AlteringTask) -> Iterator[str]:
        change, broken = task.change, False
        for role, part, true in zip(change.roles, task.parts, change.true, strict=True):
            for problem in self._part_problems(role, part, true):
                broken = True
                yield problem
        if broken:
            return
        if task.phrase is not None and not _keeps_pattern(task):
            yield f"new parts break the fact's pattern, got {change.render(task.parts)!r}; give only what is replaced"
        claim = normal_claim(change.render(task.parts))
        if claim in self.taken or claim in self.true_in_group:
            yield f"new fact is there already, got {claim!r}; use another part"
        if not self.truths.contradict(change.roles, task.parts):
            yield f"new part may hold in the segment, got {list(task.parts)}; use something that is not there at all"

    def _part_problems(self, role: str, part: str, true: str) -> Iterator[str]:
        true_values = list(dict.fromkeys([true, *self.truths.values.get(family(role), ())]))
        yield from violations(role, part, true_values, self.vocabulary)
        longest = max(LONGEST_PART, len(true.split()))
        if len(part.split()) > longest or any(len(word) > LONGEST_WORD for word in part.split()):
            yield f"new part is longer than {longest} words, got {part[:80]!r}; shorten it"
        if family(role) == "action" and part and _is_gerund(part) != _is_gerund(true):
            yield f"action has another form than the true one, got {part!r} for {true!r}; use the same form"
        if family(role) != "action" and self._is_action(role, part):
            yield f"new part is an action, got {part!r} for {true!r}; name something that fits there"
        if self.known_only and not self.vocabulary.knows(role, part):
            yield f"new part is no known {family(role)} of these data, got {part!r}; use a more usual one"

    def _is_action(self, role: str, part: str) -> bool:
        """Whether a part that should name a thing is one -ing form of a known action, and nowhere true in this role."""
        kind, counts = family(role), self.vocabulary.counts
        if len(part.split()) != 1 or not _is_gerund(part) or not self.vocabulary.groups.functions("Action", part):
            return False
        return not any((part,) in counts.get(place, ()) for place in (("family", kind), (kind,)))


def _tidied(role: str, part: str, true: str) -> str:
    """A part as it would stand in the claim: no frame, article or capital that the true one has not."""
    part = " ".join(part.split()).rstrip(".").strip()
    part = re.sub(rf"^{re.escape(role)} is ", "", part, flags=re.IGNORECASE)
    if not re.match(r"(a|an|the) ", true, re.IGNORECASE):
        part = re.sub(r"^(a|an|the) ", "", part, flags=re.IGNORECASE)
    return part.lower() if true.islower() else part


def _is_gerund(verb: str) -> bool:
    word = verb.split()[0].casefold()
    return word.endswith("ing") and stem(word) != word  # "bring" is its own stem


def _keeps_pattern(task: AlteringTask) -> bool:
    """Whether the new sentence reads back as the old phrase with just the asked parts exchanged."""
    assert task.phrase is not None
    text = contextual_phrase("contextual", task.change.render(task.parts))
    phrase = phrase_of(text) if text else None
    if phrase is None or [word for word, _ in phrase.relations] != [word for word, _ in task.phrase.relations]:
        return False
    both = zip(_parts(task.phrase), _parts(phrase), strict=True)
    exchanged = tuple(new for old, new in both if old != new)
    return tuple(part.casefold() for part in exchanged) == tuple(part.casefold() for part in task.parts)


def _parts(phrase: Phrase) -> list[str]:
    return [phrase.verb, phrase.object, *(argument for _, argument in phrase.relations)]


KINDS = ("conceptual", "A", "B", "C", "D", "E")
"""What can be altered: the value of a conceptual fact, or a contextual one by DualFact's error types."""
TASKS_PER_REQUEST = 20

INSTRUCTIONS = """You write false facts to train a fact checker. You are given what is true of one short video \
segment, and numbered tasks. Each task is a true fact of which one or two parts are to be replaced, so that the fact \
becomes false for this segment.

Rules for a new part:
- It takes the place of the old part word for word: an action for an action in the same grammatical form, a tool for a \
tool, and so on. No article, at most four words.
- The new fact contradicts what is true of the segment. Another spelling, singular or plural, number, amount or \
property is not enough.
- It is possible and ordinary in the same line of work (cooking, crafts, assembly, medical procedures, ...), and only \
wrong here. No nonsense.
- It shares no word, no stem and no run of letters with any true part of the same kind. It is no synonym, no more \
general or more special term, and no part of a true one.
- Action: a verb that serves another purpose, and that does not usually go along with the true one.
- Object, ingredient or material: an unrelated thing of the same line of work, no close substitute.
- Tool: one for clearly different work, unsuited to the true action.
- Location: a place where such work could happen, but not this action.
- Do not give the same new part to tasks that replace the same old part.

Answer with one JSON object and nothing else: the number of each task, and the list of its new parts in the order asked.
Example: {"1": ["measuring"], "2": ["hammer"], "3": ["sand", "plank"]}"""


def altered_by_model(
    pairs: Sequence[Pair],
    complete: Complete,
    vocabulary: Vocabulary,
    kinds: Collection[str] = KINDS,
    per_claim: int = 1,
    *,
    attempts: int = 3,
    known_only: bool = False,
    true_in_group: Collection[str] = (),
) -> tuple[list[Pair], list[Rejected]]:
    """`per_claim` altered pairs for every supported pair of one segment that has one of the `kinds`.

    Args:
        pairs: all pairs of one piece of evidence; their order does not matter.
        complete: the language model.
        vocabulary: of the whole data set.
        kinds: of `KINDS`. A contextual claim's types take turns; C and D need a tool or location in the claim.
        per_claim: altered pairs per claim.
        attempts: how often the model is asked for the same claims, the complaints added.
        known_only: a part must hold a word that is true somewhere in the data set or in its word groups. A word that is
            only ever false can be recognised from text alone.
        true_in_group: normalised claims that hold in the segment's group: never made.

    Returns:
        The refuted pairs, by their claims' ids, and one entry for every claim that could not be altered.

    Raises:
        ConfigError: an unknown kind.
        RowError: pairs of several pieces of evidence.
    """
    if unknown := sorted(set(kinds) - set(KINDS)):
        raise ConfigError(f"altered_by_model: unknown kinds, got {unknown}; use some of {list(KINDS)}")
    if len({evidence_key(pair.evidence) for pair in pairs}) > 1:
        raise RowError("altered_by_model: pairs must share one evidence, got several; call it once for each segment")
    supported = sorted((pair for pair in pairs if pair.label == "supported"), key=lambda pair: pair.id)
    checker = ProposalChecker.of(pairs, vocabulary, known_only, true_in_group)
    tasks, rejected = _tasks(supported, vocabulary, kinds, per_claim)
    for start in range(0, len(tasks), TASKS_PER_REQUEST):
        _work_off(tasks[start : start + TASKS_PER_REQUEST], supported, complete, checker, attempts)
    made = [_pair(task) for task in tasks if task.claim is not None]
    rejected += [_rejected(task.pair, "; ".join(task.problems)) for task in tasks if task.claim is None]
    return made, rejected


def _tasks(
    supported: Sequence[Pair], vocabulary: Vocabulary, kinds: Collection[str], per_claim: int
) -> tuple[list[AlteringTask], list[Rejected]]:
    tasks: list[AlteringTask] = []
    rejected: list[Rejected] = []
    for pair in supported:
        value, phrase = conceptual_value(pair.role, pair.claim), None
        if value is not None:
            changes = [_conceptual_change(pair.role, value)] if "conceptual" in kinds else []
        elif text := contextual_phrase(pair.role, pair.claim):
            phrase = phrase_of(text)
            changes = [] if phrase is None else changes_of(phrase, vocabulary.groups)
            changes = [change for change in changes if change.origin[-1] in kinds]
        if value is None and phrase is None:
            rejected.append(_rejected(pair, f"claim is no fact with parts, got {pair.claim!r}; see docs/negatives.md"))
            continue
        first = int(rank(0, pair.id)[:8], 16)
        for turn in range(per_claim if changes else 0):
            tasks.append(AlteringTask(len(tasks) + 1, pair, changes[(first + turn) % len(changes)], phrase))
    return tasks, rejected


def _conceptual_change(role: str, value: str) -> Change:
    return Change("altered_claim", role, (role,), (value,), (), lambda parts: conceptual_claim(role, parts[0]))


def _work_off(
    tasks: Sequence[AlteringTask],
    supported: Sequence[Pair],
    complete: Complete,
    checker: ProposalChecker,
    attempts: int,
) -> None:
    """Ask until every task has a claim, or the attempts are used up, or the model cannot be reached."""

    def parse(text: str) -> None:
        waiting = [task for task in tasks if task.claim is None]
        try:
            answers = parse_json(text)
            if not isinstance(answers, dict):
                raise ValueError(f'the answer must be an object, got a {type(answers).__name__}; write {{"1": [...]}}')
        except ValueError as error:
            for task in waiting:
                task.problems = [str(error)]
            raise
        for task in waiting:
            checker.take(task, answers.get(str(task.number)))
        if left := [task for task in waiting if task.claim is None]:
            complaints = "\n".join(f"- task {task.number}: {'; '.join(task.problems)}" for task in left)
            raise ValueError(f"some tasks are not done. Give new parts for these only.\n{complaints}")

    try:
        ask(complete, _messages(tasks, supported), parse, attempts)
    except LanguageModelError as error:
        for task in tasks:
            if task.claim is None and not isinstance(error, AnswerError):
                task.problems = [f"language model gave no answer, got {error}; build again later"]


def _messages(tasks: Sequence[AlteringTask], supported: Sequence[Pair]) -> list[dict[str, str]]:
    facts = "\n".join(f"- {claim}" for claim in dict.fromkeys(pair.claim for pair in supported))
    lines = "\n".join(f"{task.number}. {task.pair.claim} Replace {_replaced_part(task.change)}." for task in tasks)
    return [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": f"True of the segment:\n{facts}\n\nTasks:\n{lines}"},
    ]


def _replaced_part(change: Change) -> str:
    names = change.replaced.split(", ") if len(change.roles) > 1 else [change.replaced]
    return " and ".join(f'the {name} "{true}"' for name, true in zip(names, change.true, strict=True))


def _pair(task: AlteringTask) -> Pair:
    assert task.claim is not None
    change = task.change
    return dataclasses.replace(
        task.pair,
        id=f"{task.pair.id}/altered_by_model/{rank(0, normal_claim(task.claim))[:8]}",
        claim=task.claim,
        label="refuted",
        soft_label=None,
        origin=change.origin.replace("altered_claim", "altered_by_model"),
        teacher_margin=None,
        meta={
            "claim_of": task.pair.id,
            "replaced": change.replaced,
            "true": " ".join(change.true),
            "altered": " ".join(task.parts),
        },
    )


def _rejected(pair: Pair, reason: str) -> Rejected:
    return Rejected("altered_by_model", None, pair.id, kind_of(reason), reason, pairs=1, blocking=False)
