"""models/cascades*.py and eval/cascad*.py: whoever answers, the probability holds; failures go on and are counted; one
directory brings the same cascade back."""

import dataclasses
import itertools
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deciding_verifiers import decision, maker, point
from sklearn.metrics import roc_auc_score

import proofreel
from proofreel.core.errors import CalibrationError, ConfigError, DirectoryError, RowError
from proofreel.core.pairs import Pair, Passage, Transcript, VideoSegment
from proofreel.data_prep.media.frames import FrameSampling
from proofreel.eval.calibration.fit import fit_calibration
from proofreel.eval.cascades.costs import Costs, costs_of
from proofreel.eval.cascades.fit import fit_cascade, score_stages
from proofreel.eval.cascades.report import cascaded, measure, write_cascade_report
from proofreel.eval.scoring.predictions import Prediction
from proofreel.models.cascades.cascade import Cascade, CascadeStage, CascadeVerdict, shares
from proofreel.models.cascades.plan import NOBODY, Band, CascadePlan, View
from proofreel.models.decision.calibration import IDENTITY, Calibration
from proofreel.models.decision.calibrator import sigmoid
from proofreel.models.decision.thresholds import Decision
from proofreel.models.directory.format import write_manifest
from proofreel.models.verifier.verifier import Verifier

FIXTURE = Path(__file__).parents[1] / "fixtures" / "verifier_v1_1"


# ---- simulation: two verifiers of one truth, both overconfident, the cheap one noisier


def simulated(n_groups: int, seed: int, strength: tuple[float, float] = (0.9, 1.5), split: str = "calibration") -> Any:
    """Per stage, predictions of 5 rows a group, a fifth of them supported; margins are badly scaled log-odds.

    Given the label, the stages err independently: which rows the first one leaves tells of the label.
    """
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), 5)
    labels = rng.random(5 * n_groups) < rng.beta(1.5, 6.0, n_groups)[groups]
    margins = [3.0 * d * (d * (2 * labels - 1) + rng.normal(size=len(labels))) + 2.0 for d in strength]
    return [
        [
            Prediction(
                f"{split}{i}", float(np.float32(m)), float(sigmoid(m)), "supported" if y else "refuted", split, f"g{g}",
                "", "annotated", "visual"
            )
            for i, (m, y, g) in enumerate(zip(column, labels, groups, strict=True))
        ]
        for column in margins
    ]  # fmt: skip


