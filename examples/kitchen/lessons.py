"""What the base is taught to say about a clip: questions and answers. Never a claim to judge, never a yes or a no.

Each lesson is one user turn and one answer. Besides describing and naming, there are questions with a choice ("carrot
or tomato?"), as in any captioner's instruction data: to read a word and find it in the picture is a skill of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from .vocabulary import ROLES, VALUES, Facts, all_facts, caption, conceptual, contextual

T = TypeVar("T")

SYSTEM = "Watch the clip and answer."
DESCRIBE = "Describe the step."
LIST_FACTS = "List the facts."
BRIEFLY = "Say it briefly."
FOLLOW = "Follow the tool."
RELATION_QUESTIONS = {
    "act/ing": "What is done to the ingredient?",
    "act/with": "What is done with the tool?",
    "act/where": "What is done where?",
}
MOST_CHOICES = 3
COMPASS = ("right", "up right", "up", "up left", "left", "down left", "down", "down right")
REST_PX = 1.5  # a shorter way between two frames is rest


@dataclass(frozen=True)
class Lesson:
    """One question and the one right answer."""

    question: str
    answer: str


def draw_lessons(
    rng: np.random.Generator, facts: Facts, lying: Mapping[str, Sequence[str]], path_F2: np.ndarray
) -> list[Lesson]:
    """Some lessons about one clip: its caption, two that name, relate or follow, and two with a choice.

    Args:
        rng: decides which.
        facts: what is true of the clip.
        lying: role -> what is visible but not used; choices are made hard with it.
        path_F2: where the tool is in each frame, pixels, y down.
    """
    facts_told = pick(rng, [*name_roles(facts), *relate(facts), Lesson(FOLLOW, follow(path_F2))], 2)
    chosen = choose_value(rng, facts, ROLES[rng.integers(len(ROLES))], lying)
    return [Lesson(DESCRIBE, caption(facts)), *facts_told, chosen, choose_event(rng, facts, lying)]


def follow(path_F2: np.ndarray) -> str:
    """Which way the tool goes from each frame to the next: "up, up left, rest"."""
    steps = np.diff(path_F2, axis=0)
    octants = np.round(np.arctan2(-steps[:, 1], steps[:, 0]) / (np.pi / 4)).astype(int) % len(COMPASS)
    rests = np.hypot(*steps.T) < REST_PX
    return ", ".join("rest" if rest else COMPASS[octant] for rest, octant in zip(rests, octants, strict=True))


def name_roles(facts: Facts) -> list[Lesson]:
    """One question for each role, and one for all of them."""
    named = [f"{role} is {value}." for role, value in conceptual(facts).items()]
    role_questions = [Lesson(f"What is the {role.lower()}?", answer) for role, answer in zip(ROLES, named, strict=True)]
    return [*role_questions, Lesson(LIST_FACTS, " ".join(named))]


def relate(facts: Facts) -> list[Lesson]:
    """The action with each of its arguments, and the whole event."""
    questions = [*RELATION_QUESTIONS.values(), BRIEFLY]
    return [Lesson(q, sentence(phrase)) for q, phrase in zip(questions, contextual(facts).values(), strict=True)]


def choose_value(rng: np.random.Generator, facts: Facts, role: str, lying: Mapping[str, Sequence[str]]) -> Lesson:
    """Which of two or three values of a role is shown, those that lie about unused first among the wrong ones."""
    true = conceptual(facts)[role]
    wrong = [conceptual(replace(facts, **{role.lower(): v}))[role] for v in foils(rng, facts, role, lying)]
    return Lesson(f"Which {role.lower()}: {_options(rng, [true, *wrong])}?", f"{role} is {true}.")


def choose_event(rng: np.random.Generator, facts: Facts, lying: Mapping[str, Sequence[str]]) -> Lesson:
    """Which of two events is shown: a relation, or the same relation with one value changed."""
    relations = list(contextual(facts))
    at = int(rng.integers(len(relations)))
    roles = ("Action", *(("Ingredient",), ("Tool",), ("Location",), ROLES[1:])[at])
    role = roles[rng.integers(len(roles))]
    other = replace(facts, **{role.lower(): foils(rng, facts, role, lying)[0]})
    true, wrong = (list(contextual(f).values())[at] for f in (facts, other))
    return Lesson(f"Which event: {_options(rng, [true, wrong])}?", sentence(true))


def foils(rng: np.random.Generator, facts: Facts, role: str, lying: Mapping[str, Sequence[str]]) -> list[str]:
    """One or two wrong values of a role."""
    wrong = [v for v in VALUES[role] if v != facts.value(role)]
    drawn = [wrong[i] for i in rng.permutation(len(wrong))]
    if rng.random() < 0.5:
        drawn.sort(key=lambda v: v not in lying.get(role, ()))
    return drawn[: int(rng.integers(1, MOST_CHOICES))]


def sentence(phrase: str) -> str:
    """A phrase with a capital and a full stop: "chop carrot" -> "Chop carrot."."""
    return f"{phrase[0].upper()}{phrase[1:]}."


def pick(rng: np.random.Generator, items: Sequence[T], count: int) -> list[T]:
    """`count` different items."""
    return [items[i] for i in rng.choice(len(items), count, replace=False)]


def corpus() -> Iterator[str]:
    """Every sentence the base may meet, for its tokenizer."""
    rng = np.random.default_rng(0)
    for facts in all_facts():
        for lesson in draw_lessons(rng, facts, {}, rng.uniform(0, 30, (8, 2))):
            yield lesson.question
            yield lesson.answer


def _options(rng: np.random.Generator, options: Sequence[str]) -> str:
    shuffled = pick(rng, options, len(options))
    return f"{', '.join(shuffled[:-1])} or {shuffled[-1]}"
