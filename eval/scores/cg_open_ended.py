"""CG-Bench's open-ended judge in two steps (section 3.3.3, appendix B.3), with a verifier in place of the visual judge.

Step one: a language model compares the answer with the reference, and says yes, no, or that it needs the video. Step
two, where it does: the paper shows GPT-4o the frames of the clue intervals; here a verifier is asked whether the answer
holds in them, as a statement of question and answer. Prompts are in our own words. An answer of the language model that
is none of the three is a failure, never a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from ...core import Pair, VideoSegment, merged
from ...data_prep.importers import statement
from ...data_prep.language import Complete, LanguageModelError, ask, map_ordered
from .cg_predictions import ClueQuestion
from .judging import JudgePairs, Judgment

FirstStep = Literal["yes", "no", "need visual clue"]
_ANSWERS: dict[str, FirstStep] = {
    "yes": "yes",
    "no": "no",
    "need visual clue": "need visual clue",
    "need visual clues": "need visual clue",
    "i need visual clues": "need visual clue",
}


@dataclass(frozen=True)
class OpenAnswer:
    """What the judge said of one answer.

    Attributes:
        first: of the language model; None where it failed.
        judgment: whether the answer is right.
    """

    first: FirstStep | None
    judgment: Judgment


def parse_first_step(text: str) -> FirstStep:
    """Yes, no, or need visual clue, whatever the case and punctuation around; otherwise ValueError with the text."""
    words = " ".join(text.split()).strip(" .!?\"'`*[](){}:").casefold()
    if words not in _ANSWERS:
        raise ValueError(f"the answer must be yes, no or need visual clue, got {text.strip()[:80]!r}; write one")
    return _ANSWERS[words]


def judge_open_answers(
    questions: Sequence[ClueQuestion],
    answers: Sequence[str],
    model: Complete,
    judge: JudgePairs,
    concurrency: int = 8,
    extension: str = ".mp4",
) -> list[OpenAnswer]:
    """Both steps for every answer.

    Args:
        questions, answers: in the same order.
        model: of step one.
        judge: of step two, such as `by_verifier`.
        concurrency: questions put to the model at once.
        extension: of the video files.
    """
    prompt = (files(__package__) / "prompts" / "cg_open_ended.txt").read_text(encoding="utf-8")

    def first(both: tuple[ClueQuestion, str]) -> FirstStep:
        question, answer = both
        told = f"Question: {question.question}\nReference answer: {question.answer}\nModel's answer: {answer}"
        return ask(model, [{"role": "system", "content": prompt}, {"role": "user", "content": told}], parse_first_step)

    firsts = list(map_ordered(first, zip(questions, answers, strict=True), concurrency))
    pairs = {}
    for number, (question, answer, said) in enumerate(zip(questions, answers, firsts, strict=True)):
        if said == "need visual clue":
            spans = merged(question.clue_intervals)
            shown = tuple(VideoSegment(question.video_uid + extension, start_s, end_s) for start_s, end_s in spans)
            pairs[number] = Pair(
                f"cgbench/{question.qid}/open", statement(question.question, answer), shown, group=question.video_uid
            )
    judgments = judge(list(pairs.values())).of if pairs else {}
    opened = []
    for number, said in enumerate(firsts):
        if isinstance(said, LanguageModelError):
            opened.append(OpenAnswer(None, Judgment(None, error=str(said))))
        elif number in pairs:
            opened.append(OpenAnswer(said, judgments[pairs[number].id]))
        else:
            opened.append(OpenAnswer(said, Judgment(said == "yes", float(said == "yes"))))
    return opened
