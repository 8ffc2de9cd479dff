"""The distilling loss against torch's own divergences and against the loss on labels, of which it is a widening."""

import dataclasses
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from test_objective import LABELS, WEIGHTS, batch, mean, pair

from proofreel.core.errors import ConfigError, RowError
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.engine.heads import THREE_LABELS, margin
from proofreel.models.engine.packing import IGNORED
from proofreel.train.dataset import target
from proofreel.train.distillation_loss import Distillation, DistillationLoss
from proofreel.train.loss import Loss

TEMPERATURES = [0.5, 1.0, 2.0, 7.0]
LISTWISE: dict[str, Any] = {"alpha": 0.5, "listwise_weight": 0.7, "temperature": 2.0}


def taught_batch(n_labels, alpha=0.5, seed=0, rows=5, claims=6):
    """`batch` with soft labels, a teacher of most claims, and rows of every kind of share."""
    logits, labels, classes, weights = batch(n_labels, rows, claims, seed, soft=True)
    random = torch.Generator().manual_seed(seed + 1)
    teacher = 3 * torch.randn(rows, claims, generator=random)
    kind = torch.randint(0, 4, (rows, claims), generator=random)
    shares = torch.full((rows, claims), alpha)
    teacher[kind == 0], shares[kind == 0] = math.nan, 1.0  # on its label alone
    labels[kind == 1] = teacher[kind == 1].sigmoid()  # unlabelled
    classes[kind == 1], shares[kind == 1] = IGNORED, 0.0
    labels[0, 4:], classes[0, 4:] = IGNORED, IGNORED
    teacher[0, 4:], shares[0, 4:] = math.nan, 1.0
    return logits, labels, classes, weights, teacher, shares


def all_taught(n_labels, seed=0):
    """Hard labels, a teacher of every claim, none missing."""
    logits, labels, classes, weights = (t[1:] for t in batch(n_labels, seed=seed))
    teacher = 3 * torch.randn(labels.shape, generator=torch.Generator().manual_seed(seed + 1))
    return logits, labels, classes, weights, teacher


def objective(n_labels=2, **settings):
    return DistillationLoss(Loss(LABELS[n_labels]), Distillation(**settings))


def gradient(loss, logits):
    (found,) = torch.autograd.grad(loss, logits)
    return found


def two_way(margins):
    return torch.stack([margins, torch.zeros_like(margins)], -1)


# ---- The terms ----


@pytest.mark.parametrize("t", TEMPERATURES)
def test_kl_is_torchs_between_softened_two_way_softmaxes_times_the_square_of_the_temperature(t):
    random = torch.Generator().manual_seed(0)
    student = (4 * torch.randn(3, 5, generator=random)).requires_grad_(True)
    teacher = 4 * torch.randn(3, 5, generator=random)
    found = Distillation(temperature=t).soft_terms(student, teacher)
    logs = (two_way(student) / t).log_softmax(-1), (two_way(teacher) / t).log_softmax(-1)
    expected = t**2 * F.kl_div(*logs, reduction="none", log_target=True).sum(-1)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(gradient(found.sum(), student), gradient(expected.sum(), student), atol=1e-5, rtol=1e-4)
    # By hand: T (sigmoid(s / T) - sigmoid(t / T)), whose size T does not change where both are near 0.
    by_hand = t * ((student / t).sigmoid() - (teacher / t).sigmoid())
    found = Distillation(temperature=t).soft_terms(student, teacher)
    torch.testing.assert_close(gradient(found.sum(), student), by_hand.detach(), atol=1e-5, rtol=1e-4)


def test_kl_is_zero_only_where_the_student_says_what_the_teacher_says():
    teacher = torch.linspace(-9, 9, 19)[None]
    same = Distillation().soft_terms(teacher, teacher)
    assert (same == 0).all()
    assert (Distillation().soft_terms(teacher + 0.5, teacher) > 0).all()


def test_margin_mse_is_torchs_and_has_no_temperature():
    random = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(3, 5, generator=random), torch.randn(3, 5, generator=random)
    for t in TEMPERATURES:
        found = Distillation(soft_loss="margin_mse", temperature=t).soft_terms(student, teacher)
        torch.testing.assert_close(found, F.mse_loss(student, teacher, reduction="none"))


