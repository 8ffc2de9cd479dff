"""One training run, top to bottom: check the rows, load the network, train, and write an uncalibrated verifier.

Functions stand in the order in which `run` needs them. The verifier is complete but for calibration, thresholds and
golden inputs; it lies in `<output_dir>/draft`, where eval/predict.py reads it and eval/export.py publishes it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import EarlyStoppingCallback, TrainingArguments, set_seed
from trl import ModelConfig, get_peft_config, get_quantization_config

from ..core import ConfigError, Label, MediaError, Pair, ProofreelError, RowError, evidence_kinds, say_next
from ..data_prep.dataset import read_split, train_shards
from ..data_prep.media import FrameCache
from ..data_prep.pipeline import git_revision
from ..eval.scoring import hide_evidence
from ..models.backbones import (
    attach_lora,
    keep_float32_masters,
    load_backbone,
    load_processor,
    read_config,
    resolve_base,
    trainable_summary,
    vision_layout,
    weights_sha256,
)
from ..models.directory import (
    CONFIG,
    BaseModel,
    VerifierConfig,
    check_start,
    describe_adapter,
    read_directory,
    relative_base,
    requirements_of,
    start_from,
    write_directory,
)
from ..models.engine import HEADS, Head, VisionFeatures, all_towers, head_name, make_head
from ..models.inputs import TIME_RULES, Encoder, LabelWords
from .arguments import DistillArguments, VerdictArguments, parse, parse_distill, torch_dtype
from .batching import TokenCounts, make_batches
from .checkpoints import choose_best
from .dataset import BatchedRows, Collator, GroupDataset, bound_pairs, check_rows
from .distillation_loss import Distillation, DistillationLoss
from .faults import DeadlineReader, check_engine, even_tower_calls
from .loss import Loss, balanced_weights
from .meeting import meet
from .plan import as_rows_of, plan_of, trainable_line
from .preemption import PreemptionError
from .run_directory import begun_from, recipe_sha256, start_run
from .teacher import TeacherTargets, join_teacher
from .tracking import check_tracking
from .trainer import VerdictTrainer

_WEIGHT_FILES = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "adapter_config.json",
)
MAX_PROBLEMS_SHOWN = 20


def run_training(argv: Sequence[str] | None, *, head: str = "next_token", distills: bool = False) -> int:
    """What each training script is: parse `argv` and run; the exit status is 1 if configuration or data are at fault,
    143 after SIGTERM (138 after SIGUSR1), which leaves a checkpoint.

    Args:
        argv: words of the command line; None for those of this process.
        head: of `HEADS`.
        distills: learn from a teacher too; the configuration says which head (train/distill.py).
    """
    try:
        if distills:
            distill, arguments, training, model = parse_distill(argv)
            run(arguments, training, model, head_kind=distill.head, distill=distill)
        else:
            run(*parse(argv), head_kind=head)
    except PreemptionError as error:
        print(f"stopped: {error}", file=sys.stderr)
        return error.status
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def run(
    arguments: VerdictArguments,
    training: TrainingArguments,
    model_config: ModelConfig,
    head_kind: str = "next_token",
    distill: DistillArguments | None = None,
) -> Path | None:
    """Fine-tune a verifier with a head of `HEADS`, on labels or also on a teacher's margins.

    Returns:
        The uncalibrated verifier's directory, or None after `validate_only`.

    Raises:
        ConfigError: an output directory in use, or settings that cannot work.
        RowError: rows that cannot be trained on, all of them listed, before any weight is loaded.
    """
    check_tracking(training)
    check_engine(training, arguments.vision_cache or None, model_config)
    base = resolve_base(model_config.model_name_or_path or "", model_config.model_revision)
    pairs, teacher = _rows(arguments, training, distill)
    pairs = bound_pairs(pairs, arguments, distill)
    config = read_config(base)
    arguments = as_rows_of(config, arguments)
    encoder = make_encoder(arguments, base, config)
    words = LabelWords.of(arguments.prompt(), encoder.tokenizer)
    head = _head_of(arguments, words, head_kind)
    start = _start_of(arguments, training, model_config, base, head)
    counts = TokenCounts(encoder)
    evidences = (pair.evidence for rows in pairs.values() for pair in rows)
    counts.count_all(evidences, training.process_index, training.world_size)
    validate(pairs, counts, training, distills=teacher is not None)
    plan = plan_of(pairs, config, head, counts, arguments, training, model_config)
    plan += "" if teacher is None else f"\n{teacher.line()}"
    if arguments.validate_only:
        print(plan)
        return None

    sources = ({} if teacher is None else teacher.settings) | ({} if start is None else {"adapter_from_sha256": start})
    checkpoint = start_run(arguments, training, model_config, head_kind, sources)
    if teacher is not None and training.process_index == 0:
        teacher.write_list(Path(training.output_dir or ""))
    dtype = torch_dtype(model_config, config.dtype)
    set_seed(training.seed)  # here, because planning draws adapters as well
    model = load_model(arguments, model_config, base, dtype, head, words)
    if training.deepspeed_plugin is None:  # which keeps masters of its own
        keep_float32_masters(model, autocast=training.bf16 or training.fp16)
    if arguments.adapter_from is not None and checkpoint is None:
        start_from(model, arguments.adapter_from)
    _main_print(training, plan)
    if (loaded := trainable_line(trainable_summary(model))) not in plan:
        raise ConfigError(f"what trains is not what was planned, got {loaded!r}; please report this")
    trainer = make_trainer(model, head, pairs, encoder, counts, arguments, training, teacher and teacher.distillation)
    trainer.train(resume_from_checkpoint=checkpoint)
    verifier = dataclasses.replace(
        _verifier_config(arguments, model_config, base, words, dtype, trainer, head, teacher, start),
        modalities=evidence_kinds(e for pair in pairs["train"] for e in pair.evidence),  # type: ignore[arg-type]
        requirements=requirements_of(encoder.layout.sees, model_config.use_peft, model_config.load_in_4bit),
    )
    draft = save_draft(trainer, encoder, verifier)
    _main_print(training, f"uncalibrated verifier: {draft}{cast_line(draft)}")
    split = ("--data", arguments.dataset_dir, "--split", "calibration", *(["--claim-only"] * arguments.claim_only))
    say_next("predict", "--verifier", draft, *split, "--out", draft.parent / "calibration.parquet")
    return draft


def cast_line(draft: Path) -> str:
    """What saving did to the weights, after the path of a verifier; nothing where they were saved as they trained."""
    if (cast := read_directory(draft).trained.get("cast_on_save")) is None:
        return ""
    return f" (float32 weights saved in {cast['dtype']}: changed by {cast['rms_change']:.2%} of their size, rms)"


def _rows(
    arguments: VerdictArguments, training: TrainingArguments, distill: DistillArguments | None
) -> tuple[dict[str, list[Pair]], TeacherTargets | None]:
    """The pairs of each split, and what a teacher said of those to train on."""
    splits = ["train"] if training.eval_strategy == "no" else ["train", "validation"]
    pairs = {split: _read(arguments, split) for split in splits}
    if distill is None:
        return pairs, None
    teacher = join_teacher(pairs["train"], distill, arguments)
    return pairs | {"train": teacher.pairs}, teacher


def _read(arguments: VerdictArguments, split: str) -> list[Pair]:
    # A margin stored with a row has no known teacher: a teacher's margins come from its file, for train rows alone.
    pairs = [dataclasses.replace(p, teacher_margin=None) for p in read_split(arguments.dataset_dir, split)]
    return hide_evidence(pairs) if arguments.claim_only else pairs


def make_encoder(arguments: VerdictArguments, base: Path, config: Any) -> Encoder:
    """The encoder of a run; no weights are read."""
    return Encoder(
        load_processor(base),
        vision_layout(config),
        arguments.prompt(),
        arguments.sampling(),
        arguments.position_rule,  # type: ignore[arg-type]  (mrope_positions refuses unknown rules)
        arguments.max_tokens,
        TIME_RULES[0],
    )


def _head_of(arguments: VerdictArguments, words: LabelWords, name: str) -> Head:
    """The head that a run trains, with as many labels as its arguments say."""
    for labels in HEADS[name].label_sets:
        if len(labels) == arguments.labels:
            return make_head(name, words, labels)
    raise ConfigError(
        f"labels: a {name} head has {' or '.join(str(len(labels)) for labels in HEADS[name].label_sets)} labels, got "
        f"{arguments.labels}; train an NLI head for three (train/nli.py)"
    )


def _start_of(
    arguments: VerdictArguments, training: TrainingArguments, model_config: ModelConfig, base: Path, head: Head
) -> str | None:
    """Fingerprint of the verifier whose adapter a run starts from, which must fit; None if it starts from a new one."""
    if (start := arguments.adapter_from) is None:
        return None
    peft_config = get_peft_config(model_config)
    if peft_config is None:
        raise ConfigError(f"adapter_from: needs use_peft: true, got {start} without; set it")
    out = Path(training.output_dir or "")
    if training.resume_from_checkpoint and not Path(start).exists() and (before := begun_from(out)) is not None:
        return before  # a checkpoint holds all that was taken from it
    return check_start(start, weights_sha256(base), peft_config, head)


def validate(
    pairs: dict[str, list[Pair]], counts: TokenCounts, training: TrainingArguments, distills: bool = False
) -> None:
    """Check every row with this run's tokenizer and sampling; `RowError` lists what is wrong, all at once."""
    if training.process_index != 0:
        return
    problems = [
        f"{split}: {p}"
        for split, rows in pairs.items()
        for p in check_rows(rows, counts, distills and split == "train")
    ]
    if not problems:
        return
    shown = "\n  ".join(problems[:MAX_PROBLEMS_SHOWN])
    more = len(problems) - MAX_PROBLEMS_SHOWN
    raise RowError(
        f"{len(problems)} rows cannot be trained on:\n  {shown}" + (f"\n  and {more} more" if more > 0 else "")
    )


