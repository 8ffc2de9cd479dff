"""Three ways to the margins of K claims about one video, for benchmarks: together, one each, and as a padded batch.

Together is the project's engine, with the code that verifiers and training runs use. The other two are what one would
write without it: ordinary sequences [evidence | claim], alone or padded to a batch, each with a video of its own.
Videos and claims are noise, weights random: only time and memory are looked at.

Shape suffixes: _K claims.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig

from proofreel.models.backbones import TinySizes, attach_lora, load_backbone, save_tiny_model, vision_layout
from proofreel.models.engine import (
    NextToken,
    PrefixCache,
    PrefixScorer,
    Segment,
    collate,
    margins,
    pack,
    to_device,
)
from proofreel.models.inputs import EncodedEvidence, LabelWords, claim_positions, mrope_positions

TINY = TinySizes(
    hidden=256, layers=4, heads=4, kv_heads=2, mlp=1344, vision_hidden=64, vision_depth=4, vision_mlp=256, window=56
)
FRAME = (32, 32)  # patches: 256 visual tokens for each pair of frames
TEXT_TOKENS, CLAIM_TOKENS, LORA_RANK = 16, (20, 29), 8
WORDS = LabelWords(supported_id=5, refuted_id=6)

Way = Callable[[int], torch.Tensor]
"""Judges the first k claims of a cell; their margins (scoring) or the loss (training)."""


def make_model(task: str, folder: Path) -> Any:
    """The network of a task: all of it frozen for scoring, with adapters and checkpointing for training."""
    if not (folder / "config.json").exists():
        save_tiny_model(folder, ["Claim: the ball is red."] * 20, TINY)
    model = load_backbone(folder).eval().requires_grad_(False)
    if task == "training":
        model = attach_lora(model, LoraConfig(r=LORA_RANK)).train()
        model.activation_checkpointing_enable({"use_reentrant": False})
    return model


def question(config: Any, n_visual: int, n_claims: int) -> tuple[EncodedEvidence, list[torch.Tensor]]:
    """A video of noise of `n_visual` tokens between random words, and claims of random words."""
    torch.manual_seed(n_visual)
    layout, merge = vision_layout(config), config.vision_config.spatial_merge_size
    grid = torch.tensor([[n_visual * merge**2 // (FRAME[0] * FRAME[1]), *FRAME]])
    words, video = torch.randint(10, 250, (2, TEXT_TOKENS)), torch.full((n_visual,), layout.video_token_id)
    ids, seconds = torch.cat([words[0], video, words[1]]), torch.tensor([1.0])
    positions, start = mrope_positions(ids, layout, video_grids_N3=grid, seconds_per_grid_N=seconds)
    vision = {"video_grid_thw": grid, "second_per_grid_ts": seconds}
    vision["pixel_values_videos"] = torch.randn(int(grid.prod()), 3 * 2 * config.vision_config.patch_size**2)
    claims = [torch.randint(10, 250, (int(n),)) for n in torch.randint(*CLAIM_TOKENS, (n_claims,))]
    return EncodedEvidence(ids, positions, start, vision), claims


def plain(model: Any, evidence: EncodedEvidence, claims: list[torch.Tensor]) -> torch.Tensor:
    """(K,) margins of ordinary, padded sequences [evidence | claim], each with a video of its own."""
    device, longest = next(model.parameters()).device, max(len(c) for c in claims)
    ids, mask, positions, keep = [], [], [], []
    for claim in claims:
        row = torch.nn.functional.pad(torch.cat([evidence.ids_P, claim]), (0, longest - len(claim)))
        steps = torch.arange(len(row))
        ids.append(row)
        mask.append(steps < len(evidence.ids_P) + len(claim))
        keep.append(steps == len(evidence.ids_P) + len(claim) - 1)
        positions.append(torch.cat([evidence.positions_3P, claim_positions(longest, evidence.next_position)], 1))
    inputs = {name: torch.cat([t] * len(claims)) for name, t in evidence.vision.items()}
    inputs |= {"input_ids": torch.stack(ids), "logits_to_keep": torch.stack(keep)}
    inputs |= {"position_ids": torch.stack(positions, 1)}
    inputs |= {"attention_mask": torch.stack(mask).long()} if len(claims) > 1 else {}
    logits = model(**to_device(inputs, device), use_cache=False).logits.float()
    return logits[:, WORDS.supported_id] - logits[:, WORDS.refuted_id]


def check_equal(ways: dict[str, Way], dtype: torch.dtype) -> None:
    """Our ways agree on two claims, or there is nothing to compare."""
    scores = {name: way(2) for name, way in ways.items()}
    for name in ("each", "padded"):
        close = torch.allclose(scores["shared"], scores[name], atol=1e-3 if dtype == torch.float32 else 0.5)
        assert close, f"shared and {name} differ, got {scores}"


@functools.lru_cache(maxsize=1)
def rival_network(folder: Path, device: str, dtype: torch.dtype) -> Any:
    """sentence-transformers' CrossEncoder of a checkpoint, with the verdict words that our ways use."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    network = Transformer(str(folder), transformer_task="any-to-any", model_kwargs={"dtype": dtype})
    return CrossEncoder(modules=[network, LogitScore(WORDS.supported_id, WORDS.refuted_id)], device=device).eval()


