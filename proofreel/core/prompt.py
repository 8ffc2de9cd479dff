"""The prompt: how evidence and claim become chat text, and which words are the verdict.

Order is system, evidence, claim, so that one evidence prefix serves any number of claims. Evidence and claim are two
user turns; the cut between them lies at `<|im_start|>`, a special token, so tokenising the parts apart gives the same
ids as tokenising the whole. Everything here is recorded in the verifier directory, with a hash.

Checkpoints that were trained on a question of their own are asked theirs: one user turn, which an `opening` begins
(`NAMED_PROMPTS`). With the claim in its opening the claim precedes the evidence, and no prefix is shared. The cut in
Qwen3-VL-Reranker's turn lies after a word and before punctuation, where its tokenizer never joins.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass

from .errors import ConfigError
from .pairs import AskedFirst, Audio, Evidence, Image, Moving, Pair, Passage, Transcript, media_name

_IN_ONE_TURN = ("opening", "closing")


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
    opening: str = ""  # before the evidence; there is one user turn then, and the order is videos, images, texts
    closing: str = ""  # after the evidence, in one turn

    def __post_init__(self) -> None:
        """Refuse templates without their placeholder, and label words that do not differ."""
        for name, slot in (("claim", "claim"), ("context", "context"), ("transcript", "text"), ("passage", "text")):
            if f"{{{slot}}}" not in getattr(self, name):
                raise ConfigError(f"prompt: template {name!r} lacks {{{slot}}}, got {getattr(self, name)!r}; add it")
        words = (self.supported_word, self.refuted_word)
        if not all(words) or words[0] == words[1]:
            raise ConfigError(f"prompt: label words must be two different words, got {words}; e.g. yes and no")
        if self.closing and not self.opening:
            raise ConfigError(f"prompt: `closing` belongs to a prompt with an `opening`, got {self.closing!r} alone")

    @property
    def one_turn(self) -> bool:
        """Evidence and claim stand in one user turn."""
        return bool(self.opening)

    @property
    def claim_first(self) -> bool:
        """The claim precedes the evidence, so that every claim has a prefix of its own."""
        return "{claim}" in self.opening

    def bound(self, pair: Pair) -> Pair:
        """The pair as it is encoded: one whose claim comes first carries it with its evidence."""
        if not self.claim_first or isinstance(next(iter(pair.evidence), None), AskedFirst):
            return pair
        return dataclasses.replace(
            pair, evidence=(AskedFirst(self._with_context(pair.claim, pair.context)), *pair.evidence)
        )

    @property
    def sha256(self) -> str:
        """Hash of every template and word: two verifiers with equal hashes ask the same question."""
        return hashlib.sha256(json.dumps(self.as_recorded(), sort_keys=True).encode()).hexdigest()

    def as_recorded(self) -> dict[str, str]:
        """Its fields; of prompts in two turns those that they were recorded with before there were others."""
        fields = dataclasses.asdict(self)
        return fields if self.one_turn else {k: v for k, v in fields.items() if k not in _IN_ONE_TURN}

    def parts(self, evidence: tuple[Evidence, ...]) -> list[dict[str, str]]:
        """The evidence in order, as the parts of a chat message; `opening` and `closing` around it, of one turn."""
        if not self.one_turn:
            return [self._part(e) for e in evidence]
        asked = "".join(e.text for e in evidence if isinstance(e, AskedFirst))
        pieces = sorted((e for e in evidence if not isinstance(e, AskedFirst)), key=_place)
        opening = text_part(self.opening.replace("{claim}", asked))
        return [opening, *(self._part(e) for e in pieces), text_part(self.closing)]

    def claim_text(self, claim: str, context: str | None = None) -> str:
        """The words of the claim's own user turn, or at the end of the one turn; none where it came first."""
        if self.claim_first:
            return ""
        if self.one_turn:
            return self.claim.replace("{claim}", self._with_context(claim, context))
        return self._with_context(self.claim.replace("{claim}", claim), context)

    def _with_context(self, text: str, context: str | None) -> str:
        return (self.context.replace("{context}", context) if context else "") + text

    def user_text(self, pair: Pair) -> str:
        """Evidence and claim as one turn of other trainers' rows, with `<video>` and `<image>` where media stand."""
        parts = self.parts(self.bound(pair).evidence)
        line = "" if self.one_turn else "\n"
        before = "".join(part["text"] if part["type"] == "text" else f"<{part['type']}>{line}" for part in parts)
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
        end = "" if self.one_turn else "\n"
        if isinstance(evidence, Passage):
            return text_part(self.passage.replace("{text}", evidence.text) + end)
        return text_part(self.transcript.replace("{span}", _span(evidence)).replace("{text}", evidence.text) + end)


def text_part(text: str) -> dict[str, str]:
    """A part of a chat message that is text."""
    return {"type": "text", "text": text}


def _place(evidence: Evidence) -> int:
    return 0 if isinstance(evidence, Moving) else 1 if isinstance(evidence, Image) else 2


def _span(t: Transcript) -> str:
    return "" if t.start_s is None or t.end_s is None else f" ({t.start_s:.1f}-{t.end_s:.1f} s)"


_RERANKER = Prompt(
    system=(
        "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
        'Note that the answer can only be "yes" or "no".'
    ),
    claim=">:{claim}",
    passage="{text}",
    opening="<Instruct>: {instruction}<Query>:",
    closing="\n<Document",
)
_INSTRUCTION = "Given a search query, retrieve relevant candidates that answer the query."
NAMED_PROMPTS = {
    "proofreel": Prompt(),
    "reranker": dataclasses.replace(
        _RERANKER, claim="{claim}", opening="<Instruct>: {instruction}<Query>:{claim}\n<Document>:", closing=""
    ),
    "reranker_shared": _RERANKER,
}
"""Questions that checkpoints were trained on, by name. Qwen3-VL-Reranker's: the claim as query and the evidence as
document; or, shared by all claims, the evidence as query and each claim as document."""


def named_prompt(name: str, instruction: str | None = None) -> Prompt:
    """A prompt of `NAMED_PROMPTS`; `instruction` says what is asked of a reranker, in place of its default."""
    if name not in NAMED_PROMPTS:
        raise ConfigError(f"named_prompt: unknown, got {name!r}; use one of {', '.join(NAMED_PROMPTS)}")
    prompt = NAMED_PROMPTS[name]
    if "{instruction}" not in prompt.opening:
        if instruction is not None:
            raise ConfigError(f"prompt_instruction: the prompt {name} has no place for it, got {instruction!r}")
        return prompt
    return dataclasses.replace(prompt, opening=prompt.opening.replace("{instruction}", instruction or _INSTRUCTION))
