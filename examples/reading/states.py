"""Hidden states of a frozen language model where it would give its verdict, computed once and kept.

All claims about one document follow one pass over it (models/engine/packing.py), as in training and scoring.

Shape suffixes: _N claims, _L layers, _H hidden.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from proofreel.core import Pair, Passage, Prompt, evidence_key
from proofreel.data_prep.media import FrameSampling
from proofreel.models.backbones import load_backbone, load_processor, vision_layout, weights_sha256
from proofreel.models.engine import collate, pack, packed_logits
from proofreel.models.inputs import Encoder, LabelWords, Media

CLAIMS_PER_ROW = 24
HIDDEN = Passage("(not shown)")
"""In the place of a document, where a claim is to be judged by itself."""


class Reader:
    """A frozen base, and what its layers hold at the end of a claim.

    Attributes:
        words: the verdict words' tokens.
    """

    def __init__(self, base: Path, cache: Path) -> None:
        """`cache`: folder of states that were computed already."""
        self.base, self.cache = base, cache
        self.model: Any = load_backbone(base).float().eval()
        self.encoder = Encoder(load_processor(base), vision_layout(self.model.config), Prompt(), FrameSampling())
        self.words = LabelWords.of(Prompt(), self.encoder.tokenizer)
        self._made_by = f"{weights_sha256(base)} {Prompt().sha256}"

    def states(self, pairs: Sequence[Pair], *, shown: bool = True, name: str = "") -> np.ndarray:
        """(N, L, H) float32: the residual stream after each layer, at the verdict position of every claim.

        Args:
            pairs: with evidence in words.
            shown: else each claim is judged without its evidence.
            name: of the progress bar.
        """
        documents: dict[str, list[int]] = {}
        for i, pair in enumerate(pairs):
            documents.setdefault(evidence_key(pair.evidence) if shown else "", []).append(i)
        chunks = [
            chosen[i : i + CLAIMS_PER_ROW]
            for chosen in documents.values()
            for i in range(0, len(chosen), CLAIMS_PER_ROW)
        ]
        found: np.ndarray | None = None
        for chunk in tqdm(chunks, desc=name or "states", unit="row"):
            rows = [pairs[i] if shown else dataclasses.replace(pairs[i], evidence=(HIDDEN,)) for i in chunk]
            states_KLH = self._kept(rows)
            if found is None:
                found = np.zeros((len(pairs), *states_KLH.shape[1:]), np.float32)
            found[chunk] = states_KLH
        assert found is not None
        return found

    def _kept(self, rows: Sequence[Pair]) -> np.ndarray:
        """States of claims about one document, from the cache or into it."""
        said = json.dumps([self._made_by, evidence_key(rows[0].evidence), [[r.claim, r.context] for r in rows]])
        file = self.cache / f"{hashlib.sha256(said.encode()).hexdigest()}.npy"
        if not file.exists():
            self.cache.mkdir(parents=True, exist_ok=True)
            new = file.with_suffix(".new")
            with new.open("wb") as handle:
                np.save(handle, self._computed(rows).astype(np.float16))
            new.replace(file)
        return np.load(file).astype(np.float32)

    @torch.inference_mode()
    def _computed(self, rows: Sequence[Pair]) -> np.ndarray:
        evidence = self.encoder.evidence(rows[0].evidence, Media())
        claims = [self.encoder.claim_ids(row.claim, row.context) for row in rows]
        self.encoder.check_length(evidence, claims)
        batch = collate([pack(evidence, claims)], self.encoder.pad_id)
        ends = batch["verdicts"][0]
        keep_BT = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
        keep_BT[0, ends[-1]] = True
        states: list[torch.Tensor] = []

        def note(_layer: Any, _inputs: Any, output: Any) -> None:
            states.append((output[0] if isinstance(output, tuple) else output)[0, ends])

        hooks = [layer.register_forward_hook(note) for layer in self.model.model.layers]
        try:
            packed_logits(self.model, batch, keep_BT, self.encoder.layout)
        finally:
            for hook in hooks:
                hook.remove()
        return torch.stack(states, 1).numpy()
