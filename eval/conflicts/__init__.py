"""OMD-Bench: what a model does when video, audio and text disagree: formulas, answers, tables, page."""

from typing import TYPE_CHECKING

from ...core import on_first_use

if TYPE_CHECKING:
    from .answers import ABSTAINS, ConditionAnswer, answers_by_judge, read_answers
    from .formulas import (
        HUMAN_ABSTENTION,
        Confidence,
        LevelMeans,
        abstention_calibration_error,
        by_method,
        condition_rates,
        level_rates,
        level_rates_over_conditions,
        mean_confidence,
        normalised_reliance,
        restricted_softmax,
        shapley,
        shapley_reliance,
        shapley_shares,
        token_probability,
    )
    from .page import ModelResult, OMDResult, omd_markdown, omd_result
    from .tables import OMDComparison, OMDTables, PairOfModels, compare_models, model_tables

__all__ = [
    "ABSTAINS",
    "HUMAN_ABSTENTION",
    "ConditionAnswer",
    "Confidence",
    "LevelMeans",
    "ModelResult",
    "OMDComparison",
    "OMDResult",
    "OMDTables",
    "PairOfModels",
    "abstention_calibration_error",
    "answers_by_judge",
    "by_method",
    "compare_models",
    "condition_rates",
    "level_rates",
    "level_rates_over_conditions",
    "mean_confidence",
    "model_tables",
    "normalised_reliance",
    "omd_markdown",
    "omd_result",
    "read_answers",
    "restricted_softmax",
    "shapley",
    "shapley_reliance",
    "shapley_shares",
    "token_probability",
]

__getattr__ = on_first_use(__name__, __file__)