def rival_way(
    folder: Path, device: str, dtype: torch.dtype, evidence: EncodedEvidence, claims: list[torch.Tensor]
) -> Way:
    """Margins by sentence-transformers' CrossEncoder over the same weights: its network, batches of at most 32.

    What its processor would make of texts and frames is given, so that only networks are compared. Positions are those
    of its transformers, so margins differ a little from ours.
    """
    rival = rival_network(folder, device, dtype)

    def batch(some: list[torch.Tensor]) -> torch.Tensor:
        rows, longest = [torch.cat([evidence.ids_P, claim]) for claim in some], max(len(claim) for claim in some)
        lengths = torch.tensor([len(row) for row in rows])
        n = len(evidence.ids_P) + longest
        features = {name: torch.cat([t] * len(some)) for name, t in evidence.vision.items()}
        features["input_ids"] = torch.stack([torch.nn.functional.pad(row, (n - len(row), 0)) for row in rows])
        features["attention_mask"] = (torch.arange(n) >= n - lengths[:, None]).long()
        return rival(to_device(features, torch.device(device)))["scores"].float().flatten().cpu()

    def way(k: int) -> torch.Tensor:
        with torch.inference_mode():
            return torch.cat([batch(claims[i : min(i + 32, k)]) for i in range(0, k, 32)])

    return way


def scoring_ways(model: Any, evidence: EncodedEvidence, claims: list[torch.Tensor]) -> dict[str, Way]:
    """Margins, three ways."""
    scorer = PrefixScorer(model, NextToken(WORDS), vision_layout(model.config), 0, PrefixCache(0))
    segment = Segment(evidence, tuple(claims))

    def each(k: int) -> torch.Tensor:
        with torch.inference_mode():
            return torch.cat([plain(model, evidence, [claim]) for claim in claims[:k]]).cpu()

    def padded(k: int) -> torch.Tensor:
        with torch.inference_mode():
            return plain(model, evidence, claims[:k]).cpu()

    return {"shared": lambda k: torch.from_numpy(scorer.score([segment])[0][:k]), "each": each, "padded": padded}


def training_ways(model: Any, evidence: EncodedEvidence, claims: list[torch.Tensor]) -> dict[str, Way]:
    """The mean loss of the first k claims, and gradients of the adapters, three ways."""
    device, layout = next(model.parameters()).device, vision_layout(model.config)
    labels = (torch.arange(len(claims)) % 2).float().to(device)

    def step(found_K: torch.Tensor, first: int, k: int) -> torch.Tensor:
        some_K = labels[first : first + len(found_K)]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(found_K, some_K, reduction="sum") / k
        loss.backward()
        return loss.detach().float().cpu()

    def shared(k: int) -> torch.Tensor:
        model.zero_grad()
        batch = to_device(collate([pack(evidence, claims[:k])], 0), device)
        return step(margins(model, batch, NextToken(WORDS), layout)[0], 0, k)

    def each(k: int) -> torch.Tensor:
        model.zero_grad()
        return torch.stack([step(plain(model, evidence, [claims[i]]), i, k) for i in range(k)]).sum()

    def padded(k: int) -> torch.Tensor:
        model.zero_grad()
        return step(plain(model, evidence, claims[:k]), 0, k)

    return {"shared": shared, "each": each, "padded": padded}