def priced(n: int, tokens: tuple[int, ...] = (100, 400)) -> list[Costs]:
    each = np.ones(n, dtype=np.int64)
    return [Costs(t * each, t * each // 2, 0 * each, np.arange(n), 1000, 0) for t in tokens]


@pytest.fixture(scope="module")
def fitted() -> Any:
    scored = simulated(800, seed=0)
    return fit_cascade(scored, priced(4000), "cost:0.7")


def reliability(rows: list[Prediction], n_bins: int = 10) -> np.ndarray:
    """Per decile of p, how far the share of supported rows is from the mean p, in standard errors."""
    p = np.array([r.p_supported for r in rows])
    y = np.array([r.label == "supported" for r in rows])
    parts = np.array_split(np.argsort(p, kind="stable"), n_bins)
    return np.array([(y[i].mean() - p[i].mean()) / math.sqrt(np.mean(p[i] * (1 - p[i])) / len(i)) for i in parts])


def test_probabilities_of_the_whole_hold_on_rows_it_was_not_fitted_on(fitted):
    fresh = simulated(4000, seed=1, split="test")
    rows = cascaded(fitted.plan, fresh)
    stage = fitted.plan.settle([[p.margin for p in s] for s in fresh]).stage_N
    for of in (rows, [r for r, s in zip(rows, stage, strict=True) if s == 0], [
        r for r, s in zip(rows, stage, strict=True) if s == 1
    ]):  # fmt: skip
        assert len(of) > 2000
        assert np.sqrt(np.mean(reliability(of) ** 2)) < 2.6  # 1 for perfect; groups and 4,000 fitted rows add some
        assert abs(np.mean([r.p_supported for r in of]) - np.mean([r.label == "supported" for r in of])) < 0.02


def test_calibrating_the_last_stage_on_all_rows_would_not_hold(fitted):
    """What the fit on the rows that reach a stage is for: those were passed on, and are harder than the rest."""
    calibration, fresh = simulated(800, seed=0), simulated(4000, seed=1, split="test")
    labels = [float(p.label == "supported") for p in calibration[1]]
    of_all = fit_calibration([p.margin for p in calibration[1]], labels, "platt")
    naive = dataclasses.replace(fitted.plan, calibrations=(fitted.plan.calibrations[0], of_all))
    stage = fitted.plan.settle([[p.margin for p in s] for s in fresh]).stage_N
    error = {}
    for name, plan in (("fitted", fitted.plan), ("naive", naive)):
        last = [r for r, s in zip(cascaded(plan, fresh), stage, strict=True) if s == 1]
        error[name] = np.sqrt(np.mean(reliability(last) ** 2))
    assert error["naive"] > 1.5 * error["fitted"]


def test_a_cost_target_is_kept_and_an_auc_target_is_kept_and_cheaper_than_the_last_stage():
    scored = simulated(400, seed=2)
    labels = [p.label == "supported" for p in scored[0]]
    for target in ("cost:0.6", "cost:0.9", "auc_loss:0.02", "auc_loss:0.1"):
        found = fit_cascade(scored, priced(2000), target)
        kind, _, bound = target.partition(":")
        alone = next(c for c in found.candidates if c.risk < 0)
        if kind == "cost":
            assert found.chosen.cost <= float(bound)
            assert all(c.auc <= found.chosen.auc for c in found.candidates if c.cost <= float(bound))
        else:
            assert found.chosen.auc >= alone.auc - float(bound)
            assert all(c.cost >= found.chosen.cost for c in found.candidates if c.auc >= alone.auc - float(bound))
            assert found.chosen.cost < 1
        stage = found.plan.settle([[p.margin for p in s] for s in scored]).stage_N
        assert tuple(np.mean(stage == s) for s in (0, 1)) == pytest.approx(found.chosen.answered)
        asked = np.mean(stage == 1)
        assert found.chosen.cost == pytest.approx((100 + 400 * asked) / 400)
        raw = roc_auc_score(labels, [p.margin for p in cascaded(found.plan, scored)])
        assert found.chosen.auc == pytest.approx(raw, abs=0.01)  # cross-fitted, so not the same


def test_a_higher_risk_asks_the_last_stage_less(fitted):
    by_risk = sorted(fitted.candidates, key=lambda c: c.risk)
    assert len(by_risk) > 20
    assert by_risk[0].answered[1] == 1
    assert all(a.answered[1] >= b.answered[1] for a, b in itertools.pairwise(by_risk))


def test_three_stages_are_fitted_with_one_risk():
    scored = simulated(600, seed=3)
    scored = [scored[0], simulated(600, seed=3, strength=(1.2, 1.5))[0], scored[1]]
    found = fit_cascade(scored, priced(3000, (50, 100, 400)), "auc_loss:0.02")
    assert len(found.plan.bands) == 2
    assert found.plan.bands[0] == found.plan.bands[1]
    assert all(share > 0 for share in found.chosen.answered)
    assert sum(found.chosen.answered) == pytest.approx(1)


def test_failed_rows_reach_the_next_stage_and_those_nobody_judges_are_left_out():
    scored = simulated(400, seed=4)
    nan = {"margin": math.nan, "p_supported": math.nan, "error": "gone"}
    scored[0][:100] = [dataclasses.replace(p, **nan) for p in scored[0][:100]]
    scored[1][:10] = [dataclasses.replace(p, **nan) for p in scored[1][:10]]
    found = fit_cascade(scored, priced(2000), "cost:0.9")
    stage, margins = found.plan.settle([[p.margin for p in s] for s in scored])
    assert list(stage[:10]) == [NOBODY] * 10
    assert list(stage[10:100]) == [1] * 90
    assert np.isnan(margins[:10]).all()
    assert found.plan.decision.calibration.n == 2000 - int(np.sum(stage == NOBODY))
    numbers = measure(found.plan, scored, priced(2000), n_draws=50)
    assert (numbers["failed"], numbers["stages"][0]["failed"], numbers["stages"][1]["failed"]) == (10, 100, 10)


def test_the_prior_shifts_every_stage_alike_and_asks_the_same(fitted):
    fresh = simulated(50, seed=5, split="test")
    decided = fitted.plan.decision
    other = dataclasses.replace(
        fitted.plan, decision=dataclasses.replace(decided, calibration=decided.calibration.with_prior(0.1))
    )
    a, b = cascaded(fitted.plan, fresh), cascaded(other, fresh)
    assert [r.margin for r in a] == [r.margin for r in b]
    shift = [np.log(y / (1 - y)) - np.log(x / (1 - x)) for x, y in ((r.p_supported, s.p_supported) for r, s in zip(a, b, strict=True))]  # noqa: E501 # fmt: skip
    rate = decided.calibration.positive_rate
    assert shift == pytest.approx(np.full(250, np.log(0.1 / 0.9) - np.log(rate / (1 - rate))), abs=1e-6)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (lambda s: [s[0], s[1][::-1]], RowError, "same rows"),
        (lambda s: [s[0]], RowError, "same rows"),
        (lambda s: [[dataclasses.replace(p, split="test") for p in rows] for rows in s], CalibrationError, "split"),
        (lambda s: [[dataclasses.replace(p, label="supported") for p in rows] for rows in s], CalibrationError, "fold"),
    ],
)
def test_rows_that_cannot_be_fitted_on_are_refused(change, error, match):
    with pytest.raises(error, match=match):
        fit_cascade(change(simulated(30, seed=6)), priced(150))


