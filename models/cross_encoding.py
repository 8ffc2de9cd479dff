"""A verifier with the methods of a sentence-transformers CrossEncoder: `predict` on pairs, `rank` for one query.

The order is (claim, evidence), as a reranker's (query, document). Evidence is a text, a `pathlib.Path` of a media file,
an `Evidence`, or a list of those judged together. Scores are calibrated probabilities; NaN is a failure, never a low
score.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..core.errors import ModelInputError
from ..core.pairs import Evidence, Image, Pair, Passage, Transcript, VideoSegment
from .verdicts import Verdict

if TYPE_CHECKING:
    from .verifier import Verifier

Source = str | Path | Evidence
AUDIO = {".mp3", ".wav", ".m4a", ".aac", ".flac", ".ogg", ".opus"}
IMAGES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"}
_log = logging.getLogger(__name__)


class CrossEncoding:
    """`predict` and `rank` in a CrossEncoder's shapes. Arguments about its batches and activations have no use here."""

    def __init__(self, verifier: Verifier) -> None:
        self.verifier = verifier

    def predict(
        self,
        sentences: Sequence[Any],
        batch_size: int | None = None,
        show_progress_bar: bool = False,
        *,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
    ) -> Any:
        """P(supported) of each pair.

        Args:
            sentences: (claim, evidence) tuples or lists; or one such pair, which gives one number.
            batch_size: taken and not used: batches are made by length.
            show_progress_bar: on stderr.
            convert_to_numpy: False gives a list of floats.
            convert_to_tensor: give a tensor.

        Returns:
            (n,) float64, NaN where the verifier failed; a warning is logged with the first reason.

        Raises:
            ModelInputError: a pair that is none, or whose claim is not text.
        """
        single = len(sentences) == 2 and isinstance(sentences[0], str)
        pairs = [_pair(i, given) for i, given in enumerate([sentences] if single else sentences)]
        verdicts = self.verifier.score_pairs(pairs, progress=show_progress_bar)
        _warn(verdicts)
        scores = np.array([v.p_supported for v in verdicts], dtype=np.float64)
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
        evidences = [evidence_of(document) for document in documents]
        found = []
        for r in self.verifier.rank(query, evidences, top_k=top_k, progress=show_progress_bar):
            row = {"corpus_id": r.index, "score": r.verdict.p_supported}
            row |= {"text": documents[r.index]} if return_documents else {}
            found.append(row | ({"error": r.verdict.error} if r.verdict.error else {}))
        return found


def evidence_of(given: Any) -> tuple[Evidence, ...]:
    """Evidence as a caller gives it: a text, a `Path` of a media file, an `Evidence`, or several judged together.

    Raises:
        ModelInputError: anything else; a sound file, which cannot be heard.
    """
    if isinstance(given, str):
        return (Passage(given),)
    if isinstance(given, Path):
        return (media_evidence(given),)
    if isinstance(given, (VideoSegment, Transcript, Image, Passage)):
        return (given,)
    if isinstance(given, (list, tuple)) and given:
        return tuple(piece for each in given for piece in evidence_of(each))
    raise ModelInputError(
        f"evidence: must be a text, a Path of a media file, an Evidence or several of these, got {given!r}; wrap it"
    )


def media_evidence(path: str | Path) -> VideoSegment | Image:
    """What a media file is, by the ending of its name: an image or, whole, a video. `ModelInputError` for sound."""
    ending = Path(path).suffix.lower()
    if ending in AUDIO:
        raise ModelInputError(f"{path}: sound cannot be heard, got a {ending} file; give its transcript")
    return Image(str(path)) if ending in IMAGES else VideoSegment(str(path))


def _pair(number: int, given: Any) -> Pair:
    if not (isinstance(given, (list, tuple)) and len(given) == 2 and isinstance(given[0], str)):
        raise ModelInputError(f"pair {number}: must be (claim, evidence), the claim a text, got {given!r}; swap or fix")
    return Pair(id=str(number), claim=given[0], evidence=evidence_of(given[1]))


def _warn(verdicts: Sequence[Verdict]) -> None:
    if reasons := [v.error for v in verdicts if v.error]:
        _log.warning("%d of %d pairs failed and are NaN; the first: %s", len(reasons), len(verdicts), reasons[0])
