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

from .errors import ConfigError
from .pairs import Audio, Evidence, Image, Moving, Pair, Passage, Transcript, media_name


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
        """Refuse templates without their placeholder, and label words that do not differ."""
        for name, slot in (("claim", "claim"), ("context", "context"), ("transcript", "text"), ("passage", "text")):
            if f"{{{slot}}}" not in getattr(self, name):
                raise ConfigError(f"prompt: template {name!r} lacks {{{slot}}}, got {getattr(self, name)!r}; add it")
        words = (self.supported_word, self.refuted_word)
        if not all(words) or words[0] == words[1]:
            raise ConfigError(f"prompt: label words must be two different words, got {words}; e.g. yes and no")

    @property
    def sha256(self) -> str:
        """Hash of every template and word: two verifiers with equal hashes ask the same question."""
        return hashlib.sha256(json.dumps(dataclasses.asdict(self), sort_keys=True).encode()).hexdigest()

    def parts(self, evidence: tuple[Evidence, ...]) -> list[dict[str, str]]:
        """The evidence in order, as the parts of a chat message."""
        return [self._part(e) for e in evidence]

    def claim_text(self, claim: str, context: str | None = None) -> str:
        """The words of the claim's own user turn."""
        before = self.context.replace("{context}", context) if context else ""
        return before + self.claim.replace("{claim}", claim)

    def user_text(self, pair: Pair) -> str:
        """Evidence and claim as one turn of other trainers' rows, with `<video>` and `<image>` where media stand."""
        parts = [self._part(each) for each in pair.evidence]
        before = "".join(part["text"] if part["type"] == "text" else f"<{part['type']}>\n" for part in parts)
        return before + self.claim_text(pair.claim, pair.context)

    def answer(self, pair: Pair) -> str:
        """What the assistant is to say about a labelled pair."""
        return self.response_prefix + (self.supported_word if pair.label == "supported" else self.refuted_word)

    def _part(self, evidence: Evidence) -> dict[str, str]:
        if isinstance(evidence, Moving):
            return {"type": "video", "video": media_name(evidence)}
        if isinstance(evidence, Audio):
            return {"type": "audio", "audio": evidence.path}
        if isinstance(evidence, Image):
            return {"type": "image", "image": evidence.path}
        if isinstance(evidence, Passage):
            return text_part(self.passage.replace("{text}", evidence.text) + "\n")
        return text_part(self.transcript.replace("{span}", _span(evidence)).replace("{text}", evidence.text) + "\n")


def text_part(text: str) -> dict[str, str]:
    """A part of a chat message that is text."""
    return {"type": "text", "text": text}


def _span(t: Transcript) -> str:
    return "" if t.start_s is None or t.end_s is None else f" ({t.start_s:.1f}-{t.end_s:.1f} s)"
