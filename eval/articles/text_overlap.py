"""ROUGE and BERTScore through their libraries (extra: `pip install proofreel[overlap]`), as MiRAGE compares with them.

MiRAGE's column R-L is rouge-score's rougeL F-measure of the prediction against the reference, without stemming: with
it the column comes out of the released texts to the printed digit, and with stemming or rougeLsum it does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from ...core import ConfigError, optional_package
from ..scores import Score
from .formulas import Measurement
from .records import Response, Topic

Rouge = Literal["rouge1", "rouge2", "rougeL", "rougeLsum"]


def rouge(
    predictions: Sequence[str], references: Sequence[str], kind: Rouge = "rougeL", stem: bool = False
) -> list[float]:
    """The F-measure of each prediction against its reference, in [0, 1], by rouge-score.

    Raises:
        ConfigError: the library is not installed.
    """
    scorer = optional_package("rouge_score.rouge_scorer", "rouge-score").RougeScorer([kind], use_stemmer=stem)
    return [float(scorer.score(r, p)[kind].fmeasure) for p, r in zip(predictions, references, strict=True)]


def bert_score(
    predictions: Sequence[str], references: Sequence[str], model: Path, layer: int, device: str | None = None
) -> list[float]:
    """The F1 of each prediction against its reference by bert-score, not rescaled.

    Args:
        model: folder of an encoder and its tokenizer; nothing is downloaded.
        layer: which hidden layer is compared; bert-score recommends one per model (17 for roberta-large).
        device: such as "cuda"; None: bert-score's choice.

    Raises:
        ConfigError: the library is not installed, or the folder cannot be used.
    """
    if not Path(model).is_dir():
        raise ConfigError(f"bert_score: model must be a folder, got {str(model)!r}; download one and give its path")
    if "t5" in str(model) and "t5" not in (model / "config.json").read_text(encoding="utf-8"):
        raise ConfigError(f"bert_score: a path with t5 means a T5 to bert-score, got {str(model)!r}; link it")
    score = optional_package("bert_score", "bert-score").score
    full = [i for i, both in enumerate(zip(predictions, references, strict=True)) if all(map(str.strip, both))]
    values = [0.0] * len(predictions)  # what bert-score gives where either text is empty
    if full:
        asked = [predictions[i] for i in full], [references[i] for i in full]
        try:
            f1 = score(*asked, model_type=str(model), num_layers=layer, device=device)[2]
        except OverflowError as error:  # of the longest text, where the tokenizer knows none
            remedy = "set it in tokenizer_config.json to what the encoder takes"
            raise ConfigError(f"bert_score: model_max_length is missing in {model}, got {error}; {remedy}") from error
        for i, value in zip(full, f1, strict=True):
            values[i] = float(value)
    return values


def against_references(
    responses: Sequence[Response],
    topics: Mapping[str, Topic],
    compare: Callable[[Sequence[str], Sequence[str]], Sequence[float]],
) -> dict[tuple[str, str], Measurement]:
    """A comparison of texts (predictions, references) by (system, topic); not defined without a reference."""
    references = {r.topic: t.reference for r in responses if (t := topics.get(r.topic)) and t.reference}
    held = [response for response in responses if response.topic in references]
    values = compare([response.text for response in held], [references[response.topic] for response in held])
    known = {(r.system, r.topic): value for r, value in zip(held, values, strict=True)}
    undefined = Score(math.nan, math.nan, math.nan, 0, 0)
    return {
        key: Measurement(Score(known[key], known[key], known[key], 1, 0) if key in known else undefined)
        for key in ((response.system, response.topic) for response in responses)
    }
