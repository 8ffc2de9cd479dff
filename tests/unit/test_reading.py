"""The real-words example: reading FactCG, word overlap, F1s, agreement of annotators, choosing a layer."""

import json
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from examples.reading.factcg import read_factcg
from examples.reading.heads import choose, fit, heads_of_folds, normed, out_of_fold
from examples.reading.rivals import agreement, pooled_f1, row_of, tfidf_cosine, thresholded, word_share
from proofreel.core.errors import RowError
from proofreel.core.pairs import Pair, Passage


def record(document="A red boat.", claim="The boat is red.", label="1"):
    return {"text_a": document, "text_b": [claim], "orig_label": label}


def written(path, records):
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


def test_factcg_rows_are_grouped_by_document_and_what_is_left_out_is_counted(tmp_path):
    one, two = record(), record(claim="The boat is blue.", label="0")
    other = record("Rain fell.", "It rained.")
    again, differing = record(), record(label="0")
    file = written(tmp_path / "a.json", [one, two, other, record(""), again, differing])
    pairs, left_out = read_factcg([file])
    assert [(p.claim, p.label) for p in pairs] == [
        ("The boat is red.", "supported"),
        ("The boat is blue.", "refuted"),
        ("It rained.", "supported"),
    ]
    assert pairs[0].group == pairs[1].group != pairs[2].group
    assert len({p.id for p in pairs}) == 3
    assert left_out == {"no document": 1, "repeated": 1, "repeated with the other label": 1}


@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"text_a": 1, "text_b": ["a"], "orig_label": "1"}', '{"text_a": "d", "text_b": [], "orig_label": "1"}',
     '{"text_a": "d", "text_b": ["a"], "orig_label": "maybe"}'],
)  # fmt: skip
def test_a_line_that_is_no_record_is_named(tmp_path, line):
    file = tmp_path / "a.json"
    file.write_text(json.dumps(record()) + "\n" + line + "\n")
    with pytest.raises(RowError, match=r"a\.json:2: not"):
        read_factcg([file])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(RowError, match=r"b\.json: no such file"):
        read_factcg([tmp_path / "b.json"])


def test_overlap_is_of_words_and_of_documents_frequencies():
    def pair(claim, document):
        return Pair(id=claim, claim=claim, evidence=(Passage(document),))

    pairs = [pair("The boat is red", "A red boat."), pair("Snow", "A red boat."), pair("a", "the a")]
    assert word_share(pairs).tolist() == [0.5, 0.0, 1.0]
    cosines = tfidf_cosine(pairs)
    # Three documents' words: "red" and "boat" stand in one of the two distinct documents, "the" in the other.
    assert cosines[0] == pytest.approx(2 / np.sqrt(2 * 3))
    assert cosines[1] == 0


def test_verdicts_of_a_fold_take_the_best_threshold_of_the_others():
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 6, 120).astype(float), rng.random(120) < 0.4
    folds = np.repeat(["a", "b", "c"], 40)
    verdicts = thresholded(scores, labels, folds)
    for fold in "abc":
        others, mine = folds != fold, folds == fold
        best = max(f1_score(labels[others], scores[others] >= t) for t in np.unique(scores))
        chosen = [t for t in np.unique(scores) if np.array_equal(scores[mine] >= t, verdicts[mine])]
        assert any(f1_score(labels[others], scores[others] >= t) == pytest.approx(best) for t in chosen)


def test_the_numbers_of_a_row_are_scikit_learns():
    rng = np.random.default_rng(1)
    labels, groups = rng.random(200) < 0.3, np.repeat(list("abcd"), 50)
    scores = labels + rng.normal(size=200)
    row: dict[str, Any] = row_of(scores, labels, groups)
    verdicts = thresholded(scores, labels, groups)
    assert row["auc"].value == pytest.approx(roc_auc_score(labels, scores))
    assert row["auc"].low < row["auc"].value < row["auc"].high
    assert row["auc_topics"] == pytest.approx(
        np.mean([roc_auc_score(labels[groups == g], scores[groups == g]) for g in "abcd"])
    )
    assert row["f1"].value == pytest.approx(f1_score(labels, verdicts))
    assert row["f1_classes"] == pytest.approx(f1_score(labels, verdicts, average="macro"))
    assert pooled_f1(verdicts, labels, np.ones((2, 200))) == pytest.approx([f1_score(labels, verdicts)] * 2)
    always: dict[str, Any] = row_of(None, labels, groups, np.ones(200, bool))
    assert "auc" not in always
    assert always["f1"].value == pytest.approx(2 * labels.mean() / (1 + labels.mean()))


def test_agreement_is_that_of_every_pair_of_annotators():
    rng = np.random.default_rng(2)
    votes = [{"supported": int(s), "not_enough": int(n)} for s, n in rng.integers(0, 4, (30, 2))]
    groups = np.repeat(list("abc"), 10)
    truth, said = [], []
    for vote in votes:
        judgments = [1] * vote["supported"] + [0] * vote["not_enough"]
        for i, a in enumerate(judgments):
            for j, b in enumerate(judgments):
                if i != j:
                    truth.append(a)
                    said.append(b)
    found: dict[str, Any] = agreement(votes, groups)
    assert found["f1"].value == pytest.approx(f1_score(truth, said))
    assert found["f1_classes"] == pytest.approx(f1_score(truth, said, average="macro"))


def test_the_layer_that_tells_is_chosen_and_no_fold_sees_itself():
    rng = np.random.default_rng(3)
    labels, groups = rng.random(300) < 0.5, np.repeat([f"g{i}" for i in range(30)], 10)
    noise = {n: rng.normal(size=(300, 8)) for n in (1, 2, 3)}
    noise[2][:, 0] += 2 * labels
    choice = choose(noise, labels, groups.tolist())
    assert choice.layer == 2
    assert choice.auc_by_layer[2] > 0.85 > max(choice.auc_by_layer[1], choice.auc_by_layer[3])
    margins = out_of_fold(noise[2], labels, groups, choice.shrinkage)
    heads = heads_of_folds(noise[2], labels, groups, choice.shrinkage)
    others = groups != "g7"
    assert heads["g7"].tolist() == fit(noise[2][others], labels[others], choice.shrinkage).tolist()
    assert margins[~others] == pytest.approx(noise[2][~others] @ heads["g7"])


def test_features_are_those_of_an_rms_norm():
    torch = pytest.importorskip("torch")
    states, weight = np.random.default_rng(4).normal(size=(5, 8)).astype(np.float32), np.linspace(0.5, 2, 8)
    norm = torch.nn.RMSNorm(8, eps=1e-5)
    norm.weight.data = torch.tensor(weight, dtype=torch.float32)
    assert np.allclose(normed(states, weight, 1e-5), norm(torch.from_numpy(states)).detach().numpy(), atol=1e-6)
