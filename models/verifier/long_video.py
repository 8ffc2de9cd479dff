"""Evidence that is judged in parts: windows of long videos, or several videos one by one, and one verdict of them.

Which route an evidence takes, and every verdict says which one it was:

- `windows`: a video is longer than the verifier's windows. Every video is cut into windows.
- `sources`: several videos, none too long, that do not fit into one prompt together with the claim: each by itself.
- `whole`: everything else.

A part is the evidence with one window (or video) in the place of all its videos. Texts and images stay beside it; of
transcripts whose time is known, beside windows of a single video only those that overlap the window, if they lie within
the evidence at all. The margins of all parts become one by the verifier's rule. If a part fails, the verdict fails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from tqdm import tqdm

from ...core import (
    CalibrationError,
    Evidence,
    Frames,
    MediaError,
    ModelInputError,
    Moving,
    Pair,
    ProofreelError,
    Transcript,
    evidence_key,
    media_name,
    problems_of,
)
from ...data_prep.media import check_segment, frames_within, probe_guarded
from ..decision import Decision, Judge, JudgedWindow, Route, Verdict, failed
from ..engine import Answer, BatchScorer, Progress, SegmentReader
from ..inputs import Windowing


@dataclass(frozen=True)
class Division:
    """The route of a pair; of one that is divided, each part's segment and evidence; or why it cannot be divided."""

    route: Route = "whole"
    segments: tuple[Moving, ...] = ()
    evidences: tuple[tuple[Evidence, ...], ...] = ()
    error: str | None = None


WHOLE = Division()


class Divider:
    """Divides pairs by one windowing; remembers what it saw of each evidence. Headers are read, nothing is decoded."""

    def __init__(self, windowing: Windowing, reader: SegmentReader) -> None:
        """`reader` is the verifier's."""
        self.windowing, self.encoder, self.media_root = windowing, reader.encoder, reader.media_root
        self._seen: dict[str, tuple[Division, int]] = {}  # and the tokens of all sources in one prompt

    def divide(self, pair: Pair) -> Division:
        """The route and parts of a pair; `WHOLE` also for what cannot be read: reading it will say why."""
        if not self.encoder.layout.sees or problems_of(pair):
            return WHOLE
        key = evidence_key(pair.evidence)
        if key not in self._seen:
            try:
                self._seen[key] = self._divided(pair.evidence)
            except ModelInputError as error:
                self._seen[key] = Division(error=str(error)), 0
            except ProofreelError:
                self._seen[key] = WHOLE, 0
        division, n_tokens = self._seen[key]
        return WHOLE if division.route == "sources" and self._fits(pair, n_tokens) else division

    def _divided(self, evidence: tuple[Evidence, ...]) -> tuple[Division, int]:
        videos = {at: e for at, e in enumerate(evidence) if isinstance(e, Moving)}
        cuts = {at: self._cut(video) for at, video in videos.items()}
        if any(len(cut) > 1 for cut in cuts.values()):
            return _division("windows", evidence, cuts), 0
        if len(videos) <= 1:
            return WHOLE, 0
        n_tokens = self.encoder.count_prefix_tokens(evidence, self.media_root)
        return _division("sources", evidence, cuts), n_tokens

    def _cut(self, video: Moving) -> tuple[Moving, ...]:
        """The windows of a video; of one that is a single window, itself, so that it is known again as what it is.

        Raises:
            MediaError: the span is not in the file. ModelInputError: too many windows.
        """
        if isinstance(video, Frames):
            return self._cut_frames(video)
        if video.absent:
            raise MediaError(f"{video.path}: media is marked absent, got absent=True; add the file")
        info = probe_guarded(video.path, self.media_root)
        if problems := check_segment(video, info):
            raise MediaError(f"{video.path}: {problems[0]}")
        spans = self.windowing.cut(video.start_s, info.duration_s if video.end_s is None else video.end_s)
        if len(spans) == 1:
            return (video,)
        return tuple(dataclasses.replace(video, start_s=start_s, end_s=end_s) for start_s, end_s in spans)

    def _cut_frames(self, frames: Frames) -> tuple[Moving, ...]:
        """The same of frames; those that are too sparse for windows, which would hold one or none, are one."""
        until_s = frames.until_s
        n_windows = max(1.0, (until_s - frames.start_s) / self.windowing.length_s)
        spans = self.windowing.cut(frames.start_s, until_s) if len(frames.paths) >= 2 * n_windows else ()
        if len(spans) <= 1:
            return (frames,)
        return tuple(dict.fromkeys(frames_within(frames, *span) for span in spans))

    def _fits(self, pair: Pair, n_tokens: int) -> bool:
        try:
            claim = self.encoder.claim_ids(pair.claim, pair.context)
        except ProofreelError:
            return True  # reading it will say why
        return n_tokens + len(claim) <= self.encoder.max_tokens