@pytest.mark.parametrize("target", ["auc:0.1", "cost", "cost:-1", "cost:nan", "cost:0.01"])
def test_targets_that_mean_nothing_or_cannot_be_met_are_refused(target):
    with pytest.raises(CalibrationError, match=r"target|as cheap"):
        fit_cascade(simulated(60, seed=7), priced(300), target)


def test_the_report_counts_what_the_plan_does_by_hand():
    """Four rows of two evidences; stage 0 answers the first two, which share evidence with nobody it leaves."""
    identity = Calibration("none", 1.0, 0.0, n=4, n_groups=2, positive_rate=0.5)
    plan = CascadePlan((IDENTITY, IDENTITY), (Band(0.1, 0.9),), Decision(identity, (point("f1", 0.5),), "f1"))
    rows = [
        [Prediction(f"{i}", m, float(sigmoid(m)), y, "test", f"g{i // 2}", "", "annotated", "visual")
         for i, (m, y) in enumerate(zip(column, ("supported", "refuted") * 2, strict=True))]
        for column in ((5.0, -5.0, 1.0, -1.0), (3.0, -3.0, -2.0, 2.0))
    ]  # fmt: skip
    column = np.array
    costs = [
        Costs(column([10, 10, 20, 20]), column([4, 4, 8, 8]), column([1, 2, 3, 4]), column([0, 0, 1, 1]), 10, 100),
        Costs(column([40, 40, 80, 80]), column([16, 16, 32, 32]), column([1, 2, 3, 4]), column([0, 0, 1, 1]), 10, 100),
    ]
    numbers = measure(plan, rows, costs, ["quick", "slow"], {"quick": 1.0}, n_draws=20)
    assert [(s["asked"], s["answered"]) for s in numbers["stages"]] == [(4, 2), (2, 2)]
    together, alone = ([s["spent"][w] for s in numbers["stages"]] for w in ("together", "alone"))
    assert [(t["tokens"], t["visual_tokens"]) for t in together] == [(40, 12), (87, 32)]
    assert [(t["tokens"], t["visual_tokens"]) for t in alone] == [(70, 24), (167, 64)]
    assert numbers["last_stage_alone"]["together"]["tokens"] == 130
    assert numbers["share_of_last_stage_alone"]["together"]["visual_tokens"] == pytest.approx(44 / 48)
    assert together[0]["flops"] == 2 * (10 * 40 + 100 * 4 * 12)
    assert numbers["auc"] == 0.75  # 5, -5, -2, 2 for true, false, true, false
    assert numbers["compared"]["differences"]["auc"]["difference"] == 0.0