def load_model(
    arguments: VerdictArguments,
    model_config: ModelConfig,
    base: Path,
    dtype: torch.dtype,
    head: Head,
    words: LabelWords,
) -> Any:
    """The network with what is trained unfrozen: adapters and head, or the language model (and vision if asked)."""
    quantization = get_quantization_config(model_config)
    peft_config = get_peft_config(model_config)
    if quantization is not None and peft_config is None:
        raise ConfigError("load_in_4bit: quantised weights cannot be trained, got use_peft: false; set use_peft: true")
    model = load_backbone(
        base,
        dtype=dtype,
        quantization_config=quantization,
        attn_implementation=model_config.attn_implementation or "sdpa",
        head=head,
        words=words if arguments.head_init == "verdict_words" else None,
    )
    model.config.use_cache = False
    if peft_config is not None:
        # Not through peft's prepare_model_for_kbit_training: it turns norms and embeddings to float32, and a verifier
        # loaded from disk would then not be the function that was trained.
        return attach_lora(model, peft_config, arguments.lora_parts)
    for tower in all_towers(model):
        tower.requires_grad_(arguments.train_vision)
    return model


def make_trainer(
    model: Any,
    head: Head,
    pairs: dict[str, list[Pair]],
    encoder: Encoder,
    counts: TokenCounts,
    arguments: VerdictArguments,
    training: TrainingArguments,
    distillation: Distillation | None = None,
) -> VerdictTrainer:
    """The trainer with its rows; what the run's vision cache lacks is computed here."""
    features = make_vision_cache(arguments, model, encoder)
    if features is None and training.world_size > 1:
        even_tower_calls(model, pairs)
    datasets = make_datasets(pairs, head.labels, encoder, counts, features, arguments, distillation)
    labelled = [p for p in pairs["train"] if distillation is None or not distillation.doubts(p)]
    loss = make_loss(arguments, training, head.labels, labelled)
    train_set = datasets["train"]
    if (batches := make_batches(train_set.groups, arguments, training, counts)) is not None:
        train_set = BatchedRows(train_set, batches)
        training.per_device_train_batch_size = 1  # an item of the data set is a batch now
    choose_best(training, arguments.early_stopping, pairs.get("validation", ()))
    trainer = VerdictTrainer(
        model=model,
        args=training,
        train_dataset=train_set,
        eval_dataset=datasets.get("validation"),
        data_collator=Collator(encoder.pad_id, encoder.layout.branches),
        callbacks=[EarlyStoppingCallback(arguments.early_stopping)] if arguments.early_stopping else None,
        head=head,
        layout=encoder.layout,
        loss=loss if distillation is None else DistillationLoss(loss, distillation),
        bad_rows=arguments.bad_rows,
    )
    if features is not None:  # the Trainer has put the model on its device
        evidences = [pair.evidence for rows in pairs.values() for pair in rows]
        workers, rank = training.dataloader_num_workers, training.process_index
        with suppress(MediaError) if arguments.bad_rows == "skip" else nullcontext():  # met again, row by row
            features.ensure(evidences, model, rank=rank, world_size=training.world_size, workers=workers)
        meet("features of the vision tower", training)
    return trainer


