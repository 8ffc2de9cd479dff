"""`Cascade`: a cheap verifier answers where it is sure, the next one where it is not.

    c = Cascade([cheap, expensive], bands=[(0.05, 0.95)])                          # each calibrated as it came
    c = Cascade([v, v], views=[View(max_frames=2), View()], plan=plan)             # calibrated as a whole
    c = Cascade.from_pretrained("cascade-dir")
    c.score(["Ingredient is carrot."], VideoSegment("clip.mp4", 0.0, 2.0))

It has the methods of a `Verifier`; each verdict says which stage gave it. A stage is a verifier and what it is shown of
the evidence. What makes the whole calibrated is in `plan.py`.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from ...core import CalibrationError, ConfigError, Pair, ProofreelError, evidence_kinds
from ..decision import (
    AbstainBand,
    Decision,
    Judge,
    Uncalibrated,
    Verdict,
    calibration_of,
    failed,
    prior_notes,
    ranked,
    with_prior,
)
from ..engine import PrefixCache, Progress
from ..questions import as_claims, as_evidence, as_evidences, as_pairs, one_claim
from ..verifier import CrossEncoding, Ranking, Verdicts, Verifier
from .directory import open_cascade, write_cascade
from .plan import NOBODY, Band, CascadePlan, View

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CascadeStage:
    """A verifier and what it is shown. `verifier` looks at no more frames than `view` says."""

    verifier: Verifier
    view: View

    @classmethod
    def of(cls, verifier: Verifier, view: View | None = None) -> CascadeStage:
        """The stage of a verifier as it was loaded."""
        view = view or View()
        return cls(verifier if view.max_frames is None else fewer_frames(verifier, view.max_frames), view)

    def shown(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The pairs as this stage sees them; those without anything to see have no evidence."""
        return [dataclasses.replace(pair, evidence=self.view.of(pair.evidence)) for pair in pairs]

    def ask(self, pairs: Sequence[Pair], tell: Callable[[int], Any], shrink_frames: bool = False) -> list[Verdict]:
        """The verifier's own verdicts, in order; `tell` hears how many are done."""
        shown = self.shown(pairs)
        places = [i for i, pair in enumerate(shown) if pair.evidence]
        verdicts = [failed(_nothing(pair, self.view)) for pair in pairs]
        tell(len(pairs) - len(places))
        of_shown = self.verifier.score_pairs([shown[i] for i in places], tell, shrink_frames=shrink_frames)
        for place, verdict in zip(places, of_shown, strict=True):
            verdicts[place] = verdict
        return verdicts


def fewer_frames(verifier: Verifier, max_frames: int) -> Verifier:
    """The same verifier looking at no more than so many frames of a video; weights and lock are shared.

    Its own calibration does not hold for it. Prefixes are kept apart: they look the same, and are not.
    """
    other, sampling = copy.copy(verifier), verifier.encoder.sampling
    other.encoder, other.scorer = copy.copy(verifier.encoder), copy.copy(verifier.scorer)
    other.reader = copy.copy(verifier.reader)
    fewest, most = min(sampling.min_frames, max_frames), min(sampling.max_frames, max_frames)
    other.encoder.sampling = dataclasses.replace(sampling, min_frames=fewest, max_frames=most)
    other.prefixes = PrefixCache(verifier.prefixes.max_bytes / 2**30)
    other.scorer.prefixes = other.prefixes
    other.reader.encoder, other.reader.scorer = other.encoder, other.scorer
    other.reader.vision_features = None  # they stand for other frames
    return other


def _nothing(pair: Pair, view: View) -> str:
    kinds = " and ".join(evidence_kinds(pair.evidence)) or "none"
    return f"view: this stage is shown {view.describe()}, got evidence of {kinds}; the next stage is asked"


@dataclass(frozen=True)
class CascadeVerdict(Verdict):
    """What a cascade says of one claim. `margin` is calibrated log-odds (see `plan.py`).

    Attributes:
        stage: the place of the verifier that answered, from 0; `NOBODY` (-1) on failure.
        stage_margin: what that verifier itself gave, before calibration.
        passed: why each earlier stage did not answer, in order.
        failed_stages: those of them, and perhaps the last one, that failed.
    """

    stage: int = NOBODY
    stage_margin: float = float("nan")
    passed: tuple[str, ...] = ()
    failed_stages: tuple[int, ...] = ()


