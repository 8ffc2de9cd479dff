"""Write a split of a data set for other trainers: LLaMA-Factory, ms-swift, Qwen's fine-tuning script, and NLI models.

None of these formats can name a part of a video, so every segment that is not a whole file is cut into its own
(cut.py). A row that a format cannot hold is listed with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from ...core import Audio, ConfigError, Frames, Image, MediaError, Pair, Prompt, RowError, VideoSegment, media_name
from ..dataset import iter_split
from .cut import cut_segments, is_whole_file
from .rows import FORMATS, Format, control_token, media_columns, not_carried, text_columns

SHOWN_PROBLEMS = 20


@dataclass
class ExportReport:
    """Counts of an export.

    Attributes:
        rows: written.
        columns: of every row.
        skipped: rows left out, by reason; empty unless that was asked for.
        clips: distinct segments that are named by a clip of their own.
        not_carried: rows of which the format cannot say something, by what it is.
    """

    rows: int = 0
    columns: tuple[str, ...] = ()
    skipped: Counter[str] = field(default_factory=Counter)
    clips: int = 0
    not_carried: Counter[str] = field(default_factory=Counter)


def export_split(
    dataset: str | Path,
    split: str,
    format: Format,
    out: str | Path,
    prompt: Prompt | None = None,
    clips: str | Path | None = None,
    skip_unusable: bool = False,
    workers: int = 1,
) -> ExportReport:
    """Write one split of a data set as JSON lines; the file is written completely or not at all.

    Media are named by absolute paths. The split is read twice, row by row: memory grows with the distinct segments
    alone. Rows keep their order, except that the first row of every combination of media leads: the `datasets` library
    takes the types of all columns from the first rows.

    Args:
        clips: folder for the clips of segments that are not whole files; resumes where an earlier run ended.
        skip_unusable: leave out rows that cannot be written, and count them; without it they end the export.

    Raises:
        RowError: no such split; rows that cannot be written (no label, media marked absent or unreadable, text with a
            control token of the chat formats); segments to cut and no `clips`.
        ConfigError: `out` is no `.jsonl` file name, or an unknown format.
    """
    out, where = Path(out), f"{dataset}, {split}"
    if out.suffix != ".jsonl":
        raise ConfigError(f"out: must end in .jsonl, got {str(out)!r}; one row a line is written")
    if format not in FORMATS:
        raise ConfigError(f"format: is unknown, got {format!r}; use one of {list(FORMATS)}")
    survey = _Survey(format)
    for pair in iter_split(dataset, split):
        survey.add(pair)
    if survey.problems and not skip_unusable:  # before any clip is cut
        raise _cannot(f"{where}: rows cannot be exported as {format}", survey.unusable, survey.problems)
    survey.cut(clips, workers, where)
    out.parent.mkdir(parents=True, exist_ok=True)
    body, whole = (out.with_name(f".{out.name}.{os.getpid()}.{part}") for part in ("body", "whole"))
    try:
        report, leading, problems = _write_body(dataset, split, prompt or Prompt(), survey, body)
        if problems and not skip_unusable:
            raise _cannot(f"{where}: rows cannot be exported as {format}", report.skipped.total(), problems)
        with whole.open("wb") as target, body.open("rb") as source:
            target.write("".join(leading).encode("utf-8"))
            shutil.copyfileobj(source, target)
        whole.replace(out)
    finally:
        body.unlink(missing_ok=True)
        whole.unlink(missing_ok=True)
    return report


@dataclass
class _Survey:
    """What the first reading of the split collects.

    Attributes:
        format: that is to be written.
        most_videos, most_images: in one row.
        has_context: some row has one.
        places: the file that shows each distinct segment; those to be cut are None at first.
        failed: why there is no such file, or no such image.
        unusable, problems: rows that cannot be written, and the first of them with the reason.
    """

    format: Format
    most_videos: int = 0
    most_images: int = 0
    has_context: bool = False
    places: dict[VideoSegment | Image, str | None] = field(default_factory=dict)
    failed: dict[VideoSegment | Image, str] = field(default_factory=dict)
    unusable: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, pair: Pair) -> None:
        """Take note of a row, and of every piece of media it is the first to name."""
        if not self.problem(pair):
            for part in pair.evidence:
                if isinstance(part, (VideoSegment, Image)) and part not in self.places:
                    self._look_at(part)
        if problem := self.problem(pair):
            self.unusable += 1
            self.problems += [f"{pair.id}: {problem}"] if len(self.problems) < SHOWN_PROBLEMS else []
            return
        self.most_videos = max(self.most_videos, sum(isinstance(e, VideoSegment) for e in pair.evidence))
        self.most_images = max(self.most_images, sum(isinstance(e, Image) for e in pair.evidence))
        self.has_context |= bool(pair.context)

    def _look_at(self, part: VideoSegment | Image) -> None:
        if isinstance(part, VideoSegment) and part.absent:
            self.failed[part] = f"media is marked absent ({part.path})"
        elif not Path(part.path).is_file():
            self.failed[part] = f"media file is missing ({part.path})"
        else:
            try:
                whole = isinstance(part, Image) or is_whole_file(part)
                self.places[part] = part.path if whole else None
            except MediaError as error:
                self.failed[part] = f"media is not readable ({error})"

    def cut(self, clips: str | Path | None, workers: int, where: str) -> None:
        """Give every segment that is not a whole file a clip of its own."""
        wanted = [part for part, place in self.places.items() if place is None and isinstance(part, VideoSegment)]
        if not wanted:
            return
        if clips is None:
            example = f"{wanted[0].path} [{wanted[0].start_s}, {wanted[0].end_s}]"
            raise RowError(
                f"{where}: the format cannot name a part of a video, got {len(wanted)} segments that are not whole "
                f"files, e.g. {example}; give --clips DIR to cut each into a file of its own"
            )
        made, failed = cut_segments(wanted, clips, workers)
        self.places.update({segment: str(clip) for segment, clip in made.items()})
        self.failed.update({segment: f"media cannot be cut ({reason})" for segment, reason in failed.items()})

    def problem(self, pair: Pair) -> str | None:
        """Why a pair cannot be written, or None. Reasons are counted by their text before a bracket."""
        if pair.label is None:
            return "row has no label"
        for part in pair.evidence:
            if isinstance(part, Frames):
                return f"frames are several files, and the format names one video ({media_name(part)})"
            if isinstance(part, Audio) or (isinstance(part, VideoSegment) and part.sound):
                return f"sound is heard, and the format carries none ({media_name(part)})"
            if isinstance(part, (VideoSegment, Image)) and part in self.failed:
                return self.failed[part]
        token = None if self.format == "nli" else control_token(pair)
        return f"text holds a control token of chat formats ({token})" if token else None


def _write_body(
    dataset: str | Path, split: str, prompt: Prompt, survey: _Survey, body: Path
) -> tuple[ExportReport, list[str], list[str]]:
    """Write all rows but the leading ones; gives the report, the leading lines, and the first problems."""
    report = ExportReport(clips=sum(place != part.path for part, place in survey.places.items() if place))
    leading: dict[tuple[int, int], str] = {}
    problems: list[str] = []
    with body.open("w", encoding="utf-8", newline="\n") as file:
        for pair in iter_split(dataset, split):
            if problem := survey.problem(pair):
                report.skipped[problem.partition(" (")[0]] += 1
                problems += [f"{pair.id}: {problem}"] if len(problems) < SHOWN_PROBLEMS else []
                continue
            videos = [str(survey.places[part]) for part in pair.evidence if isinstance(part, VideoSegment)]
            images = [part.path for part in pair.evidence if isinstance(part, Image)]
            row = text_columns(pair, survey.format, prompt, survey.has_context)
            row |= media_columns(videos, images, survey.format, survey.most_videos, survey.most_images)
            line = json.dumps(row, ensure_ascii=False) + "\n"
            if leading.setdefault((len(videos), len(images)), line) is not line:
                file.write(line)
            report.rows += 1
            report.columns = tuple(row)
            report.not_carried.update(not_carried(pair, survey.format))
    return report, list(leading.values()), problems


def _cannot(what: str, total: int, problems: list[str]) -> RowError:
    more = [f"... and {total - len(problems)} more"] if total > len(problems) else []
    head = f"{what}, got {total} such rows; repair them, or leave them out by --skip-unusable"
    return RowError("\n  ".join([head, *problems, *more]))