def make_vision_cache(arguments: VerdictArguments, model: torch.nn.Module, encoder: Encoder) -> VisionFeatures | None:
    """The features of the frozen tower, kept in the precision of its weights; None if the run has no such cache."""
    if not arguments.vision_cache:
        return None
    exact = next(model.parameters()).dtype == torch.float32
    return VisionFeatures(
        arguments.vision_cache,
        model,
        encoder,
        frame_cache=_frame_cache(arguments),
        max_gib=arguments.vision_cache_gib,
        dtype="float32" if exact else "bfloat16",
    )


def make_datasets(
    pairs: dict[str, list[Pair]],
    labels: Sequence[Label],
    encoder: Encoder,
    counts: TokenCounts,
    features: VisionFeatures | None,
    arguments: VerdictArguments,
    distillation: Distillation | None = None,
) -> dict[str, GroupDataset]:
    """One data set of packed rows for each split."""
    return {
        split: GroupDataset(
            rows,
            encoder,
            arguments.claims_per_row,
            arguments.cache_gib * 2**30,
            _frame_cache(arguments),
            features=features,
            labels=labels,
            tokens_per_row=arguments.tokens_per_row,
            counts=counts,
            distillation=distillation,
        )
        for split, rows in pairs.items()
    }


def _frame_cache(arguments: VerdictArguments) -> FrameCache | None:
    limit_s = arguments.read_timeout_s or None
    if arguments.frame_cache:
        return FrameCache(arguments.frame_cache, timeout_s=limit_s)
    return DeadlineReader(limit_s) if limit_s else None  # type: ignore[return-value]  (all that is asked of it is `read`)


