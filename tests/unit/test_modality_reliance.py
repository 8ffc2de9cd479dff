"""Laws of OMD-Bench's measures: brute force over all orders, and the paper's Tables 1 to 6, 8 and 13."""

import itertools
import math

import numpy as np
import pytest

from proofreel.core.errors import RowError
from proofreel.eval.conflicts.formulas import (
    CONDITIONS,
    HUMAN_ABSTENTION,
    MODALITIES,
    Confidence,
    abstention_calibration_error,
    by_method,
    condition_rates,
    corrupted,
    level_rates,
    level_rates_over_conditions,
    levels_of,
    mean_confidence,
    normalised_reliance,
    restricted_softmax,
    shapley,
    shapley_reliance,
    shapley_shares,
    token_probability,
)

# Table 6: accuracy (%) in the order of CONDITIONS, synthetic, zero-shot.
TABLE_6 = {
    "Gemini 2.5": (96.5, 92.8, 96.4, 83.7, 90.7, 37.2, 83.5, 60.0),
    "Qwen3o-Think": (93.7, 88.6, 91.0, 80.4, 80.8, 44.3, 79.2, 61.4),
    "VideoLLaMA2": (91.0, 83.9, 89.4, 78.0, 78.8, 51.4, 74.5, 16.1),
    "Qwen3o-Inst": (91.0, 85.1, 91.4, 75.3, 79.2, 41.2, 71.0, 65.1),
    "Gemini 2.0": (89.8, 82.4, 90.2, 62.0, 80.0, 10.2, 65.5, 81.8),
    "GPT-4o-mini": (89.4, 86.7, 86.3, 69.8, 79.2, 45.1, 59.2, 70.6),
    "Uni-MoE-2": (88.6, 82.0, 87.1, 65.5, 78.0, 46.7, 65.5, 43.5),
    "MiniCPM": (87.5, 78.8, 87.8, 62.4, 76.9, 23.1, 64.7, 63.9),
    "VITA-1.5": (87.1, 80.8, 87.8, 63.1, 78.8, 31.0, 60.0, 44.3),
    "Phi-4": (85.5, 78.0, 85.5, 64.7, 73.7, 34.1, 63.5, 19.6),
}
# Table 4 (Shapley values), Table 5 (normalised reliance), Table 1 (k = 1 and k = 2): video, audio, text; same setting.
TABLE_4 = {
    "VideoLLaMA2": (0.28, 0.14, 0.33),
    "Phi-4": (0.24, 0.06, 0.36),
    "Uni-MoE-2": (0.14, 0.02, 0.29),
    "VITA-1.5": (0.14, -0.04, 0.32),
    "Gemini 2.5": (0.18, -0.07, 0.26),
    "Qwen3o-Think": (0.15, -0.03, 0.20),
    "Qwen3o-Inst": (0.12, -0.06, 0.21),
    "MiniCPM": (0.12, -0.14, 0.26),
    "GPT-4o-mini": (0.02, -0.04, 0.21),
    "Gemini 2.0": (0.07, -0.24, 0.25),
}
TABLE_4_SHARES = {"VideoLLaMA2": (37, 18, 44), "Phi-4": (37, 9, 55), "Uni-MoE-2": (31, 5, 64)}
TABLE_5 = {
    "GPT-4o-mini": (0.03, 0.04, 0.22),
    "Gemini 2.0": (0.08, 0.00, 0.31),
    "Gemini 2.5": (0.04, 0.00, 0.13),
    "MiniCPM": (0.10, 0.00, 0.29),
    "Phi-4": (0.09, 0.00, 0.24),
    "Qwen3o-Inst": (0.06, 0.00, 0.17),
    "Qwen3o-Think": (0.05, 0.03, 0.14),
    "Uni-MoE-2": (0.08, 0.02, 0.26),
    "VITA-1.5": (0.07, -0.01, 0.27),
    "VideoLLaMA2": (0.08, 0.02, 0.14),
}
TABLE_1 = {"Gemini 2.5": (91.0, 70.5), "VideoLLaMA2": (83.8, 68.2), "Gemini 2.0": (78.2, 51.9), "Phi-4": (76.1, 57.1)}
# Table 2: abstention (%) at k = 0..3, zero-shot synthetic and real; Table 8: the abstention calibration error (%).
TABLE_2 = {
    "Gemini 2.5": ((1.2, 5.5, 20.0, 59.6), (1.2, 4.6, 18.8, 58.5)),
    "Qwen3o-Think": ((2.0, 6.1, 22.6, 61.0), (3.5, 5.9, 19.0, 58.8)),
    "Qwen3o-Inst": ((3.9, 10.5, 28.5, 63.9), (7.8, 13.2, 26.8, 66.3)),
    "GPT-4o-mini": ((5.9, 14.5, 31.4, 70.2), (8.2, 14.5, 30.8, 65.1)),
    "Gemini 2.0": ((7.5, 18.2, 43.8, 81.4), (7.3, 19.0, 43.1, 80.9)),
    "Uni-MoE-2": ((4.3, 9.8, 19.5, 42.7), (4.7, 9.3, 16.3, 38.4)),
    "VideoLLaMA2": ((0.4, 2.5, 5.0, 14.9), (1.2, 2.0, 5.2, 13.7)),
    "MiniCPM": ((8.2, 16.1, 32.9, 63.1), (7.5, 16.1, 32.5, 60.0)),
    "Phi-4": ((2.4, 4.6, 10.1, 18.4), (1.6, 4.8, 9.4, 17.6)),
    "VITA-1.5": ((5.1, 12.0, 25.9, 44.3), (4.3, 13.9, 26.9, 45.1)),
}
TABLE_8 = {
    "Gemini 2.5": (15.8, 15.7),
    "Qwen3o-Think": (16.5, 16.5),
    "Qwen3o-Inst": (18.9, 19.5),
    "GPT-4o-mini": (19.5, 21.3),
    "Gemini 2.0": (21.1, 21.5),
    "Uni-MoE-2": (21.8, 22.1),
    "VideoLLaMA2": (22.4, 22.8),
    "MiniCPM": (22.6, 23.2),
    "Phi-4": (23.8, 23.7),
    "VITA-1.5": (23.8, 24.2),
}


