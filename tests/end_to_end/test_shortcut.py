"""The claim-only probe finds what text gives away, finds nothing where there is nothing, and never crashes."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.sparse import hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold

from proofreel.core.errors import RowError
from proofreel.core.pairs import Pair
from proofreel.data_prep.dataset.shortcut import ShortcutReport, claim_only_probe, shortcut_table
from proofreel.data_prep.importers.base import Row
from proofreel.data_prep.importers.facts import read_facts
from proofreel.data_prep.importers.mirage_grounding import merge_judgments, read_judgments

WORDS = [f"{a}{b}" for a in ("cut", "boil", "fry", "peel", "stir", "wash") for b in ("er", "ing", "ed", "s", "able")]


def drawn(n: int = 400, n_groups: int = 50, tell: str = "", seed: int = 0) -> dict[str, Any]:
    """Columns of a made-up data set; `tell` is a word that only negatives carry."""
    rng = np.random.default_rng(seed)
    supported = rng.random(n) < 0.5
    claims = [" ".join(rng.choice(WORDS, 5)) + ("" if s or not tell else f" {tell}") + "." for s in supported]
    return {
        "claims": claims,
        "labels": ["supported" if s else ("refuted", "not_enough")[i % 2] for i, s in enumerate(supported)],
        "groups": [f"video {g}" for g in rng.integers(0, n_groups, n)],
        "roles": [("Action", "Object")[i % 2] for i in range(n)],
        "origins": ["annotated" if s else ("altered", "swapped")[i % 3 == 0] for i, s in enumerate(supported)],
    }


def without_rows(columns, keep):
    return {name: [v for v, k in zip(column, keep, strict=True) if k] for name, column in columns.items()}


def by_hand(columns, seed, part=None):
    """The same probe, spelled out; trained and asked on `part` of the rows."""
    y = np.array([label == "supported" for label in columns["labels"]])
    groups = np.array(columns["groups"])
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b", min_df=2)
    parts = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), min_df=2)
    x = hstack([words.fit_transform(columns["claims"]), parts.fit_transform(columns["claims"])]).tocsr()
    if part is not None:
        x, y, groups = x[np.flatnonzero(part)], y[part], groups[part]
    scores = np.full(len(y), np.nan)
    for train, test in StratifiedGroupKFold(5, shuffle=True, random_state=seed).split(x, y, groups):
        assert not set(groups[train]) & set(groups[test])
        model = LogisticRegression(class_weight="balanced", max_iter=1000).fit(x[train], y[train])
        scores[test] = model.decision_function(x[test])
    return y, scores


@pytest.mark.parametrize("tell", ["", "not"])
def test_the_aucs_are_those_of_the_same_probe_spelled_out_by_hand(tell):
    columns = drawn(tell=tell)
    report = claim_only_probe(**columns, seed=3)
    y, scores = by_hand(columns, seed=3)
    assert report.overall.value == pytest.approx(roc_auc_score(y, scores), abs=2e-3)
    for role in ("Action", "Object"):
        part = np.array(columns["roles"]) == role
        assert report.roles[role].value == pytest.approx(roc_auc_score(y[part], scores[part]), abs=2e-3)
        assert (report.roles[role].rows, report.roles[role].supported) == (part.sum(), y[part].sum())
    for origin in ("altered", "swapped"):
        negatives, groups = np.array(columns["origins"]) == origin, np.array(columns["groups"])
        own = roc_auc_score(*by_hand(columns, 3, part=(y & np.isin(groups, groups[negatives])) | negatives))
        assert report.origins[origin].value == pytest.approx(own, abs=2e-3)
    assert set(report.origins) == {"altered", "swapped"}, "an origin without negatives has nothing to tell apart"


def test_a_word_that_only_negatives_carry_is_found_and_named():
    report = claim_only_probe(**drawn(tell="never"), seed=0)
    assert report.overall.value == pytest.approx(1.0, abs=1e-3)
    assert len(report.warnings) == 5
    worst = report.words[0]
    assert "never" in worst.text
    assert worst.weight < 0
    assert (worst.supported, worst.rest > 100) == (0, True)
    assert "never" in shortcut_table(report)
    assert "warning" in shortcut_table(report)


def test_clean_claims_give_chance_and_no_warning():
    values = [claim_only_probe(**drawn(seed=seed), seed=seed).overall.value for seed in range(4)]
    assert np.mean([v or 0 for v in values]) == pytest.approx(0.5, abs=0.04)
    report = claim_only_probe(**drawn(n=2000, n_groups=300), seed=0)
    assert report.warnings == []
    assert "warning" not in shortcut_table(report)


def test_only_the_leaking_origin_is_warned_about():
    columns = drawn(n=1500)
    columns["claims"] = [
        c + (" instead" if o == "altered" else "") for c, o in zip(columns["claims"], columns["origins"], strict=True)
    ]
    report = claim_only_probe(**columns, seed=0)
    assert (report.origins["altered"].value or 0) > 0.95
    assert (report.origins["swapped"].value or 1) < 0.6
    assert any("origin altered" in line for line in report.warnings)
    assert not any("origin swapped" in line for line in report.warnings)


def altered_tools(tools: Sequence[str]) -> dict[str, Any]:
    """Facts with and without a tool; those with one have a negative with another of `tools`."""
    rng = np.random.default_rng(0)
    columns: dict[str, list[Any]] = {name: [] for name in ("claims", "labels", "groups", "roles", "origins", "sources")}
    for i in range(600):
        doing, tool = " ".join(rng.choice(WORDS[:15], 2)), rng.choice(WORDS[15:])
        claim = f"{doing} the food" + (f" with {tool}" if i % 3 == 0 else "")
        rows: list[tuple[str, str, str, str | None]] = [(claim, "supported", "annotated", None)]
        if i % 3 == 0:
            rows.append((f"{doing} the food with {rng.choice(tools)}", "refuted", "altered_claim_C", claim))
        for text, label, origin, source in rows:
            for name, value in zip(columns, (text, label, f"g{i // 6}", "r", origin, source), strict=True):
                columns[name].append(value)
    return columns


def test_altered_claims_are_compared_with_the_claims_they_were_made_from():
    """Against all supported rows the probe learns which claims have a "with": 0.957 where there is nothing to learn."""
    columns = altered_tools(WORDS[15:])
    value = claim_only_probe(**columns, seed=0).origins["altered_claim_C"]
    assert (value.rows, value.supported) == (400, 200)
    assert 0.35 < (value.value or 0) < 0.6
    columns["sources"] = [None] * len(columns["claims"])
    assert (claim_only_probe(**columns, seed=0).origins["altered_claim_C"].value or 0) > 0.8
    leaking = claim_only_probe(**altered_tools(["harpoon", "sabre"]), seed=0)
    assert (leaking.origins["altered_claim_C"].value or 0) > 0.95
    assert any("origin altered_claim_C" in line for line in leaking.warnings)
    assert leaking.words_of == "origin altered_claim_C"
    assert {word.text for word in leaking.words if word.weight < 0} >= {"harpoon", "sabre"}


def test_a_source_that_was_not_sampled_is_still_what_its_negative_is_compared_with():
    columns = altered_tools(WORDS[15:])
    part = claim_only_probe(**columns, seed=0, max_rows=200).origins["altered_claim_C"]
    assert part.rows == 2 * part.supported > 50


def test_a_sentence_asked_of_other_evidence_tells_nothing():
    columns = altered_tools(WORDS[15:])
    columns["claims"] = [source or claim for claim, source in zip(columns["claims"], columns["sources"], strict=True)]
    assert claim_only_probe(**columns, seed=0).origins["altered_claim_C"].value == pytest.approx(0.5)


@pytest.mark.parametrize("tell", ["", "never"])
def test_only_words_that_tell_are_listed(tell):
    """A word of every row has a weight, for what else stands in the row; it tells nothing."""
    columns = drawn(n=1500, tell=tell)
    columns["claims"] = [f"the {claim}" for claim in columns["claims"]]
    words = claim_only_probe(**columns, seed=0).words
    assert "the" not in {word.text for word in words}
    assert [word.text for word in words if tell not in word.text.split()] == []
    assert bool(words) == bool(tell)


def test_negatives_made_from_no_claim_are_compared_inside_their_groups():
    """A group's own subject is no leak: only the kitchen has annotated negatives."""
    rng = np.random.default_rng(0)
    rows = [(f"cook {' '.join(rng.choice(WORDS, 3))}", "refuted" if i % 2 else "supported", i // 8) for i in range(240)]
    rows += [(f"saw {' '.join(rng.choice(WORDS, 3))}", "supported", 100 + i // 8) for i in range(240)]
    columns: dict[str, Any] = {
        "claims": [row[0] for row in rows],
        "labels": [row[1] for row in rows],
        "groups": [f"g{row[2]}" for row in rows],
        "roles": ["r"] * len(rows),
        "origins": ["annotated" if row[1] == "supported" else "negative_annotated" for row in rows],
    }
    report = claim_only_probe(**columns, seed=0)
    assert (report.overall.value or 0) > 0.6
    assert report.origins["negative_annotated"].supported == 120
    assert (report.origins["negative_annotated"].value or 1) < 0.6


def test_swapped_negatives_do_not_hide_a_leak_of_other_negatives():
    rng = np.random.default_rng(0)
    sentences = [" ".join(rng.choice(WORDS, 4)) for _ in range(150)]
    telling = [" ".join(rng.choice(WORDS[:20], 4)) for _ in range(150)]
    columns: dict[str, Any] = {
        "claims": [*sentences, *telling, *sentences],
        "labels": ["supported"] * 150 + ["refuted"] * 300,
        "groups": [f"g{g}" for g in rng.integers(0, 40, 450)],
        "roles": ["r"] * 450,
        "origins": ["annotated"] * 150 + ["altered"] * 150 + ["swapped"] * 150,
    }
    report = claim_only_probe(**columns, seed=0)
    assert (report.origins["altered"].value or 0) > 0.7
    assert (report.origins["swapped"].value or 1) < 0.4
    assert report.overall.value is not None
    assert (report.origins["altered"].value or 0) > report.overall.value


def test_sentences_that_recur_with_their_label_in_other_groups_are_caught():
    rng = np.random.default_rng(0)
    sentences = [" ".join(rng.choice(WORDS, 4)) for _ in range(40)]
    chosen = rng.integers(0, 40, 800)
    columns: dict[str, Any] = {
        "claims": [sentences[i] for i in chosen],
        "labels": ["supported" if i % 2 else "refuted" for i in chosen],
        "groups": [f"g{i // 8}" for i in range(800)],
    }
    report = claim_only_probe(**columns, roles=["r"] * 800, origins=["o"] * 800, seed=0)
    assert (report.overall.value or 0) > 0.9


def test_balanced_swaps_fall_below_chance_and_are_not_called_a_leak():
    rng = np.random.default_rng(0)
    sentences = [f"{a} {b} {c}." for a in WORDS[:10] for b in WORDS[10:20] for c in WORDS[20:24]]
    columns: dict[str, Any] = {
        "claims": [s for s in sentences for _ in range(2)],
        "labels": ["supported", "refuted"] * len(sentences),
        "groups": [f"g{g}" for g in rng.integers(0, 80, 2 * len(sentences))],
        "roles": ["Action"] * (2 * len(sentences)),
        "origins": ["annotated", "swapped_evidence"] * len(sentences),
    }
    report = claim_only_probe(**columns, seed=0)
    assert (report.overall.value or 1) < 0.45
    assert report.warnings == []
    assert "no leak" in shortcut_table(report)


def test_the_same_input_gives_the_same_report_and_another_seed_another():
    columns = drawn()
    first = claim_only_probe(**columns, seed=1)
    assert claim_only_probe(**columns, seed=1) == first
    assert claim_only_probe(**columns, seed=2).overall != first.overall


def test_a_sample_keeps_the_share_of_supported_rows_and_counts_all():
    columns = drawn(n=900)
    supported = columns["labels"].count("supported")
    report = claim_only_probe(**columns, seed=0, max_rows=300)
    assert (report.rows, report.overall.rows) == (900, 300)
    assert report.overall.supported == round(300 * supported / 900)
    assert sum(part.rows for part in report.roles.values()) == 300


def test_rows_without_a_label_are_left_out_and_counted():
    columns = drawn(n=200)
    columns["labels"][:50] = [None] * 50
    report = claim_only_probe(**columns, seed=0)
    assert (report.rows, report.unlabelled, report.overall.rows) == (150, 50, 150)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: {name: [] for name in c}, "no labelled rows"),
        (lambda c: {**c, "labels": [None] * 40}, "no labelled rows"),
        (lambda c: {**c, "labels": ["supported"] * 40}, "all rows are supported"),
        (lambda c: {**c, "labels": ["refuted", "not_enough"] * 20}, "all rows are not supported"),
        (lambda c: {**c, "groups": ["one"] * 40}, "only one group"),
        (lambda c: {**c, "labels": ["supported", *["refuted"] * 39]}, "single row"),
        (lambda c: {**c, "claims": [chr(0x4E00 + i) for i in range(40)]}, "occurs twice"),
        (
            lambda c: {
                **c,
                "groups": [f"g{label == 'supported'}" for label in c["labels"]],
            },
            "only one label is left",
        ),
    ],
)
def test_what_cannot_be_probed_has_a_reason_instead_of_a_value(change, reason):
    report = claim_only_probe(**change(drawn(n=40, n_groups=10)), seed=0)
    assert report.overall.value is None
    assert reason in (report.overall.reason or "")
    assert report.folds == 0
    assert reason in shortcut_table(report)
    json.dumps(report.as_dict(), allow_nan=False)


def test_a_role_with_one_label_has_a_reason_and_the_others_a_value():
    columns = drawn(n=200)
    columns["roles"] = ["Tool" if label == "supported" else "Action" for label in columns["labels"]]
    columns["roles"][:40] = ["Object"] * 40
    report = claim_only_probe(**columns, seed=0)
    assert (report.roles["Tool"].value, report.roles["Tool"].reason) == (None, "no negatives")
    assert report.roles["Action"].reason == "no supported rows"
    assert report.roles["Object"].value is not None


def test_few_rows_of_a_label_are_called_uncertain():
    columns = drawn(n=200, tell="never")
    columns["roles"] = ["rare" if i < 8 else "common" for i in range(200)]
    assert any("uncertain" in line for line in claim_only_probe(**columns, seed=0).warnings)


@pytest.mark.parametrize(("n", "n_groups"), [(4, 4), (6, 2), (9, 3)])
def test_a_handful_of_rows_is_no_error(n, n_groups):
    columns = drawn(n=n, n_groups=n_groups)
    columns["labels"] = ["supported" if i % 2 else "refuted" for i in range(n)]
    assert isinstance(claim_only_probe(**columns, seed=0), ShortcutReport)


def test_columns_of_different_lengths_are_refused():
    columns = drawn(n=10)
    with pytest.raises(RowError, match="equally long"):
        claim_only_probe(**{**columns, "roles": []}, seed=0)


def test_the_plain_form_survives_json_unchanged():
    plain = claim_only_probe(**drawn(tell="never"), seed=0).as_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["overall"].keys() == {"value", "rows", "supported", "reason"}
    assert plain["words"][0].keys() == {"text", "weight", "supported", "rest"}


def columns_of(pairs: Sequence[Pair]) -> dict[str, Any]:
    return {
        "claims": [p.claim for p in pairs],
        "labels": [p.label for p in pairs],
        "groups": [p.group for p in pairs],
        "roles": [p.role for p in pairs],
        "origins": [p.origin for p in pairs],
    }


def test_real_judgments_and_facts_can_be_probed(shared_data):
    files = sorted((shared_data / "mirage/grounding_judgments").glob("*.csv"))
    rows = [row for file in files for row in read_judgments(file) if isinstance(row, Row)]
    judged = claim_only_probe(**columns_of([row.pair for row in merge_judgments(rows)[0]]), seed=0)
    assert judged.overall.rows > 8_000
    assert judged.overall.value is not None
    facts = [r.pair for r in read_facts(shared_data / "video-clips/annotations.json") if isinstance(r, Row)]
    assert claim_only_probe(**columns_of(facts), seed=0).overall.value is not None
