"""How much faster is a training step whose K claims share their video than that of a plain chat Trainer?

    OMP_NUM_THREADS=1 python -m benchmarks.training --out benchmarks/results/training_cpu.md

Both sides train the same adapters (LoRA of rank 8, layers checkpointed, tower frozen, AdamW) of the same small network
with random weights, K claims about one video a step. Packed: `VerdictTrainer` with one row of K claims. Plain:
transformers' `Trainer` with K conversations [video, claim, yes or no], one after the other, their gradients summed,
loss on the answer; what a chat trainer does with the same data. Steps take turns within one run; medians of their
times, and "times faster" the median of the ratios within rounds. CPU seconds of one thread between a step's begin and
end, as other programs may run beside it; wall seconds of the packed step follow. "counted x" is what counting
operations allows.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from benchmarks.pages import command, made_on, publish
from benchmarks.prefix_ways import WORDS, make_model, question
from benchmarks.shared_prefix import counted
from proofreel.models.backbones import vision_layout
from proofreel.models.engine import NextToken, pack
from proofreel.models.inputs import EncodedEvidence
from proofreel.train.dataset import Collator, Example
from proofreel.train.trainer import VerdictTrainer


class Clock(TrainerCallback):
    """CPU and wall seconds of every step."""

    def __init__(self) -> None:
        """Nothing timed yet."""
        self.steps: list[tuple[float, float]] = []
        self.began = 0.0, 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start."""
        self.began = time.process_time(), time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Stop."""
        self.steps.append((time.process_time() - self.began[0], time.perf_counter() - self.began[1]))


def trainers(folder: Path, model: Any, evidence: EncodedEvidence, claims: list[torch.Tensor]) -> dict[str, Trainer]:
    """Of both sides, each with as much data as a step takes."""

    def arguments(n_accumulated: int) -> TrainingArguments:
        return TrainingArguments(
            output_dir=str(folder / "run"),
            use_cpu=True,
            max_steps=1,
            per_device_train_batch_size=1,
            gradient_accumulation_steps=n_accumulated,
            learning_rate=1e-4,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
            dataloader_pin_memory=False,
        )

    k, answers = len(claims), (WORDS.supported_id, WORDS.refuted_id)
    labels = torch.arange(k) % 2
    example = Example(pack(evidence, claims), 1.0 - labels.float(), torch.ones(k), labels)
    packed = VerdictTrainer(
        model=model,
        args=arguments(1),
        train_dataset=[example],  # type: ignore[arg-type]  (anything with a length and items)
        data_collator=Collator(0),
        head=NextToken(WORDS),
        layout=vision_layout(model.config),
    )
    chats = [conversation(evidence, claim, answers[i % 2]) for i, claim in enumerate(claims)]
    plain = Trainer(model=model, args=arguments(k), train_dataset=chats, data_collator=lambda rows: rows[0])  # type: ignore[arg-type]
    return {"packed": packed, "plain": plain}


def conversation(evidence: EncodedEvidence, claim: torch.Tensor, answer: int) -> dict[str, torch.Tensor]:
    """A batch of one chat: the video, the claim, and an answer that alone is learnt."""
    ids = torch.cat([evidence.ids_P, claim, torch.tensor([answer])])[None]
    labels = torch.full_like(ids, -100)
    labels[0, -1] = answer
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels, **evidence.vision}


def seconds(sides: dict[str, Trainer], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """CPU and wall seconds of each side's steps, after a first round that warms up; sides take turns."""
    clocks = {name: Clock() for name in sides}
    for name, trainer in sides.items():
        trainer.add_callback(clocks[name])
    for i in range(rounds + 1):
        for name in list(sides)[:: (-1) ** i]:
            sides[name].train()
    return {name: clock.steps[1:] for name, clock in clocks.items()}


def row(folder: Path, model: Any, tokens: int, k: int, rounds: int) -> str:
    """One line of the table."""
    asked = question(model.config, tokens, k)
    steps = seconds(trainers(folder, model, *asked), rounds)
    packed, plain = ([cpu for cpu, _ in steps[name]] for name in ("packed", "plain"))
    ratios = [slow / fast for slow, fast in zip(plain, packed, strict=True)]
    wall_s = statistics.median(wall for _, wall in steps["packed"])
    cells = [f"{tokens:,}", str(k), f"{k / statistics.median(packed):.1f}"]
    cells += [f"{statistics.median(side):.3f}" for side in (packed, plain)] + [f"{wall_s:.3f}"]
    cells += [f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"]
    line = "| " + " | ".join([*cells, f"{counted(model.config, 'training', *asked):.2f}"]) + " |"
    print(line, file=sys.stderr, flush=True)
    return line


HEADER = """| visual tokens | K | claims/s | packed s | plain s | packed wall s | times faster | counted x |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="page to write")
    parser.add_argument("--tokens", nargs="+", type=int, default=[256, 1024], help="visual tokens")
    parser.add_argument("--claims", nargs="+", type=int, default=[1, 4, 8, 16], help="claims of a step")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    began = time.time()
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as place:
        model = make_model("training", Path(place) / "base")
        lines = [row(Path(place), model, n, k, args.rounds) for n in args.tokens for k in args.claims]
    text = (__doc__ or "").strip().splitlines()[4:]
    made = made_on(began, ("torch", "transformers", "peft"))
    publish(["# A packed training step against a plain chat Trainer", "", *text, "", *HEADER.splitlines(), *lines, "",
             f"`{command()}`; {made}"], args.out)  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
