"""Frames that were sampled already: what a verifier sees of them is what it sees of the clip they came from."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deciding_verifiers import maker
from numbered_clips import HEIGHT, N_FRAMES, WIDTH, encode, number_shown
from PIL import Image as Picture

from proofreel import Frames, VideoSegment
from proofreel.core import MediaError, Pair, Transcript
from proofreel.data_prep.media import FrameCache, FrameSampling, frame_times, frames_shown, read_media_piece
from proofreel.data_prep.media.containers import packet_index
from proofreel.data_prep.media.frames import read_with_pyav
from proofreel.models.engine import VisionFeatures
from proofreel.models.verifier import Verifier

CLAIMS = ["Object is red ball.", "Action is moving left."]
FPS = 10


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip, and every frame of it as a PNG."""
    folder = tmp_path_factory.mktemp("media")
    clip = str(encode(folder / "clip.mp4", fps=FPS))
    for i, pixels_HWC in enumerate(read_with_pyav(clip, packet_index(clip), range(N_FRAMES))):
        Picture.fromarray(pixels_HWC).save(folder / f"{i:04d}.png")
    return folder


def frames_at(numbers: Any, end_s: float | None = None) -> Frames:
    return Frames([f"{i:04d}.png" for i in numbers], [i / FPS for i in numbers], end_s)


def sampled(media: Path, segment: VideoSegment, sampling: FrameSampling) -> Frames:
    """The frames of a segment at the times at which a verifier looks at it."""
    times_s = read_media_piece(segment, sampling, media).times_s
    return dataclasses.replace(frames_at(np.round(times_s * FPS).astype(int).tolist()), times_s=tuple(times_s))


@pytest.fixture(scope="module")
def make(tiny_base: Path, small_sampling: FrameSampling, media: Path) -> Any:
    return maker(tiny_base, small_sampling, media)


@pytest.mark.parametrize("span", [(0.0, 2.0), (1.0, 7.3)])
def test_saved_frames_of_a_clip_give_its_pixels_positions_and_margins(make, media, small_sampling, span):
    verifier: Verifier = make()
    segment = VideoSegment("clip.mp4", *span)
    frames = sampled(media, segment, small_sampling)
    of_clip, of_files = (verifier.reader._encode((piece,)) for piece in (segment, frames))
    assert of_clip.ids_P.equal(of_files.ids_P)
    assert of_clip.positions_3P.equal(of_files.positions_3P)
    assert of_clip.vision.keys() == of_files.vision.keys()
    assert all(of_clip.vision[name].equal(of_files.vision[name]) for name in of_clip.vision)
    assert verifier.score(CLAIMS, frames) == verifier.score(CLAIMS, segment)
    assert verifier.reader.encoder.count_prefix_tokens((frames,), media) == len(of_files.ids_P)


@pytest.mark.parametrize("n", [2, 3, 7, 8, 9, 40, N_FRAMES])
def test_more_frames_than_a_verifier_looks_at_are_thinned_as_a_videos_are(media, n):
    sampling = FrameSampling(fps=100.0, min_frames=2, max_frames=8, min_pixels=28 * 28, max_pixels=WIDTH * HEIGHT)
    frames = frames_at(range(n))
    read = read_media_piece(frames, sampling, media)
    shown = [number_shown(np.asarray(Picture.fromarray(p).resize((WIDTH, HEIGHT)))) for p in read.pixels_FHWC]
    if n <= sampling.max_frames:
        assert shown == list(range(n)), "all of few, also an odd number of them"
    else:
        expected = np.floor(frame_times(0.0, n / FPS, sampling) * FPS + 1e-6).astype(int)
        assert shown == expected.tolist()
        of_clip = read_media_piece(VideoSegment("clip.mp4", 0.0, n / FPS), sampling, media)
        np.testing.assert_array_equal(read.pixels_FHWC, of_clip.pixels_FHWC)
        np.testing.assert_allclose(read.times_s, of_clip.times_s, atol=1e-9)
    np.testing.assert_array_equal(read.times_s, [frames.times_s[i] for i in frames_shown(frames, sampling)])


def test_an_odd_number_of_frames_is_judged_and_counted_as_it_is_encoded(make, media):
    verifier: Verifier = make()
    frames = frames_at([0, 3, 11])
    encoded = verifier.reader._encode((frames,))
    assert encoded.vision["video_grid_thw"][0, 0] == 2
    assert encoded.vision["second_per_grid_ts"].tolist() == pytest.approx([1.1])  # 1.1 s in two steps, two a patch
    assert verifier.reader.encoder.count_prefix_tokens((frames,), media) == len(encoded.ids_P)
    assert all(verdict.error is None for verdict in verifier.score(CLAIMS, frames))