_UNFITTED = "not calibrated as a whole: each stage keeps the calibration it was published with"
_UNFITTED_COSTS = (
    "on the kitchen, with 2 of 8 frames first and the band 0.1 to 0.9, accuracy fell from 0.957 to 0.801 "
    "(AUC 0.989 to 0.867; fitted 0.985); run `proofreel cascade fit` (docs/cascade.md)"
)


class Cascade:
    """Verifiers in order of their cost. Ask it with `score` or `score_pairs`."""

    windowing = None  # as a whole; every stage judges long videos in its own way

    def __init__(
        self,
        verifiers: Sequence[Verifier],
        bands: Sequence[Band | AbstainBand | tuple[float, float]] | None = None,
        *,
        views: Sequence[View] | None = None,
        plan: CascadePlan | None = None,
    ) -> None:
        """Stages are the verifiers in order; the same one may occur twice, under different views.

        Args:
            verifiers: two or more.
            bands: where each but the last is not sure, (lower, upper) probability; None: their own abstain bands. Every
                verifier then keeps its own calibration, which was not fitted on the rows it will be asked: `notes` say
                so.
            views: what each is shown; all of the evidence.
            plan: bands and calibrations fitted together (`eval/cascades/fit.py`), in place of `bands`.

        Raises:
            CalibrationError: without a plan, an uncalibrated verifier, or one without a band.
            ConfigError: numbers of stages that do not fit together.
        """
        views = [View()] * len(verifiers) if views is None else views
        if len(views) != len(verifiers) or len(verifiers) < 2 or (plan and len(plan.calibrations) != len(verifiers)):
            n_planned = len(plan.calibrations) if plan else len(verifiers)
            raise ConfigError(
                f"cascade: needs two verifiers or more, a view and a calibration each, got {len(verifiers)} verifiers, "
                f"{len(views)} views, {n_planned} calibrations; give as many of each"
            )
        if plan is not None and bands is not None:
            raise ConfigError(f"cascade: a plan holds its bands, got {bands} besides; give one of them")
        self.plan = plan or _own_plan(verifiers, bands)
        self.stages = tuple(CascadeStage.of(*both) for both in zip(verifiers, views, strict=True))
        own = [] if plan else [_UNFITTED]
        if not plan:
            _log.warning("cascade: %s; %s", _UNFITTED, _UNFITTED_COSTS)
        stages = [f"stage {i}: {note}" for i, verifier in enumerate(verifiers) for note in verifier.notes]
        self.notes = prior_notes((*own, *stages), self.plan.decision)

    @classmethod
    def from_pretrained(cls, path_or_hub_id: str | Path, *, revision: str | None = None, **options: Any) -> Cascade:
        """Load a cascade directory; `options` go to `Verifier.from_pretrained` of every stage.

        A stage that occurs twice is loaded once.

        Raises:
            DirectoryError: damaged or foreign files, or a stage that is not the verifier the cascade was made of.
        """
        verifiers, views, plan = open_cascade(path_or_hub_id, revision, Verifier.from_pretrained, options)
        return cls(verifiers, views=views, plan=plan)

    def save_pretrained(
        self,
        directory: str | Path,
        sources: Sequence[str | Path],
        *,
        inside: bool = True,
        report: str | Path | None = None,
    ) -> Path:
        """Write the cascade as one directory.

        Args:
            directory: must not exist.
            sources: the verifier directories (or hub ids) that the stages were loaded from, in order.
            inside: copy them; else only where they are, relative to `directory`, and their fingerprints are written.
            report: folder of `eval/cascades/report.py`, to travel along.

        Raises:
            DirectoryError: a source that is not its stage's verifier, or stages that run otherwise than they were
                written.
        """
        verifiers, views = [s.verifier for s in self.stages], [s.view for s in self.stages]
        return write_cascade(directory, verifiers, views, self.plan, sources, inside, report)

    @property
    def decision(self) -> Decision:
        """What makes probabilities, labels and answers of the cascade's margins."""
        return self.plan.decision

    @property
    def media_root(self) -> str | Path | None:
        """Folder that relative paths in evidence start from."""
        return self.stages[-1].verifier.media_root

    @property
    def fingerprint(self) -> str:
        """Identity: of the stages' verifiers, views, bands and calibrations. Scores are comparable when it is equal."""
        decision = self.decision
        fitted = decision.fitted or decision
        values = {
            "stages": [
                {"fingerprint": s.verifier.fingerprint, "view": dataclasses.asdict(s.view)} for s in self.stages
            ],
            "plan": self.plan.to_dict(),
            "decision": [decision.calibration.with_prior(None).to_dict(), [p.to_dict() for p in fitted.points]],
        }
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def score(
        self,
        claims: str | Iterable[str],
        evidence: Any,
        contexts: str | Sequence[str | None] | None = None,
        *,
        prior: float | None = None,
        operating_point: str | None = None,
        shrink_frames: bool = False,
    ) -> Verdicts[CascadeVerdict]:
        """Judge K claims against one evidence; arguments as for `Verifier.score`."""
        judged = as_evidence(evidence, self.media_root)
        pairs = [Pair(str(i), c, judged, context=x) for i, (c, x) in enumerate(as_claims(claims, contexts))]
        return self.with_prior(prior, keep=True)._ask(pairs, operating_point, False, None, shrink_frames)

    def score_pairs(
        self,
        pairs: Any,
        progress: Progress = None,
        *,
        prior: float | None = None,
        operating_point: str | None = None,
        shrink_frames: bool = False,
    ) -> Verdicts[CascadeVerdict]:
        """Judge any mix of pairs, in order; arguments as for `Verifier.score_pairs`."""
        held = as_pairs(pairs, self.media_root, one_each=True)
        return self.with_prior(prior, keep=True)._ask(held, operating_point, True, progress, shrink_frames)

    def rank(
        self,
        claim: str,
        evidences: Any,
        *,
        context: str | None = None,
        top_k: int | None = None,
        progress: Progress = None,
        prior: float | None = None,
        operating_point: str | None = None,
    ) -> Ranking:
        """Evidences by how probably each supports the claim; arguments as for `Verifier.rank`."""
        sentence, held = one_claim(claim), as_evidences(evidences, self.media_root)
        pairs = [Pair(str(i), sentence, e, context=context) for i, e in enumerate(held)]
        cascade = self.with_prior(prior, keep=True)
        verdicts = cascade._ask(pairs, operating_point, False, progress, False)
        return Ranking(ranked(held, verdicts)[:top_k], sentence, self.media_root)

    def predict(self, pairs: Any, **options: Any) -> Any:
        """P(supported) of each pair as one array, NaN for failures; see `CrossEncoding.predict`."""
        scorer: Any = self  # it has what is asked of a scorer here, but no windows of its own
        return CrossEncoding(scorer).predict(pairs, **options)

    def supports(self, evidence: Any) -> bool:
        """Whether the last stage, which must answer what the others leave, may be asked about such evidence."""
        try:
            shown = self.stages[-1].view.of(as_evidence(evidence, self.media_root))
        except ProofreelError:
            return False
        return bool(shown) and self.stages[-1].verifier.supports(shown)

    def with_prior(self, prior: float | None, *, keep: bool = False) -> Cascade:
        """The same cascade where another share of claims is supported; None goes back to the fit's, or keeps what is.

        Who is asked does not change.
        """
        if prior is None and keep:
            return self
        other = copy.copy(self)
        other.plan = dataclasses.replace(self.plan, decision=with_prior(self.decision, prior))
        other.notes = prior_notes(self.notes, other.decision)
        return other

    def _ask(
        self, pairs: Sequence[Pair], operating_point: str | None, keyed: bool, progress: Progress, shrink_frames: bool
    ) -> Verdicts[CascadeVerdict]:
        judge = Judge(self.decision, operating_point)
        verdicts: list[CascadeVerdict] = [CascadeVerdict(**vars(failed("not scored")))] * len(pairs)
        passed: list[tuple[str, ...]] = [()] * len(pairs)
        failed_at: list[tuple[int, ...]] = [()] * len(pairs)
        left = list(range(len(pairs)))
        with tqdm(total=len(pairs), unit="claim", desc="scoring", disable=progress is not True) as bar:

            def tell(n: int) -> None:
                bar.update(n)
                if callable(progress) and n:
                    progress(n)

            for number, stage in enumerate(self.stages):
                last = number == len(self.stages) - 1
                rows = [pairs[i] for i in left]
                verdicts_of_stage = stage.ask(rows, tell if last else _to_nobody, shrink_frames) if rows else []
                margins = self.plan.margins(number, [v.margin for v in verdicts_of_stage], rows if keyed else None)
                ends = self.plan.answers(number, margins)
                for i, own, margin, answers in zip(left, verdicts_of_stage, margins, ends, strict=True):
                    if own.error is not None:
                        failed_at[i] += (number,)
                    if answers:
                        row = pairs[i] if keyed else None
                        verdicts[i] = _answered(judge, row, number, own, margin, passed[i], failed_at[i])
                    elif last:
                        verdicts[i] = CascadeVerdict(**vars(own), passed=passed[i], failed_stages=failed_at[i])
                    else:
                        passed[i] += (_why_passed(number, own, margin),)
                if not last:
                    tell(int(np.count_nonzero(ends)))
                left = [i for i, answers in zip(left, ends, strict=True) if not answers]
        return Verdicts(verdicts, pairs, self.media_root)