def test_the_report_is_written_whole_as_markdown_and_json(fitted, tmp_path):
    fresh = simulated(60, seed=8, split="test")
    numbers = measure(fitted.plan, fresh, priced(300), n_draws=100)
    markdown, written = write_cascade_report(tmp_path / "report", numbers)
    stored = json.loads(written.read_text())
    difference = stored["compared"]["differences"]["auc"]
    labels = [p.label == "supported" for p in fresh[0]]
    expected = [roc_auc_score(labels, [p.margin for p in rows]) for rows in (cascaded(fitted.plan, fresh), fresh[1])]
    assert (difference["cascade"], difference["last_stage"]) == pytest.approx(tuple(expected))
    assert difference["low"] <= difference["difference"] <= difference["high"]
    text = markdown.read_text()
    assert f"{difference['difference']:+.4f} [{difference['low']:+.4f}" in text
    assert sum(s["answered"] for s in stored["stages"]) == 300
    empty = measure(fitted.plan, [[], []], priced(0), n_draws=10)
    assert empty["rows"] == 0
    assert json.loads(write_cascade_report(tmp_path / "none", empty)[1].read_text())["auc"] is None


# ---- real networks


@pytest.fixture(scope="module")
def media(tmp_path_factory) -> Path:
    from numbered_clips import encode

    folder = tmp_path_factory.mktemp("media")
    encode(folder / "clip.mp4", n_frames=75)
    return folder


@pytest.fixture(scope="module")
def make(tiny_base, media) -> Any:
    return maker(tiny_base, FrameSampling(2.0, 4, 8, 56 * 56, 84 * 84), media)


@pytest.fixture(scope="module")
def verifier(make) -> Verifier:
    return make(
        decision=decision(Calibration("platt", 30.0, 0.0, n=100, n_groups=20, positive_rate=0.5)), fingerprint="x"
    )


VIDEO = VideoSegment("clip.mp4", 0.0, 3.0)
SAID = Transcript("The ball is red.", 0.0, 3.0)
PAIRS = [
    *(Pair(f"v{i}", f"Object {i} is red ball.", (VIDEO, SAID)) for i in range(6)),
    *(Pair(f"t{i}", f"Action {i} is moving left.", (SAID,)) for i in range(3)),
    Pair("only video", "Object is red ball.", (VIDEO,)),
    Pair("gone", "Object is red ball.", (VideoSegment("gone.mp4", 0.0, 1.0),)),
    Pair("bad", "  ", (SAID,)),
]
TEXT_FIRST = (View(kinds=("transcript",)), View())


def test_a_row_is_answered_by_the_first_stage_that_is_sure_with_that_stages_margin(verifier):
    plain = [
        verifier.score_pairs([dataclasses.replace(p, evidence=v.of(p.evidence)) for p in PAIRS]) for v in TEXT_FIRST
    ]
    p = sorted(v.p_supported for v in plain[0] if v.error is None)
    low, high = (p[1] + p[2]) / 2, (p[-2] + p[-1]) / 2
    cascade = Cascade([verifier, verifier], [(low, high)], views=TEXT_FIRST)
    told: list[int] = []
    found = cascade.score_pairs(PAIRS, told.append)
    assert sum(told) == len(PAIRS)
    stages = [v.stage for v in found]
    assert {0, 1, NOBODY} == set(stages)
    for cheap, dear, verdict in zip(*plain, found, strict=True):
        sure = cheap.error is None and not low < cheap.p_supported < high
        assert verdict.stage == (0 if sure else NOBODY if dear.error else 1)
        if verdict.stage == NOBODY:
            assert (verdict.error, verdict.label, verdict.answer) == (dear.error, None, None)
            assert math.isnan(verdict.margin)
            continue
        own = cheap if sure else dear
        assert verdict.stage_margin == pytest.approx(own.margin, abs=1e-4)
        assert verdict.p_supported == pytest.approx(own.p_supported, abs=2e-3)  # its slope makes 30 of a difference
        assert verdict.label == ("supported" if verdict.p_supported >= 0.5 else "not_supported")
        assert float(sigmoid(verdict.margin)) == pytest.approx(verdict.p_supported, abs=1e-12)
        assert len(verdict.passed) == verdict.stage
    assert [found[i].failed_stages for i in (9, 10, 11)] == [(0,), (0, 1), (0, 1)]
    assert "transcript only" in found[9].passed[0]
    counts = shares(found, 2)
    assert counts[0] == {"asked": 12, "answered": stages.count(0), "failed": 3}
    assert counts[1] == {"asked": 12 - stages.count(0), "answered": stages.count(1), "failed": 2}
    settled = cascade.plan.settle([[v.margin for v in column] for column in plain], PAIRS)
    assert list(settled.stage_N) == stages


