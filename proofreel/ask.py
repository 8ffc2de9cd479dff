"""Ask a verifier claims about a clip, an image, a transcript, a text, or several of them together.

proofreel ask checkpoints/kitchen-verifier --video clip.mp4 --start 2.8 --end 9.4 "Ingredient is carrot." "Chop onion."
proofreel ask VERIFIER --video clip.mp4 --transcript clip.srt --prior 0.1 "The cook names the dish."
proofreel ask VERIFIER --evidence clip.mp4 --evidence "She slices a carrot." "The carrot is cut."
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from proofreel.core import CommandParser, Frames

if TYPE_CHECKING:
    from proofreel.core import Evidence
    from proofreel.models.decision import Verdict


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line per claim; exit status 1 if any claim could not be judged."""
    args = _parser().parse_args(argv)

    from proofreel.core import ProofreelError
    from proofreel.models.verifier import Verifier

    try:
        evidence = _evidence(args)
        verifier = Verifier.from_pretrained(
            args.directory, device=args.device, base=args.base, untrained_evidence=args.untrained_evidence
        )
        verifier = verifier if args.prior is None else verifier.with_prior(args.prior)
        verdicts = verifier.score(args.claims, evidence, operating_point=args.operating_point)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for note in verifier.notes:
        print(f"note: {note}", file=sys.stderr)
    for claim, verdict in zip(args.claims, verdicts, strict=True):
        print(f"{_shown(verdict):<32}  {claim}")
        if verdict.note:
            print(f"    note: {verdict.note}")
    return 1 if any(v.error for v in verdicts) else 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="proofreel ask", description=__doc__)
    parser.add_argument("directory", help="verifier directory, or hub id")
    parser.add_argument("claims", nargs="+", help="one sentence each")
    shown = parser.add_argument_group("evidence, judged together in this order")
    shown.add_argument("--video", help="video file")
    shown.add_argument("--start", type=float, default=0.0, help="start of the span in seconds")
    shown.add_argument("--end", type=float, help="end of the span in seconds; default: the end of the file")
    shown.add_argument("--image", action="append", default=[], help="image file; may be given several times")
    shown.add_argument("--frames", nargs="+", default=[], help="image files: frames of a video, sampled already")
    shown.add_argument("--times", nargs="+", type=float, default=[], help="when each of --frames is shown, in seconds")
    shown.add_argument("--transcript", type=Path, help=".srt, .vtt or .json; what is said in the span")
    shown.add_argument("--text", action="append", default=[], help="the words of a passage; may be given several times")
    shown.add_argument(
        "--evidence", action="append", default=[], help="a file of any kind, or a text; may be given several times"
    )
    parser.add_argument("--prior", type=float, help="share of supported claims where the answers are used")
    parser.add_argument("--operating-point", help="name of the threshold that labels; default: the shipped default")
    parser.add_argument(
        "--untrained-evidence", action="store_true", help="also ask about kinds of evidence the verifier never saw"
    )
    parser.add_argument("--base", type=Path, help="base checkpoint, if not where the directory says")
    parser.add_argument("--device", help="cpu, cuda, ...; default: a GPU if there is one")
    return parser


def _evidence(args: argparse.Namespace) -> tuple[Evidence, ...]:
    from proofreel.core import ConfigError, Image, MediaError, Passage, VideoSegment
    from proofreel.data_prep.importers import read_cues, transcript_of
    from proofreel.models.questions import as_evidence

    evidence: list[Evidence] = [VideoSegment(args.video, args.start, args.end)] if args.video else []
    if args.frames or args.times:
        evidence += as_evidence(Frames(tuple(args.frames), tuple(args.times)), where="--frames, --times")
    evidence += [Image(path) for path in args.image]
    if args.transcript:
        cues = read_cues(args.transcript)
        end_s = args.end if args.end is not None else max((cue.end_s for cue in cues), default=args.start)
        transcript = transcript_of(cues, args.start, end_s)
        if transcript is None:
            raise MediaError(f"{args.transcript}: nothing is said, got [{args.start}, {end_s}] s; leave it out")
        evidence.append(transcript)
    evidence += [Passage(text) for text in args.text]
    for held in args.evidence:
        evidence += as_evidence(held)
    if not evidence:
        raise ConfigError("evidence: none is given, got no file or text; pass --video, --image, --text or --evidence")
    return tuple(evidence)


def _shown(v: Verdict) -> str:
    if v.error:
        return f"error: {v.error}"
    answer = f" ({v.answer})" if v.answer not in (None, v.label) else ""
    return f"{v.p_supported:.3f}  {v.margin:+8.3f}  {v.label or 'uncalibrated'}{answer}"
