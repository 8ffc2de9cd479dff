"""The training objective against torch's own losses and sums written out by hand; whatever shares a batch, its sum."""

import dataclasses
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from transformers import TrainingArguments

from proofreel.core.errors import ConfigError
from proofreel.core.pairs import Pair, Passage
from proofreel.models.engine.heads import THREE_LABELS, TWO_LABELS, margin
from proofreel.models.engine.packing import IGNORED
from proofreel.train.arguments import VerdictArguments
from proofreel.train.loss import Loss, balanced_weights, class_of
from proofreel.train.recipe import make_loss

LABELS = {2: TWO_LABELS, 3: THREE_LABELS}
WEIGHTS = {2: (2.0, 0.5), 3: (2.0, 0.5, 1.25)}


def batch(n_labels, rows=5, claims=6, seed=0, soft=False):
    """Random logits and hard targets; soft ones too where asked, and a ragged tail without claims."""
    random = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, claims, n_labels, generator=random)
    classes = torch.randint(0, n_labels, (rows, claims), generator=random)
    labels = (classes == 0).float()
    weights = torch.rand(rows, claims, generator=random) + 0.1
    if soft:
        is_soft = torch.rand(rows, claims, generator=random) < 0.4
        labels[is_soft] = torch.rand(rows, claims, generator=random)[is_soft]
        classes[is_soft] = IGNORED
    logits[0, 4:], labels[0, 4:], classes[0, 4:], weights[0, 4:] = math.nan, IGNORED, IGNORED, 0.0
    return logits, labels, classes, weights


def mean(objective, logits, *targets):
    return objective.losses(logits, *targets).sum() / objective.claim_weights(*targets).sum()


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("weighted", [False, True])
def test_hard_labels_are_torchs_cross_entropy_with_class_weights_smoothing_and_its_weighted_mean(
    n, smoothing, weighted
):
    logits, labels, classes, _ = batch(n)
    weights = torch.where(classes == IGNORED, 0.0, 1.0)
    objective = Loss(LABELS[n], WEIGHTS[n] if weighted else None, label_smoothing=smoothing)
    expected = F.cross_entropy(
        logits.flatten(0, 1).nan_to_num(),
        classes.flatten(),
        weight=torch.tensor(WEIGHTS[n]) if weighted else None,
        ignore_index=IGNORED,
        label_smoothing=smoothing,
    )
    torch.testing.assert_close(mean(objective, logits, labels, classes, weights), expected)


@pytest.mark.parametrize("n", [2, 3])
def test_row_weights_multiply_the_claims_and_the_normaliser(n):
    logits, labels, classes, weights = batch(n)
    real = classes != IGNORED
    each = F.cross_entropy(logits[real], classes[real], reduction="none")
    expected = (each * weights[real]).sum() / weights[real].sum()
    torch.testing.assert_close(mean(Loss(LABELS[n]), logits, labels, classes, weights), expected)
    # A claim of weight 2 counts as that claim twice.
    twice = [torch.cat([t, t[1:]], 0) for t in (logits, labels, classes, weights)]
    doubled = weights.clone()
    doubled[1:] *= 2
    torch.testing.assert_close(mean(Loss(LABELS[n]), *twice), mean(Loss(LABELS[n]), logits, labels, classes, doubled))


@pytest.mark.parametrize("n", [2, 3])
def test_soft_labels_teach_the_margin_and_are_never_smoothed(n):
    logits, labels, classes, weights = batch(n, soft=True)
    soft = (classes == IGNORED) & (labels != IGNORED)
    for smoothing in (0.0, 0.3):
        found = Loss(LABELS[n], label_smoothing=smoothing).losses(logits, labels, classes, weights)
        m = margin(logits)[soft]
        expected = F.binary_cross_entropy_with_logits(m, labels[soft], reduction="none") * weights[soft]
        torch.testing.assert_close(found[soft], expected)