def test_score_asks_as_score_pairs_does(verifier):
    cascade = Cascade([verifier, verifier], [(0.4, 0.6)], views=TEXT_FIRST)
    claims = [p.claim for p in PAIRS[:6]]
    one, other = cascade.score(claims, (VIDEO, SAID), operating_point="strict"), cascade.score_pairs(PAIRS[:6])
    assert [v.stage for v in one] == [v.stage for v in other]
    assert [v.margin for v in one] == pytest.approx([v.margin for v in other], abs=1e-2)
    assert all(isinstance(v, CascadeVerdict) for v in one)
    assert [v.label for v in one] == ["supported" if v.p_supported >= 0.9 else "not_supported" for v in one]
    assert cascade.score([], SAID) == []
    with pytest.raises(CalibrationError, match="operating point"):
        cascade.score(claims, SAID, operating_point="none")
    rows = [{"claim": claim, "video": "clip.mp4", "end_s": 3, "transcript": SAID.text} for claim in claims]
    assert [v.stage for v in cascade.score_pairs(rows)] == [v.stage for v in other]
    p = cascade.predict([(claim, [("clip.mp4", 0, 3), SAID]) for claim in claims])
    assert p == pytest.approx([v.p_supported for v in other], abs=2e-3)
    best = cascade.rank(claims[0], ["The ball is red.", (VIDEO, SAID), VideoSegment("gone.mp4")], top_k=3)
    assert best[0].verdict.p_supported >= best[1].verdict.p_supported
    assert best[2].index == 2
    shifted = cascade.with_prior(0.1)
    assert [v.stage for v in shifted.score_pairs(PAIRS[:6])] == [v.stage for v in other]
    assert all(a.p_supported < b.p_supported for a, b in zip(shifted.score_pairs(PAIRS[:6]), other, strict=True))
    assert shifted.notes != cascade.notes
    assert shifted.fingerprint == cascade.fingerprint


def test_a_stage_of_fewer_frames_sees_what_a_verifier_of_that_sampling_sees(verifier, make, tiny_base, media):
    stage = CascadeStage.of(verifier, View(max_frames=2))
    fewer = maker(tiny_base, FrameSampling(2.0, 2, 2, 56 * 56, 84 * 84), media)()
    pairs = [p for p in PAIRS if VIDEO in p.evidence]
    expected = [v.margin for v in fewer.score_pairs(pairs)]
    whole = [v.margin for v in verifier.score_pairs(pairs)]
    for _ in range(2):  # also from kept prefixes, which are not those of all frames
        assert [v.margin for v in stage.verifier.score_pairs(pairs)] == pytest.approx(expected, abs=1e-4)
        assert [v.margin for v in verifier.score_pairs(pairs)] == pytest.approx(whole, abs=1e-4)
    assert max(abs(a - b) for a, b in zip(expected, whole, strict=True)) > 1e-3
    costs = [costs_of(CascadeStage.of(verifier, v), PAIRS) for v in (View(max_frames=2), View())]
    n = verifier.encoder.count_visual_tokens(VIDEO, media)
    assert list(costs[1].visual_tokens) == [n] * 6 + [0] * 3 + [n, 0, 0]
    assert list(costs[0].visual_tokens[:6]) == [n // 3] * 6  # 2 of 6 frames
    encoded = verifier.reader.read(verifier.reader.group(pairs[:1])[0]).segment
    assert encoded is not None
    assert costs[1].prefix_tokens[0] == len(encoded.evidence.ids_P)
    assert costs[1].claim_tokens[0] == len(encoded.claims[0])
    assert costs[1].prefix_tokens[10] == 0  # no such file
    named = dict(verifier.model.named_parameters())
    assert costs[0].n_vision == sum(w.numel() for n, w in named.items() if ".visual." in n or n.startswith("visual"))


def test_stages_are_scored_into_files_that_settle_as_the_cascade_does(verifier, tmp_path):
    cascade = Cascade([verifier, verifier], [(0.4, 0.6)], views=TEXT_FIRST)
    scored = score_stages(cascade.stages, PAIRS[:10], tmp_path)
    found = cascade.score_pairs(PAIRS[:10])
    rows = cascaded(cascade.plan, scored)
    assert [r.margin for r in rows] == pytest.approx([v.margin for v in found], abs=1e-2, nan_ok=True)
    assert "evidence is empty" in str(scored[0][9].error)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"bands": [(0.9, 0.1)]}, CalibrationError, "lower first"),
        ({"bands": [(0.1, 0.9), (0.1, 0.9)]}, CalibrationError, "one band less"),
        ({"views": [View()]}, ConfigError, "as many"),
    ],
)
def test_a_cascade_that_does_not_fit_together_is_refused(verifier, arguments, error, match):
    with pytest.raises(error, match=match):
        Cascade([verifier, verifier], **arguments)


