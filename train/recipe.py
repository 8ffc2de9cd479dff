"""One training run, top to bottom: check, load, train, and leave a draft verifier behind."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments, set_seed
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from trl import ModelConfig, get_peft_config, get_quantization_config

from ..data_prep.dataset import read_manifest, read_split
from ..data_prep.errors import ConfigError, RowError
from ..data_prep.manifest import git_revision
from ..data_prep.rows import Pair
from ..eval.predicting import hide_evidence
from ..models.adapters import attach_lora, trainable_summary
from ..models.backbone import load_backbone, load_processor, resolve_base, vision_layout, weights_sha256
from ..models.directory import BaseModel, VerifierConfig
from ..models.encoding import Encoder
from ..models.heads import NextToken, Readout
from ..models.prompt import LabelWords
from .arguments import VerdictArguments, torch_dtype
from .draft import save_draft
from .feeding import check_tower_calls, make_batches, make_datasets, make_vision_cache
from .groups import BatchedRows, Collator, check_rows
from .lengths import TokenCounts, group_pairs
from .trainer import VerdictTrainer

MAX_PROBLEMS_SHOWN = 20


def run(arguments: VerdictArguments, training: TrainingArguments, model_config: ModelConfig) -> Path | None:
    """Fine-tune a next-token verifier.

    Returns:
        The draft verifier's directory, or None after `validate_only`.

    Raises:
        ConfigError: an output directory in use, or settings that cannot work.
        RowError: rows that cannot be trained on, all of them listed, before any weight is loaded.
    """
    set_seed(training.seed)
    base = resolve_base(model_config.model_name_or_path or "", model_config.model_revision)
    splits = ["train"] if training.eval_strategy == "no" else ["train", "validation"]
    pairs = {split: _read(arguments, split) for split in splits}
    encoder, words, dtype = make_encoder(arguments, model_config, base)
    counts = TokenCounts(encoder)
    validate(pairs, counts, training)
    if arguments.validate_only:
        print(arithmetic(pairs, arguments, training, counts))
        return None

    start_run(arguments, training, model_config)
    model = load_model(arguments, model_config, base, dtype)
    _main_print(training, arithmetic(pairs, arguments, training, counts, model))
    trainer = make_trainer(model, NextToken(words), pairs, encoder, counts, arguments, training)
    trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    draft = save_draft(trainer, encoder, _verifier_config(arguments, model_config, base, words, dtype, trainer))
    _main_print(training, f"draft verifier: {draft}")
    return draft


def make_encoder(
    arguments: VerdictArguments, model_config: ModelConfig, base: Path
) -> tuple[Encoder, LabelWords, torch.dtype]:
    """The encoder of a run, its verdict words, and the dtype weights will be loaded in; no weights are read yet."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(base)
    processor = load_processor(base)
    prompt = arguments.prompt()
    encoder = Encoder(
        processor,
        vision_layout(config),
        prompt,
        arguments.sampling(),
        arguments.position_rule,  # type: ignore[arg-type]  (mrope_positions refuses unknown rules)
        arguments.max_tokens,
    )
    return encoder, LabelWords.of(prompt, processor.tokenizer), torch_dtype(model_config, config.dtype)


def validate(pairs: dict[str, list[Pair]], counts: TokenCounts, training: TrainingArguments) -> None:
    """Check every row with this run's tokenizer and sampling; `RowError` lists what is wrong, all at once."""
    if training.process_index != 0:
        return
    problems = [f"{split}: {p}" for split, rows in pairs.items() for p in check_rows(rows, counts)]
    if not problems:
        return
    shown = "\n  ".join(problems[:MAX_PROBLEMS_SHOWN])
    more = len(problems) - MAX_PROBLEMS_SHOWN
    raise RowError(
        f"{len(problems)} rows cannot be trained on:\n  {shown}" + (f"\n  and {more} more" if more > 0 else "")
    )


def load_model(arguments: VerdictArguments, model_config: ModelConfig, base: Path, dtype: torch.dtype) -> Any:
    """The network with what is trained unfrozen: LoRA adapters, or all of the language model (and vision if asked)."""
    quantization = get_quantization_config(model_config)
    peft_config = get_peft_config(model_config)
    if quantization is not None and peft_config is None:
        raise ConfigError("load_in_4bit: quantised weights cannot be trained, got use_peft: false; set use_peft: true")
    attention = model_config.attn_implementation or "sdpa"
    model = load_backbone(base, dtype=dtype, quantization_config=quantization, attn_implementation=attention)
    model.config.use_cache = False
    if peft_config is not None:
        # Not through peft's prepare_model_for_kbit_training: it turns norms and embeddings to float32, and a verifier
        # loaded from disk would then not be the function that was trained.
        return attach_lora(model, peft_config)
    model.model.visual.requires_grad_(arguments.train_vision)
    return model


