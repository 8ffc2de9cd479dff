"""The prompt as a checkpoint writes it: its chat template's text on both sides of the cut, and the label words' ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core import Evidence, ModelInputError, Passage, Prompt, Transcript, chat_turn


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
    """Renders a prompt through a checkpoint's own chat template, split at the evidence/claim cut."""

    def __init__(self, prompt: Prompt, processor: Any) -> None:
        """`processor` is the checkpoint's; its tokenizer must hold the template's special tokens."""
        self.prompt = prompt
        self._render = processor.apply_chat_template
        self._special = sorted(set(processor.tokenizer.all_special_tokens) | set(processor.tokenizer.get_added_vocab()))
        sentinel = "\x00"  # cannot occur in a claim: rows refuse control characters
        head = self._render([chat_turn("system", prompt.system)], tokenize=False)
        whole = self._render(
            [chat_turn("system", prompt.system), chat_turn("user", sentinel)],
            tokenize=False,
            add_generation_prompt=True,
        )
        if not whole.startswith(head) or sentinel not in whole:
            raise ModelInputError("chat template: a later turn changes an earlier one; use the checkpoint's template")
        self._before, self._after = whole[len(head) :].split(sentinel)

    def prefix(self, evidence: tuple[Evidence, ...]) -> str:
        """Text of the shared prefix, one placeholder per image or video."""
        for e in evidence:
            if isinstance(e, (Transcript, Passage)):
                self._refuse_special(e.text, "evidence text")
        return self._render(self.prompt.evidence_messages(evidence), tokenize=False)

    def claim(self, claim: str, context: str | None = None) -> str:
        """Text that follows the prefix, up to and including the last token before the verdict."""
        text = self.prompt.claim_text(claim, context)
        self._refuse_special(text, "claim")
        return f"{self._before}{text}{self._after}{self.prompt.response_prefix}"

    def _refuse_special(self, text: str, where: str) -> None:
        # A claim that closes its own turn, or opens a video, would change the question.
        if token := next((s for s in self._special if s in text), None):
            raise ModelInputError(f"{where}: holds the model's control token {token!r}, got {text[:80]!r}; remove it")
