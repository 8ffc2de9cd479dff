"""Where in a video a claim holds: windows that support it, joined to intervals.

Every window is judged by itself, at the operating point or threshold asked for. Those that support the claim and
overlap or touch make one interval, from the start of the first to the end of the last. An event need not fill the
windows that show it, so an interval can reach over either edge by nearly one window; and events of one claim whose
windows overlap become one interval. A fitted `IntervalRule` does better where videos with known times are at
hand. Measured against the edges of kitchen steps: examples/kitchen/localize.py, benchmarks/localization.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...core import ConfigError, Frames, MediaError, Moving, VideoSegment, problems_of_evidence
from ...data_prep.media import probe_guarded
from ..decision import Judge, JudgedWindow, Verdict
from ..display import localization_html
from ..inputs import Windowing
from .interval_rule import IntervalRule, SupportedInterval
from .protocol import ClaimScorer
from .verdicts import html_or_none

FindIntervals = Callable[[Sequence[JudgedWindow]], tuple[SupportedInterval, ...]]


@dataclass(frozen=True, repr=False)
class Localization:
    """Where a claim holds.

    Attributes:
        claim: the sentence.
        intervals: in order of time; empty where no window supports the claim, and where one failed.
        windows: what was said of each.
        verdict: on the whole span; failed where a window failed, and then `verdict.error` says which and why.
        media_root: where a notebook looks for the video.
    """

    claim: str
    intervals: tuple[SupportedInterval, ...]
    windows: tuple[JudgedWindow, ...]
    verdict: Verdict
    media_root: str | Path | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        where = ", ".join(f"{i.start_s:g} to {i.end_s:g} s: {i.p_supported:.3f}" for i in self.intervals)
        said = self.error or where or "in no window"
        return f"Localization({self.claim!r}: {said}; {len(self.windows)} windows)"

    def _repr_html_(self) -> str | None:
        return html_or_none(lambda: localization_html(self, self.media_root))

    @property
    def error(self) -> str | None:
        """Why there are no intervals; None where the claim was looked for everywhere."""
        return self.verdict.error


def localize(
    verifier: ClaimScorer,
    claims: Sequence[str],
    video: VideoSegment | Frames | str | Path,
    *,
    windowing: Windowing | str | None = None,
    threshold: float | None = None,
    operating_point: str | None = None,
    prior: float | None = None,
    rule: IntervalRule | None = None,
) -> list[Localization]:
    """Where in a video each claim holds; the windows are encoded once for all claims.

    Args:
        verifier: who judges the windows.
        claims: one sentence each.
        video: the file, a span of it, or frames that were sampled from it.
        windowing: of the windows; the verifier's own. Shorter strides find edges more exactly, and cost more.
        threshold: a window supports a claim where p_supported is at least this; None: by the operating point.
        operating_point, prior: as for `Verifier.score_pairs`.
        rule: fitted, in the place of windowing, threshold and operating point (`proofreel.eval.scores.fit_intervals`).

    Returns:
        One localization per claim, in order.

    Raises:
        ConfigError: no windowing; neither threshold nor operating point; a threshold outside [0, 1]; a rule
                beside them.
        CalibrationError: as `Verifier.score_pairs`.
    """
    if rule is not None:
        if (given := (windowing, threshold, operating_point)) != (None, None, None):
            raise ConfigError(
                "localize: a rule has its own windows and thresholds, got also windowing, threshold and operating "
                f"point {given}; leave them out"
            )
        windowing = rule.windowing
    scorer: ClaimScorer = verifier if windowing is None else verifier.with_windowing(windowing)
    if scorer.windowing is None:
        raise ConfigError('localize: this verifier has no windows of its own, got None; pass windowing="max:8:4"')
    intervals_of = rule.intervals if rule is not None else _by_threshold(scorer, operating_point, threshold)
    segment = _with_end(video, scorer.media_root)
    verdicts = scorer.score(claims, segment, prior=prior, operating_point=operating_point)
    located = [_located(claim, segment, verdict, intervals_of) for claim, verdict in zip(claims, verdicts, strict=True)]
    return [dataclasses.replace(each, media_root=scorer.media_root) for each in located]


def _with_end(video: Moving | str | Path, media_root: str | Path | None) -> Moving:
    """A video as a segment whose end is known; as it is where the file cannot tell: reading it will say why."""
    if isinstance(video, Frames):
        return dataclasses.replace(video, end_s=video.until_s) if not problems_of_evidence(video) else video
    segment = video if isinstance(video, VideoSegment) else VideoSegment(str(video))
    if segment.end_s is not None or segment.absent:
        return segment
    try:
        info = probe_guarded(segment.path, media_root)
    except MediaError:
        return segment
    return dataclasses.replace(segment, end_s=info.duration_s)


def _by_threshold(scorer: ClaimScorer, operating_point: str | None, threshold: float | None) -> FindIntervals:
    supports = _threshold(Judge(scorer.decision, operating_point), threshold)
    return lambda windows: joined(w for w in windows if supports(w.verdict))


def _threshold(judge: Judge, threshold: float | None) -> Callable[[Verdict], bool]:
    """Whether a window supports a claim: by a threshold on p_supported, or by the judge's operating point."""
    if threshold is None:
        if judge.point is None:
            raise ConfigError("localize: an uncalibrated verifier has no operating point, got none; pass threshold=...")
        return lambda verdict: verdict.label == "supported"
    if isinstance(threshold, bool) or not 0 <= threshold <= 1:
        raise ConfigError(f"localize: threshold must be a probability, got {threshold!r}; use [0, 1]")
    return lambda verdict: verdict.p_supported >= threshold


def _located(claim: str, segment: Moving, verdict: Verdict, intervals_of: FindIntervals) -> Localization:
    """What a verdict says of its windows; of a video that was judged whole, that is the one window."""
    windows = verdict.windows or (JudgedWindow(segment, verdict),)
    intervals = () if verdict.error else intervals_of(windows)
    return Localization(claim, intervals, windows, verdict)


def joined(windows: Iterable[JudgedWindow]) -> tuple[SupportedInterval, ...]:
    """Windows of one video, in order of time, as intervals: those that overlap or touch are one."""
    intervals: list[SupportedInterval] = []
    for window in windows:
        start_s, end_s, p = window.segment.start_s, window.segment.end_s, window.verdict.p_supported
        assert end_s is not None
        if intervals and start_s <= intervals[-1].end_s:
            last = intervals.pop()
            start_s, end_s, p = last.start_s, max(last.end_s, end_s), max(last.p_supported, p)
            intervals.append(SupportedInterval(start_s, end_s, p, last.n_windows + 1))
        else:
            intervals.append(SupportedInterval(start_s, end_s, p, 1))
    return tuple(intervals)