def accuracies(model):
    return {name: value / 100 for name, value in zip(CONDITIONS, TABLE_6[model], strict=True)}


def in_all_orders(value_of, players):
    """Shapley values by their definition: the mean gain over every order in which the players may join."""
    gains = {player: [] for player in players}
    for order in itertools.permutations(players):
        for i, player in enumerate(order):
            gains[player].append(value_of[frozenset(order[: i + 1])] - value_of[frozenset(order[:i])])
    return {player: float(np.mean(gain)) for player, gain in gains.items()}


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_shapley_values_are_the_mean_gain_over_all_orders_and_share_out_the_whole(n):
    rng = np.random.default_rng(n)
    players = list("abcde")[:n]
    subsets = [frozenset(s) for size in range(n + 1) for s in itertools.combinations(players, size)]
    value_of = {s: float(rng.normal()) for s in subsets}
    got = shapley(value_of, players)
    assert got == pytest.approx(in_all_orders(value_of, players), abs=1e-12)
    assert sum(got.values()) == pytest.approx(value_of[frozenset(players)] - value_of[frozenset()], abs=1e-12)


def test_shapley_needs_the_value_of_every_subset():
    with pytest.raises(RowError, match="every subset"):
        shapley({frozenset(): 0.0, frozenset("a"): 1.0}, ["a", "b"])
    with pytest.raises(RowError, match="every subset"):
        shapley_reliance({"C000": 1.0, "C111": 0.0})


@pytest.mark.parametrize("model", TABLE_6)
def test_shapley_reliance_gives_the_papers_table_from_its_accuracies(model):
    got = shapley_reliance(accuracies(model))
    assert [got[m] for m in MODALITIES] == pytest.approx(TABLE_4[model], abs=0.0056)
    coalitions = {frozenset(MODALITIES) - corrupted(c): value for c, value in accuracies(model).items()}
    assert got == pytest.approx(in_all_orders(coalitions, MODALITIES), abs=1e-12)


@pytest.mark.parametrize("model", TABLE_6)
def test_shares_are_those_of_the_paper_and_undefined_where_a_value_is_negative(model):
    shares = shapley_shares(shapley_reliance(accuracies(model)))
    if model in TABLE_4_SHARES:
        assert [100 * shares[m] for m in MODALITIES] == pytest.approx(TABLE_4_SHARES[model], abs=0.56)
    else:
        assert all(math.isnan(share) for share in shares.values())