def verdicts_in_parts(
    pairs: Sequence[Pair],
    divider: Divider,
    asking: BatchScorer,
    judge: Judge,
    keyed: bool,
    progress: Progress = None,
) -> list[Verdict]:
    """Verdicts of pairs, in order; arguments as of `BatchScorer.verdicts`. A claim is done when all its parts are."""
    divisions = [divider.divide(pair) for pair in pairs]
    if all(division is WHOLE for division in divisions):
        return asking.verdicts(pairs, judge, keyed, progress)
    all_parts, owners = _parts(pairs, divisions)
    answers_of: list[list[Answer]] = [[] for _ in pairs]
    for owner, answer in zip(owners, _answers(all_parts, owners, len(pairs), asking, progress), strict=True):
        answers_of[owner].append(answer)
    rows = zip(pairs, divisions, answers_of, strict=True)
    return [_joined(d, answers, pair if keyed else None, judge, divider.windowing) for pair, d, answers in rows]


def _parts(pairs: Sequence[Pair], divisions: Sequence[Division]) -> tuple[list[Pair], list[int]]:
    """What the network is asked, and the place of the pair each belongs to."""
    all_parts: list[Pair] = []
    owners: list[int] = []
    for place, (pair, division) in enumerate(zip(pairs, divisions, strict=True)):
        if division.error is not None:
            continue
        parts = [dataclasses.replace(pair, evidence=e) for e in division.evidences] or [pair]
        all_parts += parts
        owners += [place] * len(parts)
    return all_parts, owners


def _answers(
    all_parts: Sequence[Pair], owners: Sequence[int], n_pairs: int, asking: BatchScorer, progress: Progress
) -> list[Answer]:
    """The answer to everything asked, in order; progress in pairs."""
    answers = [Answer()] * len(all_parts)
    left = np.bincount(np.array(owners, dtype=np.int64), minlength=n_pairs)
    n_open = n_pairs
    with (
        tqdm(total=n_pairs, unit="claim", desc="scoring", disable=progress is not True) as bar,
        closing(asking.answers(all_parts)) as batches,
    ):
        for batch in chain([[]], batches):  # before the first, pairs without parts are done
            for place, answer in batch:
                answers[place] = answer
                left[owners[place]] -= 1
            n_done, n_open = n_open - int(np.count_nonzero(left)), int(np.count_nonzero(left))
            bar.update(n_done)
            if callable(progress) and n_done:
                progress(n_done)
    return answers


def _joined(division: Division, answers: Sequence[Answer], row: Pair | None, judge: Judge, rule: Windowing) -> Verdict:
    """The verdict of one pair from the answers of its parts, in their order."""
    if division.error is not None:
        return failed(division.error)
    verdicts = [_verdict(answer, row, judge) for answer in answers]
    if not division.segments:
        return verdicts[0]
    windows = tuple(JudgedWindow(*both) for both in zip(division.segments, verdicts, strict=True))
    notes = [a.note for a in answers if a.note]
    if judge.decision is not None and _differs(judge.decision, rule):
        notes.append(_caution(judge.decision, rule))
    note = "; ".join(dict.fromkeys(notes)) or None
    wrong = next((w for w in windows if w.verdict.error is not None), None)
    if wrong is not None:
        verdict = failed(f"{_name(division.route, wrong.segment)}: {wrong.verdict.error}", note)
    else:
        margin = np.float32(rule.aggregate([w.verdict.margin for w in windows]))
        verdict = judge.verdict(float(margin), row, note)
    return dataclasses.replace(verdict, route=division.route, windows=windows)


