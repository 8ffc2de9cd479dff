"""M-RoPE positions for a prefix of text, images and videos, and for claims that each restart after it.

We compute positions ourselves and pass them in every call, because library releases disagree on where text resumes
after a video (docs/positions.md). Two rules:

- ``published``: text resumes one past the largest of the temporal, height and width positions. This is what
  transformers 4.x and vLLM do, so it is how released checkpoints were trained and are served. The default.
- ``hf5``: text resumes after max(height, width) and ignores time, as transformers 5.23's `get_rope_index` does.

Temporal positions are seconds times `tokens_per_second`, made whole after the product (Qwen2.5-VL's absolute time):

- ``rounded``: to a millionth of a position, then down. Seconds per grid are an average in floats: 0.9999999999999996 s
  are one second. The default.
- ``truncated``: down at once, as releases that wrote schemas 1.0 and 1.1 did. Their directories keep it.

Shape suffixes: _T tokens, _3T the three rotary axes (time, height, width) by tokens, _N3 grids by (t, h, w).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch

from ...core import ModelInputError
from ...data_prep.media import SIDE_STEP

PositionRule = Literal["published", "hf5"]
POSITION_RULES: tuple[PositionRule, ...] = ("published", "hf5")

Branches = Literal["packed", "copied"]

TimeRule = Literal["rounded", "truncated"]
TIME_RULES: tuple[TimeRule, ...] = ("rounded", "truncated")

_PARTS = 10**6  # of a position, above the noise of float64 in a day of video, below the tick of a container


@dataclass(frozen=True)
class VisionLayout:
    """How a backbone turns pictures into tokens and positions.

    Attributes:
        image_token_id, video_token_id: the placeholders.
        spatial_merge_size: patches along each side of the square that becomes one token.
        tokens_per_second: temporal positions in a second; 0 where time is written as text.
        patch_step: pixels along each side of that square; pictures are sized in multiples of it.
        frame_turn: where a video is written frame by frame, each temporal patch with its own run of placeholders: the
            text of one, with `{seconds}` for its time. Empty where a video is one run.
        levels: feature maps of the tower per visual token: what leaves its merger, then those of inner layers that are
            added to the first layers of the language model (DeepStack, arXiv 2406.04334).
        video_budget: the processor's bounds on pixels are those of a whole video, not of a frame.
        audio_token_id: the placeholder of a sound; negative where the backbone hears nothing.
        audio_start_id, audio_end_id: what stands around the placeholders of a sound, also of one that a video has.
        seconds_per_chunk: of a video with its sound, which is written as a chunk of pictures, what is heard in it, the
            next chunk, and so on.
        branches: how claims follow their evidence: as packed rows, or each from a copy of what the network holds.
    """

    image_token_id: int
    video_token_id: int
    spatial_merge_size: int
    tokens_per_second: float = 0.0
    patch_step: int = SIDE_STEP
    frame_turn: str = ""
    levels: int = 1
    video_budget: bool = False
    audio_token_id: int = -3
    audio_start_id: int = -4
    audio_end_id: int = -5
    seconds_per_chunk: float = 0.0
    branches: Branches = "packed"

    @property
    def hears(self) -> bool:
        """Whether the backbone has placeholders of sounds."""
        return self.audio_token_id >= 0

    @property
    def sees(self) -> bool:
        """Whether the backbone has placeholders at all. One without takes the one position of text per token."""
        return self.image_token_id >= 0


# Token ids are never negative, so nothing in a prompt is a placeholder.
TEXT_LAYOUT = VisionLayout(image_token_id=-1, video_token_id=-2, spatial_merge_size=1)
"""Of a text backbone."""


def mrope_positions(
    ids_T: torch.Tensor,
    layout: VisionLayout,
    *,
    image_grids_N3: torch.Tensor | None = None,
    video_grids_N3: torch.Tensor | None = None,
    seconds_per_grid_N: torch.Tensor | None = None,
    audio_tokens_N: torch.Tensor | None = None,
    rule: PositionRule = "published",
    time_rule: TimeRule = "rounded",
) -> tuple[torch.Tensor, int]:
    """Rotary positions of one sequence.

    Args:
        ids_T: (T,) token ids; every run of placeholder tokens belongs to the next image or video in order.
        layout: the backbone's placeholders and merge sizes.
        image_grids_N3: (images, 3) patches in time (1), height and width, before merging.
        video_grids_N3: (videos, 3) likewise.
        seconds_per_grid_N: (videos,) seconds between neighbouring temporal patches, from the real frame times. Not
            needed where a video is written frame by frame: every temporal patch then stands like an image.
        audio_tokens_N: (sounds,) placeholder tokens of each sound, those of videos among them, in order.
        rule: where text resumes after a video without sound.
        time_rule: how a temporal position becomes whole.

    Returns:
        (3, T) int64 positions, and the position the next text token takes.

    Raises:
        ModelInputError: placeholders and grids do not match, or a video has no seconds per grid.
    """
    if rule not in POSITION_RULES:
        raise ModelInputError(f"positions: unknown rule, got {rule!r}; use one of {list(POSITION_RULES)}")
    if time_rule not in TIME_RULES:
        raise ModelInputError(f"positions: unknown time rule, got {time_rule!r}; use one of {list(TIME_RULES)}")
    if layout.frame_turn and video_grids_N3 is not None:
        video_grids_N3 = grids_of_frames(video_grids_N3)
    grids = {
        layout.image_token_id: _grid_queue(image_grids_N3, None),
        layout.video_token_id: _grid_queue(video_grids_N3, seconds_per_grid_N),
    }
    sounds = [] if audio_tokens_N is None else audio_tokens_N.tolist()
    media = {*grids, layout.audio_token_id}
    parts: list[torch.Tensor] = []
    ids, start, i = ids_T.tolist(), 0, 0
    while i < len(ids):
        if ids[i] in media and not (sounds if ids[i] == layout.audio_token_id else grids[ids[i]]):
            raise ModelInputError(
                f"positions: placeholder {ids[i]} at token {i} has no grid left; pass its pixels, or the sound's length"
            )
        if ids[i] == layout.audio_token_id:
            n_tokens = sounds.pop(0)
            part = (torch.arange(n_tokens) + start).expand(3, -1)
            _check_run(ids, i, n_tokens)
            start += n_tokens
        elif ids[i] == layout.video_token_id and i and ids[i - 1] == layout.audio_start_id:
            if not sounds:
                raise ModelInputError(
                    f"positions: a video with its sound at token {i} has no sound left; pass its length"
                )
            parts[-1] = parts[-1].clone()
            parts[-1][:, -1] -= 1  # both starts, of the video and of its sound, stand at one position
            grid = grids[layout.video_token_id].pop(0)
            part, start = _sounded_block(*grid, sounds.pop(0), start - 1, layout, time_rule)
            n_tokens = part.shape[1]
            if ids[i + n_tokens - 2 : i + n_tokens - 1] != [layout.audio_end_id]:
                raise ModelInputError(f"positions: a video with its sound meets other placeholders, from token {i} on")
        elif ids[i] in grids:
            part, n_tokens, start = _vision_block(*grids[ids[i]].pop(0), start, layout, rule, time_rule)
            _check_run(ids, i, n_tokens)
        else:
            n_tokens = next((j for j in range(i, len(ids)) if ids[j] in media), len(ids)) - i
            part = (torch.arange(n_tokens) + start).expand(3, -1)
            start += n_tokens
        parts.append(part)
        i += n_tokens
    if left := len(sounds) + sum(len(queue) for queue in grids.values()):
        raise ModelInputError(
            f"positions: {left} images, videos or sounds have no placeholder tokens; render them in the prompt"
        )
    return torch.cat(parts, 1) if parts else torch.zeros(3, 0, dtype=torch.long), start


def in_chunks(time_T: torch.Tensor, n_audio: int, layout: VisionLayout) -> list[torch.Tensor]:
    """A video with its sound in the order in which it is written: runs of token numbers, a chunk's pictures first.

    Args:
        time_T: (T,) positions in time of the video's tokens, from its start.
        n_audio: tokens of its sound, each one position long; they are numbered from T on.
        layout: of the backbone.
    """
    length = int(layout.tokens_per_second * layout.seconds_per_chunk)
    pictures = _runs(time_T.tolist(), length)
    sounds = _runs(list(range(n_audio)), length)
    runs = []
    for j in range(max(len(pictures), len(sounds))):
        runs += [torch.arange(*pictures[j])] if j < len(pictures) else []
        runs += [torch.arange(*sounds[j]) + len(time_T)] if j < len(sounds) else []
    return runs


def _runs(times: list[int], length: int) -> list[tuple[int, int]]:
    """Where tokens at increasing times are cut into chunks: at the first that lies beyond the end of its chunk.

    As the family's own code does it: one chunk ends at most at each token, so that a step longer than a chunk, of
    frames more than `seconds_per_chunk` apart, lets later tokens catch up one by one.
    """
    cuts = [0]
    for i, time in enumerate(times):
        if time >= len(cuts) * length:
            cuts.append(i)
    return list(pairwise([*cuts, len(times)]))


def grids_of_frames(grids_N3: torch.Tensor) -> torch.Tensor:
    """(temporal patches of all videos, 3): a grid for each of them, in order."""
    grids_F3 = torch.repeat_interleave(grids_N3, grids_N3[:, 0], dim=0)
    grids_F3[:, 0] = 1
    return grids_F3


def claim_positions(n_tokens: int, start: int) -> torch.Tensor:
    """(3, n_tokens) positions of a claim that follows a prefix whose next position is `start`."""
    return (torch.arange(n_tokens) + start).expand(3, -1)


def temporal_positions(
    n_grids: int, seconds_per_grid_N: torch.Tensor, tokens_per_second: float, time_rule: TimeRule = "rounded"
) -> torch.Tensor:
    """(N, n_grids) int64 positions in time of the grids of N videos, from the start of each.

    Args:
        n_grids: temporal patches of every one of the videos.
        seconds_per_grid_N: (N,) float64 seconds between neighbouring patches.
        tokens_per_second: positions in a second.
        time_rule: how a position becomes whole.
    """
    # Float64 product first, made whole last: casting the seconds first would put all frames of a fast clip at 0.
    time_NT = torch.arange(n_grids, dtype=torch.float64) * (tokens_per_second * seconds_per_grid_N)[:, None]
    return time_NT.long() if time_rule == "truncated" else (time_NT * _PARTS).round().long() // _PARTS


def _grid_queue(grids_N3: torch.Tensor | None, seconds_N: torch.Tensor | None) -> list[tuple[list[int], float | None]]:
    grids = [] if grids_N3 is None else grids_N3.tolist()
    seconds: list[float | None] = [None] * len(grids) if seconds_N is None else list(seconds_N.tolist())
    if len(seconds) != len(grids):
        raise ModelInputError(f"positions: {len(grids)} grids but {len(seconds)} seconds per grid; give one per video")
    return list(zip(grids, seconds, strict=True))


def _check_run(ids: list[int], i: int, n_tokens: int) -> None:
    if ids[i : i + n_tokens] != [ids[i]] * n_tokens:
        raise ModelInputError(f"positions: a piece of {n_tokens} tokens meets fewer placeholders at token {i}")


def _sounded_block(
    grid: list[int], seconds: float | None, n_audio: int, start: int, layout: VisionLayout, time_rule: TimeRule
) -> tuple[torch.Tensor, int]:
    """Positions of a video with its sound and of the two ends after it, and where text resumes.

    Both ends stand at one position, behind the last chunk, which need not hold the largest position: so the family was
    trained.
    """
    video, _, _ = _vision_block(grid, seconds, start, layout, "published", time_rule)
    audio = (torch.arange(n_audio) + start).expand(3, -1)
    runs = in_chunks(video[0] - start, n_audio, layout)
    block = torch.cat([video, audio], 1)
    end = int(block[:, runs[-1]].max()) + 1
    return torch.cat([block[:, torch.cat(runs)], torch.full((3, 2), end)], 1), end + 1


def _vision_block(
    grid: list[int],
    seconds: float | None,
    start: int,
    layout: VisionLayout,
    rule: PositionRule,
    time_rule: TimeRule,
) -> tuple[torch.Tensor, int, int]:
    """Positions of one image or video, its token count, and where text resumes."""
    t, h, w = grid[0], grid[1] // layout.spatial_merge_size, grid[2] // layout.spatial_merge_size
    if t > 1 and seconds is None:
        raise ModelInputError("positions: a video has no seconds per grid, got None; pass its real frame times")
    seconds_N = torch.tensor([seconds or 0.0], dtype=torch.float64)
    time_NT = temporal_positions(t, seconds_N, layout.tokens_per_second, time_rule)
    axes = torch.meshgrid(time_NT[0], torch.arange(h), torch.arange(w), indexing="ij")
    block = torch.stack(axes).reshape(3, -1) + start
    resume = int(block.max()) + 1 if rule == "published" else start + max(h, w)
    return block, t * h * w, resume
