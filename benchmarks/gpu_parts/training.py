"""Training on a GPU: packed steps against one per claim, memory against the estimate, and how much a card holds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from peft import LoraConfig

from benchmarks.gpu_parts.cells import Part, Setting, Values
from benchmarks.gpu_parts.measuring import folder_of, peak_gib, seconds_of, share_of_peak, working_dtype
from benchmarks.gpu_parts.networks import Loaded, free, load
from benchmarks.prefix_ways import FRAME, question, training_ways
from benchmarks.shared_prefix import counted, times
from proofreel.models.backbones import attach_lora, keep_float32_masters, training_operations
from proofreel.models.inputs import EncodedEvidence
from proofreel.train.memory import GIB, Engine, Load, estimate
from proofreel.train.memory import Setting as MemorySetting

RANK = 16
CARDS_GIB = (24, 80)
CONTEXT_GIB = 1  # of a card's memory for CUDA itself
TOKENS_A_PAIR_OF_FRAMES = FRAME[0] * FRAME[1] // 4


class Trained:
    """The network with adapters that was made last, and its optimiser."""

    key: Any = None
    model: Any = None
    optimiser: Any = None

    @classmethod
    def get(cls, args: Any, shape: str, bits: int, layers: int | None = None) -> Any:
        """Adapters on all linear layers of the language model, float32 masters, checkpointed layers, AdamW."""
        if cls.key != (shape, bits, layers):
            cls.drop(args.device)
            model = load(folder_of(args, shape, layers), args.device, working_dtype(args), bits)
            model = attach_lora(model, LoraConfig(r=RANK, lora_alpha=2 * RANK)).train()
            keep_float32_masters(model, autocast=args.device == "cuda")
            model.activation_checkpointing_enable({"use_reentrant": False})
            trained = [p for p in model.parameters() if p.requires_grad]
            cls.key, cls.model, cls.optimiser = (shape, bits, layers), model, torch.optim.AdamW(trained, 1e-4)
        return cls.model

    @classmethod
    def drop(cls, device: str) -> None:
        """Free both."""
        Loaded.drop(device)
        cls.key = cls.model = cls.optimiser = None
        free(device)


def steps_of(args: Any, model: Any, evidence: EncodedEvidence, claims: list[torch.Tensor]) -> dict[str, Callable]:
    """Whole optimiser steps, by way; each takes how many claims."""

    def step(way: Callable[[int], torch.Tensor]) -> Callable[[int], torch.Tensor]:
        def run(k: int) -> torch.Tensor:
            with torch.autocast(args.device, torch.bfloat16, enabled=args.device == "cuda"):
                loss = way(k)
            Trained.optimiser.step()
            return loss

        return run

    return {name: step(way) for name, way in training_ways(model, evidence, claims).items()}


def training_settings(args: Any) -> Iterable[Setting]:
    """LoRA, then QLoRA where a GPU is; every shape and number of claims."""
    tokens = sorted(args.tokens)[len(args.tokens) // 2]
    for bits, shape, k in itertools.product(args.bits, args.shapes, args.train_claims):
        yield {"shape": shape, "tuned": _tuned(bits), "visual tokens": tokens, "K": k}


def _tuned(bits: int) -> str:
    return "QLoRA" if bits == 4 else "LoRA"


def train_cell(args: Any, setting: Setting) -> Values:
    """One optimiser step of K claims packed, against a step whose claims are forwards of their own."""
    bits, k = 4 if setting["tuned"] == "QLoRA" else 16, setting["K"]
    model = Trained.get(args, setting["shape"], bits)
    evidence, claims = question(model.config, setting["visual tokens"], k)
    steps = steps_of(args, model, evidence, claims)
    timed, ratio = times({name: steps[name] for name in ("shared", "each")}, k, args)
    gib = peak_gib(lambda: steps["shared"](k), args.device)
    grids, lengths = evidence.vision["video_grid_thw"].tolist(), [len(c) for c in claims]
    operations = training_operations(model.config, grids, len(evidence.ids_P), lengths, RANK).total
    packed_s, bound = timed["shared"][0], counted(model.config, "training", evidence, claims)
    return {
        "claims/s": k / packed_s,
        "packed s": packed_s,
        "one each s": timed["each"][0],
        "measured x": ratio,
        "counted x": bound,
        "share of peak": share_of_peak(operations, packed_s, args),
        "GiB": gib,
        "estimated GiB": estimated_gib(model.config, bits, len(evidence.ids_P), lengths, grids),
    }


def estimated_gib(config: Any, bits: int, prefix: int, claims: list[int], grids: list[list[int]]) -> float:
    """What train/memory.py says of a row."""
    patches = sum(t * h * w for t, h, w in grids)
    load_of_row = Load(1, prefix + sum(claims), sum(claims), patches)
    setting = MemorySetting(config, nf4=bits == 4, double_quantised=True, lora_rank=RANK)
    return estimate(setting, load_of_row, Engine()).gib


def largest_settings(args: Any) -> Iterable[Setting]:
    """Cards, bases, and what grows: claims at 4,096 visual tokens, or frames at 16 claims."""
    for shape, bits, gib in itertools.product(args.shapes, args.bits, CARDS_GIB):
        for grows in ("claims", "frames"):
            yield {"shape": shape, "tuned": _tuned(bits), "card GiB": gib, "grows": grows}


def largest_cell(args: Any, setting: Setting) -> Values:
    """The largest size that a step runs with in a card's memory, by doubling and then halving the gap."""
    bits = 4 if setting["tuned"] == "QLoRA" else 16
    model = Trained.get(args, setting["shape"], bits)
    if args.device == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory / GIB
        torch.cuda.set_per_process_memory_fraction(min(1.0, (setting["card GiB"] - CONTEXT_GIB) / total))
    try:
        most = args.most_claims if setting["grows"] == "claims" else args.most_frames
        n = largest(lambda n: _fits(args, model, setting["grows"], n), most)
    finally:
        if args.device == "cuda":
            torch.cuda.set_per_process_memory_fraction(1.0)
    return {"largest": n, "more were tried": n < most}


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest n up to `most` that fits, to an eighth of it; 0 if 1 does not."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, high * 2
    if high > most:
        if low == most or fits(most):
            return most
        high = most
    while high - low > max(1, low // 8):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _fits(args: Any, model: Any, grows: str, n: int) -> bool:
    """Whether a step runs. Frames come in pairs."""
    tokens = args.largest_tokens if grows == "claims" else n * TOKENS_A_PAIR_OF_FRAMES // 2
    if tokens < TOKENS_A_PAIR_OF_FRAMES:
        return True
    tokens -= tokens % TOKENS_A_PAIR_OF_FRAMES
    k = n if grows == "claims" else min(16, args.most_claims)
    try:
        steps_of(args, model, *question(model.config, tokens, k))["shared"](k)
    except torch.OutOfMemoryError:
        model.zero_grad()
        free(args.device)
        return False
    return True


def first_settings(args: Any) -> Iterable[Setting]:
    """One cell for each kind of base."""
    yield from ({"shape": args.shapes[0], "layers": 2, "tuned": _tuned(bits)} for bits in args.bits)


def first_cell(args: Any, setting: Setting) -> Values:
    """What everything else rests on, with two layers of a shape: packed margins, and two steps that learn."""
    from benchmarks.gpu_parts.measuring import matrix_rate
    from benchmarks.prefix_ways import check_equal, scoring_ways

    model = Trained.get(args, setting["shape"], 4 if setting["tuned"] == "QLoRA" else 16, setting["layers"])
    asked = question(model.config, min(args.tokens), 16)
    with torch.autocast(args.device, torch.bfloat16, enabled=args.device == "cuda"):
        check_equal(scoring_ways(model.eval(), *asked), working_dtype(args))
    model.train()
    step = steps_of(args, model, *asked)["shared"]
    losses = [float(step(16)) for _ in range(3)]
    seconds = seconds_of(lambda: step(16), args)
    Trained.drop(args.device)
    found: Values = {"first loss": losses[0], "after two steps": losses[2], "step s": seconds}
    return found | {"matrix TFLOP/s": matrix_rate(args.device) / 1e12}


FIRST = Part("first", "Do two layers score 16 claims alike each way, and take steps?", first_settings, first_cell)
TRAINING = Part("training", "How fast is a packed training step, in how much memory?", training_settings, train_cell)
LARGEST = Part("largest", "How many claims, or frames, does a card hold in training?", largest_settings, largest_cell)
