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
    Audio,
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
    Sound,
    count_samples,
    fetched,
    frame_times,
    frames_shown,
    guarded,
    image_size,
    probe_guarded,
    read_media_piece,
    read_sound,
    shown_times,
    target_size,
)
from .chat_template import ChatTurns
from .chat_text import ChatText
from .features import PATCH_TIMES, MediaFeatures
from .mrope import (
    PositionRule,
    TimeRule,
    VisionLayout,
    in_chunks,
    mrope_positions,
    temporal_positions,
)
from .patches import only_normalises, patchify
from .sound import audio_tokens, heard, log_mel, mel_frames, silent

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
            `image_features` (tokens of all videos or images in order, hidden). Of sounds `audio_values` (frames of all
            in order, mel bins) or `audio_features` (tokens, hidden), and `audio_frames` (how many frames each has).
        notes: what was out of the ordinary, such as a sound that is silent; each names its file.
    """

    ids_P: torch.Tensor
    positions_3P: torch.Tensor
    next_position: int
    vision: dict[str, torch.Tensor]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Media:
    """Decoded evidence: frames of each video segment, pixels of each image, sounds; in the order of the evidence.

    A video that is heard has its sound among `sounds`, at its place.

    `sized` says that they have the size the network sees, so that nothing resizes them again: the rule is not always
    its own fixed point. Frames of other making (golden inputs, drawings) are sized by the processor.
    """

    videos: tuple[Frames, ...] = ()
    images_HWC: tuple[np.ndarray, ...] = ()
    sized: bool = False
    sounds: tuple[Sound, ...] = ()


def read_media(
    evidence: tuple[Evidence, ...],
    sampling: FrameSampling,
    media_root: str | Path | None = None,
    cache: FrameCache | None = None,
) -> Media:
    """Decode what the evidence shows and lets hear, or take it from the cache.

    `MediaError` names the file; absent media is an error, not an empty clip.
    """
    read = _read_guarded if cache is None else cache.read
    videos, images = [], []
    for e in evidence:
        if isinstance(e, VideoSegment) and e.absent:
            raise MediaError(f"{e.path}: media is marked absent; add the file and rebuild with media: required")
        if isinstance(e, Moving):
            videos.append(read(silent(e), sampling, media_root))
        elif isinstance(e, Image):
            images.append(read(e, sampling, media_root).pixels_FHWC[0])
    sounds = tuple(_read_sound(piece, media_root) for piece in heard(evidence))
    return Media(tuple(videos), tuple(images), sized=True, sounds=sounds)


def _read_guarded(piece: Visual, sampling: FrameSampling, media_root: str | Path | None) -> Frames:
    return guarded(read_media_piece, piece, sampling, media_root, name=fetched(piece, media_root))


def _read_sound(piece: Audio, media_root: str | Path | None) -> Sound:
    return guarded(read_sound, piece, media_root, name=fetched(piece, media_root))


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
        """`ModelInputError` if the backbone lacks a tower that the evidence needs; call it before decoding."""
        shown = next((e for e in evidence if isinstance(e, Visual)), None)
        if shown is not None and not self.layout.sees:
            raise ModelInputError(
                f"evidence: a text backbone reads transcripts and passages only, got {type(shown).__name__} "
                f"{media_name(shown)!r}; give its transcript, or ask a verifier that sees"
            )
        if not self.layout.hears and (sounds := heard(evidence)):
            kind = "sees but hears nothing" if self.layout.sees else "reads transcripts and passages only"
            raise ModelInputError(
                f"evidence: this backbone {kind}, got the sound of {media_name(sounds[0])!r}; give its transcript, "
                "leave out a video's sound, or ask a verifier that hears (Qwen2.5-Omni)"
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
        text = self._prefix(evidence, vision.get("video_grid_thw"), times_s)
        ids = self._expand(self._ids(text), vision, evidence)
        n_audio = [audio_tokens(n) for n in vision["audio_frames"].tolist()] if "audio_frames" in vision else []
        positions, start = mrope_positions(
            ids,
            self.layout,
            image_grids_N3=vision.get("image_grid_thw"),
            video_grids_N3=vision.get("video_grid_thw"),
            seconds_per_grid_N=vision.get("second_per_grid_ts"),
            audio_tokens_N=torch.tensor(n_audio, dtype=torch.long),
            rule=self.rule,
            time_rule=self.time_rule,
        )
        of_sounds = zip(heard(evidence), media.sounds, strict=True)
        notes = tuple(f"{piece.path}: {sound.note}" for piece, sound in of_sounds if sound.note)
        return EncodedEvidence(ids, positions, start, vision, notes)

    def unexpanded_ids(self, evidence: tuple[Evidence, ...]) -> torch.Tensor:
        """Token ids of a prefix with one placeholder for each video, image or sound, as other engines take it."""
        return self._ids(self.chat.prefix(evidence))

    def pixels(self, media: Media) -> dict[str, torch.Tensor]:
        """What the backbone's forward takes of decoded media: pixels, grids and seconds (see `EncodedEvidence`)."""
        if not self.layout.sees and (n_shown := len(media.videos) + len(media.images_HWC)):
            raise ModelInputError(
                f"media: a text backbone takes no pixels, got {n_shown} videos or images; leave them out"
            )
        if media.sounds and not self.layout.hears:
            raise ModelInputError(
                f"media: a backbone that hears nothing, got {len(media.sounds)} sounds; leave them out"
            )
        resize = not media.sized
        shown = {**self._videos(media.videos, resize), **self._images(media.images_HWC, resize)}
        return {**shown, **self._sounds(media.sounds)}

    def count_prefix_tokens(self, evidence: tuple[Evidence, ...], media_root: str | Path | None = None) -> int:
        """`len(evidence(...).ids_P)` without decoding the videos: only their headers are read."""
        self.check_readable(evidence)
        shown = [e for e in evidence if isinstance(e, Visual)]
        n_visual = sum(self.count_visual_tokens(e, media_root) for e in shown)
        n_audio = sum(self.count_audio_tokens(e, media_root) for e in heard(evidence))
        return self.count_text_tokens(evidence, media_root) + n_visual + n_audio

    def count_text_tokens(self, evidence: tuple[Evidence, ...], media_root: str | Path | None = None) -> int:
        """Tokens of a prefix that stand for no video, image or sound; times between frames are among them."""
        grids, times_s = None, None
        if self.layout.frame_turn and (videos := [e for e in evidence if isinstance(e, Moving)]):
            times = [self._patch_times(self._shown_times(video, media_root)) for video in videos]
            grids = torch.tensor([[len(of_video), 1, 1] for of_video in times])
            times_s = torch.tensor([time_s for of_video in times for time_s in of_video], dtype=torch.float64)
        ids = self._ids(self._prefix(evidence, grids, times_s))
        layout = self.layout
        media = torch.tensor([layout.image_token_id, layout.video_token_id, layout.audio_token_id])
        ends = 2 * sum(isinstance(e, VideoSegment) and e.sound for e in evidence)  # around the sound of a video
        return int((~torch.isin(ids, media)).sum()) + ends

    def count_visual_tokens(self, piece: Visual, media_root: str | Path | None = None) -> int:
        """Tokens of one video or image, from its header."""
        n_patches, height, width = self.grid(piece, media_root)
        return n_patches * height * width // self.merge_side**2

    def count_audio_tokens(self, sound: Audio, media_root: str | Path | None = None) -> int:
        """Tokens of a sound, from its header."""
        self.check_readable((sound,))
        n_samples = guarded(count_samples, sound, media_root, name=fetched(sound, media_root))
        return audio_tokens(mel_frames(n_samples, self.processor.feature_extractor))

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
            raise _blind("video", len(after), len(grids_N3))
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
        patches, grids = zip(*(self._video(v, resize) for v in videos), strict=True)
        pixels = {"pixel_values_videos": _joined(patches), "video_grid_thw": torch.cat(grids)}
        if self.layout.frame_turn:
            times_s = [time_s for v in videos for time_s in self._patch_times(v.times_s)]
            return pixels | {PATCH_TIMES: torch.tensor(times_s, dtype=torch.float64)}
        seconds = [seconds_per_grid(v.times_s, self.processor.video_processor.temporal_patch_size) for v in videos]
        return pixels | {"second_per_grid_ts": torch.tensor(seconds, dtype=torch.float64)}

    def _video(self, video: Frames, resize: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Patches of one video and their grid (1, 3)."""
        processor = self.processor.video_processor
        if not resize and only_normalises(processor):
            return patchify(video.pixels_FHWC, processor)
        out = processor(
            videos=[torch.from_numpy(np.ascontiguousarray(video.pixels_FHWC)).permute(0, 3, 1, 2)],
            size=self._size(len(video.times_s) if self.layout.video_budget else 1),
            do_resize=resize,
            do_sample_frames=False,
            cap_pixels_per_frame=False,
            return_tensors="pt",
        )
        return out["pixel_values_videos"], out["video_grid_thw"]

    def _images(self, images_HWC: tuple[np.ndarray, ...], resize: bool) -> dict[str, torch.Tensor]:
        if not images_HWC:
            return {}
        processor = self.processor.image_processor
        if not resize and only_normalises(processor):
            patches, grids = zip(*(patchify(image[None], processor) for image in images_HWC), strict=True)
            return {"pixel_values": _joined(patches), "image_grid_thw": torch.cat(grids)}
        out = processor(
            images=[torch.from_numpy(np.ascontiguousarray(i)).permute(2, 0, 1) for i in images_HWC],
            size=self._size(),
            do_resize=resize,
            return_tensors="pt",
        )
        return {"pixel_values": out["pixel_values"], "image_grid_thw": out["image_grid_thw"]}

    def _sounds(self, sounds: tuple[Sound, ...]) -> dict[str, torch.Tensor]:
        if not sounds:
            return {}
        frames = [log_mel(self.processor.feature_extractor, sound.samples_N) for sound in sounds]
        return {"audio_values": torch.cat(frames), "audio_frames": torch.tensor([len(each) for each in frames])}

    def _size(self, n_frames: int = 1) -> dict[str, int]:
        """The processor's bounds on pixels, of so many frames together."""
        return {
            "shortest_edge": self.sampling.min_pixels * n_frames,
            "longest_edge": self.sampling.max_pixels * n_frames,
        }

    def _expand(
        self, ids_T: torch.Tensor, vision: dict[str, torch.Tensor], evidence: tuple[Evidence, ...]
    ) -> torch.Tensor:
        """In the place of each placeholder, the tokens of what stands there."""
        runs = self._runs(vision, evidence)
        parts, first = [], 0
        for i in torch.isin(ids_T, torch.tensor(list(runs))).nonzero()[:, 0].tolist():
            if not (of_kind := runs[int(ids_T[i])]):
                raise _blind("further", 1, 0)
            parts += [ids_T[first:i], of_kind.pop(0)]
            first = i + 1
        if left := sum(map(len, runs.values())):
            raise _blind("no", 0, left)
        return torch.cat([*parts, ids_T[first:]])

    def _runs(self, vision: dict[str, torch.Tensor], evidence: tuple[Evidence, ...]) -> dict[int, list[torch.Tensor]]:
        """By placeholder, the tokens of each piece in order; those of a video that is heard hold its sound's."""
        layout, merge = self.layout, self.layout.spatial_merge_size**2
        grids = {
            kind: vision.get(f"{kind}_grid_thw", torch.zeros(0, 3, dtype=torch.long)) for kind in ("video", "image")
        }
        sounds = [audio_tokens(n) for n in vision["audio_frames"].tolist()] if "audio_frames" in vision else []
        videos = [e for e in evidence if isinstance(e, Moving)]
        for kind, n_named, n_given in (
            ("video", len(videos), len(grids["video"])),
            ("image", sum(isinstance(e, Image) for e in evidence), len(grids["image"])),
            ("sound", len(heard(evidence)), len(sounds)),
        ):
            if n_named != n_given:
                raise _blind(kind, n_named, n_given)
        own = iter(sounds)  # in the order of the evidence, as `heard` has them
        image, video, audio = layout.image_token_id, layout.video_token_id, layout.audio_token_id
        runs = {image: [_repeated(image, int(grid.prod()) // merge) for grid in grids["image"]], video: [], audio: []}
        video_grids = iter(grids["video"])
        seconds = iter(vision.get("second_per_grid_ts", ()))
        for e in evidence:
            n_audio = next(own) if heard((e,)) else None
            if isinstance(e, Audio):
                runs[audio].append(_repeated(audio, n_audio or 0))
            if not isinstance(e, Moving):
                continue
            grid, seconds_per_grid = next(video_grids), next(seconds, None)
            n_tokens, n_patches = int(grid.prod()) // merge, int(grid[0])
            if layout.frame_turn:
                runs[video] += [_repeated(video, n_tokens // n_patches)] * n_patches
            elif n_audio is not None and seconds_per_grid is not None:
                runs[video].append(self._sounded(grid, seconds_per_grid[None], n_audio))
            else:
                runs[video].append(_repeated(video, n_tokens))
        return runs

    def _sounded(self, grid: torch.Tensor, seconds_N: torch.Tensor, n_audio: int) -> torch.Tensor:
        """Tokens of a video with its sound, in chunks, and those of the sound's start and end around them."""
        layout, n_patches = self.layout, int(grid[0])
        time_T = temporal_positions(n_patches, seconds_N, layout.tokens_per_second, self.time_rule)[0]
        time_T = time_T.repeat_interleave(int(grid[1:].prod()) // layout.spatial_merge_size**2)
        order = torch.cat(in_chunks(time_T, n_audio, layout))
        ids = torch.where(order < len(time_T), layout.video_token_id, layout.audio_token_id)
        return torch.cat([torch.tensor([layout.audio_start_id]), ids, torch.tensor([layout.audio_end_id])])


def _joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _repeated(token_id: int, n_tokens: int) -> torch.Tensor:
    return torch.full((n_tokens,), token_id)


def _blind(kind: str, n_named: int, n_given: int) -> ModelInputError:
    given = "sounds" if kind == "sound" else "pixels"
    return ModelInputError(
        f"evidence: {n_named} {kind} placeholders, got {given} for {n_given}; "
        "a model must never be asked about pixels it is not given"
    )


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