@pytest.mark.parametrize("t", TEMPERATURES)
def test_listwise_is_torchs_divergence_of_softmaxes_over_the_taught_claims_of_a_row(t):
    random = torch.Generator().manual_seed(0)
    student = torch.randn(4, 6, generator=random, requires_grad=True)
    teacher = torch.randn(4, 6, generator=random)
    taught = torch.ones(4, 6, dtype=torch.bool)
    taught[0, 4:] = taught[1, ::2] = False
    found = Distillation(temperature=t).listwise_terms(student, teacher, taught)
    assert (found[~taught] == 0).all()
    for b in range(4):
        s, q = ((m[b][taught[b]] / t).log_softmax(0) for m in (student, teacher))
        expected = t**2 * F.kl_div(s, q, reduction="sum", log_target=True)
        torch.testing.assert_close(found[b][taught[b]], expected.expand(int(taught[b].sum())))


def test_listwise_asks_nothing_of_a_claim_alone_nor_of_a_row_without_a_teacher():
    student = torch.tensor([[3.0, 1.0], [2.0, -1.0]], requires_grad=True)
    taught = torch.tensor([[True, False], [False, False]])
    found = Distillation().listwise_terms(student, torch.tensor([[-5.0, 0.0], [0.0, 0.0]]), taught)
    assert (found == 0).all()
    assert (gradient(found.sum(), student) == 0).all()


