"""Laws of MuRGAt's measures: SciPy and counting by hand, ROUGE values of the usual tool, the paper's own example.

ROUGE_SCORE holds F1 values of rouge-score 0.1.2 (nltk 3.10.4), made once with

    RougeScorer(["rouge1"], use_stemmer=False).score(reference, candidate)["rouge1"].fmeasure
"""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, precision_recall_fscore_support

from proofreel.core.errors import RowError
from proofreel.eval.scores.murgat import (
    CitedFact,
    Decomposition,
    attribution,
    citation_propagation,
    citations_kept,
    correlations,
    decomposition_f1,
    decomposition_of_many,
    judge_agreement,
    rouge1_f1,
    unicode_words,
)

ROUGE_SCORE = [
    ("A boy is holding a guitar.", "- A boy holds a red guitar.", 0.6666666666666666),
    (
        "The curve is plotted in the positive region of the graph.",
        "The curve lies in the positive region.",
        0.6666666666666665,
    ),
    ("Product costs include direct material", "Product costs include direct labor", 0.8000000000000002),
    ("It costs $3.50, i.e. half-price!", "it costs 3 50 (half price)", 0.8571428571428571),
    ("the the the cat", "the cat the", 0.8571428571428571),
    ("one two", "three four", 0.0),
    ("Rain_fell at 10:45pm", "rain fell at 10 45 pm", 0.7272727272727272),
    ("Café opens", "cafe opens", 0.5),
    ("", "words here", 0.0),
    ("...", "words", 0.0),
]


def shared_words(one, other):
    """ROUGE-1 F1 word by word: strike every shared word off the other text's list, once for each time it is met."""
    left, shared = other.split(), 0
    for word in one.split():
        if word in left:
            left.remove(word)
            shared += 1
    if not shared:
        return 0.0
    precision, recall = shared / len(one.split()), shared / len(other.split())
    return 2 * precision * recall / (precision + recall)


def tau_b(x, y):
    """Kendall's tau-b pair by pair."""
    pairs = list(itertools.combinations(range(len(x)), 2))
    signs = [(np.sign(x[i] - x[j]), np.sign(y[i] - y[j])) for i, j in pairs]
    apart = [sum(s[k] != 0 for s in signs) for k in (0, 1)]
    return sum(a * b for a, b in signs) / math.sqrt(apart[0] * apart[1])


@pytest.mark.parametrize(("one", "other", "expected"), ROUGE_SCORE)
def test_rouge_agrees_with_the_usual_tool_and_is_symmetric(one, other, expected):
    assert rouge1_f1(one, other) == pytest.approx(expected, abs=1e-12)
    assert rouge1_f1(other, one) == rouge1_f1(one, other)


def test_rouge_counts_each_shared_word_as_often_as_both_have_it():
    rng = np.random.default_rng(0)
    for _ in range(300):
        one, other = (" ".join(rng.choice(["cut", "onion", "the", "with"], rng.integers(1, 8))) for _ in range(2))
        assert rouge1_f1(one, other) == pytest.approx(shared_words(one, other))


def test_rouge_of_nothing_and_of_other_scripts():
    assert math.isnan(rouge1_f1("", "--"))
    assert math.isnan(rouge1_f1("猫 座", "猫"))  # the usual tool sees no word here
    assert rouge1_f1("猫 座", "猫", words=unicode_words) == pytest.approx(2 / 3)
    assert rouge1_f1("Café opens", "CAFÉ opens", words=unicode_words) == 1.0


def test_decomposition_of_a_worked_example():
    generated = ["a boy sings", "a dog"]
    reference = ["a boy sings loudly", "a boy", "rain falls"]
    # Matches: (6/7, 4/5, 0) and (2/6, 2/4, 0). Best of generated: 6/7, 1/2; of reference: 6/7, 4/5, 0.
    got = decomposition_f1(generated, reference)
    precision, recall = (6 / 7 + 1 / 2) / 2, (6 / 7 + 4 / 5) / 3
    assert (got.precision, got.recall) == pytest.approx((precision, recall))
    assert got.f1 == pytest.approx(2 * precision * recall / (precision + recall))


def test_decomposition_takes_the_best_match_of_each_fact_found_by_trying_all():
    rng = np.random.default_rng(1)
    words = ["cut", "onion", "the", "pan", "stir"]
    for _ in range(50):
        ours, theirs = (
            [" ".join(rng.choice(words, rng.integers(1, 5))) for _ in range(rng.integers(1, 5))] for _ in range(2)
        )
        got = decomposition_f1(ours, theirs)
        assert got.precision == pytest.approx(np.mean([max(shared_words(a, b) for b in theirs) for a in ours]))
        assert got.recall == pytest.approx(np.mean([max(shared_words(a, b) for a in ours) for b in theirs]))


