"""A model behind an endpoint in the place of a verifier: frames and a claim go there, the odds of two words come back.

    teacher = HostedVerifier(LanguageModel(config), Prompt(), FrameSampling())
    verdicts = teacher.score_pairs(pairs)

It is asked through the project's one language-model client, so every answer is kept and none is paid twice. What an
endpoint refuses, or answers without either word, is a row that failed, with its reason.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as PILImage
from tqdm import tqdm

from ...core import (
    Audio,
    ConfigError,
    Evidence,
    Image,
    ModelInputError,
    Moving,
    Pair,
    Prompt,
    ProofreelError,
    evidence_key,
    problems_of,
)
from ...data_prep.language import AnswerError, LanguageModel, LanguageModelError, map_ordered, word_logprobs
from ...data_prep.media import FrameCache, FrameSampling
from ..decision import Judge, Verdict, failed
from ..engine import TWO_LABELS, Progress, read_ahead
from ..inputs import read_media
from ..questions import as_pairs

_PICTURE: dict[str, Any] = {"format": "JPEG", "quality": 95, "subsampling": 0}
_CONTROL = re.compile(r"<\|\w+\|>")  # how the chat templates of most models write their control tokens
_ROUNDING = 1e-6  # of probabilities as endpoints send them
_UNLIKELY = -1e3  # endpoints write a log-probability like -9999 where they have none

BOUNDED = "only one of the two words was among the tokens that the endpoint lists: the margin is a bound"


@dataclass(frozen=True)
class _EncodedPair:
    """A pair, and the content parts of its evidence; or why there are none."""

    pair: Pair
    evidence: list[dict[str, Any]] | str


class HostedVerifier:
    """Asks an endpoint what a verifier is asked; what scores files takes either. Uncalibrated: margins only.

    Attributes:
        n_bounded: answers so far that listed one of the two words only, so that their margins are bounds.
    """

    decision = None
    windowing = None
    labels = TWO_LABELS

    def __init__(
        self,
        model: LanguageModel,
        prompt: Prompt,
        sampling: FrameSampling,
        media_root: str | Path | None = None,
        frame_cache: FrameCache | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            model: the client.
            prompt: without a response prefix, for an endpoint begins its answer itself.
            sampling: what of a video is shown.
            media_root: folder that relative paths in evidence start from.
            frame_cache: keeps decoded frames on disk, and gives decoders a deadline.
        """
        self.model, self.prompt, self.sampling = model, prompt, sampling
        self.media_root, self.frame_cache = media_root, frame_cache
        self.notes = (f"asked over an endpoint, zero-shot: {model.config.model}",)
        self.fingerprint = _fingerprint(model, prompt, sampling)
        self.n_bounded = self._n_listed = self._n_unlisted = 0
        self._lock = threading.Lock()

    def score_pairs(self, pairs: Any, progress: Progress = None) -> list[Verdict]:
        """Verdicts of pairs, in order, of whatever `Verifier.score_pairs` takes.

        Claims about one evidence are asked one after another, so that a server can keep what it made of the evidence.

        Raises:
            ConfigError: no question will get an answer: a wrong key, address or model, an endpoint that is down, or one
                that gives no log-probabilities.
            ReplayError: replay mode, and an answer was never stored.
        """
        pairs = as_pairs(pairs, self.media_root, one_each=True)
        groups: dict[str, list[int]] = {}
        for place, pair in enumerate(pairs):
            groups.setdefault(evidence_key(pair.evidence), []).append(place)
        order = [place for places in groups.values() for place in places]
        verdicts = [failed("not scored")] * len(pairs)
        questions = self._questions(pairs, list(groups.values()))
        results: Any = map_ordered(self._verdict, questions, self.model.config.concurrency)
        bar = tqdm(total=len(pairs), unit="claim", desc="asking", disable=progress is not True)
        # Closed here, or the garbage collector ends their thread, which can wait for itself for ever.
        with bar, closing(questions), closing(results):
            for place, result in zip(order, results, strict=True):
                verdicts[place] = failed(str(result)) if isinstance(result, LanguageModelError) else result
                bar.update()
                if callable(progress):
                    progress(1)
        return verdicts

    def summary(self) -> str:
        """What was asked so far, and of how many answers the margin is a bound; for people."""
        costs = self.model.costs()
        money = f", {costs['money']:.2f} paid" if costs["money"] else ""
        return (
            f"{costs['questions']} questions, {costs['cache_hits']} answered from the cache, {costs['failures']} not "
            f"answered{money}; {self.n_bounded} margins are bounds"
        )

    def _questions(self, pairs: Sequence[Pair], groups: Sequence[Sequence[int]]) -> Generator[_EncodedPair]:
        """One per pair, those about one evidence together; it is read once, ahead of its turn."""
        evidences = (pairs[places[0]].evidence for places in groups)
        with closing(read_ahead(self._read, evidences, threads=1)) as read:  # a decoder serves one thread
            for places, evidence in zip(groups, read, strict=True):
                yield from (_EncodedPair(pairs[place], evidence) for place in places)

    def _read(self, evidence: tuple[Evidence, ...]) -> list[dict[str, Any]] | str:
        """The evidence as content parts in its order, or why it cannot be shown."""
        try:
            return evidence_parts(evidence, self.sampling, self.media_root, self.frame_cache, self.prompt)
        except ProofreelError as error:
            return str(error)

    def _messages(self, question: _EncodedPair, evidence: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """System turn, and one user turn of evidence and claim: not every template takes two user turns in a row."""
        if problems := problems_of(question.pair):
            raise ModelInputError("; ".join(problems))
        text = self.prompt.claim_text(question.pair.claim, question.pair.context)
        refuse_control(text, "claim")
        parts = [*evidence, {"type": "text", "text": text}]
        content: Any = parts
        if all(part["type"] == "text" for part in parts):
            content = "".join(part["text"] for part in parts)  # endpoints of text models may take nothing else
        system = [{"role": "system", "content": self.prompt.system}] if self.prompt.system else []
        return [*system, {"role": "user", "content": content}]

    def _verdict(self, question: _EncodedPair) -> Verdict:
        """Raises LanguageModelError where this question gets no usable answer."""
        if isinstance(question.evidence, str):
            return failed(question.evidence)
        try:
            messages = self._messages(question, question.evidence)
        except ModelInputError as error:
            return failed(str(error))
        tokens = [each for each in self.model.first_tokens(messages) if each[1] > _UNLIKELY]
        self._check_listed(tokens)
        words = (self.prompt.supported_word, self.prompt.refuted_word)
        logprobs = word_logprobs(tokens, words)
        bounded = -math.inf in logprobs.values()
        if bounded:
            logprobs = {word: max(logprob, _bound(tokens)) for word, logprob in logprobs.items()}
            with self._lock:
                self.n_bounded += 1
        margin = float(np.float32(logprobs[words[0]] - logprobs[words[1]]))
        return Judge(None).verdict(margin, note=BOUNDED if bounded else None)

    def _check_listed(self, tokens: Sequence[tuple[str, float]]) -> None:
        """An answer without log-probabilities fails its row; if none ever had any, go no further: each one costs."""
        with self._lock:
            self._n_listed += bool(tokens)
            self._n_unlisted += not tokens
            if not self._n_listed and self._n_unlisted >= self.model.config.max_failures:
                raise ConfigError(
                    f"{self.model.config.base_url}: no answer comes with log-probabilities, got {self._n_unlisted} "
                    "without; use an endpoint that gives them, and an empty cache_dir"
                )
        if not tokens:
            raise AnswerError("language model: no log-probabilities in the answer, got none; the answer cannot be read")


def evidence_parts(
    evidence: tuple[Evidence, ...],
    sampling: FrameSampling,
    media_root: str | Path | None = None,
    frame_cache: FrameCache | None = None,
    prompt: Prompt | None = None,
    timed: bool = False,
) -> list[dict[str, Any]]:
    """Evidence as content parts of a message, in its order: pictures, and texts in the prompt's words.

    Args:
        evidence: what is shown.
        sampling: what of a video is shown.
        media_root: folder that relative paths start from.
        frame_cache: keeps decoded frames on disk, and gives decoders a deadline; for one thread.
        prompt: the words around texts; Proofreel's own.
        timed: the time of each frame stands before it.

    Raises:
        MediaError: media that cannot be read.
        ModelInputError: text that would change the question.
    """
    media = read_media(evidence, sampling, media_root, frame_cache)
    videos, images = iter(media.videos), iter(media.images_HWC)
    worded = (prompt or Prompt()).parts(evidence)
    parts: list[dict[str, Any]] = []
    for piece, part in zip(evidence, worded, strict=True):
        if isinstance(piece, Moving):
            frames = next(videos)
            for time_s, frame_HWC in zip(frames.times_s, frames.pixels_FHWC, strict=True):
                parts += [{"type": "text", "text": f"{_clock(time_s)}\n"}] if timed else []
                parts.append(_picture(frame_HWC))
        elif isinstance(piece, Image):
            parts.append(_picture(next(images)))
        elif isinstance(piece, Audio):
            raise ModelInputError(
                f"{piece.path}: an endpoint is sent pictures and text only, got a sound; leave it out"
            )
        else:
            refuse_control(piece.text, "evidence text")
            parts.append(part)
    return parts


def _clock(time_s: float) -> str:
    minutes, seconds = divmod(int(time_s), 60)
    return f"{minutes}:{seconds:02d}"


def _fingerprint(model: LanguageModel, prompt: Prompt, sampling: FrameSampling) -> str:
    """Hash of all that an answer depends on. Not of the address: a server may move, and keeps its answers."""
    config = model.config
    settings = {name: getattr(config, name) for name in ("model", "temperature", "seed", "extra")}
    return hash_of(settings | {"prompt": prompt.sha256, "sampling": sampling.as_recorded(), "picture": _PICTURE})


def hash_of(values: Mapping[str, Any]) -> str:
    """SHA-256 of JSON values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _bound(tokens: Sequence[tuple[str, float]]) -> float:
    """The most that a spelling which is not listed can have: as much as the least listed, and no more than all of them
    leave. Finite, and never more than a listed one has. A word of several spellings may have more."""
    left = 1.0 - sum(math.exp(logprob) for _, logprob in tokens)
    return min(min(logprob for _, logprob in tokens), math.log(max(left, _ROUNDING)))


def _picture(pixels_HWC: np.ndarray) -> dict[str, Any]:
    """An `image_url` part that holds its picture."""
    stored = io.BytesIO()
    PILImage.fromarray(np.ascontiguousarray(pixels_HWC)).save(stored, **_PICTURE)
    data = base64.b64encode(stored.getvalue()).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{data}"}}


def refuse_control(text: str, where: str) -> None:
    """As the local prompt does: text that closes its own turn, or opens a picture, would change the question.

    Raises:
        ModelInputError: the text holds a control token.
    """
    if control := _CONTROL.search(text):
        raise ModelInputError(f"{where}: holds a model's control token {control[0]!r}, got {text[:80]!r}; remove it")