def make_loss(
    arguments: VerdictArguments, training: TrainingArguments, labels: Sequence[Label], pairs: Sequence[Pair]
) -> Loss:
    """The loss on labels a run asks for; `pairs` are those of the train split."""
    weights = None if arguments.class_weights is None else tuple(arguments.class_weights)
    if arguments.balance_classes:
        if weights is not None:
            raise ConfigError(f"class_weights: balance_classes sets them, got {list(weights)} as well; leave one out")
        weights = balanced_weights(pairs, labels)
    return Loss(
        tuple(labels),
        weights,
        arguments.focal_gamma,
        training.label_smoothing_factor,
        arguments.paired_weight,
        arguments.paired_margin,
    )


def _verifier_config(
    arguments: VerdictArguments,
    model_config: ModelConfig,
    base: Path,
    words: LabelWords,
    dtype: torch.dtype,
    trainer: VerdictTrainer,
    head: Head,
    teacher: TeacherTargets | None,
    start: str | None,
) -> VerifierConfig:
    name = model_config.model_name_or_path or ""
    local = Path(name).is_dir()
    quantization = get_quantization_config(model_config)
    counts = trainable_summary(trainer.model)  # type: ignore[arg-type]
    out = Path(trainer.args.output_dir or "")
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
        head=head_name(head),
        labels=head.labels,
        sampling=arguments.sampling(),
        position_rule=arguments.position_rule,  # type: ignore[arg-type]
        time_rule=TIME_RULES[0],
        max_tokens=arguments.max_tokens,
        dtype=str(dtype).removeprefix("torch."),  # type: ignore[arg-type]
        quantization=json.loads(json.dumps(quantization.to_diff_dict())) if quantization is not None else None,
        trained={
            "parameters": counts,
            "steps": trainer.state.global_step,
            "epochs": trainer.state.epoch,
            "git_revision": git_revision(),
            **({} if teacher is None else {"teacher": teacher.record}),
            **({} if start is None else {"adapter_from": start}),
            "train_shards": train_shards(arguments.dataset_dir),
            **({"recipe_sha256": recipe_sha256(out)} if trainer.is_world_process_zero() else {}),
        },
    )


