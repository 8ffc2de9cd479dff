"""Memory of one GPU in a training run, estimated from the configuration before anything is loaded.

The sum of, in bytes (h hidden, q queries, k keys, m MLP of a decoder layer; T tokens of a micro-batch; b bytes of the
dtype):

weights      b each, a shard of them under ZeRO-3 and FSDP2; NF4 linears of the language model 1/2 + 4/64, or with
             double quantisation 1/2 + 1/64 + 4/(64 x 256) (QLoRA, arXiv 2305.14314, section 3)
             what trains is float32, but under DeepSpeed, which keeps float32 copies in its optimiser
gradients    of what trains, 4 bytes each: a second copy in DDP's buckets; sharded under DeepSpeed and FSDP2
optimiser    AdamW: two float32 moments; DeepSpeed: float32 weights as well, sharded (ZeRO, arXiv 1910.02054,
             section 3)
buffers      DeepSpeed's reduction bucket, layers gathered from shards, autocast's copies of float32 matrices that
             train, one dequantised matrix
activations  checkpointed: b h T per layer and one layer at work, (6m + 4h + 8q + 2k) b T; otherwise
             (4m + 4h + 8q + 2k) b T per layer (2h more where the layers themselves train, 2q + 2k more where queries
             and keys have norms) and what one layer's backward adds, 2m b T; in evaluation (4m + 3h) b T; masks of the
             claims; of a layer that carries a state, that in place of q and k (`Backbone.state_memory`)
vision       pixels; a frozen tower works once, before there are other activations (`Backbone.tower_memory`); so does
             the audio tower, after it
allowance    1 GiB of CUDA context and libraries, and a tenth of what a step computes for the allocator's gaps

The factors of activations were measured by following every tensor of a step of small networks on the CPU
(tests/end_to_end/test_memory.py does so again); the allowance is a rule of thumb. The longest rows count, not the usual
ones.

Apart from the plan because it is arithmetic on shapes, tested against measured tensors, and knows nothing of a run.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields, replace
from typing import Any

from transformers import TrainingArguments
from trl import ModelConfig

from ..models.backbones import (
    Parameters,
    TowerMemory,
    attention_widths,
    audio_config,
    backbone_for,
    language_linears,
    lora_parameters,
    vision_config,
    vision_layout,
)
from ..models.inputs import audio_tokens
from .arguments import VerdictArguments

GIB = 2**30
CONTEXT = 1.0 * GIB
GAPS = 0.1
BUCKET = 500_000_000  # DeepSpeed's reduce_bucket_size, in elements
LIVE = 1_000_000_000  # DeepSpeed's stage3_max_live_parameters
MEL_FRAMES_PER_S = 100
TEXT_TOKENS = 64  # of a prefix around its visual tokens, and of a claim in its template: generous for plain sentences
TURN_TOKENS = 11  # of a temporal patch's time and marks, where a video is written frame by frame: `<1234.5 seconds>`


@dataclass(frozen=True)
class Engine:
    """How a run is spread: over how many GPUs, and what each keeps a shard of."""

    n_gpus: int = 1
    stage: int = 0  # 0 nothing, 2 gradients and optimiser, 3 weights as well
    deepspeed: bool = False
    offload_optimizer: bool = False  # to main memory
    offload_weights: bool = False

    @classmethod
    def of(cls, training: TrainingArguments) -> Engine:
        """Of this process, as `accelerate launch` has set it up."""
        if (plugin := training.deepspeed_plugin) is not None:
            offloads = plugin.offload_optimizer_device, plugin.offload_param_device
            optimizer, weights = (device in ("cpu", "nvme") for device in offloads)
            return cls(training.world_size, int(plugin.zero_stage), True, optimizer, weights)
        if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true":
            offload = os.environ.get("FSDP_OFFLOAD_PARAMS", "false").lower() == "true"
            return cls(training.world_size, 3, False, offload, offload)
        return cls(training.world_size)

    def shard(self, n: float, stage: int) -> float:
        """What one GPU keeps of `n` bytes that are sharded from this stage on."""
        return n / self.n_gpus if self.stage >= stage else n


@dataclass(frozen=True)
class Setting:
    """What is loaded and trained, and how."""

    config: Any  # of the backbone
    dtype_bytes: int = 2
    nf4: bool = False
    double_quantised: bool = False
    lora_rank: int | None = None  # None: the language model itself trains
    train_vision: bool = False
    checkpointing: bool = True
    head: bool = False  # in place of the output layer
    n_trainable: int | None = None  # where more is known than the rank

    @property
    def trainable(self) -> int:
        """Parameters that train."""
        if self.n_trainable is not None:
            return self.n_trainable
        if self.lora_rank is not None:
            return lora_parameters(self.config, self.lora_rank)
        parameters = Parameters.of(self.config)
        return parameters.total - (0 if self.train_vision else parameters.vision + parameters.audio)

    def trainable_bytes(self, engine: Engine) -> int:
        """Of one of them as a weight: float32, but DeepSpeed holds a copy in the weights' dtype."""
        return self.dtype_bytes if engine.deepspeed else 4


