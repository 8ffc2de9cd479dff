"""ROUGE and BERTScore through their libraries (extra: `pip install proofreel[overlap]`), as MiRAGE compares with them.

MiRAGE's column R-L is rouge-score's rougeL F-measure of the prediction against the reference, without stemming: with
it the column comes out of the released texts to the printed digit, and with stemming or rougeLsum it does not.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from ...core import ConfigError

Rouge = Literal["rouge1", "rouge2", "rougeL", "rougeLsum"]


def rouge(
    predictions: Sequence[str], references: Sequence[str], kind: Rouge = "rougeL", stem: bool = False
) -> list[float]:
    """The F-measure of each prediction against its reference, in [0, 1], by rouge-score.

    Raises:
        ConfigError: the library is not installed.
    """
    scorer = _library("rouge_score.rouge_scorer", "rouge-score").RougeScorer([kind], use_stemmer=stem)
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
        ConfigError: the library is not installed, or there is no such folder.
    """
    if not Path(model).is_dir():
        raise ConfigError(f"bert_score: model must be a folder, got {str(model)!r}; download one and give its path")
    score = _library("bert_score", "bert-score").score
    f1 = score(list(predictions), list(references), model_type=str(model), num_layers=layer, device=device)[2]
    return [float(value) for value in f1]


def _library(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{package}: is not installed, got {error}; pip install proofreel[overlap]") from None