def test_frames_are_kept_by_what_they_hold_and_by_their_times(media, tmp_path, small_sampling):
    cache = FrameCache(tmp_path / "cache", timeout_s=None)
    frames = frames_at([0, 4, 8])
    first = cache.read(frames, small_sampling, media)
    again = cache.read(frames, small_sampling, media)
    assert (cache.decoded, cache.hits) == (1, 1)
    np.testing.assert_array_equal(first.pixels_FHWC, again.pixels_FHWC)
    np.testing.assert_array_equal(first.times_s, again.times_s)
    for other in (frames_at([0, 4, 9]), frames_at([4, 0 + 5, 8]), dataclasses.replace(frames, times_s=(0, 0.5, 0.8))):
        cache.read(other, small_sampling, media)
    assert (cache.decoded, cache.hits) == (4, 1)


def test_features_of_frames_stand_in_for_their_pixels(make, media, tmp_path):
    verifier: Verifier = make()
    reader = verifier.reader
    verifier.model.requires_grad_(False)  # features of a tower that trains would go stale
    features = VisionFeatures(tmp_path / "features", verifier.model, reader.encoder, media_root=media)
    pieces = (frames_at([0, 3, 11]), VideoSegment("clip.mp4", 0.0, 2.0))
    found = features.obtain(pieces, verifier.model)
    n_of_clip = len(read_media_piece(pieces[1], reader.encoder.sampling, media).times_s)
    assert [v.n_frames for v in found.videos] == [3, n_of_clip]
    assert features.obtain(pieces, verifier.model).videos[0].features_TH.equal(found.videos[0].features_TH)
    assert features.computed == 2


def test_long_frames_are_judged_in_the_windows_of_their_clip(make):
    verifier: Verifier = make().with_windowing("max:4:4")
    of_clip = verifier.score(CLAIMS, VideoSegment("clip.mp4"))
    of_files = verifier.score(CLAIMS, frames_at(range(N_FRAMES)))
    for one, other in zip(of_clip, of_files, strict=True):
        assert (one.route, other.route) == ("windows", "windows")
        spans = [np.array([(w.segment.start_s, w.segment.end_s) for w in v.windows], dtype=float) for v in (one, other)]
        np.testing.assert_allclose(spans[0], spans[1], atol=1e-6)
    sparse = frames_at(range(0, N_FRAMES, 50))
    assert verifier.score(CLAIMS, sparse)[0].route == "whole", "windows of one frame or none say nothing"


def test_a_claim_is_located_among_frames(make):
    verifier: Verifier = make()
    frames = frames_at(range(0, N_FRAMES, 5))
    located = verifier.localize(CLAIMS[0], frames, windowing="max:4:4", threshold=0.0)
    assert located.error is None
    assert [(i.start_s, i.end_s) for i in located.intervals] == [(0.0, pytest.approx(12.0))]
    assert located._repr_html_()


def test_speech_stays_beside_the_windows_of_frames_that_it_overlaps(make):
    verifier: Verifier = make().with_windowing("max:4:4")
    evidence = (frames_at(range(N_FRAMES)), Transcript("She takes it.", 1.0, 2.0))
    alone = verifier.score(CLAIMS, frames_at(range(N_FRAMES)))[0].windows
    beside = verifier.score(CLAIMS, evidence)[0].windows
    same = [a.verdict.margin == b.verdict.margin for a, b in zip(alone, beside, strict=True)]
    assert same == [False, True, True]


def test_frames_that_cannot_be_read_fail_by_name(make, media, tmp_path):
    verifier: Verifier = make()
    Picture.new("RGB", (80, 48)).save(media / "small.png")
    (media / "none.png").write_bytes(b"no picture")
    faults = {
        "gone.png": "no such file",
        "small.png": r"80 x 48 pixels at 1 s after 160 x 96",
        "none.png": "not a readable image",
    }
    for name, reason in faults.items():
        verdict = verifier.score(CLAIMS[:1], Frames(["0000.png", name], [0.0, 1.0]))[0]
        assert verdict.error is not None
        assert name in verdict.error
        assert reason in verdict.error
    with pytest.raises(MediaError, match="do not increase"):
        read_media_piece(Frames(["0000.png", "0001.png"], [1.0, 1.0]), verifier.reader.encoder.sampling, media)
    assert "do not increase" in str(verifier.score_pairs([Pair("", CLAIMS[0], (frames_at([3, 2]),))])[0].error)


def test_frames_in_memory_are_stored_and_judged(make, media):
    verifier: Verifier = make()
    frames = frames_at([0, 3, 11])
    opened = [Picture.open(media / path) for path in frames.paths]
    expected = verifier.score(CLAIMS, frames)[0].margin
    for held in (opened, [np.asarray(picture) for picture in opened]):
        assert verifier.score(CLAIMS, Frames(held, frames.times_s))[0].margin == expected
    row = {"claim": CLAIMS[0], "frames": [str(media / p) for p in frames.paths], "times_s": list(frames.times_s)}
    assert verifier.score_pairs([row])[0].margin == pytest.approx(expected, abs=1e-4)
