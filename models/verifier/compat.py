"""A verifier behind other projects' interfaces: sentence-transformers' CrossEncoder, and an entailment judge.

`CrossEncoding` has `predict` on pairs and `rank` for one query. The order is (claim, evidence), as a reranker's (query,
document). Scores are calibrated probabilities; NaN is a failure, never a low score.

`Entailment` is the judge that other scorers call:

    judge = verifier.as_entailment()
    judge.entails("The cook slices a carrot.", Path("clip.mp4"))     # True or False
    judge.probability("The cook slices a carrot.", "She takes a carrot and a knife.")
    score_claims_collection(..., scorer=judge)                       # MiRAGE: `score(prompts=..., context_path=...)`
    pipeline.model_entailment = judge                                # MuRGAt: `generate_response(messages)`

Its failures are never a silent "no". `on_error="raise"` raises them. `on_error="unsupported"` logs a warning, adds the
reason to `failures` and gives False, NaN, or, in place of a text, `UNVERIFIED`, which both projects' readers take for
neither yes nor no: MiRAGE warns, MuRGAt records None.

Evidence is whatever `Verifier.score` takes: docs/asking.md lists it.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ...core import (
    ConfigError,
    Evidence,
    MediaError,
    ModelInputError,
    Pair,
    Passage,
    ProofreelError,
    Transcript,
)
from ..decision import Judge, Verdict, by_p, failed
from ..questions import AUDIO, as_evidence, as_pairs, is_one_pair, media_evidence
from .protocol import ClaimScorer

_log = logging.getLogger(__name__)


class CrossEncoding:
    """`predict` and `rank` in a CrossEncoder's shapes. Arguments about its batches have no use here."""

    def __init__(self, verifier: ClaimScorer) -> None:
        self.verifier = verifier

    def predict(
        self,
        sentences: Any,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
        activation_fn: Callable[[torch.Tensor], torch.Tensor] | None = None,
        *,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
    ) -> Any:
        """P(supported) of each pair, or what `activation_fn` makes of the margins.

        Args:
            sentences: whatever `Verifier.score_pairs` takes; one pair or row alone gives one number.
            batch_size: taken and not used: batches are made by length.
            show_progress_bar: on stderr.
            activation_fn: called with the (n,) margins, log-odds before calibration: `torch.nn.Identity()` gives them
                as they are. None gives calibrated probabilities.
            convert_to_numpy: False gives a list of floats.
            convert_to_tensor: give a tensor.

        Returns:
            (n,) float64, NaN where the verifier failed; a warning is logged with the first reason.

        Raises:
            ModelInputError: what is no pair, and where it stands.
        """
        single = is_one_pair(sentences)
        pairs = as_pairs(sentences, self.verifier.media_root, one_each=True)
        verdicts = self.verifier.score_pairs(pairs, progress=show_progress_bar)
        _warn(verdicts)
        if activation_fn is None:
            scores = np.array([v.p_supported for v in verdicts], dtype=np.float64)
        else:
            margins = torch.tensor([v.margin for v in verdicts], dtype=torch.float64)
            scores = torch.as_tensor(activation_fn(margins)).detach().cpu().numpy()
        if convert_to_tensor:
            return torch.from_numpy(scores)[0] if single else torch.from_numpy(scores)
        if single:
            return scores[0]
        return scores if convert_to_numpy else scores.tolist()

    def rank(
        self,
        query: str,
        documents: Sequence[Any],
        top_k: int | None = None,
        return_documents: bool = False,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
    ) -> list[dict[str, Any]]:
        """Documents by how probably each supports the query.

        Returns:
            `{"corpus_id": place in the input, "score": P(supported)}` each, with `text` (the document as it was given)
            if asked for. Failures come last, with score NaN and an `error`.
        """
        rows = []
        for r in self.verifier.rank(query, documents, top_k=top_k, progress=show_progress_bar):
            row = {"corpus_id": r.index, "score": r.verdict.p_supported}
            row |= {"text": documents[r.index]} if return_documents else {}
            rows.append(row | ({"error": r.verdict.error} if r.verdict.error else {}))
        return rows


def _warn(verdicts: Sequence[Verdict]) -> None:
    if reasons := [v.error for v in verdicts if v.error]:
        _log.warning("%d of %d pairs failed and are NaN; the first: %s", len(reasons), len(verdicts), reasons[0])


OnError = Literal["raise", "unsupported"]
Combine = Literal["together", "any"]
UNVERIFIED = "UNVERIFIED"
"""The answer where there is none; holds neither "yes" nor "no" in any case of letters."""