def test_shares_of_nothing_are_undefined():
    assert all(math.isnan(share) for share in shapley_shares(dict.fromkeys(MODALITIES, 0.0)).values())


@pytest.mark.parametrize("model", TABLE_6)
def test_normalised_reliance_gives_the_papers_table_from_its_accuracies(model):
    got = normalised_reliance(accuracies(model))
    assert [got[m] for m in MODALITIES] == pytest.approx(TABLE_5[model], abs=0.0056)


def test_normalised_reliance_is_nan_without_any_right_answer_and_names_what_is_missing():
    assert all(math.isnan(v) for v in normalised_reliance(dict.fromkeys(CONDITIONS, 0.0)).values())
    with pytest.raises(RowError, match="C010"):
        normalised_reliance({"C000": 1.0, "C100": 0.5, "C001": 0.5})


@pytest.mark.parametrize("model", TABLE_1)
def test_levels_of_the_accuracy_table_are_means_over_conditions(model):
    got = 100 * level_rates_over_conditions(accuracies(model))
    assert got == pytest.approx([TABLE_6[model][0], *TABLE_1[model], TABLE_6[model][7]], abs=0.1)


@pytest.mark.parametrize("model", TABLE_2)
@pytest.mark.parametrize("split", ["synthetic", "real"])
def test_abstention_calibration_error_gives_the_papers_table(model, split):
    column = ("synthetic", "real").index(split)
    observed = np.array(TABLE_2[model][column]) / 100
    got = 100 * abstention_calibration_error(observed, HUMAN_ABSTENTION[split])
    # Both tables are rounded; the paper's two printed values of Gemini 2.0 (real) do not belong together (21.3, 21.5).
    assert got == pytest.approx(TABLE_8[model][column], abs=0.23 if (model, split) == ("Gemini 2.0", "real") else 0.1)


def test_people_abstained_as_tables_2_and_13_print():
    printed = {"synthetic": (0.0, 0.0, 1.2, 97.6), "real": (0.0, 0.0, 1.8, 98.4)}
    by_condition = {"synthetic": (0.39, 2.75, 0.39), "real": (0.78, 3.92, 0.78)}
    for split, rates in HUMAN_ABSTENTION.items():
        assert 100 * np.array(rates) == pytest.approx(printed[split], abs=0.0501)
        assert 100 * rates[2] == pytest.approx(np.mean(by_condition[split]), abs=0.005)
        assert abstention_calibration_error(rates, rates) == 0.0


def test_abstention_calibration_error_by_hand_and_its_edges():
    assert abstention_calibration_error([0, 0, 0, 0], [0, 0, 0, 1]) == 0.25
    assert abstention_calibration_error([1, 1, 1, 1], [0, 0, 0, 0]) == 1.0
    assert math.isnan(abstention_calibration_error([0, math.nan, 0, 0], [0, 0, 0, 1]))  # a level without instances
    for bad in ([0, 0, 0], [0, 0, 0, 97.6], [0, 0, 0, -0.1]):
        with pytest.raises(RowError, match="percent"):
            abstention_calibration_error(bad, [0, 0, 0, 1])


def test_conditions_name_the_corrupted_modalities():
    named = {c: "".join(m[0] for m in MODALITIES if m in corrupted(c)) for c in CONDITIONS}
    assert named == {
        "C000": "",
        "C100": "v",
        "C010": "a",
        "C001": "t",
        "C110": "va",
        "C101": "vt",
        "C011": "at",
        "C111": "vat",
    }
    assert levels_of(CONDITIONS).tolist() == [0, 1, 1, 1, 2, 2, 2, 3]
    for unknown in ("C002", "c000", "C0000", ""):
        with pytest.raises(RowError, match="no such condition"):
            corrupted(unknown)


def test_rates_are_counted_instance_by_instance():
    rng = np.random.default_rng(3)
    conditions = rng.choice(CONDITIONS[:-1], size=500).tolist()
    hits = rng.integers(0, 2, size=500)
    rates = condition_rates(conditions, hits)
    for name in CONDITIONS[:-1]:
        chosen = [h for c, h in zip(conditions, hits, strict=True) if c == name]
        assert rates[name] == pytest.approx(sum(chosen) / len(chosen))
    assert math.isnan(rates["C111"])
    pooled = level_rates(conditions, hits)
    chosen = [h for c, h in zip(conditions, hits, strict=True) if c.count("1") == 2]
    assert pooled[2] == pytest.approx(sum(chosen) / len(chosen))
    assert math.isnan(pooled[3])