def test_listwise_sees_differences_alone_and_no_order_of_the_claims():
    logits, *targets = taught_batch(2)
    teacher, taught = targets[3].nan_to_num(), ~targets[3].isnan()
    student = margin(logits.nan_to_num())
    terms = Distillation(temperature=2.0).listwise_terms
    found = terms(student, teacher, taught)
    shift = torch.tensor([-40.0, 3.0, 0.5, 100.0, -1.0])[:, None]
    torch.testing.assert_close(terms(student + shift, teacher, taught), found, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(terms(student, teacher + shift, taught), found, atol=1e-4, rtol=1e-4)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(terms(student[:, order], teacher[:, order], taught[:, order]), found[:, order])


@pytest.mark.parametrize("settings", [{}, {"soft_loss": "margin_mse"}, LISTWISE, LISTWISE | {"alpha": 0.0}])
@pytest.mark.parametrize("t", [0.5, 1.0, 20.0])
def test_margins_of_any_size_have_a_finite_loss_and_gradient(settings, t):
    sizes = [-1e4, -90.0, -1e-6, 0.0, 1e-6, 90.0, 1e4]
    student = torch.tensor([[s for s in sizes for _ in sizes]], requires_grad=True)
    teacher = torch.tensor([sizes * len(sizes)])
    ones = torch.ones_like(teacher)
    distilling = objective(**(settings | {"temperature": t}))
    classes = (teacher < 0).long()
    loss = distilling.losses(two_way(student), 1.0 - classes, classes, ones, teacher, 0.5 * ones)
    assert torch.isfinite(loss).all()
    assert torch.isfinite(gradient(loss.sum(), student)).all()


# ---- The whole ----


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("settings", [{}, {"soft_loss": "margin_mse"}, LISTWISE])
def test_a_claims_loss_is_its_share_of_label_and_teacher_and_its_rows_order_written_out(n, settings):
    data = taught_batch(n)
    logits, labels, classes, weights, teacher, shares = data
    hard, distillation = Loss(LABELS[n], WEIGHTS[n], 1.5, 0.1), Distillation(**settings)
    found = DistillationLoss(hard, distillation).losses(*data)
    of_labels, counted = hard.losses(logits, labels, classes, weights), hard.claim_weights(labels, classes, weights)
    normaliser = DistillationLoss(hard, distillation).claim_weights(*data[1:])
    student, t = margin(logits), distillation.temperature
    for b, k in (labels != IGNORED).nonzero().tolist():
        h, w = shares[b, k], weights[b, k]
        expected = h * of_labels[b, k]
        if not teacher[b, k].isnan():
            expected = expected + (1 - h) * w * distillation.soft_terms(student[b, k], teacher[b, k])
            mates = ~teacher[b].isnan()
            s, q = ((m[b][mates] / t).log_softmax(0) for m in (student, teacher))
            listed = t**2 * F.kl_div(s, q, reduction="sum", log_target=True)
            expected = expected + w * distillation.listwise_weight * listed
        torch.testing.assert_close(found[b, k], expected, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(normaliser[b, k], h * counted[b, k] + (1 - h) * w)
    assert (found[labels == IGNORED] == 0).all()
    assert (normaliser[labels == IGNORED] == 0).all()


@pytest.mark.parametrize("n", [2, 3])
def test_alpha_one_without_listwise_is_the_loss_on_labels_bit_for_bit(n):
    logits, labels, classes, weights, teacher = all_taught(n)
    hard = Loss(LABELS[n], WEIGHTS[n], 1.5, 0.1, 0.5)
    distilling = DistillationLoss(hard, Distillation(alpha=1.0))
    logits.requires_grad_(True)
    ones = torch.ones_like(teacher)
    plain = hard.losses(logits, labels, classes, weights)
    found = distilling.losses(logits, labels, classes, weights, teacher, ones)
    assert torch.equal(found, plain)
    assert torch.equal(gradient(found.sum(), logits), gradient(plain.sum(), logits))
    mine, theirs = distilling.claim_weights, hard.claim_weights
    assert torch.equal(mine(labels, classes, weights, teacher, ones), theirs(labels, classes, weights))


@pytest.mark.parametrize("n", [2, 3])
def test_alpha_zero_at_temperature_one_has_the_gradient_of_soft_labels(n):
    """The two differ by the teacher's entropy, which teaches nothing."""
    logits, _, _, weights, teacher = all_taught(n)
    logits.requires_grad_(True)
    none = torch.full(teacher.shape, IGNORED)
    targets = (teacher.sigmoid(), none, weights)
    zeros = torch.zeros_like(teacher)
    hard = mean(Loss(LABELS[n]), logits, *targets)
    soft = mean(objective(n, alpha=0.0, temperature=1.0), logits, *targets, teacher, zeros)
    torch.testing.assert_close(gradient(soft, logits), gradient(hard, logits), atol=1e-7, rtol=1e-4)
    assert soft < hard


def test_a_head_of_three_labels_is_taught_its_log_odds_of_supported_against_the_rest():
    logits = torch.tensor([[[1.0, 0.0, 2.0]]], requires_grad=True)
    teacher, ones = torch.tensor([[0.7]]), torch.ones(1, 1)
    distilling = DistillationLoss(Loss(THREE_LABELS), Distillation(soft_loss="margin_mse", alpha=0.0))
    loss = distilling.losses(logits, 0 * ones, torch.tensor([[1]]), ones, teacher, 0 * ones)
    m = 1.0 - math.log(1.0 + math.exp(2.0))
    assert loss.item() == pytest.approx((m - 0.7) ** 2, rel=1e-5)
    # What the rest is made of is not the teacher's to say: refuted and not_enough move together.
    among = gradient(loss.sum(), logits)[0, 0]
    assert float(among[1] / among[2]) == pytest.approx(math.exp(-2.0), rel=1e-5)


@pytest.mark.parametrize("settings", [{}, LISTWISE, {"soft_loss": "margin_mse"}])
def test_nothing_of_a_missing_claim_or_a_silent_teacher_reaches_loss_or_gradient(settings):
    logits, *targets = taught_batch(2)
    logits.requires_grad_(True)
    loss = objective(**settings).losses(logits, *targets)
    assert torch.isfinite(loss).all()
    found = gradient(loss.sum(), logits)
    assert (found[0, 4:] == 0).all()
    assert torch.isfinite(found).all()


def test_a_batch_without_a_claim_has_no_loss_and_gradients_of_zero():
    logits = torch.full((2, 3, 2), math.nan, requires_grad=True)
    nothing, zeros = torch.full((2, 3), IGNORED), torch.zeros(2, 3)
    targets = (nothing.float(), nothing, zeros, torch.full((2, 3), math.nan), zeros + 1)
    distilling = objective(**LISTWISE)
    loss = distilling.losses(logits, *targets).sum()
    assert loss == 0
    assert (gradient(loss, logits) == 0).all()
    assert (distilling.claim_weights(*targets) == 0).all()


def test_a_claim_that_is_real_and_not_a_number_is_not_hidden():
    ones = torch.ones(1, 1)
    logits = torch.full((1, 1, 2), math.nan)
    for share in (0.0, 0.5, 1.0):
        assert objective().losses(logits, ones, 0 * ones.long(), ones, ones, share * ones).isnan().all()


@pytest.mark.parametrize("settings", [{}, LISTWISE])
def test_the_sum_is_that_of_its_rows_whatever_shares_a_batch(settings):
    data = taught_batch(3, rows=8)
    distilling = objective(3, **settings)
    whole = distilling.losses(*data).sum()
    torch.testing.assert_close(whole, sum(distilling.losses(*(t[i : i + 1] for t in data)).sum() for i in range(8)))
    fills = (math.nan, IGNORED, IGNORED, 0.0, math.nan, 1.0)
    padded = [F.pad(t, (0, 0) * (t.dim() - 2) + (0, 3), value=v) for t, v in zip(data, fills, strict=True)]
    torch.testing.assert_close(distilling.losses(*padded).sum(), whole)
    torch.testing.assert_close(distilling.claim_weights(*padded[1:]).sum(), distilling.claim_weights(*data[1:]).sum())


def test_claims_alone_or_packed_teach_the_same_without_the_listwise_term():
    data = taught_batch(2)
    apart = [t.reshape(-1, 1, *t.shape[2:]) for t in data]
    torch.testing.assert_close(objective().losses(*apart).sum(), objective().losses(*data).sum())
    listed = objective(**LISTWISE)
    assert listed.losses(*data).sum() > objective(temperature=2.0).losses(*data).sum()
    torch.testing.assert_close(listed.losses(*apart).sum(), objective(temperature=2.0).losses(*apart).sum())


def test_a_doubted_label_is_no_opposite_in_the_paired_term():
    logits = torch.tensor([[[2.0, 0.0], [5.0, 0.0], [0.0, 0.0]]])
    labels, classes, ones = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0, 1, 1]]), torch.ones(1, 3)
    teacher, shares = torch.tensor([[3.0, 6.0, -3.0]]), torch.tensor([[0.5, 0.0, 0.5]])
    paired = Loss(paired_weight=1.0, paired_margin=1.0)
    distillation = Distillation()
    found = DistillationLoss(paired, distillation).losses(logits, labels, classes, ones, teacher, shares)
    plain = objective().losses(logits, labels, classes, ones, teacher, shares)
    torch.testing.assert_close(found, plain)  # gold beats the one negative that is believed by more than the margin
    believed = DistillationLoss(paired, distillation).losses(logits, labels, classes, ones, teacher, ones / 2)
    assert float(believed[0, 0]) == pytest.approx(float(plain[0, 0]) + 0.5 * (1 - (2 - 5)) / 2, rel=1e-5)


