"""A linear head on hidden states of a frozen base: which layer, how much shrinkage, and its weights.

The head reads what the last norm makes of a layer's states, as it would if the base ended at that layer; then the
base's first layers with this head are an ordinary NLI verifier. Layer and shrinkage are chosen on other documents than
those that are reported on.

Shape suffixes: _N rows, _H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold

SHRINKAGES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # C of scikit-learn: the smaller, the more
FOLDS = 5


@dataclass(frozen=True)
class Choice:
    """What was chosen, and how every layer did with its best shrinkage."""

    layer: int  # the number of layers kept
    shrinkage: float
    auc_by_layer: dict[int, float]


def normed(states_NH: np.ndarray, weight_H: np.ndarray, epsilon: float) -> np.ndarray:
    """What an RMS norm of these weights makes of hidden states."""
    scale = np.sqrt(np.mean(np.square(states_NH), axis=-1, keepdims=True) + epsilon)
    return states_NH / scale * weight_H


def fit(features_NH: np.ndarray, supported_N: np.ndarray, shrinkage: float) -> np.ndarray:
    """(H,) float64 weights of a logistic regression on features divided by their standard deviations.

    A verifier's head has no constant; features with large means serve as one. Both classes weigh alike, so that a
    rare one is not given up.
    """
    deviation = features_NH.std(0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    model = LogisticRegression(C=shrinkage, max_iter=2000, class_weight="balanced", fit_intercept=False)
    model.fit(features_NH / deviation, supported_N)
    return model.coef_[0] / deviation


def out_of_fold(features_NH: np.ndarray, supported_N: np.ndarray, fold_N: np.ndarray, shrinkage: float) -> np.ndarray:
    """(N,) margins, each by a head that was fitted without the row's fold."""
    heads = heads_of_folds(features_NH, supported_N, fold_N, shrinkage)
    return np.array([row_H @ heads[fold] for row_H, fold in zip(features_NH, fold_N, strict=True)])


def heads_of_folds(
    features_NH: np.ndarray, supported_N: np.ndarray, fold_N: np.ndarray, shrinkage: float
) -> dict[str, np.ndarray]:
    """For each fold the weights of the head that was fitted without it."""
    kept = {fold: fold_N != fold for fold in np.unique(fold_N).tolist()}
    return {fold: fit(features_NH[rows], supported_N[rows], shrinkage) for fold, rows in kept.items()}


def choose(
    features: dict[int, np.ndarray], supported_N: np.ndarray, groups: Sequence[str], folds: int = FOLDS
) -> Choice:
    """The layer and shrinkage of the largest AUC out of fold; `features` by the number of layers kept.

    Margins of different folds have different constants, so the AUC is the mean over folds.
    """
    scores: dict[tuple[int, float], float] = {}
    splits = list(GroupKFold(folds).split(supported_N, supported_N, list(groups)))
    for layer, features_NH in features.items():
        for shrinkage in SHRINKAGES:
            aucs = [
                roc_auc_score(
                    supported_N[test], features_NH[test] @ fit(features_NH[train], supported_N[train], shrinkage)
                )
                for train, test in splits
            ]
            scores[layer, shrinkage] = float(np.mean(aucs))
    layer, shrinkage = max(scores, key=lambda key: scores[key])
    by_layer = {kept: max(auc for (n, _), auc in scores.items() if n == kept) for kept in features}
    return Choice(layer, shrinkage, by_layer)