def save_draft(trainer: VerdictTrainer, encoder: Encoder, config: VerifierConfig) -> Path:
    """Gather the trained weights from all ranks and write `<output_dir>/draft` on the first one.

    Returns:
        The directory; every process returns the same path, after it exists.
    """
    out = Path(trainer.args.output_dir or "")
    with tempfile.TemporaryDirectory(dir=out, prefix=".weights-") as gathered:
        trainer.save_model(gathered)  # collective under ZeRO-3 and FSDP: every rank takes part
        if trainer.is_world_process_zero():
            if (out / "draft").exists():  # a resumed run that had finished before
                shutil.rmtree(out / "draft")
            write_directory(out / "draft", lambda folder: _fill(folder, out / "draft", Path(gathered), encoder, config))
    meet(f"{out / 'draft'}", trainer.args)
    return out / "draft"


def _fill(folder: Path, final: Path, gathered: Path, encoder: Encoder, config: VerifierConfig) -> None:
    base = dataclasses.replace(config.base, path=relative_base(config.base.path, final))
    weights = folder / ("adapter" if config.weights == "adapter" else "model")
    weights.mkdir()
    # The Trainer also leaves a pickle of its arguments there: only named kinds of file are taken over.
    for pattern in _WEIGHT_FILES:
        for file in gathered.glob(pattern):
            shutil.copy2(file, weights / file.name)
    if config.weights == "adapter":
        describe_adapter(weights, base.path)
    moved = cast_weights(weights, getattr(torch, config.dtype))
    trained = config.trained | ({} if moved is None else {"cast_on_save": {"dtype": config.dtype, "rms_change": moved}})
    encoder.processor.save_pretrained(folder / "processor")
    config = dataclasses.replace(config, base=base, chat=encoder.chat.turns, trained=trained)
    (folder / CONFIG).write_text(config.to_json(), encoding="utf-8")


def cast_weights(folder: Path, dtype: torch.dtype) -> float | None:
    """Turn the float32 weights of a run into the dtype in which the verifier runs, as every forward pass did.

    Returns:
        By how much they moved: the root of the mean squared change over that of the mean square; None where none did.
    """
    change = total = 0.0
    for path in sorted(folder.glob("*.safetensors")):
        tensors = load_file(path)
        wider = {name: t for name, t in tensors.items() if t.dtype == torch.float32 and dtype != torch.float32}
        if not wider:
            continue
        narrow = {name: t.to(dtype) for name, t in wider.items()}
        change += sum(float((t - narrow[name].float()).double().square().sum()) for name, t in wider.items())
        total += sum(float(t.double().square().sum()) for t in wider.values())
        save_file(tensors | narrow, path, metadata={"format": "pt"})
    return math.sqrt(change / total) if total else None


def _main_print(training: TrainingArguments, text: str) -> None:
    if training.process_index == 0:
        print(text, file=sys.stderr, flush=True)