# ---- Shares and doubts ----


def taught(label=None, soft=None, margin=None):
    return dataclasses.replace(pair(0, label, soft), teacher_margin=margin)


def test_a_row_learns_from_what_it_has():
    some = Distillation(alpha=0.3, distrust=0.1)
    assert some.hard_share(taught("supported")) == 1.0
    assert some.hard_share(taught(soft=0.4)) == 1.0
    assert some.hard_share(taught(margin=2.0)) == 0.0
    assert some.hard_share(taught("supported", margin=2.0)) == 0.3
    assert some.hard_share(taught("supported", margin=-9.0)) == 0.0
    assert some.hard_share(taught("refuted", margin=9.0)) == 0.0
    assert some.hard_share(taught("not_enough", margin=9.0)) == 0.0
    assert some.hard_share(taught("not_enough", margin=-9.0)) == 0.3
    assert some.hard_share(taught(soft=0.9, margin=-9.0)) == 0.3  # a soft label is never doubted
    assert some.hard_share(taught("supported", soft=0.9, margin=-9.0)) == 0.3


@pytest.mark.parametrize("label", ["supported", "refuted", "not_enough"])
def test_a_label_is_doubted_below_the_threshold_and_not_at_it(label):
    sign = 1.0 if label == "supported" else -1.0
    at = -1.25
    p = float(sigmoid(at))
    assert not Distillation(distrust=p).doubts(taught(label, margin=sign * at))
    assert Distillation(distrust=p).doubts(taught(label, margin=sign * (at - 1e-9)))
    assert not Distillation(distrust=0.0).doubts(taught(label, margin=sign * -1e4))


def test_rows_without_a_teacher_or_a_label_are_not_doubted():
    assert not any(Distillation(distrust=0.4).doubts(row) for row in (taught("supported"), taught(margin=-9.0)))


def test_a_row_without_a_teacher_has_nan_for_its_margin():
    found, share = Distillation().targets(taught("refuted"))
    assert math.isnan(found)
    assert share == 1.0
    assert Distillation(alpha=0.25).targets(taught("refuted", margin=-1.0)) == (-1.0, 0.25)


def test_an_unlabelled_row_teaches_what_the_teacher_said_where_a_run_distils_and_is_refused_elsewhere():
    row = taught(margin=-1.0)
    assert target(row, distills=True) == pytest.approx(float(sigmoid(-1.0)))
    with pytest.raises(RowError, match="neither label nor soft_label"):
        target(row)
    assert target(taught("supported", margin=-1.0), distills=True) == 1.0
    assert target(taught(soft=0.3, margin=-1.0), distills=True) == 0.3


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"alpha": -0.1}, "alpha"),
        ({"alpha": 1.1}, "alpha"),
        ({"alpha": math.nan}, "alpha"),
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"soft_loss": "mse"}, "soft_loss"),
        ({"listwise_weight": -1.0}, "listwise_weight"),
        ({"listwise_weight": math.inf}, "listwise_weight"),
        ({"distrust": 0.5}, "distrust"),
        ({"distrust": -0.1}, "distrust"),
    ],
)
def test_what_is_no_loss_is_refused(wrong, name):
    with pytest.raises(ConfigError, match=f"^{name}: .*got"):
        Distillation(**wrong)
