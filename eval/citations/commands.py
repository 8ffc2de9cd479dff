"""What the options of `proofreel murgat` name: judges of facts, who finds facts in videos, the tools of programs."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...core import ConfigError, MediaError
from ...data_prep.importers import Transcripts
from ...data_prep.media import FrameCache, FrameSampling
from ...models.directory import find_verifier
from ...models.inputs import Windowing
from ...models.verifier import EvidenceReader, Sources, Verifier
from ..scores import JudgePairs, by_verifier, open_language_model
from .entailment import by_language_model
from .moments import FindMoments, moments_by_verifier, surest
from .post_hoc import moments_by_language_model
from .programs import Tools, checked_by, described_by, described_by_captions
from .views import SAMPLING, AnyEvidence, CaptionView, FrameView


def fact_judge(args: argparse.Namespace) -> tuple[Callable[[int], JudgePairs], EvidenceReader]:
    """The judge of each system's facts, by its number, and what may be shown to it.

    Raises:
        ConfigError: a verifier and a language model.
    """
    if args.entailment_model is None:
        verifier = _verifier(args, args.verifier)

        def by_number(number: int) -> JudgePairs:
            return by_verifier(verifier, args.out / f"predictions-{number}.parquet", args.operating_point)

        return by_number, verifier.reader
    if args.verifier is not None and not (args.post_hoc or args.program):
        raise ConfigError(f"--entailment-model: one judge, got --verifier {args.verifier} as well; give one of the two")
    model = open_language_model(args.entailment_model)
    judge = by_language_model(
        model,
        args.entailment_style,
        media_root=args.media,
        sampling=_sampling(args),
        frame_cache=_frame_cache(args),
        workers=model.config.concurrency,
    )
    return lambda number: judge, AnyEvidence(args.media)


def fact_finder(args: argparse.Namespace, out: Path) -> FindMoments:
    """Who finds facts in videos; a verifier's answers about windows are kept in `out`.

    Raises:
        ConfigError: neither a verifier nor a language model, or a verifier without windows.
    """
    if args.proposer == "language-model":
        if args.language_model is None:
            raise ConfigError("--proposer language-model: needs --language-model, got none; give its YAML")
        model = open_language_model(args.language_model)
        return moments_by_language_model(model, _view(args), model.config.concurrency)
    if args.proposer is None and args.verifier is None:
        raise ConfigError("--post-hoc: needs who finds the facts, got neither --proposer nor --verifier; give one")
    verifier = _verifier(args, args.proposer or args.verifier)
    judge = by_verifier(verifier, out, args.operating_point)
    find = moments_by_verifier(judge, verifier.reader, sources_of(args), _windowing(args, verifier))
    return lambda searches: [surest(found) for found in find(searches)]


def program_tools(args: argparse.Namespace) -> tuple[Tools, dict[str, Any]]:
    """What plans run on, and all that their answers depend on.

    Raises:
        ConfigError: no language model, or no verifier.
    """
    proposer = args.proposer or args.verifier
    if args.language_model is None or proposer in (None, "language-model"):
        got = f"{args.language_model} and {proposer}"
        raise ConfigError(f"--program: needs --language-model, and a verifier as --verifier or --proposer, got {got}")
    model, verifier = open_language_model(args.language_model), _verifier(args, proposer)
    view, sources = _view(args), sources_of(args)
    judge = by_verifier(verifier, operating_point=args.operating_point, progress=False)
    find = moments_by_verifier(judge, verifier.reader, sources, _windowing(args, verifier))
    describe = described_by_captions(view) if isinstance(view, CaptionView) else described_by(model, view)
    settings = {"variant": args.program, "model": model.config.model, "verifier": verifier.fingerprint}
    settings |= {name: getattr(args, name) for name in ("operating_point", "windows", "frames")}
    settings |= {name: str(getattr(args, name)) for name in ("captions", "transcripts")}
    return Tools(model, view, find, describe, checked_by(judge, verifier.reader, sources)), settings


def sources_of(args: argparse.Namespace) -> Callable[[str], Sources]:
    """What the citations of a video's responses point into."""
    transcripts = None if args.transcripts is None else Transcripts(args.transcripts)

    def sources(video: str) -> Sources:
        name = video if Path(video).suffix else f"{video}.mp4"
        return Sources(name, None if transcripts is None else transcripts.cues(video))

    return sources


def _view(args: argparse.Namespace) -> FrameView | CaptionView:
    """What a language model is shown of videos."""
    if args.captions is not None:
        return CaptionView(Transcripts(args.captions))
    return FrameView(sources_of(args), AnyEvidence(args.media), _sampling(args), _frame_cache(args))


def _sampling(args: argparse.Namespace) -> FrameSampling:
    return dataclasses.replace(SAMPLING, max_frames=args.frames, min_frames=min(SAMPLING.min_frames, args.frames))


def _windowing(args: argparse.Namespace, verifier: Verifier) -> Windowing:
    windowing = verifier.windowing if args.windows is None else Windowing.parse(args.windows)
    if windowing is None:
        raise ConfigError("--windows: this verifier has no windows of its own, got none; give e.g. max:8:4")
    return windowing


def _frame_cache(args: argparse.Namespace) -> FrameCache | None:
    return None if args.frame_cache is None else FrameCache(args.frame_cache)


def _verifier(args: argparse.Namespace, name: str) -> Verifier:
    return _opened(name, args.device, args.media, args.frame_cache, args.untrained_evidence)


@functools.lru_cache(maxsize=2)
def _opened(name: str, device: str | None, media: Path | None, frames: Path | None, untrained: bool) -> Verifier:
    """A verifier, loaded once: it may find facts and judge them."""
    if media is not None and not media.is_dir():
        raise MediaError(f"{media}: no such folder, got nothing under --media; check the path")
    return Verifier.from_pretrained(
        find_verifier(name),
        device=device,
        media_root=media,
        frame_cache=FrameCache(frames) if frames else None,
        prefix_cache_gib=0.0,  # all claims about an evidence are asked together
        untrained_evidence=untrained,
    )
