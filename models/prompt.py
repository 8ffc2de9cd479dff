"""The prompt: how evidence and claim become chat text, and which words are the verdict.

Order is system, evidence, claim, so that one evidence prefix serves any number of claims. Evidence and claim are two
user turns; the cut between them lies at `<|im_start|>`, a special token, so tokenising the parts apart gives the same
ids as tokenising the whole. Everything here is recorded in the verifier directory, with a hash.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from ..data_prep.errors import DirectoryError, ModelInputError
from ..data_prep.rows import Evidence, Image, Passage, Transcript, VideoSegment


@dataclass(frozen=True)
class Prompt:
    """Templates and label words. Defaults keep the claim part short: it is repeated for every claim of a prefix."""

    system: str = "Judge whether the claim is supported by the evidence. Answer yes or no."
    claim: str = "Claim: {claim}"
    context: str = "Context: {context}\n"
    transcript: str = "Transcript{span}: {text}"
    passage: str = "Text: {text}"
    response_prefix: str = ""
    supported_word: str = "yes"
    refuted_word: str = "no"

    def __post_init__(self) -> None:
        """Refuse templates that would drop what they are for."""
        for name, slot in (("claim", "claim"), ("context", "context"), ("transcript", "text"), ("passage", "text")):
            if f"{{{slot}}}" not in getattr(self, name):
                raise DirectoryError(f"prompt: template {name!r} lacks {{{slot}}}, got {getattr(self, name)!r}; add it")

    @property
    def sha256(self) -> str:
        """Hash of every template and word: two verifiers with equal hashes ask the same question."""
        return hashlib.sha256(json.dumps(dataclasses.asdict(self), sort_keys=True).encode()).hexdigest()

    def evidence_messages(self, evidence: tuple[Evidence, ...]) -> list[dict[str, Any]]:
        """Chat messages for the shared prefix: the system turn and one user turn that holds the evidence in order."""
        return [_turn("system", self.system), {"role": "user", "content": [self._part(e) for e in evidence]}]

    def claim_text(self, claim: str, context: str | None = None) -> str:
        """The words of the claim's own user turn."""
        before = self.context.replace("{context}", context) if context else ""
        return before + self.claim.replace("{claim}", claim)

    def _part(self, evidence: Evidence) -> dict[str, str]:
        if isinstance(evidence, VideoSegment):
            return {"type": "video", "video": evidence.path}
        if isinstance(evidence, Image):
            return {"type": "image", "image": evidence.path}
        if isinstance(evidence, Passage):
            return _text(self.passage.replace("{text}", evidence.text) + "\n")
        return _text(self.transcript.replace("{span}", _span(evidence)).replace("{text}", evidence.text) + "\n")


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
        head = self._render([_turn("system", prompt.system)], tokenize=False)
        whole = self._render(
            [_turn("system", prompt.system), _turn("user", sentinel)], tokenize=False, add_generation_prompt=True
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
        if found := next((s for s in self._special if s in text), None):
            raise ModelInputError(f"{where}: holds the model's control token {found!r}, got {text[:80]!r}; remove it")


def _turn(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": [_text(text)]}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _span(t: Transcript) -> str:
    return "" if t.start_s is None or t.end_s is None else f" ({t.start_s:.1f}-{t.end_s:.1f} s)"