_TAGS = {
    name: re.compile(rf"<{name}>(.*?)</?{name}>", re.S) for name in ("claim", "claim_context", "verification_context")
}
_FACT = re.compile(r"^Atomic Fact:[ \t]*(?:- )?(.+?)[ \t]*$", re.M)
_CLAIM = re.compile(r"^Claim:[ \t]*\n(.+?)\n[ \t]*\n", re.M | re.S)
_TEXT = re.compile(r"^Text Evidence:[ \t]*\n(.+?)\n[ \t]*\nClaim:", re.M | re.S)


class Entailment:
    """Yes or no, and how probably.

    Attributes:
        threshold: a claim is entailed where p_supported is at least this.
        failures: reasons of questions that got no answer; with `on_error="raise"` they were raised too.
    """

    def __init__(
        self,
        verifier: ClaimScorer,
        threshold: float | str | None = None,
        *,
        on_error: OnError = "raise",
        combine: Combine = "together",
        with_context: bool = False,
        transcribe: Callable[[Path], str] | None = None,
    ) -> None:
        """Make a judge.

        Args:
            verifier: who judges.
            threshold: on p_supported; the name of an operating point; None takes the shipped default.
            on_error: see the module.
            combine: `together` judges several sources as one evidence; `any` judges each by itself, and one that
                entails the claim is enough.
            with_context: show the verifier the context a prompt gives for the claim; for one trained with contexts.
            transcribe: makes text of a sound file, which a verifier cannot hear.

        Raises:
            ConfigError: an unknown policy, or a threshold outside [0, 1]; none at all for an uncalibrated draft.
            CalibrationError: no operating point of that name.
        """
        if on_error not in ("raise", "unsupported") or combine not in ("together", "any"):
            raise ConfigError(
                f"entailment: on_error is raise or unsupported, combine together or any, got {on_error!r}, {combine!r};"
                " choose one of each"
            )
        self.verifier, self.on_error, self.combine = verifier, on_error, combine
        self.threshold = _threshold(verifier, threshold)
        self.with_context, self.transcribe = with_context, transcribe
        self.failures: list[str] = []

    def __call__(self, claim: str, sources: Any, context: str | None = None) -> bool:
        """`entails`, so that the judge can stand where a function is expected."""
        return self.entails(claim, sources, context)

    def entails(self, claim: str, sources: Any, context: str | None = None) -> bool:
        """Whether the sources support the claim; arguments as `probabilities`."""
        return bool(self.probabilities([claim], sources, [context])[0] >= self.threshold)

    def probability(self, claim: str, sources: Any, context: str | None = None) -> float:
        """P(supported) of one claim; arguments as `probabilities`."""
        return float(self.probabilities([claim], sources, [context])[0])

    def probabilities(
        self, claims: Sequence[str], sources: Any, contexts: Sequence[str | None] | None = None
    ) -> np.ndarray:
        """(K,) P(supported) of claims about the same sources, which are read once.

        Args:
            claims: one sentence each.
            sources: whatever `Verifier.score` takes as evidence; several in a list (see `combine`).
            contexts: where each claim was taken from.

        Raises:
            ProofreelError: the first failure, unless `on_error` says otherwise; then it is NaN.
        """
        given = list(contexts or [None] * len(claims))
        return np.array(
            [v.p_supported for v in self._judged(claims, lambda: as_evidence(sources, self.verifier.media_root), given)]
        )

    def score(
        self, prompts: Sequence[str], context_path: str | Path | None = None, system_prompt: str | None = None
    ) -> list[str]:
        """MiRAGE's scorer: "yes" or "no" for each of its prompts, all about one file or each about its own passage.

        The claim, its context and the passage are read between the prompt's tags; the verifier has a prompt and a
        sampling of its own, so `system_prompt` has no use.

        Raises:
            ModelInputError: a prompt without the tags. ProofreelError: a failure, unless `on_error` says otherwise.
        """
        claims = [_tagged("claim", prompt) for prompt in prompts]
        contexts = [_tagged("claim_context", p) if "<claim_context>" in p else None for p in prompts]
        if context_path is not None:
            return [self._text(v) for v in self._judged(claims, lambda: self._files([context_path]), contexts)]
        rows = zip(claims, (Passage(_tagged("verification_context", p)) for p in prompts), contexts, strict=True)
        pairs = [Pair(str(i), c, (passage,), context=self._context(x)) for i, (c, passage, x) in enumerate(rows)]
        return [self._text(v) for v in self._checked(claims, self.verifier.score_pairs(pairs))]

    def generate_response(
        self, messages: Sequence[Mapping[str, Any]], num_samples: int = 1, fps: float | None = None
    ) -> str | list[str]:
        """MuRGAt's model: YES or NO to its entailment prompt, as JSON where the prompt wants that.

        The claim is read from the prompt's text, the evidence from the message's files (judged as `combine` says) or
        from the prompt. `fps` has no use: the verifier has a sampling of its own.

        Raises:
            ModelInputError: a prompt that is none of its entailment prompts. ProofreelError: as `score`.
        """
        text, paths = _content(messages)
        if not (match := _FACT.search(text) or _CLAIM.search(text)):
            raise ModelInputError(f"prompt: not one of MuRGAt's entailment prompts, got {text[:80]!r}; send those only")
        text_match = _TEXT.search(text)
        claim = match[1].strip()
        (verdict,) = self._judged(
            [claim], lambda: (Passage(text_match[1]),) if text_match else self._files(paths), [None]
        )
        answer = self._text(verdict).upper()
        if "JSON" in text:
            why = verdict.error or f"p_supported {verdict.p_supported:.4f}, threshold {self.threshold:.4f}"
            answer = json.dumps({"reasoning": why, "answer": answer})
        return answer if num_samples == 1 else [answer] * num_samples

    def _judged(
        self, claims: Sequence[str], sources: Callable[[], tuple[Evidence, ...]], contexts: Sequence[str | None]
    ) -> list[Verdict]:
        """Verdicts on claims about the same sources; failures reported."""
        contexts = [self._context(context) for context in contexts]
        try:
            evidence = sources()
        except MediaError as error:
            return self._checked(claims, [failed(str(error))] * len(claims))
        if self.combine == "together":
            return self._checked(claims, self.verifier.score(claims, evidence, contexts))
        each = [self.verifier.score(claims, piece, contexts) for piece in evidence]
        return self._checked(claims, [self._any(of_row) for of_row in zip(*each, strict=True)])

    def _any(self, verdicts: Sequence[Verdict]) -> Verdict:
        """The best verdict. A source that failed might have been better: then only a yes stands."""
        best = min(verdicts, key=by_p)
        wrong = next((v for v in verdicts if v.error), None)
        return best if wrong is None or best.p_supported >= self.threshold else wrong

    def _checked(self, claims: Sequence[str], verdicts: Iterable[Verdict]) -> list[Verdict]:
        verdicts = list(verdicts)
        for claim, verdict in zip(claims, verdicts, strict=True):
            if verdict.error is not None:
                self.failures.append(verdict.error)
                if self.on_error == "raise":
                    raise ProofreelError(verdict.error)
                _log.warning("not judged, and counted as not entailed: %r; %s", claim, verdict.error)
        return verdicts

    def _text(self, verdict: Verdict) -> str:
        if math.isnan(verdict.p_supported):
            return UNVERIFIED
        return "yes" if verdict.p_supported >= self.threshold else "no"

    def _context(self, context: str | None) -> str | None:
        return context if self.with_context else None

    def _files(self, paths: Sequence[str | Path]) -> tuple[Evidence, ...]:
        """Evidence of media files, sound as its transcript. `MediaError` where there is none."""
        if not paths:
            raise MediaError("evidence: the message names no file, got text only; name one that exists")
        evidence: list[Evidence] = []
        for path in map(Path, paths):
            if path.suffix.lower() not in AUDIO:
                evidence.append(media_evidence(path))
            elif self.transcribe is None:
                raise MediaError(f"{path}: sound cannot be heard, got no transcribe function; pass transcribe=...")
            else:
                evidence.append(Transcript(self.transcribe(path)))
        return tuple(evidence)


def _threshold(verifier: ClaimScorer, threshold: float | str | None) -> float:
    if threshold is None or isinstance(threshold, str):
        point = Judge(verifier.decision, threshold).point
        if point is None:
            raise ConfigError("entailment: an uncalibrated verifier has no threshold, got None; pass threshold=...")
        return point.threshold
    if isinstance(threshold, bool) or not 0 <= threshold <= 1:
        raise ConfigError(f"entailment: threshold must be a probability or a name, got {threshold!r}; use [0, 1]")
    return float(threshold)


def _tagged(name: str, prompt: str) -> str:
    if not (match := _TAGS[name].search(prompt)):
        raise ModelInputError(f"prompt: no text between <{name}> tags, got {prompt[:80]!r}; send MiRAGE's own prompts")
    return match[1].strip()


def _content(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    """The text of all messages, and the media files they name."""
    parts: list[Any] = []
    for message in messages:
        content = message["content"]
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    text = "\n".join(part["text"] for part in parts if "text" in part)
    named = (part.get("media_path", part.get(part.get("type"))) for part in parts if "text" not in part)
    return text, [path for path in named if path is not None]