def test_class_weights_divide_a_soft_label_between_its_two_sides():
    logits = torch.randn(1, 1, 3, generator=torch.Generator().manual_seed(1))
    label, none, one = torch.tensor([[0.3]]), torch.tensor([[IGNORED]]), torch.ones(1, 1)
    objective = Loss(THREE_LABELS, (2.0, 0.5, 1.5))
    p = margin(logits).sigmoid()
    expected = -(0.3 * 2.0 * p.log() + 0.7 * 1.0 * (1 - p).log())  # 1.0 is the mean of 0.5 and 1.5
    torch.testing.assert_close(objective.losses(logits, label, none, one), expected)
    torch.testing.assert_close(objective.claim_weights(label, none, one), torch.tensor([[0.3 * 2.0 + 0.7]]))


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("gamma", [0.5, 2.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_focal_loss_is_its_formula_written_out(n, gamma, smoothing):
    logits, labels, classes, weights = batch(n, soft=True)
    objective = Loss(LABELS[n], WEIGHTS[n], focal_gamma=gamma, label_smoothing=smoothing)
    found = objective.losses(logits, labels, classes, weights)
    rest = sum(WEIGHTS[n][1:]) / (n - 1)
    for b, k in (labels != IGNORED).nonzero().tolist():
        c, z = int(classes[b, k]), logits[b, k].double()
        if c == IGNORED:
            s = float(labels[b, k])
            p = torch.sigmoid(margin(z))
            terms = [(s, WEIGHTS[n][0], p), (1 - s, rest, 1 - p)]
        else:
            q = [smoothing / n + (1 - smoothing) * (i == c) for i in range(n)]
            terms = list(zip(q, WEIGHTS[n], z.softmax(0), strict=True))
        expected = float(weights[b, k]) * sum(-q * w * (1 - p) ** gamma * p.log() for q, w, p in terms)
        assert float(found[b, k]) == pytest.approx(float(expected), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_gradients_are_finite_where_the_model_is_certain(gamma):
    """1 - p is 0 in float32 at a margin of 40, and its power below 1 would have an infinite slope."""
    logits = torch.tensor([[[40.0, 0.0], [0.0, 40.0], [-200.0, 0.0], [0.0, 0.0]]], requires_grad=True)
    labels, classes = torch.tensor([[1.0, 0.0, 1.0, 0.5]]), torch.tensor([[0, 1, 0, IGNORED]])
    objective = Loss(focal_gamma=gamma, label_smoothing=0.1, paired_weight=1.0)
    loss = objective.losses(logits, labels, classes, torch.ones(1, 4)).sum()
    loss.backward()
    assert torch.isfinite(loss)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_nothing_of_a_missing_claim_reaches_the_loss_or_its_gradient():
    logits, labels, classes, weights = batch(2)
    logits.requires_grad_(True)
    objective = Loss(class_weights=(1.0, 3.0), focal_gamma=1.0, label_smoothing=0.1, paired_weight=1.0)
    objective.losses(logits, labels, classes, weights).sum().backward()
    assert logits.grad is not None
    assert (logits.grad[0, 4:] == 0).all()
    assert torch.isfinite(logits.grad).all()
    assert (objective.claim_weights(labels, classes, weights)[0, 4:] == 0).all()


def brute_pairs(logits, labels, classes, weights, class_weights, least):
    """Each claim's mean hinge against its opposites of the same row, with torch's own margin_ranking_loss."""
    m, total = margin(logits), 0.0
    for b in range(len(m)):
        for i in range(m.shape[1]):
            if classes[b, i] == IGNORED:
                continue
            gold = bool(classes[b, i] == 0)
            others = [j for j in range(m.shape[1]) if classes[b, j] != IGNORED and bool(classes[b, j] == 0) != gold]
            if not others:
                continue
            w = weights[b, others]
            up, down = (m[b, i].expand(len(w)), m[b, others]) if gold else (m[b, others], m[b, i].expand(len(w)))
            h = F.margin_ranking_loss(up, down, torch.ones(len(w)), margin=least, reduction="none")
            total += weights[b, i] * class_weights[classes[b, i]] * (h * w).sum() / w.sum()
    return total


@pytest.mark.parametrize("n", [2, 3])
def test_the_paired_term_is_every_claims_mean_hinge_against_its_opposites(n):
    for seed in range(5):
        data = batch(n, soft=True, seed=seed)
        plain = Loss(LABELS[n], WEIGHTS[n])
        paired = dataclasses.replace(plain, paired_weight=0.7, paired_margin=1.5)
        extra = paired.losses(*data).sum() - plain.losses(*data).sum()
        torch.testing.assert_close(extra, 0.7 * brute_pairs(*data, WEIGHTS[n], 1.5), rtol=1e-4, atol=1e-5)


def test_a_gold_claim_that_beats_its_negatives_by_the_margin_pays_nothing():
    logits = torch.tensor([[[1.0, 0.0], [0.0, 0.0], [-0.5, 0.0]]])
    labels, classes, ones = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0, 1, 1]]), torch.ones(1, 3)

    def extra(least):
        return Loss(paired_weight=1.0, paired_margin=least).losses(logits, labels, classes, ones).sum() - (
            Loss().losses(logits, labels, classes, ones).sum()
        )

    assert float(extra(1.0)) == pytest.approx(0.0, abs=1e-6)
    # By hand, at 2: hinges 1.0 and 0.5; gold's mean 0.75, the negatives' own 1.0 and 0.5.
    assert float(extra(2.0)) == pytest.approx(0.75 + 1.0 + 0.5, abs=1e-6)


