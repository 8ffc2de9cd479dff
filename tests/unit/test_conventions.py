"""What each average gives of MiRAGE's always-yes baseline, and whether published numbers follow what we say."""

import inspect
import math
import re
import warnings

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, roc_auc_score

from proofreel.core.errors import RowError
from proofreel.eval.conflicts import formulas
from proofreel.eval.facts import formulas as fact_formulas
from proofreel.eval.metrics.catalogue import METRICS, definition, definitions
from proofreel.eval.metrics.defined import (
    PUBLISHED,
    published_markdown,
)
from proofreel.eval.metrics.values import always_yes
from proofreel.eval.scores import cgbench, murgat
from proofreel.eval.uncertainty.headline import headline_names
from proofreel.models.decision import counts as decisions

# MiRAGE Table 10: F1 and AUC of each row, in percent.
TABLE_10 = {
    "always yes": (50.0, 50.0),
    "video NT zero-shot": (41.7, 53.2),
    "video NT trained": (76.9, 75.4),
    "video NLI zero-shot": (35.6, 55.2),
    "video NLI trained": (52.7, 53.4),
    "text NT zero-shot": (83.1, 85.6),
    "text NT trained": (99.4, 99.4),
    "text NLI zero-shot": (37.2, 47.4),
    "text NLI trained": (88.7, 88.7),
}
# MuRGAt Tables 1 and 6: (coverage, "Attribution" of Table 1, recall, precision, F1, MURGAT-S), WorldSense then MMMU.
TABLE_6 = [
    (55.1, 35.4, 35.4, 49.1, 41.1, 27.3),
    (47.1, 41.2, 41.2, 67.4, 51.1, 23.1),
    (85.0, 65.8, 65.8, 59.7, 62.6, 59.9),
    (76.8, 61.6, 61.6, 57.8, 59.6, 49.7),
    (35.9, 14.9, 14.9, 49.1, 22.9, 5.6),
    (45.0, 23.4, 23.4, 67.4, 34.7, 21.8),
    (57.1, 32.5, 32.5, 59.7, 42.1, 21.8),
    (59.7, 24.8, 24.8, 57.8, 34.7, 16.3),
]


def entries(paper, where, number):
    return [e for e in PUBLISHED if (e.paper, e.where) == (paper, where) and number in e.number]


def test_always_yes_at_half_positives_shows_which_average_the_papers_50_is():
    got = always_yes(500, 500)
    assert 100 * got["f1"] == pytest.approx(66.7, abs=0.05)
    assert 100 * got["f1_macro"] == pytest.approx(33.3, abs=0.05)
    assert 100 * got["f1_micro"] == 100 * got["accuracy"] == 100 * got["auc_of_verdicts"] == 50.0
    printed, _ = TABLE_10["always yes"]
    assert {name for name in ("f1", "f1_macro", "f1_micro") if round(100 * got[name], 1) == printed} == {"f1_micro"}
    (entry,) = entries("MiRAGE", "Table 10", "always-yes")
    assert entry.follows.startswith("micro F1")