def test_decomposition_sees_no_citations_list_marks_or_order_and_forgives_repeats():
    facts = ["A boy holds a guitar (visual, 0:05).", "He plays (audio, 0:07; visual, 0:06-0:08)."]
    bare = ["- he plays", "- a boy holds a guitar"]
    assert decomposition_f1(facts, bare) == Decomposition(1.0, 1.0, 1.0)
    assert decomposition_f1([*facts, facts[0]], bare) == Decomposition(1.0, 1.0, 1.0)
    assert decomposition_f1(facts[:1], bare).precision == 1.0
    assert decomposition_f1(facts[:1], bare).recall < 1.0


def test_decomposition_of_empty_sides():
    nothing_made, nothing_due = decomposition_f1([], ["a fact"]), decomposition_f1(["a fact"], [])
    assert (nothing_made.recall, nothing_made.f1) == (0.0, 0.0)
    assert math.isnan(nothing_made.precision)
    assert (nothing_due.precision, nothing_due.f1) == (0.0, 0.0)
    assert math.isnan(nothing_due.recall)
    assert all(math.isnan(v) for v in vars(decomposition_f1([], [])).values())
    assert decomposition_f1(["cat"], ["dog"]) == Decomposition(0.0, 0.0, 0.0)
    assert decomposition_f1(["..."], ["..."]) == Decomposition(0.0, 0.0, 0.0)  # no words, no match


def test_mean_over_sentences_and_the_pool_of_facts_are_two_numbers():
    good, bad = (["a cat"], ["a cat"]), (["x", "y", "z"], ["dog"])
    got = decomposition_of_many([good, bad])
    assert (got.mean.f1, got.mean.precision, got.n) == (0.5, 0.5, 2)
    assert (got.pooled.precision, got.pooled.recall) == (0.25, 0.5)
    assert got.pooled.f1 == pytest.approx(2 * 0.25 * 0.5 / 0.75)
    with_empty = decomposition_of_many([good, ([], ["dog"])])
    assert (with_empty.mean.precision, with_empty.mean.recall, with_empty.mean.f1) == (1.0, 0.5, 0.5)
    assert math.isnan(decomposition_of_many([]).mean.f1)


def test_citations_are_kept_when_each_fact_of_the_papers_example_repeats_them():
    sentence = "The video states that costs include material and labor (visual, 0:15-0:18; audio, 0:15-0:18)."
    facts = [
        "Costs include material (visual, 0:15-0:18; audio, 0:15-0:18).",
        "Costs include labor (audio, 0:15-0:18; visual, 0:15-0:18).",  # another order
        "Costs include labor (visual, 0:15-0:18).",  # one is missing
        "Costs include labor (visual, 0:15-0:18; audio, 0:15-0:18; audio, 0:20).",  # one is added
        "Costs include labor (visual, 0:15-0:18; audio, 0:15-0:19).",  # another time
        "Costs include labor.",
    ]
    assert [citations_kept(fact, sentence) for fact in facts] == [True, True, False, False, False, False]
    got = citation_propagation([(sentence, facts), ("No citation.", ["None here."])])
    assert (got.n_correct, got.n, got.accuracy) == (3, 7, pytest.approx(3 / 7))


def test_a_repeated_citation_is_no_identical_list_and_unreadable_ones_must_be_repeated():
    assert not citations_kept("A (visual, 0:05; visual, 0:05).", "A (visual, 0:05).")
    assert citations_kept("A (visual, 5).", "B (visual, 5).")
    assert not citations_kept("A.", "B (visual, 5).")
    assert math.isnan(citation_propagation([]).accuracy)
    assert citation_propagation([("A (visual, 0:05).", [])]).n == 0


def test_attribution_precision_pools_citations_in_the_paper_and_averages_facts_in_its_code():
    facts = [CitedFact([True], True), CitedFact([True, False, False], True), CitedFact([False, False], False)]
    got = attribution(facts)
    assert got.precision_pooled == pytest.approx(2 / 6)
    assert got.precision_per_fact == pytest.approx((1 + 1 / 3 + 0) / 3)
    assert got.recall == pytest.approx(2 / 3)
    assert got.f1_pooled == pytest.approx(2 * (1 / 3) * (2 / 3) / (1 / 3 + 2 / 3))
    assert got.f1_per_fact == pytest.approx(stats.hmean([4 / 9, 2 / 3]))


def test_the_two_precisions_agree_where_each_fact_has_as_many_citations():
    rng = np.random.default_rng(2)
    facts = [CitedFact((rng.random(3) < 0.5).tolist(), bool(rng.random() < 0.5)) for _ in range(40)]
    got = attribution(facts)
    assert got.precision_pooled == pytest.approx(got.precision_per_fact)
    assert got.f1_pooled == pytest.approx(stats.hmean([got.precision_pooled, got.recall]))


def test_facts_without_a_verdict_are_left_out_whole_and_uncited_ones_refused():
    facts = [CitedFact([True, None], True), CitedFact([True], None), CitedFact([False, True], True)]
    got = attribution(facts)
    assert (got.precision_pooled, got.recall, got.n, got.n_failed) == (0.5, 1.0, 1, 2)
    with pytest.raises(RowError, match="coverage"):
        attribution([CitedFact([], True)])
    nothing = attribution([])
    assert all(math.isnan(v) for v in (nothing.precision_pooled, nothing.recall, nothing.f1_pooled))
    assert attribution([CitedFact([False], False)]).f1_pooled == 0.0