def test_drafts_and_verifiers_without_a_band_need_a_plan_or_bands(verifier, make, caplog):
    assert Cascade([verifier, verifier]).plan.bands == (Band(0.3, 0.7),)  # its own abstain band
    with pytest.raises(CalibrationError, match="uncalibrated"):
        Cascade([make(), verifier], [(0.1, 0.9)])
    without = make(decision=dataclasses.replace(verifier.decision, abstain=None))
    with pytest.raises(CalibrationError, match="abstain band"):
        Cascade([without, verifier])
    assert "not calibrated as a whole" in Cascade([verifier, verifier]).notes[0]
    assert "accuracy fell from 0.957 to 0.801" in caplog.text


@pytest.mark.parametrize("bad", [{"kinds": ()}, {"kinds": ("sound",)}, {"max_frames": 3}, {"max_frames": 0}])
def test_views_of_nothing_are_refused(bad):
    with pytest.raises(ConfigError, match="view"):
        View(**bad)


# ---- the directory


@pytest.fixture(scope="module")
def planned() -> CascadePlan:
    return fit_cascade(simulated(100, seed=9), priced(500), "cost:0.9", abstain=("max_abstention", 0.3)).plan


@pytest.fixture(scope="module")
def loaded() -> Verifier:
    return Verifier.from_pretrained(FIXTURE, device="cpu", untrained_evidence=True)


TEXTS = [Pair(f"p{i}", f"Colour is {c}.", (Passage("Only red is to be seen."),)) for i, c in enumerate(("red", "blue"))]


@pytest.mark.parametrize("inside", [True, False])
def test_a_cascade_directory_brings_the_same_cascade_back(loaded, planned, tmp_path, inside):
    cascade = Cascade([loaded, loaded], views=[View(max_frames=2), View()], plan=planned)
    measured = measure(planned, simulated(40, 10), priced(200), n_draws=20)
    write_cascade_report(tmp_path / "report", measured)
    out = tmp_path / "deep" / "cascade-dir"
    cascade.save_pretrained(out, [FIXTURE, FIXTURE], inside=inside, report=tmp_path / "report")
    assert (out / "stages").is_dir() == inside
    if inside:
        assert [p.name for p in (out / "stages").iterdir()] == ["0"]  # one verifier, two views of it
        shutil.move(out, out.parent / "moved")  # the base is where it was
        out = out.parent / "moved"
    back = Cascade.from_pretrained(out, device="cpu", untrained_evidence=True)
    assert back.plan == cascade.plan
    assert back.fingerprint == cascade.fingerprint
    assert [s.view for s in back.stages] == [s.view for s in cascade.stages]
    assert back.stages[0].verifier.model is back.stages[1].verifier.model
    a, b = cascade.score_pairs(TEXTS), back.score_pairs(TEXTS)
    assert [v.margin for v in a] == pytest.approx([v.margin for v in b], abs=1e-4)
    assert [v.stage for v in a] == [v.stage for v in b]
    assert (out / "cascade" / "report.md").is_file()
    assert proofreel.Cascade is Cascade


