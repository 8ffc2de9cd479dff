"""Evidence and claims to token ids, pixels and positions: training, prediction and `Verifier` all encode here.

So a verifier's input in use is what it was trained on. Objects are picklable: data-loader workers build them once and
decode their own videos.

In place of pixels, the network also takes the vision tower's features of a video or image (features.py).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...core import (
    Evidence,
    Image,
    MediaError,
    ModelInputError,
    Moving,
    Prompt,
    VideoSegment,
    Visual,
    media_name,
)
from ...core import Frames as FrameFiles
from ...data_prep.media import (
    FrameCache,
    Frames,
    FrameSampling,
    fetched,
    frame_times,
    frames_shown,
    guarded,
    image_size,
    probe_guarded,
    read_media_piece,
    shown_times,
    target_size,
)
from .chat_template import ChatTurns
from .chat_text import ChatText
from .features import PATCH_TIMES, MediaFeatures
from .mrope import PositionRule, TimeRule, VisionLayout, grids_of_frames, mrope_positions

_SHORTEN = "lower sampling.max_frames or max_pixels, shorten the span, or raise max_tokens"


@dataclass(frozen=True)
class EncodedEvidence:
    """A prefix, ready to be followed by claims.

    Attributes:
        ids_P: (P,) token ids, placeholders expanded to one per visual token.
        positions_3P: (3, P) rotary positions.
        next_position: where every claim starts.
        vision: `pixel_values_videos`, `video_grid_thw`, `second_per_grid_ts`, `pixel_values`, `image_grid_thw`, those
            that apply, as the backbone's forward takes them; or, in place of the pixels, `video_features` and
            `image_features` (tokens of all videos or images in order, hidden).
    """

    ids_P: torch.Tensor
    positions_3P: torch.Tensor
    next_position: int
    vision: dict[str, torch.Tensor]


@dataclass(frozen=True)
class Media:
    """Decoded evidence: frames of each video segment and pixels of each image, in the order of the evidence.

    `sized` says that they have the size the network sees, so that nothing resizes them again: the rule is not always
    its own fixed point. Frames of other making (golden inputs, drawings) are sized by the processor.
    """

    videos: tuple[Frames, ...] = ()
    images_HWC: tuple[np.ndarray, ...] = ()
    sized: bool = False


def read_media(
    evidence: tuple[Evidence, ...],
    sampling: FrameSampling,
    media_root: str | Path | None = None,
    cache: FrameCache | None = None,
) -> Media:
    """Decode what the evidence shows, or take it from the cache.

    `MediaError` names the file; absent media is an error, not an empty clip.
    """
    read = _read_guarded if cache is None else cache.read
    videos, images = [], []
    for e in evidence:
        if isinstance(e, VideoSegment) and e.absent:
            raise MediaError(f"{e.path}: media is marked absent; add the file and rebuild with media: required")
        if isinstance(e, Moving):
            videos.append(read(e, sampling, media_root))
        elif isinstance(e, Image):
            images.append(read(e, sampling, media_root).pixels_FHWC[0])
    return Media(tuple(videos), tuple(images), sized=True)


def _read_guarded(piece: Visual, sampling: FrameSampling, media_root: str | Path | None) -> Frames:
    return guarded(read_media_piece, piece, sampling, media_root, name=fetched(piece, media_root))


class Encoder:
    """Turns evidence and claims into network input, for one processor, prompt, sampling and position rule."""

    def __init__(
        self,
        processor: Any,
        layout: VisionLayout,
        prompt: Prompt,
        sampling: FrameSampling,
        rule: PositionRule = "published",
        max_tokens: int = 8192,
        time_rule: TimeRule = "rounded",
        turns: ChatTurns | None = None,
    ) -> None:
        """`max_tokens` bounds prefix plus one claim; longer prompts are refused, never cut. `turns`: as of `ChatText`.

        Raises:
            ModelInputError: the processor's patches are not the backbone's, or it is a text backbone's and the layout
                is not.
        """
        if layout.sees:
            _check_patches(processor, layout)
        sampling = dataclasses.replace(sampling, side_step=layout.patch_step)
        self.processor, self.layout, self.prompt, self.sampling = processor, layout, prompt, sampling
        self.rule: PositionRule = rule
        self.time_rule: TimeRule = time_rule
        self.tokenizer, self.max_tokens = processor.tokenizer, max_tokens
        self.chat = ChatText(prompt, processor, turns)

    def claim_ids(self, claim: str, context: str | None = None) -> torch.Tensor:
        """(L,) token ids that follow a prefix, up to the verdict position."""
        return self._ids(self.chat.claim(claim, context))

    def check_readable(self, evidence: tuple[Evidence, ...]) -> None:
        """`ModelInputError` if the backbone has no vision tower and the evidence is visual; call it before decoding."""
        shown = next((e for e in evidence if isinstance(e, Visual)), None)
        if shown is not None and not self.layout.sees:
            raise ModelInputError(
                f"evidence: a text backbone reads transcripts and passages only, got {type(shown).__name__} "
                f"{media_name(shown)!r}; give its transcript, or ask a verifier that sees"
            )

    def evidence(self, evidence: tuple[Evidence, ...], media: Media | MediaFeatures) -> EncodedEvidence:
        """Encode a prefix.

        Args:
            evidence: what the claims are judged against.
            media: its decoded frames and images, from `read_media`; or their features, from `VisionFeatures`.

        Raises:
            ModelInputError: text holds the model's control tokens, placeholders and pixels disagree, or a text backbone
                is shown something.
        """
        self.check_readable(evidence)
        vision = media.vision() if isinstance(media, MediaFeatures) else self.pixels(media)
        times_s = vision.pop(PATCH_TIMES, None)
        ids = self._expand(self._ids(self._prefix(evidence, vision.get("video_grid_thw"), times_s)), vision)
        positions, start = mrope_positions(
            ids,
            self.layout,
            image_grids_N3=vision.get("image_grid_thw"),
            video_grids_N3=vision.get("video_grid_thw"),
            seconds_per_grid_N=vision.get("second_per_grid_ts"),
            rule=self.rule,
            time_rule=self.time_rule,
        )
        return EncodedEvidence(ids, positions, start, vision)

    def pixels(self, media: Media) -> dict[str, torch.Tensor]:
        """What the backbone's forward takes of decoded media: pixels, grids and seconds (see `EncodedEvidence`)."""
        if not self.layout.sees and (n_shown := len(media.videos) + len(media.images_HWC)):
            raise ModelInputError(
                f"media: a text backbone takes no pixels, got {n_shown} videos or images; leave them out"
            )
        resize = not media.sized
        return {**self._videos(media.videos, resize), **self._images(media.images_HWC, resize)}

    def count_prefix_tokens(self, evidence: tuple[Evidence, ...], media_root: str | Path | None = None) -> int:
        """`len(evidence(...).ids_P)` without decoding the videos: only their headers are read."""
        self.check_readable(evidence)
        shown = [e for e in evidence if isinstance(e, Visual)]
        n_visual = sum(self.count_visual_tokens(e, media_root) for e in shown)
        return self.count_text_tokens(evidence, media_root) + n_visual

    def count_text_tokens(self, evidence: tuple[Evidence, ...], media_root: str | Path | None = None) -> int:
        """Tokens of a prefix that stand for no video or image; times between the frames of a video are among them."""
        grids, times_s = None, None
        if self.layout.frame_turn and (videos := [e for e in evidence if isinstance(e, Moving)]):
            times = [self._patch_times(self._shown_times(video, media_root)) for video in videos]
            grids = torch.tensor([[len(of_video), 1, 1] for of_video in times])
            times_s = torch.tensor([time_s for of_video in times for time_s in of_video], dtype=torch.float64)
        ids = self._ids(self._prefix(evidence, grids, times_s))
        return int((~torch.isin(ids, torch.tensor([self.layout.image_token_id, self.layout.video_token_id]))).sum())

    def count_visual_tokens(self, piece: Visual, media_root: str | Path | None = None) -> int:
        """Tokens of one video or image, from its header."""
        n_patches, height, width = self.grid(piece, media_root)
        return n_patches * height * width // self.merge_side**2

    def grid(self, piece: Visual, media_root: str | Path | None = None) -> tuple[int, int, int]:
        """Temporal, vertical and horizontal patches of one video or image before merging, from its header."""
        self.check_readable((piece,))
        if isinstance(piece, Image):
            height, width = image_size(piece.path, media_root)
            return self._grid(1, height, width, piece.path)
        if isinstance(piece, FrameFiles):
            height, width = image_size(piece.paths[0], media_root)
            return self._grid(len(frames_shown(piece, self.sampling)), height, width, piece.paths[0])
        info = probe_guarded(piece.path, media_root)
        end_s = info.duration_s if piece.end_s is None else piece.end_s
        n_frames = len(frame_times(piece.start_s, end_s, self.sampling))
        return self._grid(n_frames, info.height, info.width, piece.path)

    @property
    def merge_side(self) -> int:
        """Patches on each side of what becomes one visual token."""
        return self.layout.spatial_merge_size

    def _grid(self, n_frames: int, height: int, width: int, where: str) -> tuple[int, int, int]:
        height, width = target_size(height, width, self.sampling, where)
        n_patches = math.ceil(n_frames / self.processor.video_processor.temporal_patch_size)
        step = self.sampling.side_step
        return n_patches, height // step * self.merge_side, width // step * self.merge_side

    def _prefix(
        self, evidence: tuple[Evidence, ...], grids_N3: torch.Tensor | None, times_s: torch.Tensor | None
    ) -> str:
        """The prefix's text; a video that is written frame by frame with the time of each temporal patch."""
        text = self.chat.prefix(evidence)
        if times_s is None or grids_N3 is None:
            return text
        before, *after = text.split(self.chat.turns.video)
        if len(after) != len(grids_N3):
            raise ModelInputError(
                f"evidence: {len(after)} video placeholders, got pixels for {len(grids_N3)}; "
                "a model must never be asked about pixels it is not given"
            )
        turns = [self.layout.frame_turn.format(seconds=time_s) for time_s in times_s.tolist()]
        for rest, n_patches in zip(after, grids_N3[:, 0].tolist(), strict=True):
            before += "".join(turns[:n_patches]) + rest
            turns = turns[n_patches:]
        return before

    def _shown_times(self, video: VideoSegment | FrameFiles, media_root: str | Path | None) -> np.ndarray:
        return guarded(shown_times, video, self.sampling, media_root, name=fetched(video, media_root))

    def _patch_times(self, times_F: np.ndarray) -> list[float]:
        """When each temporal patch is shown: midway between its first and its last frame, as Qwen3-VL was trained."""
        size = self.processor.video_processor.temporal_patch_size
        parts = [times_F[i : i + size] for i in range(0, len(times_F), size)]
        return [float(part[0] + part[-1]) / 2 for part in parts]

    def check_length(self, evidence: EncodedEvidence, claims: Sequence[torch.Tensor]) -> None:
        """`ModelInputError` if the prefix and any one claim together exceed `max_tokens`; nothing is ever cut."""
        longest = max((len(c) for c in claims), default=0)
        if len(evidence.ids_P) + longest > self.max_tokens:
            raise ModelInputError(
                f"prompt: too long, got {len(evidence.ids_P)} evidence + {longest} claim tokens of at most "
                f"{self.max_tokens}; {_SHORTEN}"
            )

    @property
    def pad_id(self) -> int:
        """Token that fills short rows; masked, so any id would do."""
        return self.tokenizer.pad_token_id

    def _ids(self, text: str) -> torch.Tensor:
        return torch.tensor(self.tokenizer(text, add_special_tokens=False)["input_ids"], dtype=torch.long)

    def _videos(self, videos: tuple[Frames, ...], resize: bool) -> dict[str, torch.Tensor]:
        """Pixels, grids and seconds per temporal patch; one processor call per video, since sizes differ."""
        if not videos:
            return {}
        processor = self.processor.video_processor
        outs = [
            processor(
                videos=[torch.from_numpy(np.ascontiguousarray(v.pixels_FHWC)).permute(0, 3, 1, 2)],
                size=self._size(len(v.times_s) if self.layout.video_budget else 1),
                do_resize=resize,
                do_sample_frames=False,
                cap_pixels_per_frame=False,
                return_tensors="pt",
            )
            for v in videos
        ]
        pixels = {
            "pixel_values_videos": torch.cat([o["pixel_values_videos"] for o in outs]),
            "video_grid_thw": torch.cat([o["video_grid_thw"] for o in outs]),
        }
        if self.layout.frame_turn:
            times_s = [time_s for v in videos for time_s in self._patch_times(v.times_s)]
            return pixels | {PATCH_TIMES: torch.tensor(times_s, dtype=torch.float64)}
        seconds = [seconds_per_grid(v.times_s, processor.temporal_patch_size) for v in videos]
        return pixels | {"second_per_grid_ts": torch.tensor(seconds, dtype=torch.float64)}

    def _images(self, images_HWC: tuple[np.ndarray, ...], resize: bool) -> dict[str, torch.Tensor]:
        if not images_HWC:
            return {}
        out = self.processor.image_processor(
            images=[torch.from_numpy(np.ascontiguousarray(i)).permute(2, 0, 1) for i in images_HWC],
            size=self._size(),
            do_resize=resize,
            return_tensors="pt",
        )
        return {"pixel_values": out["pixel_values"], "image_grid_thw": out["image_grid_thw"]}

    def _size(self, n_frames: int = 1) -> dict[str, int]:
        """The processor's bounds on pixels, of so many frames together."""
        return {
            "shortest_edge": self.sampling.min_pixels * n_frames,
            "longest_edge": self.sampling.max_pixels * n_frames,
        }

    def _expand(self, ids_T: torch.Tensor, vision: dict[str, torch.Tensor]) -> torch.Tensor:
        """Repeat each placeholder once per visual token of its grid."""
        repeats = torch.ones_like(ids_T)
        merge = self.layout.spatial_merge_size**2
        for token, grid in (
            (self.layout.video_token_id, "video_grid_thw"),
            (self.layout.image_token_id, "image_grid_thw"),
        ):
            grids_N3 = vision.get(grid, torch.zeros(0, 3, dtype=torch.long))
            if self.layout.frame_turn and token == self.layout.video_token_id:
                grids_N3 = grids_of_frames(grids_N3)
            n_tokens = grids_N3.prod(-1) // merge
            where = ids_T == token
            if int(where.sum()) != len(n_tokens):
                raise ModelInputError(
                    f"evidence: {int(where.sum())} {grid.split('_')[0]} placeholders, got pixels for {len(n_tokens)}; "
                    "a model must never be asked about pixels it is not given"
                )
            repeats[where] = n_tokens
        return torch.repeat_interleave(ids_T, repeats)


def _check_patches(processor: Any, layout: VisionLayout) -> None:
    if (videos := getattr(processor, "video_processor", None)) is None:
        raise ModelInputError(
            f"processor: a backbone that sees needs one that takes pixels, got a {type(processor).__name__}; "
            "use a whole checkpoint, with its preprocessor_config.json"
        )
    steps = {part.patch_size * part.merge_size for part in (videos, processor.image_processor)}
    if steps != {layout.patch_step}:
        raise ModelInputError(
            f"processor: the network takes pictures in steps of {layout.patch_step} pixels, got {sorted(steps)} of the "
            "processor; use the checkpoint's own preprocessor_config.json"
        )


def seconds_per_grid(times_s: np.ndarray, temporal_patch_size: int) -> float:
    """Seconds between temporal patches, from the real presentation times of the sampled frames.

    Qwen2.5-VL places a temporal patch at (seconds x tokens_per_second); one number per video, so unequal spacing is
    averaged. A single frame has no spacing and counts as one second per frame.
    """
    if len(times_s) < 2:
        return float(temporal_patch_size)
    return float((times_s[-1] - times_s[0]) / (len(times_s) - 1) * temporal_patch_size)