def test_judge_agreement_is_scikit_learns_balanced_accuracy():
    rng = np.random.default_rng(3)
    for _ in range(20):
        said, so = rng.random(60) < 0.4, rng.random(60) < 0.6
        got = judge_agreement(said.tolist(), so.tolist())
        assert got.balanced_accuracy == pytest.approx(balanced_accuracy_score(so, said))
        assert got.balanced_accuracy_unread_is_no == got.balanced_accuracy
        unread = [None if i < 10 else bool(v) for i, v in enumerate(said)]
        got = judge_agreement(unread, so.tolist())
        assert got.balanced_accuracy == pytest.approx(balanced_accuracy_score(so[10:], said[10:]))
        as_no = np.where(np.arange(60) < 10, False, said)
        assert got.balanced_accuracy_unread_is_no == pytest.approx(balanced_accuracy_score(so, as_no))
        assert (got.n, got.n_unread) == (50, 10)


def test_judge_agreement_is_nan_without_both_classes_and_refuses_unequal_rows():
    for verdicts, labels in ([], []), ([True], [True]), ([None, True], [False, True]):
        assert math.isnan(judge_agreement(verdicts, labels).balanced_accuracy)
    with pytest.raises(RowError, match="one label per verdict"):
        judge_agreement([True], [])


@pytest.mark.parametrize("ties", [False, True])
def test_correlations_are_those_of_scipy_and_of_counting_pairs(ties):
    rng = np.random.default_rng(4)
    for n in (2, 3, 10, 60):
        x = np.array([0.0, *rng.normal(size=n - 2), 1.0])
        y = np.array([1.0, *rng.normal(size=n - 2), 0.5])
        if ties:
            x, y = np.round(x), np.array([1.0, *np.round(y[1:-1]), 0.0])
        got = correlations(x, y)
        assert got.pearson == pytest.approx(np.corrcoef(x, y)[0, 1])
        assert got.spearman == pytest.approx(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1])
        assert got.kendall == pytest.approx(tau_b(x, y))
        assert got.pearson == pytest.approx(stats.pearsonr(x, y)[0])
        assert got.spearman == pytest.approx(stats.spearmanr(x, y)[0])
        assert got.kendall == pytest.approx(stats.kendalltau(x, y)[0])
        assert got.n == n


@pytest.mark.filterwarnings("error")
def test_correlations_are_nan_without_spread_and_refuse_failed_rows():
    for x, y in ([], []), ([1], [2]), ([1, 1, 1], [1, 2, 3]), ([1, 2], [5, 5]):
        got = correlations(x, y)
        assert all(math.isnan(v) for v in (got.pearson, got.spearman, got.kendall))
        assert got.n == len(x)
    for bad in ([math.nan, 1], [math.inf, 1], [1], [[1, 2]]):
        with pytest.raises(RowError, match="failed rows"):
            correlations(bad, [1, 2])


def test_rankings_ignore_monotone_changes_and_pearson_does_not():
    rng = np.random.default_rng(5)
    x = rng.normal(size=40)
    got = correlations(x, np.exp(3 * x))
    assert (got.spearman, got.kendall) == pytest.approx((1.0, 1.0))
    assert got.pearson < 0.99


def test_f1_columns_of_the_papers_tables_are_harmonic_means_of_their_printed_neighbours():
    table_2 = [(72.9, 72.9, 72.9), (70.0, 70.6, 70.3), (65.1, 66.5, 65.8), (63.6, 63.8, 63.7), (72.8, 73.5, 73.1)]
    table_6 = [(49.1, 35.4, 41.1), (67.4, 41.2, 51.1), (59.7, 65.8, 62.6), (57.8, 61.6, 59.6)]
    for precision, recall, f1 in table_2 + table_6:
        assert stats.hmean([precision, recall]) == pytest.approx(f1, abs=0.11)


def test_real_responses_give_their_own_citations_back(shared_data: Path):
    responses = json.loads((shared_data / "video-clips/responses.json").read_text(encoding="utf-8"))
    facts = [(f"{text} {' '.join(cites)}", bool(supported)) for r in responses for text, cites, supported in r["facts"]]
    assert sum(citations_kept(fact, "Nothing is cited.") for fact, _ in facts) < len(facts)  # citations are read
    assert citation_propagation([(fact, [fact]) for fact, _ in facts]).accuracy == 1.0
    texts = [fact for fact, _ in facts]
    assert decomposition_f1(texts, texts) == Decomposition(1.0, 1.0, 1.0)
    labels = [supported for _, supported in facts]
    assert judge_agreement([True] * len(facts), labels).balanced_accuracy == 0.5
    by_hand = precision_recall_fscore_support(labels, [True] * len(facts), average="binary")
    assert attribution([CitedFact([ok], ok) for ok in labels]).precision_pooled == pytest.approx(by_hand[0])
