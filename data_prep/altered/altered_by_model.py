"""Make refuted pairs by asking a language model for what does not hold (DualFact, appendix E), under checked rules.

The model proposes only what replaces a part of a true fact; the sentence around it is ours, so its structure is kept by
construction. Every proposal goes through the validator of the rule-based negatives (altered_rules.py), and what breaks
a rule goes back to the model with the complaint. Whether a proposal is plausible is left to the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from ...core.errors import ConfigError, RowError
from ...core.pairs import Pair, evidence_key
from ..importers.facts import conceptual_claim
from ..language.answers import AnswerError, Complete, LanguageModelError, ask, parse_json
from ..negatives import normal_claim
from ..records import Rejected, kind_of
from ..splits import rank
from .altered_contextual import Change, changes_of
from .phrases import conceptual_value, contextual_phrase, phrase_of
from .proposals import AlteringTask, ProposalChecker
from .vocabulary import Vocabulary

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
            only ever false can be told from text alone.
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
    lines = "\n".join(f"{task.number}. {task.pair.claim} Replace {_asked(task.change)}." for task in tasks)
    return [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": f"True of the segment:\n{facts}\n\nTasks:\n{lines}"},
    ]


def _asked(change: Change) -> str:
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