@dataclass(frozen=True)
class Load:
    """The largest micro-batch: how many rows, and what each holds at most."""

    rows: float
    row_tokens: int  # visual ones included
    claim_tokens: int  # of them, behind the prefix
    patches: int
    mel_frames: int = 0

    @property
    def tokens(self) -> float:
        """Of all rows."""
        return self.rows * self.row_tokens

    @classmethod
    def of(cls, config: Any, arguments: VerdictArguments, rows: int, longest_row: int | None = None) -> Load:
        """Of rows of one video each, with its sound where the backbone hears.

        Args:
            config: of the backbone.
            arguments: frames, pixels, and the bound of a row.
            rows: of a micro-batch.
            longest_row: tokens of the longest row, where the data is known; else `tokens_per_row`, else a video of the
                most frames and pixels with the most claims.
        """
        vision = vision_config(config)
        visual, merged, times = 0, 0, 0
        if vision is not None and not arguments.claim_only:
            side, merged = vision.patch_size * vision.spatial_merge_size, vision.spatial_merge_size**2
            parts = -(-arguments.max_frames // vision.temporal_patch_size)
            visual = parts * (arguments.max_pixels // side**2)
            times = parts * TURN_TOKENS if vision_layout(config).frame_turn else 0
        heard = 0
        if audio_config(config) is not None and not arguments.claim_only:
            heard = math.ceil(MEL_FRAMES_PER_S * arguments.max_frames / arguments.fps)
        claims = arguments.claims_per_row * TEXT_TOKENS
        most = visual + times + audio_tokens(heard) + TEXT_TOKENS + claims
        row = longest_row or arguments.tokens_per_row or most
        return cls(rows, row, min(claims, row), min(visual, row) * merged, heard)


@dataclass(frozen=True)
class Estimate:
    """Bytes of one GPU, by what they are for."""

    weights: float
    gradients: float
    optimizer: float
    buffers: float
    activations: float
    vision: float
    allowance: float

    @property
    def gib(self) -> float:
        """All of it, in GiB."""
        return sum(getattr(self, f.name) for f in fields(self)) / GIB

    def __str__(self) -> str:
        """The sum and its parts, largest first, without those that do not show."""
        parts = sorted(((getattr(self, f.name) / GIB, f.name) for f in fields(self)), reverse=True)
        return f"{self.gib:.1f} GiB per GPU: " + ", ".join(f"{name} {gib:.1f}" for gib, name in parts if gib >= 0.05)


def estimate(setting: Setting, load: Load, engine: Engine, *, learning: bool = True) -> Estimate:
    """What one GPU holds at the peak of a step; not `learning`, of a batch of evaluation between steps."""
    trained = setting.trainable
    if engine.deepspeed:
        gradients, optimizer = engine.shard(4 * trained, 2), engine.shard(12 * trained, 1)
    else:
        copies = 2 if engine.n_gpus > 1 and engine.stage == 0 else 1
        gradients, optimizer = (engine.shard(4 * n * trained, 2) for n in (copies, 2))
    if engine.offload_optimizer:
        gradients = optimizer = 0.0
    activations = _language(setting, load) if learning else _language_forward(setting, load)
    pixels, towers = _pixels(setting, load), (_vision(setting, load, learning), _audio(setting, load, learning))
    vision = sum(towers)
    if not (learning and setting.train_vision):  # towers are done before the language model begins: the largest counts
        vision = max(0.0, max(towers) - activations)
    return Estimate(
        weights=_weights(setting, engine),
        gradients=gradients,
        optimizer=optimizer,
        buffers=_buffers(setting, engine),
        activations=activations,
        vision=vision + pixels,
        allowance=CONTEXT + GAPS * (activations + vision + pixels),
    )


def estimate_run(
    config: Any,
    arguments: VerdictArguments,
    training: TrainingArguments,
    model: ModelConfig,
    engine: Engine | None = None,
    longest_row: int | None = None,
    n_trainable: int | None = None,
    head: bool = False,
) -> Estimate:
    """The larger of a run's steps and evaluations, as it is configured.

    Args:
        config: of the backbone.
        arguments: of the run, as `train.arguments.parse` gives them.
        training: of the run.
        model: of the run.
        engine: other than this process's.
        longest_row: as for `Load.of`.
        n_trainable: parameters that train, if not those of a rank on every linear layer of the language model.
        head: the run trains an NLI head, which stands in place of the output layer.
    """
    in_tower = model.use_peft and bool({"visual", "merger", "audio"} & set(arguments.lora_parts))
    setting = Setting(
        config,
        dtype_bytes=4 if model.dtype == "float32" else 2,
        nf4=model.load_in_4bit,
        double_quantised=model.use_bnb_nested_quant,
        lora_rank=model.lora_r if model.use_peft else None,
        train_vision=in_tower or (arguments.train_vision and not model.use_peft),
        checkpointing=bool(training.activation_checkpointing),
        head=head,
        n_trainable=n_trainable,
    )
    engine = engine or Engine.of(training)
    load = Load.of(config, arguments, training.per_device_train_batch_size, longest_row)
    if arguments.tokens_per_batch is not None:
        load = replace(load, rows=min(load.rows, max(1.0, arguments.tokens_per_batch / load.row_tokens)))
    estimates = [estimate(setting, load, engine)]
    if training.eval_strategy != "no":
        load = Load.of(config, arguments, training.per_device_eval_batch_size, longest_row)
        estimates.append(estimate(setting, load, engine, learning=False))
    return max(estimates, key=lambda e: e.gib)


def _weights(setting: Setting, engine: Engine) -> float:
    parameters, b = Parameters.of(setting.config), setting.dtype_bytes
    linears = float(b * parameters.linears)
    if setting.nf4:
        scales = 1 / 64 + 4 / (64 * 256) if setting.double_quantised else 4 / 64
        linears = (0.5 + scales) * parameters.linears
    weights = linears + b * (parameters.total - parameters.linears - (parameters.lm_head if setting.head else 0))
    if setting.lora_rank is not None:
        weights += setting.trainable_bytes(engine) * setting.trainable
    else:
        weights += (setting.trainable_bytes(engine) - b) * setting.trainable
    return 0.0 if engine.offload_weights else engine.shard(weights, 3)


def _buffers(setting: Setting, engine: Engine) -> float:
    parameters, text = Parameters.of(setting.config), setting.config.get_text_config()
    n = float(BUCKET if engine.deepspeed else 0)
    if engine.stage >= 3 and engine.deepspeed:
        n += min(parameters.total, LIVE + parameters.embeddings)
    elif engine.stage >= 3:  # FSDP2: what belongs to no layer stays gathered; one layer works, the next one arrives
        n += parameters.embeddings + parameters.lm_head + 2 * parameters.linears / text.num_hidden_layers
    elif setting.lora_rank is None and setting.dtype_bytes < 4:  # autocast's copies of what trains
        n += parameters.linears
    if setting.nf4:
        n += max(i * o for i, o in language_linears(setting.config))
    return setting.dtype_bytes * n


def _language(setting: Setting, load: Load) -> float:
    text, b = setting.config.get_text_config(), setting.dtype_bytes
    backbone = backbone_for(setting.config.model_type)
    h, m, layers = text.hidden_size, text.intermediate_size, text.num_hidden_layers
    q, k = attention_widths(text)
    own = 0 if setting.lora_rank is not None else 2 * h  # what only the layers' own gradients need
    norms = 2 * (q + k) if backbone.norms_queries else 0
    around = b * (4 * m + 4 * h + own)
    attending, state = around + b * (8 * q + 2 * k + norms), backbone.state_memory(text)
    n_states = layers - backbone.attention_layers(text)
    kept = max(attending, around + state.kept) if n_states else attending
    at_work = max(b * 2 * m, state.working)
    if setting.checkpointing:
        return (b * h * layers + kept + at_work) * load.tokens + _mask(setting, load)
    of_all = (layers - n_states) * attending + n_states * (around + state.kept)
    return (of_all + at_work) * load.tokens + layers * _mask(setting, load)


def _language_forward(setting: Setting, load: Load) -> float:
    text, b = setting.config.get_text_config(), setting.dtype_bytes
    state = backbone_for(setting.config.model_type).state_memory(text)
    at_work = max(b * 4 * text.intermediate_size, state.forward)
    return (at_work + b * 3 * text.hidden_size) * load.tokens + _mask(setting, load)


def _mask(setting: Setting, load: Load) -> float:
    return (1 + setting.dtype_bytes) * load.rows * load.claim_tokens * load.row_tokens  # as bool and as numbers


def _pixels(setting: Setting, load: Load) -> float:
    vision = vision_config(setting.config)
    if vision is None:
        return 0.0
    values = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    return (4 + setting.dtype_bytes) * values * load.rows * load.patches  # as they come, and in the tower's dtype


def _vision(setting: Setting, load: Load, learning: bool) -> float:
    vision = vision_config(setting.config)
    if vision is None:
        return 0.0
    tower = backbone_for(setting.config.model_type).tower_memory(vision)
    return _tower(setting, tower, load.rows * load.patches, vision.depth, vision.hidden_size, learning)


def _audio(setting: Setting, load: Load, learning: bool) -> float:
    audio = audio_config(setting.config)
    if audio is None:
        return 0.0
    tower = backbone_for(setting.config.model_type).audio_memory(audio)
    return _tower(setting, tower, load.rows * load.mel_frames, audio.encoder_layers, audio.d_model, learning)


def _tower(setting: Setting, tower: TowerMemory, n_inputs: float, layers: int, width: int, learning: bool) -> float:
    n = setting.dtype_bytes * n_inputs
    if not (setting.train_vision and learning):
        return n * tower.frozen
    if setting.checkpointing:
        return n * (width * layers + tower.layer + tower.working + tower.ends)
    return n * (layers * tower.layer + tower.working + tower.ends)
