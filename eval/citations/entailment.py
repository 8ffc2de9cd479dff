"""A language model as the judge of facts (MuRGAt, section 4.4): it sees what a fact cites, and says yes or no.

The paper's three styles (figures 15 to 17), in words of our own. Evidence stands before the question. An answer that
cannot be read is asked for again, and then is a failure that quotes it; the published code counts it as "no".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...core import ModelInputError, Pair, ProofreelError, evidence_key
from ...data_prep.language import Complete, LanguageModelError, ask, map_ordered
from ...data_prep.media import FrameCache, FrameSampling
from ...models.zero_shot import evidence_parts, refuse_control
from ..scores import JudgePairs, Judgment, by_questions
from .answers import ANSWERS, Style, prompt
from .views import SAMPLING, Parts, message_of, text_part


def by_language_model(
    complete: Complete,
    style: Style = "json",
    *,
    media_root: str | Path | None = None,
    sampling: FrameSampling = SAMPLING,
    frame_cache: FrameCache | None = None,
    workers: int = 8,
) -> JudgePairs:
    """Judge by a language model that sees pictures; with its cache, a run that was killed goes on.

    Args:
        complete: the model.
        style: how the yes or no is asked for.
        media_root: folder that relative paths in evidence start from.
        sampling: which frames are shown of a span.
        frame_cache: keeps decoded frames on disk, and gives decoders a deadline.
        workers: questions under way at once.
    """

    def shown(pairs: Sequence[Pair]) -> Iterator[tuple[Pair, Parts | str]]:
        """Each evidence is read once, in this thread: a decoder serves one."""
        key, parts = None, ""
        for pair in pairs:
            if evidence_key(pair.evidence) != key:
                key = evidence_key(pair.evidence)
                try:
                    parts = evidence_parts(pair.evidence, sampling, media_root, frame_cache)
                except ProofreelError as error:
                    parts = str(error)
            yield pair, parts

    def judgment(item: tuple[Pair, Any]) -> Judgment:
        pair, parts = item
        if isinstance(parts, str):
            return Judgment(None, error=parts)
        try:
            refuse_control(pair.claim, "claim")
        except ModelInputError as error:
            return Judgment(None, error=str(error))
        question = text_part("\n" + prompt(f"murgat_entailed_{style}", fact=pair.claim))
        supported = ask(complete, message_of([*parts, question]), ANSWERS[style])
        return Judgment(supported, float(supported))

    def answer(asked: Sequence[Pair]) -> list[Judgment]:
        results = map_ordered(judgment, shown(asked), workers)
        return [Judgment(None, error=str(r)) if isinstance(r, LanguageModelError) else r for r in results]

    return by_questions(answer)