def test_level_rates_over_instances_and_over_conditions_differ_where_conditions_have_unequal_sizes():
    conditions, hits = ["C100"] * 3 + ["C010"], [1, 1, 1, 0]
    assert level_rates(conditions, hits)[1] == 0.75
    assert level_rates_over_conditions({"C100": 1.0, "C010": 0.0})[1] == 0.5
    equal = [name for name in CONDITIONS for _ in range(5)]
    hits = np.random.default_rng(4).integers(0, 2, size=len(equal))
    assert level_rates(equal, hits) == pytest.approx(level_rates_over_conditions(condition_rates(equal, hits)))


def test_no_instance_gives_nan_and_invalid_answers_are_refused():
    assert np.isnan(level_rates([], [])).all()
    assert all(math.isnan(rate) for rate in condition_rates([], []).values())
    for bad in ([math.nan, 1], [2, 0], [1]):
        with pytest.raises(RowError, match="invalid"):
            condition_rates(["C000", "C111"], bad)
    with pytest.raises(RowError, match="no such condition"):
        condition_rates(["C000", "clean"], [1, 0])


def test_restricted_softmax_is_the_largest_share_among_the_options_alone():
    logits = np.random.default_rng(5).normal(scale=4, size=(50, 5))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    got = restricted_softmax(logits)
    assert got.method == "restricted_softmax"
    assert got.values == pytest.approx(shares.max(axis=1))
    assert restricted_softmax(logits + 1e4).values == pytest.approx(got.values)  # shifting all options changes nothing
    assert restricted_softmax(np.zeros((1, 5))).values == pytest.approx([0.2])
    margin = np.array([-3.0, 0.0, 2.0])
    p = 1 / (1 + np.exp(-margin))
    assert restricted_softmax(np.stack([margin, 0 * margin], 1)).values == pytest.approx(np.maximum(p, 1 - p))
    assert restricted_softmax(np.zeros((0, 5))).values.shape == (0,)


def test_the_two_confidences_of_one_answer_differ_by_the_mass_outside_the_options():
    vocabulary = np.array([[2.0, 1.0, 0.5, 3.0]])  # two options, two other tokens
    logs = vocabulary - np.log(np.exp(vocabulary).sum())
    restricted, token = restricted_softmax(vocabulary[:, :2]), token_probability(logs[:, 0])
    mass = np.exp(logs[:, :2]).sum()
    assert token.values == pytest.approx(restricted.values * mass)
    assert token.values[0] < restricted.values[0]


@pytest.mark.parametrize("bad", [[[math.nan, 1.0]], [[math.inf, 1.0]], [1.0, 2.0], [[]]])
def test_restricted_softmax_refuses_failed_rows(bad):
    with pytest.raises(RowError, match="logits"):
        restricted_softmax(bad)


@pytest.mark.parametrize("bad", [[math.nan], [0.5], [[-1.0]]])
def test_token_probability_refuses_failed_rows_and_probabilities(bad):
    with pytest.raises(RowError, match="log-probabilities"):
        token_probability(bad)


def test_mean_confidence_is_taken_per_level_and_keeps_its_method():
    conditions = ["C000", "C100", "C010", "C111"]
    got = mean_confidence(conditions, Confidence("token_probability", np.array([0.9, 0.8, 0.4, 0.3])))
    assert got.method == "token_probability"
    assert got.mean == pytest.approx([0.9, 0.6, math.nan, 0.3], nan_ok=True)
    assert got.n.tolist() == [1, 2, 0, 1]
    with pytest.raises(RowError, match="one confidence per instance"):
        mean_confidence(conditions, restricted_softmax(np.zeros((3, 5))))


def test_methods_are_never_in_one_table():
    rs, tp = restricted_softmax(np.zeros((1, 5))), token_probability([-0.1])
    parted = by_method({"a": rs, "b": tp, "c": rs})
    assert {method: list(rows) for method, rows in parted.items()} == {
        "restricted_softmax": ["a", "c"],
        "token_probability": ["b"],
    }