def test_the_sum_is_that_of_its_rows_whatever_shares_a_batch():
    data = batch(3, rows=8, soft=True)
    objective = Loss(THREE_LABELS, WEIGHTS[3], 1.5, 0.1, 0.5, 1.0)
    whole = objective.losses(*data).sum()
    alone = sum(objective.losses(*(t[i : i + 1] for t in data)).sum() for i in range(8))
    torch.testing.assert_close(whole, alone)
    padded = [
        F.pad(t, (0, 0) * (t.dim() - 2) + (0, 3), value=v) for t, v in zip(data, (math.nan, -100, -100, 0), strict=True)
    ]
    torch.testing.assert_close(objective.losses(*padded).sum(), whole)
    torch.testing.assert_close(objective.claim_weights(*padded[1:]).sum(), objective.claim_weights(*data[1:]).sum())
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(objective.losses(*(t[:, order] for t in data)).sum(), whole)


def test_a_group_split_over_rows_forms_pairs_within_each_part_only():
    logits = torch.tensor([[[0.0, 0.0], [0.0, 0.0]]])
    labels, classes, ones = torch.tensor([[1.0, 0.0]]), torch.tensor([[0, 1]]), torch.ones(1, 2)
    objective = Loss(paired_weight=1.0)
    together = objective.losses(logits, labels, classes, ones).sum()
    apart = objective.losses(*(t.reshape(2, 1, *t.shape[2:]) for t in (logits, labels, classes, ones))).sum()
    assert float(together - apart) == pytest.approx(2.0)
    assert float(apart) == pytest.approx(2 * math.log(2))


def test_a_batch_without_a_claim_has_no_loss_and_gradients_of_zero():
    logits = torch.zeros(2, 3, 2, requires_grad=True)
    nothing = torch.full((2, 3), IGNORED)
    objective = Loss(paired_weight=1.0, focal_gamma=1.0)
    loss = objective.losses(logits, nothing.float(), nothing, torch.zeros(2, 3)).sum()
    loss.backward()
    assert loss == 0
    assert (logits.grad == 0).all()


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"class_weights": (1.0,)}, "class_weights"),
        ({"class_weights": (1.0, 2.0, 3.0)}, "class_weights"),
        ({"class_weights": (1.0, -1.0)}, "class_weights"),
        ({"class_weights": (math.nan, 1.0)}, "class_weights"),
        ({"class_weights": (0.0, 0.0)}, "class_weights"),
        ({"focal_gamma": -0.1}, "focal_gamma"),
        ({"focal_gamma": math.nan}, "focal_gamma"),
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"label_smoothing": -0.1}, "label_smoothing"),
        ({"paired_weight": -1.0}, "paired_weight"),
        ({"paired_margin": math.inf}, "paired_margin"),
    ],
)
def test_what_is_no_loss_is_refused(wrong, name):
    with pytest.raises(ConfigError, match=name):
        Loss(**wrong)


def pair(i, label=None, soft=None, weight=1.0):
    return Pair(id=str(i), claim="x", evidence=(Passage("y"),), label=label, soft_label=soft, weight=weight)


def test_balanced_classes_weigh_the_same_in_all_as_scikit_learn_has_it():
    from sklearn.utils.class_weight import compute_class_weight

    names = ["supported"] * 7 + ["refuted"] * 2 + ["not_enough"] * 3
    pairs = [pair(i, name) for i, name in enumerate(names)]
    expected = compute_class_weight("balanced", classes=np.arange(3), y=[THREE_LABELS.index(n) for n in names])
    assert balanced_weights([*pairs, pair(99, soft=0.4)], THREE_LABELS) == pytest.approx(expected)
    assert balanced_weights(pairs, TWO_LABELS) == pytest.approx((12 / 14, 12 / 10))
    weighted = [pair(0, "supported", weight=3.0), pair(1, "refuted")]
    assert balanced_weights(weighted, TWO_LABELS) == pytest.approx((4 / 6, 4 / 2))
    with pytest.raises(ConfigError, match="no rows of"):
        balanced_weights(pairs[:9], THREE_LABELS)


def test_a_run_reads_its_objective_from_its_arguments():
    training = TrainingArguments(label_smoothing_factor=0.1, report_to="none", use_cpu=True)
    pairs = [pair(0, "supported"), pair(1, "refuted"), pair(2, "refuted")]
    asked = VerdictArguments(class_weights=[1.0, 2.0], focal_gamma=2.0, paired_weight=0.5, paired_margin=3.0)
    assert make_loss(asked, training, TWO_LABELS, pairs) == Loss(TWO_LABELS, (1.0, 2.0), 2.0, 0.1, 0.5, 3.0)
    balanced = make_loss(VerdictArguments(balance_classes=True), training, TWO_LABELS, pairs)
    assert balanced.class_weights == pytest.approx((1.5, 0.75))
    with pytest.raises(ConfigError, match="leave one out"):
        make_loss(dataclasses.replace(asked, balance_classes=True), training, TWO_LABELS, pairs)


def test_not_enough_is_its_own_label_only_where_there_is_one():
    assert [class_of(pair(0, label), TWO_LABELS) for label in THREE_LABELS] == [0, 1, 1]
    assert [class_of(pair(0, label), THREE_LABELS) for label in THREE_LABELS] == [0, 1, 2]
    assert class_of(pair(0, "supported", soft=1.0), TWO_LABELS) == IGNORED
