"""Three ways to the margins of K claims about one video, for benchmarks: together, one each, and as a padded batch.

Together is the project's engine, with the code that verifiers and training runs use. The other two are what one would
write without it: ordinary sequences [evidence | claim], alone or padded to a batch, each with a video of its own.
Videos and claims are noise, weights random: only time and memory are looked at.

Shape suffixes: _K claims.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import torch
from peft import LoraConfig
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

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
    use_prefix_split,
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


def tiny_model() -> Any:
    """The prototype's shape, float32."""
    with tempfile.TemporaryDirectory() as folder:
        return load_backbone(save_tiny_model(folder, ["Claim: the ball is red."] * 20, TINY))


def model_7b(device: str) -> Any:
    """Qwen2.5-VL-7B's shape with random weights, bfloat16."""
    text = {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28}
    text |= {"num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 128000}
    text |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}}
    tower = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "out_hidden_size": 3584}
    tower |= {"window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31], "tokens_per_second": 2}
    config = Qwen2_5_VLConfig(text_config=text, vision_config=tower, tie_word_embeddings=False)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = Qwen2_5_VLForConditionalGeneration(config)
    torch.set_default_dtype(torch.float32)
    use_prefix_split(model)
    return model


def make_model(task: str, shape: str, device: str) -> Any:
    """The network of a task: all of it frozen for scoring, with adapters and checkpointing for training."""
    model = tiny_model() if shape == "tiny" else model_7b(device)
    model = model.to(device).eval().requires_grad_(False)
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