def test_the_fingerprint_is_of_stages_views_and_numbers(loaded, planned):
    one = Cascade([loaded, loaded], views=[View(max_frames=2), View()], plan=planned)
    others = [
        Cascade([loaded, loaded], views=[View(max_frames=4), View()], plan=planned),
        Cascade([loaded, loaded], views=one_views, plan=dataclasses.replace(planned, bands=(Band(0.01, 0.99),))),
    ] if (one_views := [View(max_frames=2), View()]) else []  # fmt: skip
    assert len({c.fingerprint for c in (one, *others)}) == 3


def tampered(out: Path, how: str) -> None:
    folder = out / "cascade"
    if how == "band":
        text = (folder / "cascade.json").read_text()
        (folder / "cascade.json").write_text(text.replace('"support_at_or_above": 0.', '"support_at_or_above": 0.0', 1))
    elif how == "stage file":
        (out / "stages" / "0" / "thresholds.json").write_text("{}")
    elif how == "stage and its manifest":
        (out / "stages" / "0" / "thresholds.json").write_text("{}")
        write_manifest(out / "stages" / "0")
    elif how == "extra":
        (out / "run.py").write_text("")
    elif how == "stage lost":
        shutil.rmtree(out / "stages" / "0")
    else:
        values = json.loads((folder / "cascade.json").read_text())
        values |= {"schema_version": "2.0"} if how == "newer" else {}
        if how == "leads away":
            values["stages"][0]["verifier"] = "stages/../../elsewhere"
        if how == "absolute":
            values["stages"][0]["verifier"] = "/etc"
        (folder / "cascade.json").write_text(json.dumps(values))
        write_manifest(folder)


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ("band", "changed since"),
        ("stage file", "changed since"),
        ("stage and its manifest", "not the verifier that this cascade"),
        ("extra", "not part of a cascade"),
        ("stage lost", "no such folder"),
        ("newer", "schema version 2.0"),
        ("leads away", "relative folder"),
        ("absolute", "relative folder"),
    ],
)
def test_a_directory_that_was_tampered_with_is_not_loaded(loaded, planned, tmp_path, how, match):
    cascade = Cascade([loaded, loaded], plan=planned)
    out = cascade.save_pretrained(tmp_path / "out", [FIXTURE, FIXTURE])
    tampered(out, how)
    with pytest.raises(DirectoryError, match=match):
        Cascade.from_pretrained(out, device="cpu")


def test_a_directory_is_written_of_the_stages_own_sources_or_not_at_all(loaded, planned, tmp_path):
    cascade = Cascade([loaded, loaded], plan=planned)
    other = shutil.copytree(FIXTURE, tmp_path / "other")
    (other / "README.md").write_text("another\n")
    write_manifest(other)
    with pytest.raises(DirectoryError, match="not the directory that this stage"):
        cascade.save_pretrained(tmp_path / "out", [FIXTURE, other])
    with pytest.raises(FileNotFoundError):
        cascade.save_pretrained(tmp_path / "out", [FIXTURE, FIXTURE], report=tmp_path / "none")
    assert not (tmp_path / "out").exists()
    with pytest.raises(DirectoryError, match="not a cascade"):
        Cascade.from_pretrained(FIXTURE)
    changed = Cascade([loaded.with_prior(0.2), loaded], plan=planned)
    with pytest.raises(DirectoryError, match="runs otherwise"):
        changed.save_pretrained(tmp_path / "out", [FIXTURE, FIXTURE])


def test_stages_are_found_in_a_hub_snapshot_whose_files_are_links(loaded, planned, tmp_path):
    made = Cascade([loaded, loaded], plan=planned).save_pretrained(tmp_path / "made", [FIXTURE, FIXTURE])
    snapshot, blobs = tmp_path / "models--a--c" / "snapshots" / ("0" * 40), tmp_path / "models--a--c" / "blobs"
    blobs.mkdir(parents=True)
    for number, file in enumerate(sorted(p for p in made.rglob("*") if p.is_file())):
        shutil.copyfile(file, blobs / str(number))
        link = snapshot / file.relative_to(made)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blobs / str(number))
    base = FIXTURE.parent / "tiny_base"
    assert Cascade.from_pretrained(snapshot, device="cpu", base=base).plan == planned