def _answered(
    judge: Judge,
    row: Pair | None,
    number: int,
    own: Verdict,
    margin: np.float32,
    passed: tuple[str, ...],
    failed_at: tuple[int, ...],
) -> CascadeVerdict:
    """The cascade's verdict on the margin of the stage that answered; what it says of its windows is its own."""
    judged = vars(judge.verdict(float(margin), row, own.note)) | {"route": own.route, "windows": own.windows}
    return CascadeVerdict(**judged, stage=number, stage_margin=own.margin, passed=passed, failed_stages=failed_at)


def _why_passed(number: int, own: Verdict, margin: np.float32) -> str:
    if own.error is not None:
        return f"stage {number} failed: {own.error}"
    return f"stage {number} was not sure: log-odds {float(margin):+.3f}"


def shares(verdicts: Sequence[CascadeVerdict], n_stages: int) -> list[dict[str, int]]:
    """How many claims each stage was asked, answered, and failed on; one entry per stage."""
    answered = Counter(v.stage for v in verdicts)
    failures = Counter(stage for v in verdicts for stage in v.failed_stages)
    reached = Counter(stage for v in verdicts for stage in range(len(v.passed) + 1))
    return [{"asked": reached[s], "answered": answered[s], "failed": failures[s]} for s in range(n_stages)]


def _own_plan(verifiers: Sequence[Verifier], bands: Sequence[Any] | None) -> CascadePlan:
    """Every verifier's own calibration, and the last one's thresholds."""
    decisions = [v.decision for v in verifiers if v.decision is not None]
    if len(decisions) < len(verifiers):
        raise CalibrationError(
            f"cascade: stages are compared by probabilities, got {len(verifiers) - len(decisions)} uncalibrated "
            "verifiers; calibrate them, or fit a plan with eval/cascades/fit.py"
        )
    own: list[Any] = [d.abstain for d in decisions[:-1]] if bands is None else list(bands)
    if None in own:
        raise CalibrationError(
            "cascade: a stage must know where it is not sure, got a verifier without an abstain band; pass bands, or "
            "calibrate with --abstain"
        )
    final = decisions[-1]
    about = {"n": 0, "n_groups": 0, "positive_rate": final.calibration.positive_rate}
    identity = calibration_of(Uncalibrated(), **about)
    calibrations = tuple(d.calibration for d in decisions)
    return CascadePlan(calibrations, tuple(map(Band.of, own)), dataclasses.replace(final, calibration=identity))


def _to_nobody(_: int) -> None:
    pass
