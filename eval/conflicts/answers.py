"""Answers to OMD-Bench's questions under its eight conditions: their file, and how a verifier gives them.

A question keeps its id through all conditions; what is right may change (`target`, the paper's y*: an option, or the
one that abstains). An answer that could not be read off the model's words is None, "invalid" in the paper (section
4.2): it is counted and leaves every rate. A question that was never answered (a call that broke) has an `error`: it
leaves no rate, and what it could have been bounds them all.

A verifier answers with the option whose statement has the highest probability, and abstains where that is not
supported at its operating point. Its confidence is the restricted softmax over the options' log-odds and, for
abstaining, the log-odds of the threshold: the likeliest of these is the answer by the rule above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...core import Pair, RowError
from ..scores import JudgePairs, Judgment, read_rows
from .formulas import ConfidenceMethod, corrupted, restricted_softmax

ABSTAINS = "I cannot answer"


@dataclass(frozen=True)
class ConditionAnswer:
    """One answer to one question in one condition, as one line of the file holds it.

    Attributes:
        question: id of the seed question, the same in all conditions.
        anchor: what the question is about.
        condition: C000 to C111.
        target: the option that is right here; equal to `abstention` where one should abstain.
        abstention: the option that abstains.
        answer: the option given; None: unreadable. Options are compared without case and white space around.
        data: kind of media, `real` or `synthetic`: each has tables of its own.
        option_logits: of all options, for the restricted softmax.
        log_probability: natural, of the answer's token, for models that give no logits.
        error: why there is no answer at all.
    """

    question: str
    anchor: str
    condition: str
    target: str
    abstention: str = ABSTAINS
    answer: str | None = None
    data: str = "real"
    option_logits: tuple[float, ...] | None = None
    log_probability: float | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        corrupted(self.condition)
        logits, log = self.option_logits, self.log_probability
        if logits is not None and log is not None:
            raise RowError("option_logits and log_probability are on different scales, got both; give one")
        if logits is not None and (len(logits) < 2 or not all(map(math.isfinite, logits))):
            raise RowError(f"option_logits must be two numbers or more, got {list(logits)}; leave them out")
        if log is not None and not log <= 0:
            raise RowError(f"log_probability must be natural and at most 0, got {log}; leave it out")
        if self.error is not None and self.answer is not None:
            raise RowError(f"an answer with an error is none, got {self.answer!r} and {self.error!r}; keep one")

    @property
    def is_right(self) -> bool | None:
        """None where there is no answer."""
        return None if self.answer is None else _same(self.answer, self.target)

    @property
    def abstains(self) -> bool | None:
        """None where there is no answer."""
        return None if self.answer is None else _same(self.answer, self.abstention)

    @property
    def should_abstain(self) -> bool:
        """Whether abstaining is right."""
        return _same(self.target, self.abstention)

    @property
    def method(self) -> ConfidenceMethod | None:
        """How confidence was read off the model; None where it gave none."""
        if self.option_logits is not None:
            return "restricted_softmax"
        return None if self.log_probability is None else "token_probability"

    @property
    def confidence(self) -> float:
        """In the answer; NaN where the model gave none."""
        if self.option_logits is not None:
            return float(restricted_softmax(np.array([self.option_logits])).values[0])
        return math.nan if self.log_probability is None else math.exp(self.log_probability)


def read_answers(path: str | Path) -> list[ConditionAnswer]:
    """A model's answers from JSON lines; RowError or ConfigError with the line of the first that cannot be read."""
    rows = read_rows(ConditionAnswer, path, lambda row: (row.data, row.question, row.condition))
    if len(methods := {row.method for row in rows if row.method}) > 1:
        raise RowError(f"{path}: one way to read confidence per file, got {sorted(methods)}; they cannot be pooled")
    return rows


def answers_by_judge(judge: JudgePairs, pairs: Sequence[Pair], threshold: float = 0.5) -> list[ConditionAnswer]:
    """The protocol run against a judge of claims, see the module's head.

    Args:
        judge: a verifier, as `by_verifier` wraps it.
        pairs: rows of the importer `omdbench`: one for each option of each question in each condition.
        threshold: of the judge's operating point, on p_supported.

    Raises:
        RowError: no row is an option of a question.
    """
    questions: dict[str, list[Pair]] = {}
    for pair in pairs:
        if "option" in pair.meta:
            questions.setdefault(pair.id.rpartition(".")[0], []).append(pair)
    if not questions:
        raise RowError(f"omd: no questions to answer, got {len(pairs)} rows without options; give anchors questions")
    judgments = judge([pair for options in questions.values() for pair in options])
    return [_answer(options, [judgments.of[pair.id] for pair in options], threshold) for options in questions.values()]


def _answer(options: Sequence[Pair], judgments: Sequence[Judgment], threshold: float) -> ConditionAnswer:
    first = options[0]
    anchor, data, condition, name = first.id.rpartition(".")[0].rsplit("/", 3)
    right = [pair.meta["option"] for pair in options if pair.label == "supported"]
    answer, logits, error = None, None, next((j.error for j in judgments if j.supported is None), None)
    if not any(j.supported is None for j in judgments):
        best = int(np.argmax([j.p_supported for j in judgments]))
        answer = options[best].meta["option"] if judgments[best].supported else ABSTAINS
        logits = tuple(_log_odds(p) for p in (*(j.p_supported for j in judgments), threshold))
    elif error is None:
        error = "no verdict"
    return ConditionAnswer(
        question=f"{anchor}/{name}",
        anchor=anchor,
        condition=condition,
        target=right[0] if right else ABSTAINS,
        answer=answer,
        data=data,
        option_logits=logits,
        error=error,
    )


def _log_odds(p: float) -> float:
    p = min(max(p, 1e-12), 1 - 1e-12)
    return math.log(p / (1 - p))


def _same(option: str, other: str) -> bool:
    return option.strip().casefold() == other.strip().casefold()
