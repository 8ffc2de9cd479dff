"""The prompt as a checkpoint writes it: its chat template's text on both sides of the cut, and the label words' ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core import AskedFirst, Evidence, ModelInputError, Passage, Prompt, Transcript, text_part
from .chat_template import ChatTurns, chat_turns


@dataclass(frozen=True)
class LabelWords:
    """The two verdict tokens of a tokenizer: margin = logit[supported_id] - logit[refuted_id]."""

    supported_id: int
    refuted_id: int

    @classmethod
    def of(cls, prompt: Prompt, tokenizer: Any) -> LabelWords:
        """Resolve the words; `ModelInputError` unless each is exactly one token and they differ."""
        ids = []
        for word in (prompt.supported_word, prompt.refuted_word):
            tokens = tokenizer(word, add_special_tokens=False)["input_ids"]
            if len(tokens) != 1:
                raise ModelInputError(f"label word {word!r}: must be one token, got ids {tokens}; choose another word")
            ids.append(tokens[0])
        if ids[0] == ids[1]:
            raise ModelInputError(f"label words: both are token {ids[0]}; choose two different words")
        return cls(*ids)


class ChatText:
    """A prompt between the turns of a checkpoint's chat template, split at the evidence/claim cut."""

    def __init__(self, prompt: Prompt, processor: Any, turns: ChatTurns | None = None) -> None:
        """`processor` is the checkpoint's; `turns` are those a verifier directory records, else its template's.

        Raises:
            DirectoryError: the processor's template fails, or does not let claims follow one prefix.
        """
        self.prompt = prompt
        self.turns = turns or chat_turns(processor)
        self._special = sorted(set(processor.tokenizer.all_special_tokens) | set(processor.tokenizer.get_added_vocab()))

    def prefix(self, evidence: tuple[Evidence, ...]) -> str:
        """Text of the shared prefix, one placeholder per image or video."""
        for e in evidence:
            if isinstance(e, (Transcript, Passage)):
                self._refuse_special(e.text, "claim" if isinstance(e, AskedFirst) else "evidence text")
        user = self.turns.user(self.prompt.parts(evidence))
        if self.prompt.one_turn:
            user = user[: len(user) - len(self.turns.after_user)]
        return self.turns.system(self.prompt.system) + user

    def claim(self, claim: str, context: str | None = None) -> str:
        """Text that follows the prefix, up to and including the last token before the verdict."""
        text = self.prompt.claim_text(claim, context)
        self._refuse_special(text, "claim")
        turn = text + self.turns.after_user if self.prompt.one_turn else self.turns.user([text_part(text)])
        return turn + self.turns.before_answer + self.prompt.response_prefix

    def _refuse_special(self, text: str, where: str) -> None:
        # A claim that closes its own turn, or opens a video, would change the question.
        if token := next((s for s in self._special if s in text), None):
            raise ModelInputError(f"{where}: holds the model's control token {token!r}, got {text[:80]!r}; remove it")
