"""Both position rules, against transformers 5.23 itself and against an independent restatement of the published one."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nightly import only
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from proofreel.core.errors import ModelInputError
from proofreel.models.inputs.encoder import seconds_per_grid
from proofreel.models.inputs.mrope import VisionLayout, claim_positions, mrope_positions, temporal_positions

LAYOUT = VisionLayout(image_token_id=901, video_token_id=902, spatial_merge_size=2, tokens_per_second=2.0)
TEXT, IMAGE, VIDEO = 7, 901, 902


def build(parts):
    """A sequence of text runs, images and videos: ids, image grids, video grids, seconds per grid."""
    ids, images, videos, seconds = [], [], [], []
    for part in parts:
        if part[0] == "text":
            ids += [TEXT] * part[1]
        else:
            kind, (t, h, w), s = part
            ids += [IMAGE if kind == "image" else VIDEO] * (t * h * w)
            (images if kind == "image" else videos).append([t, 2 * h, 2 * w])
            if kind == "video":
                seconds.append(s)
    return ids, images, videos, seconds


def positions(parts, rule):
    ids, images, videos, seconds = build(parts)
    return mrope_positions(
        torch.tensor(ids),
        LAYOUT,
        image_grids_N3=torch.tensor(images).reshape(-1, 3),
        video_grids_N3=torch.tensor(videos).reshape(-1, 3),
        seconds_per_grid_N=torch.tensor(seconds, dtype=torch.float64),
        rule=rule,
    )


def restated_published(parts):
    """The 4.x rule token by token: text counts up, vision adds (second, row, column), text resumes past the maximum."""
    triples, highest = [], -1
    for part in parts:
        start = highest + 1
        if part[0] == "text":
            triples += [(start + i,) * 3 for i in range(part[1])]
        else:
            _, (t, h, w), s = part
            for frame, row, column in itertools.product(range(t), range(h), range(w)):
                second = int(frame * 2.0 * s) if part[0] == "video" else 0
                triples.append((start + second, start + row, start + column))
        highest = max([highest, *(max(x) for x in triples)])
    return torch.tensor(triples).T.reshape(3, -1), highest + 1


text = st.tuples(st.just("text"), st.integers(1, 6))
size = st.integers(1, 4)
image = st.tuples(st.just("image"), st.tuples(st.just(1), size, size), st.just(0.0))
video = st.tuples(st.just("video"), st.tuples(size, size, size), st.sampled_from([0.1, 0.25, 0.5, 1.0, 1.65, 3.0]))
# Text stands between media, as vision_start and vision_end do in every prompt.
sequences = st.lists(st.tuples(text, st.one_of(image, video)), max_size=4).flatmap(
    lambda pairs: text.map(lambda last: [p for pair in pairs for p in pair] + [last])
)


@settings(deadline=None, max_examples=80)
@given(sequences)
def test_published_rule_equals_its_restatement(parts):
    expected, following = restated_published(parts)
    found, start = positions(parts, "published")
    assert torch.equal(found, expected)
    assert start == following


@pytest.fixture(scope="module")
def hf_model(tiny_base):
    with torch.device("meta"):
        return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig.from_pretrained(tiny_base)).model


@settings(deadline=None, max_examples=80)
@given(parts=sequences)
def test_hf5_rule_equals_transformers(hf_model, parts):
    ids, images, videos, seconds = build(parts)
    kinds = torch.tensor([[{TEXT: 0, IMAGE: 1, VIDEO: 2}[i] for i in ids]])
    expected, _ = hf_model.get_rope_index(
        torch.tensor([ids]),
        kinds,
        image_grid_thw=torch.tensor(images).reshape(-1, 3),
        video_grid_thw=torch.tensor(videos).reshape(-1, 3),
        second_per_grid_ts=torch.tensor(seconds, dtype=torch.float64),
    )
    assert torch.equal(positions(parts, "hf5")[0], expected[:, 0])


def test_rules_differ_exactly_when_time_outruns_space():
    long = [("text", 3), ("video", (16, 8, 8), 1.0), ("text", 2)]
    short = [("text", 3), ("video", (2, 8, 8), 1.0), ("text", 2)]
    assert positions(long, "published")[1] == 3 + 31 + 2  # 15 steps of 2 positions each, then text
    assert positions(long, "hf5")[1] == 3 + 8 + 2
    assert torch.equal(positions(short, "published")[0], positions(short, "hf5")[0])


def test_fractions_of_a_second_are_not_lost():
    found, _ = positions([("video", (4, 1, 1), 0.25)], "published")
    assert found[0].tolist() == [0, 0, 1, 1]  # 0, 0.5, 1.0, 1.5 positions, truncated after the product


RATES = [(24, 1), (25, 1), (30, 1), (60, 1), (24_000, 1001), (30_000, 1001), (1000, 1)]  # the last: ticks of Matroska


@pytest.mark.parametrize(("rate", "per"), RATES)
@pytest.mark.parametrize("n_frames", only([4, 64], [4, 6, 16, 34, 64]))
def test_regular_frames_stand_where_exact_arithmetic_puts_them(rate, per, n_frames):
    """Over all starts in the first minutes and an hour later, and all distances of up to two seconds."""
    first_N = np.concatenate([np.arange(400), 3600 * rate // per + np.arange(100)])
    n_grids, wrong = n_frames // 2, 0
    for step in np.unique(np.linspace(1, 2 * rate // per, 60).astype(int)):
        ticks_NF = first_N[:, None] + step * np.array([0, n_frames - 1])
        times_NF = ticks_NF * (per / rate)  # as `packet_index` makes seconds of ticks
        seconds = [seconds_per_grid(np.linspace(times_F[0], times_F[1], n_frames), 2) for times_F in times_NF]
        found_NT = temporal_positions(n_grids, torch.tensor(seconds, dtype=torch.float64), 2.0)
        exact_T = np.arange(n_grids) * 2 * 2 * int(step) * per // rate
        wrong += int((found_NT.numpy() != exact_T).any(1).sum())
    assert wrong == 0


def test_the_older_rule_is_kept_and_puts_some_regular_frames_one_position_early():
    seconds_N = torch.tensor([1.0, 0.9999999999999996], dtype=torch.float64)
    assert temporal_positions(5, seconds_N, 2.0).tolist() == [[0, 2, 4, 6, 8]] * 2
    assert temporal_positions(5, seconds_N, 2.0, "truncated").tolist() == [[0, 2, 4, 6, 8], [0, 1, 3, 5, 7]]


@settings(deadline=None, max_examples=200)
@given(st.floats(1e-3, 60.0), st.floats(-1e-10, 1e-10), st.integers(1, 128))
def test_noise_of_floats_moves_no_frame(seconds, noise, n_grids):
    seconds = round(seconds * 30) / 30  # a distance that regular frames have
    found = temporal_positions(n_grids, torch.tensor([seconds, seconds + noise], dtype=torch.float64), 2.0)
    assert torch.equal(found[0], found[1])


def test_a_claim_continues_as_text_would():
    parts = [("text", 4), ("video", (3, 2, 2), 1.0)]
    _, start = positions(parts, "published")
    whole, _ = positions([*parts, ("text", 5)], "published")
    assert torch.equal(claim_positions(5, start), whole[:, -5:])


@pytest.mark.parametrize(
    ("ids", "grids", "seconds", "message"),
    [
        ([TEXT, VIDEO], [], [], "no grid left"),
        ([TEXT], [[1, 2, 2]], [1.0], "no placeholder tokens"),
        ([VIDEO], [[2, 2, 2]], [1.0], "meets fewer placeholders"),
        ([VIDEO, VIDEO], [[2, 2, 2]], None, "no seconds per grid"),
        ([VIDEO, VIDEO], [[2, 2, 2]], [1.0, 1.0], "one per video"),
    ],
)
def test_disagreement_of_tokens_and_grids_is_an_error(ids, grids, seconds, message):
    with pytest.raises(ModelInputError, match=message):
        mrope_positions(
            torch.tensor(ids),
            LAYOUT,
            video_grids_N3=torch.tensor(grids).reshape(-1, 3),
            seconds_per_grid_N=None if seconds is None else torch.tensor(seconds),
        )


def test_an_unknown_rule_is_refused():
    with pytest.raises(ModelInputError, match="unknown rule"):
        mrope_positions(torch.tensor([TEXT]), LAYOUT, rule="newest")  # type: ignore[arg-type]
    with pytest.raises(ModelInputError, match="unknown time rule"):
        mrope_positions(torch.tensor([TEXT]), LAYOUT, time_rule="newest")  # type: ignore[arg-type]
