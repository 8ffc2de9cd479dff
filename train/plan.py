"""What a run amounts to, before a weight is loaded: rows, tokens, steps, the verdict, what trains, and memory.

Apart from the recipe because `--validate_only` ends here: nothing of a plan needs a loaded weight.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainingArguments
from trl import ModelConfig, get_peft_config

from ..core import ConfigError, Pair, evidence_key
from ..models.backbones import attach_lora, backbone_for, meta_model, trainable_summary, vision_layout
from ..models.directory import check_places
from ..models.engine import Head, all_towers
from .arguments import VerdictArguments
from .batching import TokenCounts, group_pairs, make_batches
from .cost import Recipe, RowSize, cost_of, n_evaluations, row_operations
from .memory import estimate_run


def plan_of(
    pairs: dict[str, list[Pair]],
    config: Any,
    head: Head,
    counts: TokenCounts,
    arguments: VerdictArguments,
    training: TrainingArguments,
    model_config: ModelConfig,
) -> str:
    """The arithmetic of a run, one line each.

    Args:
        pairs: of each split.
        config: of the backbone.
        head: what is trained.
        counts: of this run's tokens.
        arguments: of the run, like `training` and `model_config`.
    """
    groups = group_pairs(pairs["train"], arguments.claims_per_row, arguments.tokens_per_row, counts)
    trained = planned_counts(config, head, arguments, model_config)
    longest = max(r.prefix + r.claims for r in map(counts.row, groups))
    n_trained = sum(trained.values()) - trained["total"]
    known = {"longest_row": longest, "n_trainable": n_trained, "head": head.has_layer}
    memory = estimate_run(config, arguments, training, model_config, **known)
    return "\n".join(
        [
            *_steps(pairs, groups, counts, arguments, training),
            *_alone(pairs["train"], groups, counts, config),
            _tokens(pairs["train"], groups, counts, longest),
            f"verdict       {_verdict(head, counts)}",
            trainable_line(trained),
            f"memory        about {memory}",
            *_cost(pairs, groups, counts, arguments, training, model_config, config, trained),
        ]
    )


def as_rows_of(config: Any, arguments: VerdictArguments) -> VerdictArguments:
    """The settings as a backbone can pack: where claims cannot share a row, a row has one.

    Raises:
        ConfigError: a loss over claims of one row, which then never meet.
    """
    if vision_layout(config).branches == "packed":
        return arguments
    if arguments.paired_weight > 0:
        raise ConfigError(
            f"paired_weight: claims of {backbone_for(config.model_type).name} never share a row and form no pairs, got "
            f"{arguments.paired_weight}; leave it out"
        )
    return dataclasses.replace(arguments, claims_per_row=1)


def _alone(pairs: Sequence[Pair], groups: Sequence[Sequence[Pair]], counts: TokenCounts, config: Any) -> list[str]:
    """What rows of one claim cost, where claims cannot share a row; nothing of a backbone that packs them."""
    if vision_layout(config).branches == "packed":
        return []
    shared = group_pairs(pairs, len(pairs))
    tokens = [sum(r.prefix + r.claims for r in map(counts.row, rows)) for rows in (groups, shared)]
    alone, once = (sum(row_operations(config, _size(row, counts)) for row in rows) for rows in (groups, shared))
    return [
        f"rows          one claim each: layers of {backbone_for(config.model_type).name} carry a state through a row, "
        "in which claims cannot branch",
        f"              {tokens[0]:,} tokens and {alone:.3g} operations a pass; with evidence computed once, as in "
        f"scoring, {tokens[1]:,} and {once:.3g}",
    ]


def planned_counts(config: Any, head: Head, arguments: VerdictArguments, model_config: ModelConfig) -> dict[str, int]:
    """`trainable_summary` of the network that will be trained, from its configuration: built on the meta device."""
    model: Any = meta_model(config)
    if (peft_config := get_peft_config(model_config)) is not None:
        model = attach_lora(model, peft_config, arguments.lora_parts)
        if arguments.adapter_from is not None and Path(arguments.adapter_from).exists():  # else it is resumed without
            check_places(model, arguments.adapter_from, with_head=False)
    elif towers := all_towers(model):
        for tower in towers:
            tower.requires_grad_(arguments.train_vision)
    elif arguments.train_vision:
        raise ConfigError("train_vision: a text backbone has no vision tower, got true; leave it out")
    counts = trainable_summary(model)
    if head.has_layer and counts["lm_head"] and model_config.use_peft:
        raise ConfigError(
            "lora_parts: a score head stands in place of lm_head and is trained whole, got lm_head; leave it out"
        )
    if head.has_layer:  # it stands in place of the output layer
        text = config.get_text_config()
        counts["score"] = len(head.labels) * text.hidden_size
        counts["total"] += counts["score"]
        if not config.tie_word_embeddings:
            counts["total"] -= text.hidden_size * text.vocab_size
            counts["lm_head"] = 0
    return counts


def trainable_line(counts: dict[str, int]) -> str:
    """What trains, part by part, from `trainable_summary`."""
    parts = {part: n for part, n in counts.items() if part != "total" and n}
    listed = ", ".join(f"{part} {n:,}" for part, n in parts.items())
    return f"trainable     {sum(parts.values()):,} of {counts['total']:,} parameters: {listed or 'nothing'}"


def _steps(
    pairs: dict[str, list[Pair]],
    groups: Sequence[Sequence[Pair]],
    counts: TokenCounts,
    arguments: VerdictArguments,
    training: TrainingArguments,
) -> list[str]:
    n_claims, most = len(pairs["train"]), arguments.claims_per_row
    batches = make_batches(groups, arguments, training, counts)
    rows, accumulated = training.per_device_train_batch_size, training.gradient_accumulation_steps
    n_batches = math.ceil(len(groups) / rows) if batches is None else len(batches)
    per_step = accumulated * training.world_size  # batches
    steps, steps_per_epoch = _n_steps(groups, counts, arguments, training)
    n_tokens = sum(r.prefix + r.claims for r in map(counts.row, groups))
    share = max(n_batches / per_step, 1)
    return [
        f"train         {n_claims} claims in {len(groups)} packed rows of at most {most}, in {n_batches} batches of at "
        f"most {rows} rows" + ("" if batches is None else f" or {arguments.tokens_per_batch} tokens"),
        f"validation    {len(pairs['validation'])} claims" if "validation" in pairs else "validation    none",
        f"step          {accumulated} accumulated x {training.world_size} processes = {per_step} batches, "
        f"about {n_claims / share:.0f} claims and {n_tokens / share:,.0f} tokens",
        f"steps         {steps:.0f} ({steps / steps_per_epoch:.1f} epochs)",
    ]


def _cost(
    pairs: dict[str, list[Pair]],
    groups: Sequence[Sequence[Pair]],
    counts: TokenCounts,
    arguments: VerdictArguments,
    training: TrainingArguments,
    model_config: ModelConfig,
    config: Any,
    trained: dict[str, int],
) -> list[str]:
    """Hours on the card named, and money."""
    validation = group_pairs(pairs.get("validation", []), arguments.claims_per_row, arguments.tokens_per_row, counts)
    steps, steps_per_epoch = _n_steps(groups, counts, arguments, training)
    recipe = Recipe(
        config,
        adapters=trained.get("language_model", 0) if model_config.use_peft else None,
        checkpointed=bool(training.activation_checkpointing),
        trains_tower=any(trained.get(part, 0) for part in ("visual", "merger", "audio")),
        vision_cache=bool(arguments.vision_cache),
    )
    epochs = steps / steps_per_epoch
    evaluations = n_evaluations(training.eval_strategy, training.eval_steps, steps, epochs)
    trained_rows, validated_rows = ([_size(group, counts) for group in rows] for rows in (groups, validation))
    cost = cost_of(trained_rows, validated_rows, epochs, evaluations, recipe)
    return cost.lines(arguments.card, arguments.price, training.world_size)


def _size(group: Sequence[Pair], counts: TokenCounts) -> RowSize:
    evidence = group[0].evidence
    return RowSize(counts.grids(evidence), counts.prefix(evidence), tuple(counts.claim(pair) for pair in group))


def _n_steps(
    groups: Sequence[Sequence[Pair]], counts: TokenCounts, arguments: VerdictArguments, training: TrainingArguments
) -> tuple[float, int]:
    """Optimiser steps of the run, and of an epoch."""
    batches = make_batches(groups, arguments, training, counts)
    n_batches = math.ceil(len(groups) / training.per_device_train_batch_size) if batches is None else len(batches)
    steps_per_epoch = math.ceil(n_batches / (training.gradient_accumulation_steps * training.world_size))
    steps = training.max_steps if training.max_steps > 0 else steps_per_epoch * training.num_train_epochs
    return steps, steps_per_epoch


def _tokens(pairs: Sequence[Pair], groups: Sequence[Sequence[Pair]], counts: TokenCounts, longest: int) -> str:
    evidences = {evidence_key(p.evidence): p.evidence for p in pairs}
    visual = [visual_tokens(evidence, counts) for evidence in evidences.values()]
    prompt = max(counts.prefix(g[0].evidence) + max(map(counts.claim, g)) for g in groups)
    return (
        f"tokens        {sum(visual) / len(visual):.0f} visual per evidence (at most {max(visual)}), longest row "
        f"{longest}, longest prompt {prompt} of {counts.encoder.max_tokens}"
    )


def visual_tokens(evidence: Sequence[Any], counts: TokenCounts) -> int:
    """Tokens that stand for what an evidence shows."""
    return sum(t * h * w for t, h, w in counts.grids(tuple(evidence))) // counts.encoder.merge_side**2


def _verdict(head: Head, counts: TokenCounts) -> str:
    after = repr(counts.encoder.chat.claim("...")[-32:])
    return f"{head.plan_line(lambda token: counts.encoder.tokenizer.decode([token]))}, after {after}"