def make_trainer(
    model: Any,
    readout: Readout,
    pairs: dict[str, list[Pair]],
    encoder: Encoder,
    counts: TokenCounts,
    arguments: VerdictArguments,
    training: TrainingArguments,
) -> VerdictTrainer:
    """The trainer with its rows; what the run's vision cache lacks is computed here."""
    features = make_vision_cache(arguments, model, encoder)
    if features is None and training.world_size > 1:
        check_tower_calls(pairs, is_deepspeed_zero3_enabled(), arguments.train_vision)
    datasets = make_datasets(pairs, readout.labels, encoder, counts, features, arguments)
    train_set = datasets["train"]
    if (batches := make_batches(train_set.groups, arguments, training, counts)) is not None:
        train_set = BatchedRows(train_set, batches)
        training.per_device_train_batch_size = 1  # an item of the data set is a batch now
    trainer = VerdictTrainer(
        model=model,
        args=training,
        train_dataset=train_set,
        eval_dataset=datasets.get("validation"),
        data_collator=Collator(encoder.pad_id),
        readout=readout,
        layout=encoder.layout,
    )
    if features is not None:  # the Trainer has put the model on its device
        evidences = [pair.evidence for rows in pairs.values() for pair in rows]
        workers, rank = training.dataloader_num_workers, training.process_index
        features.ensure(evidences, model, rank=rank, world_size=training.world_size, workers=workers)
        trainer.accelerator.wait_for_everyone()
    return trainer


def arithmetic(
    pairs: dict[str, list[Pair]],
    arguments: VerdictArguments,
    training: TrainingArguments,
    counts: TokenCounts,
    model: Any = None,
) -> str:
    """What the run amounts to, before its first step."""
    n_claims, most = len(pairs["train"]), arguments.claims_per_row
    groups = group_pairs(pairs["train"], most, arguments.tokens_per_row, counts)
    batches = make_batches(groups, arguments, training, counts)
    rows, accumulated = training.per_device_train_batch_size, training.gradient_accumulation_steps
    n_batches = math.ceil(len(groups) / rows) if batches is None else len(batches)
    per_step = accumulated * training.world_size  # batches
    steps_per_epoch = math.ceil(n_batches / per_step)
    steps = training.max_steps if training.max_steps > 0 else steps_per_epoch * training.num_train_epochs
    lines = [
        f"train         {n_claims} claims in {len(groups)} packed rows of at most {most}, in {n_batches} batches of at "
        f"most {rows} rows" + ("" if batches is None else f" or {arguments.tokens_per_batch} tokens"),
        f"validation    {len(pairs['validation'])} claims" if "validation" in pairs else "validation    none",
        f"step          {accumulated} accumulated x {training.world_size} processes = {per_step} batches, "
        f"about {n_claims / max(n_batches / per_step, 1):.0f} claims",
        f"steps         {steps:.0f} ({steps / steps_per_epoch:.1f} epochs)",
    ]
    if model is not None:
        trainable = trainable_summary(model)
        total = trainable.pop("total")
        lines.append(f"trainable     {sum(trainable.values()):,} of {total:,} parameters: {trainable}")
    return "\n".join(lines)


def start_run(arguments: VerdictArguments, training: TrainingArguments, model_config: ModelConfig) -> None:
    """Refuse a directory that holds another run; record configuration, versions, data and hardware in run.json."""
    out = Path(training.output_dir or "")
    if training.process_index == 0:
        if out.exists() and any(out.iterdir()) and not training.resume_from_checkpoint:
            raise ConfigError(
                f"output_dir: {out} is not empty; choose another, remove it, or pass --resume_from_checkpoint true"
            )
        out.mkdir(parents=True, exist_ok=True)
        record = {
            "arguments": dataclasses.asdict(arguments),
            "training": training.to_sanitized_dict(),
            "model": dataclasses.asdict(model_config),
            "dataset": read_manifest(arguments.dataset_dir).get("shards"),
            "git_revision": git_revision(),
            "versions": {n: version(n) for n in ("proofreel", "torch", "transformers", "peft", "trl", "accelerate")},
            "hardware": {
                "platform": platform.platform(),
                "python": platform.python_version(),
                "cpus": os.cpu_count(),
                "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
                "world_size": training.world_size,
            },
        }
        (out / "run.json").write_text(json.dumps(record, indent=2, default=str) + "\n", encoding="utf-8")


def _verifier_config(
    arguments: VerdictArguments,
    model_config: ModelConfig,
    base: Path,
    words: LabelWords,
    dtype: torch.dtype,
    trainer: VerdictTrainer,
) -> VerifierConfig:
    name = model_config.model_name_or_path or ""
    local = Path(name).is_dir()
    quantization = get_quantization_config(model_config)
    counts = trainable_summary(trainer.model)  # type: ignore[arg-type]
    return VerifierConfig(
        base=BaseModel(
            # A local base is kept as an absolute path here; `save_draft` makes it relative to the directory it writes.
            path=str(base.resolve()) if local else name,
            revision=None if local else base.name,
            weights_sha256=weights_sha256(base),
        ),
        weights="adapter" if model_config.use_peft else "full",
        prompt=arguments.prompt(),
        supported_id=words.supported_id,
        refuted_id=words.refuted_id,
        sampling=arguments.sampling(),
        position_rule=arguments.position_rule,  # type: ignore[arg-type]
        max_tokens=arguments.max_tokens,
        dtype=str(dtype).removeprefix("torch."),  # type: ignore[arg-type]
        quantization=json.loads(json.dumps(quantization.to_diff_dict())) if quantization is not None else None,
        trained={
            "parameters": counts,
            "steps": trainer.state.global_step,
            "epochs": trainer.state.epoch,
            "git_revision": git_revision(),
        },
    )


def _read(arguments: VerdictArguments, split: str) -> list[Pair]:
    pairs = read_split(arguments.dataset_dir, split)
    return hide_evidence(pairs) if arguments.claim_only else pairs


def _main_print(training: TrainingArguments, text: str) -> None:
    if training.process_index == 0:
        print(text, file=sys.stderr, flush=True)