def _verdict(answer: Answer, row: Pair | None, judge: Judge) -> Verdict:
    return failed(answer.error, answer.note) if answer.error else judge.verdict(answer.margin, row, answer.note)


def check_aggregation(decision: Decision | None, windowing: Windowing | None, where: str | Path) -> None:
    """`CalibrationError` where a directory's calibration was fitted on margins that it does not make."""
    if decision is None or not _differs(decision, windowing):
        return
    fitted, made = decision.calibration.aggregation or "none", windowing.rule if windowing else "none"
    raise CalibrationError(
        f"{where}: the calibration was fitted on margins of several windows made one by {fitted}, got a verifier whose "
        f"rule is {made}; predict and calibrate with that rule, and export again"
    )


def windowing_notes(notes: tuple[str, ...], decision: Decision | None, windowing: Windowing | None) -> tuple[str, ...]:
    """The notes with the sentence on windows made right for this windowing."""
    kept = tuple(note for note in notes if not note.startswith(_CALIBRATED_ON))
    return (*kept, _caution(decision, windowing)) if decision is not None and _differs(decision, windowing) else kept


_CALIBRATED_ON = "calibrated on evidence judged"


def _differs(decision: Decision, windowing: Windowing | None) -> bool:
    return decision.calibration.aggregation != (None if windowing is None else windowing.rule)


def _caution(decision: Decision, windowing: Windowing | None) -> str:
    theirs, ours = (
        f"by {rule}" if rule else "whole" for rule in (decision.calibration.aggregation, windowing and windowing.rule)
    )
    return f"{_CALIBRATED_ON} {theirs}, judges it {ours}: probabilities of long evidence need not hold"


def _division(route: Route, evidence: tuple[Evidence, ...], cuts: dict[int, tuple[Moving, ...]]) -> Division:
    """One part for each segment of `cuts`, by the place of the video in the evidence."""
    parts = [(at, segment) for at, cut in cuts.items() for segment in cut]
    return Division(
        route, tuple(s for _, s in parts), tuple(_beside(evidence, at, s, len(cuts) == 1) for at, s in parts)
    )


def _beside(evidence: tuple[Evidence, ...], at: int, segment: Moving, is_only_video: bool) -> tuple[Evidence, ...]:
    """The evidence with a segment in the place of its video, and without other videos."""
    video, shown = evidence[at], list[Evidence]()
    for place, piece in enumerate(evidence):
        if place == at:
            shown.append(segment)
        elif not isinstance(piece, Moving):
            timed = is_only_video and isinstance(piece, Transcript) and _overlap(piece, video)
            if not timed or _overlap(piece, segment):
                shown.append(piece)
    return tuple(shown)


def _overlap(transcript: Evidence, shown: Evidence) -> bool:
    """Whether speech of known times overlaps a video segment."""
    assert isinstance(transcript, Transcript)
    assert isinstance(shown, Moving)
    if transcript.start_s is None or transcript.end_s is None:
        return False
    end_s = shown.until_s if isinstance(shown, Frames) else shown.end_s
    return transcript.end_s > shown.start_s and (end_s is None or transcript.start_s < end_s)


def _name(route: Route, segment: Moving) -> str:
    if route == "sources":
        return f"source {media_name(segment)}"
    end = "the end" if segment.end_s is None else f"{segment.end_s:g} s"
    return f"{media_name(segment)}, window {segment.start_s:g} s to {end}"
