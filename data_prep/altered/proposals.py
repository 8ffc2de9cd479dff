"""Check what a language model proposes in place of a part of a true fact (DualFact, appendix E).

The rules on words are those of the rule-based negatives (altered_rules.py). Added here is what a model may get wrong
and a drawn value cannot: form, length, the fact's pattern, and repeats.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.pairs import Pair
from ..negatives import normal_claim
from .altered_contextual import Change
from .altered_rules import Truths, violations
from .phrases import Phrase, contextual_phrase, phrase_of, segment_facts
from .stems import stem
from .vocabulary import Candidate, Vocabulary
from .word_groups import family

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
        told = [pair.meta.get(key) for pair in pairs for key in ("caption", "caption_implicit")]
        captions = {caption for caption in told if isinstance(caption, str)}
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