@pytest.mark.parametrize("n_supported", [1, 262, 393, 500, 999])
def test_always_yes_agrees_with_scikit_learn_at_every_prevalence(n_supported):
    labels, said = np.arange(1000) < n_supported, np.ones(1000, dtype=bool)
    got = always_yes(n_supported, 1000 - n_supported)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class that is never called has no precision
        for name, average in (
            ("f1", "binary"),
            ("f1_macro", "macro"),
            ("f1_micro", "micro"),
            ("f1_weighted", "weighted"),
        ):
            assert got[name] == pytest.approx(f1_score(labels, said, average=average))
    assert got["f1"] == pytest.approx(2 * n_supported / (1000 + n_supported))  # 2 pi / (1 + pi)
    assert got["accuracy"] == pytest.approx(accuracy_score(labels, said))
    assert got["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, said))
    assert got["auc_of_verdicts"] == pytest.approx(roc_auc_score(labels, said))
    assert got["predicted_positive_rate"] == 1.0
    assert math.isnan(got["mcc"])


def test_positive_class_f1_of_always_yes_is_50_at_a_third_of_positives_only():
    values = {n: 100 * always_yes(n, 787 - n)["f1"] for n in range(788)}
    assert [n for n, value in values.items() if round(value, 1) == 50.0] == [
        262
    ]  # of the paper's 787 claims, said to be balanced


def test_always_yes_without_a_class_is_undefined_not_zero():
    assert always_yes(10, 0)["f1"] == 1.0
    assert math.isnan(always_yes(10, 0)["f1_macro"])
    assert math.isnan(always_yes(0, 10)["f1"])
    assert all(math.isnan(value) for value in always_yes(0, 0).values())


def test_no_one_average_explains_every_row_of_mirages_table():
    # On balanced claims accuracy (micro F1) is balanced accuracy, the AUC of verdicts: the two columns would be equal.
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 2 == 0
    for _ in range(10):
        said = rng.random(400) < rng.random()
        assert f1_score(labels, said, average="micro") == pytest.approx(roc_auc_score(labels, said))
    equal = {row for row, (f1, auc) in TABLE_10.items() if f1 == auc}
    assert equal == {"always yes", "text NT trained", "text NLI trained"}


def test_attribution_of_murgats_table_1_is_recall_and_its_f1_a_harmonic_mean():
    for _, attribution_printed, recall, precision, f1, _ in TABLE_6:
        assert attribution_printed == recall != f1
        assert 2 * precision * recall / (precision + recall) == pytest.approx(f1, abs=0.06)
    assert entries("MuRGAt", "Table 1", "Attribution")[0].known == "computed"


def test_murgats_score_is_not_the_product_of_its_printed_columns():
    products = [coverage * f1 / 100 for coverage, _, _, _, f1, _ in TABLE_6]
    printed = [row[-1] for row in TABLE_6]
    assert max(abs(a - b) for a, b in zip(products, printed, strict=True)) > 4


def test_averages_of_dualfacts_table_6_are_means_of_roles_for_conceptual_text_only():
    textual = [((98.81, 99.06, 99.02, 98.77), 98.92), ((55.06, 27.01, 40.48, 35.32), 39.47)]
    multimodal = [((92.50, 81.53, 90.50, 86.30), 88.07), ((94.27, 93.15, 92.58, 94.04), 93.41)]
    multimodal += [((78.68, 83.43, 80.35, 82.67, 77.80), 79.89), ((96.92, 95.38, 89.84, 100.0, 98.15), 95.78)]
    assert all(np.mean(roles) == pytest.approx(average, abs=0.0051) for roles, average in textual)
    assert all(abs(np.mean(roles) - average) > 0.09 for roles, average in multimodal)
    assert entries("DualFact", "Table 6", "multimodal")[0].follows.startswith("not the mean")


def test_error_tables_of_dualfact_are_shares_of_errors():
    rows = [(65.43, 16.89, 17.68), (53.83, 37.85, 8.31), (44.72, 54.17, 1.11), (51.06, 12.77, 36.17)]
    assert all(sum(row) == pytest.approx(100, abs=0.02) for row in rows)


def test_every_metric_of_decisions_and_of_the_headline_has_its_sentence():
    for name in [*METRICS, *headline_names()]:
        assert definition(name)


def test_each_definition_is_one_sentence_and_names_a_metric_once():
    names: dict[str, list[str]] = {}
    for name, sentence in definitions().items():
        names.setdefault(sentence, []).append(name)
        assert re.fullmatch(r"[A-Z0-9m(].*\.", sentence), name
        assert not re.search(r"[.!?] [A-Z]|\|", sentence), name  # nor a bar, which would part a table's cell
    for same in names.values():  # one metric at several settings: mce and mce_mass
        assert all(name.startswith(min(same, key=len)) for name in same), same


def test_definitions_of_the_papers_metrics_name_what_exists():
    names = set()
    for module in (murgat, fact_formulas, formulas, cgbench, decisions):
        for thing in vars(module).values():
            if inspect.isclass(thing):
                names |= set(getattr(thing, "__annotations__", {}))
            elif callable(thing):
                names.add(thing.__name__)
    first = list(definitions()).index("abstention_calibration_error")
    own_words = {"recall_at_iou", "accuracy_at_iou"}  # `recall` and `accuracy` of GroundingScores
    assert set(list(definitions())[first:]) - own_words <= names


def test_a_definition_is_of_a_metric_before_and_after_calibration():
    assert definition("ece_before") == definition("ece_after") == definitions()["ece"]
    with pytest.raises(RowError, match="no such metric"):
        definition("ACE")


def test_published_table_has_a_row_per_entry_and_every_paper():
    lines = published_markdown().splitlines()
    assert len(lines) == 2 + len(PUBLISHED) == 2 + len(set(PUBLISHED))
    assert all(line.count("|") == 6 for line in lines)
    papers = {entry.paper for entry in PUBLISHED}
    assert papers == {"MiRAGE", "MuRGAt", "OMD-Bench", "CG-Bench", "DualFact"}
    for paper in papers:
        rows = published_markdown(paper).splitlines()[2:]
        assert rows == [line for line in lines if line.startswith(f"| {paper} |")]
    with pytest.raises(RowError, match="no such paper"):
        published_markdown("FActScore")


def test_conventions_named_in_the_published_table_are_defined():
    words = {word for entry in PUBLISHED for word in re.findall(r"[a-z0-9]+(?:_[a-z0-9]+)+", entry.follows)}
    assert words
    assert words <= set(definitions()), words - set(definitions())
