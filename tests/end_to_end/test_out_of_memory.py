"""Out of memory: smaller steps give the same margins, fewer frames only if asked, and a failure says what to do.

Memory that runs out is played by a hook that raises torch's own error above a number of tokens in one forward.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from deciding_verifiers import verifier_of
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered_clips import encode

from proofreel.core.errors import RowError
from proofreel.core.pairs import Pair, Passage, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.data_prep.media.frames import FrameSampling
from proofreel.eval.scores import by_verifier
from proofreel.models.backbones.families import vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.engine.batching import HALVED
from proofreel.models.engine.heads import NextToken
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.models.inputs.encoder import Encoder
from proofreel.models.verifier.verifier import Verifier

CLAIMS = [f"Object {i} is {'red ball' if i % 2 else 'moving left'}." for i in range(12)]
PASSAGES = tuple(Passage(f"The ball number {i} is red.") for i in range(6))


@pytest.fixture(scope="module")
def model(tiny_base) -> Any:
    return load_backbone(tiny_base).eval()


@pytest.fixture(scope="module")
def encoder(tiny_base, model) -> Encoder:
    sampling = FrameSampling(fps=2.0, min_frames=4, max_frames=8, min_pixels=24 * 28**2, max_pixels=30 * 28**2)
    return Encoder(load_processor(tiny_base), vision_layout(model.config), Prompt(), sampling)


@pytest.fixture(scope="module")
def clips(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    encode(folder / "clip.mp4", fps=10)
    return folder


@pytest.fixture(scope="module")
def make(model, encoder, clips) -> Any:
    def verifier(**options: Any) -> Verifier:
        words = LabelWords.of(Prompt(), encoder.tokenizer)
        return verifier_of(model, options.pop("encoder", encoder), NextToken(words), media_root=clips, **options)

    return verifier


CLIP = VideoSegment("clip.mp4", 0.0, 4.0)


@dataclasses.dataclass
class Memory:
    """What happened: tokens of each forward that fitted, and how many did not fit."""

    fitted: list[int] = dataclasses.field(default_factory=list)
    ran_out: int = 0


@contextlib.contextmanager
def memory_for(model: Any, n_tokens: int) -> Iterator[Memory]:
    """Raise torch's error where more tokens than these, pads too, enter the text model at once."""
    memory = Memory()

    def enter(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        found = kwargs["inputs_embeds"].shape[:2].numel()
        if found > n_tokens:
            memory.ran_out += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        memory.fitted.append(found)

    hook = model.model.language_model.register_forward_pre_hook(enter, with_kwargs=True)
    try:
        yield memory
    finally:
        hook.remove()


def close(found: Any, expected: Any) -> bool:
    found, expected = np.asarray(found), np.asarray(expected)
    return found.shape == expected.shape and bool((abs(found - expected) <= 1e-4 + 1e-5 * abs(expected)).all())


def margins(verdicts: Any) -> list[float]:
    return [v.margin for v in verdicts]


def tokens(encoder: Encoder, evidence: Any, claim: str) -> int:
    """Of the smallest forward that answers: the prefix and one claim."""
    return encoder.count_prefix_tokens((evidence,)) + len(encoder.claim_ids(claim))


@settings(max_examples=6, deadline=None)
@given(
    asked=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 11)), min_size=1, max_size=20),
    spare=st.integers(0, 400),
    gib=st.sampled_from([0.0, 1.0]),
)
def test_margins_after_halving_are_those_of_an_undisturbed_run(make, model, encoder, asked, spare, gib):
    pairs = [Pair(str(i), CLAIMS[c], (PASSAGES[e],)) for i, (e, c) in enumerate(asked)]
    expected = margins(make(prefix_cache_gib=gib).score_pairs(pairs))
    limit = max(tokens(encoder, PASSAGES[e], CLAIMS[c]) for e, c in asked) + spare
    with memory_for(model, limit) as memory:
        found = make(prefix_cache_gib=gib).score_pairs(pairs)
    assert close(margins(found), expected)
    assert max(memory.fitted) <= limit
    assert all(v.note in (None, HALVED) for v in found)
    assert (memory.ran_out > 0) == any(v.note for v in found)


def test_a_batch_is_halved_and_what_did_not_fit_is_not_tried_again(make, model, encoder):
    pairs = [Pair(str(i), CLAIMS[0], (Passage(f"The ball {i:02} is red."),)) for i in range(32)]
    one = tokens(encoder, pairs[0].evidence[0], CLAIMS[0])
    verifier = make(batch_tokens=8 * one, prefix_cache_gib=0)
    with memory_for(model, 2 * one) as memory:
        found = verifier.score_pairs(pairs)
    assert all(v.error is None and v.note == HALVED for v in found)
    assert memory.ran_out == 2  # eight at once and four at once, each once in the call
    assert len(memory.fitted) == 16


def test_the_claims_about_one_evidence_are_taken_in_smaller_chunks(make, model, encoder):
    expected = make().score(CLAIMS, PASSAGES[0])
    limit = tokens(encoder, PASSAGES[0], CLAIMS[0]) + 3 * len(encoder.claim_ids(CLAIMS[0]))
    with memory_for(model, limit) as memory:
        found = make().score(CLAIMS, PASSAGES[0])
    assert memory.ran_out
    assert close(margins(found), margins(expected))
    assert [v.note for v in expected] == [None] * 12
    assert [v.note for v in found] == [HALVED] * 12


def test_what_does_not_fit_alone_fails_alone_and_says_what_to_do(make, model, encoder):
    limit = tokens(encoder, PASSAGES[0], CLAIMS[0]) + 5
    long = Passage("The ball is red. " * 30)
    pairs = [Pair(str(i), CLAIMS[0], (e,)) for i, e in enumerate([PASSAGES[0], long, CLIP, PASSAGES[1]])]
    with memory_for(model, limit):
        found = make().score_pairs(pairs)
    assert [v.error is None for v in found] == [True, False, False, True]
    assert all(math.isnan(v.margin) and math.isnan(v.p_supported) and v.label is None for v in found[1:3])
    assert "memory: ran out" in (found[1].error or "")
    assert "shrink_frames" not in (found[1].error or "")  # a text has no frames
    assert "shrink_frames=True" in (found[2].error or "")


def test_frames_are_halved_only_if_asked_and_the_answer_is_that_of_a_verifier_that_looks_at_fewer(
    make, model, encoder, clips
):
    whole = make().score(CLAIMS[:3], CLIP)
    few = dataclasses.replace(encoder.sampling, min_frames=4, max_frames=4)
    fewer = Encoder(encoder.processor, encoder.layout, Prompt(), few)
    expected = make(encoder=fewer).score(CLAIMS[:3], CLIP)
    assert not close(margins(whole), margins(expected))
    verifier = make()
    limit = fewer.count_prefix_tokens((CLIP,), clips) + max(len(encoder.claim_ids(c)) for c in CLAIMS[:3])
    assert limit < encoder.count_prefix_tokens((CLIP,), clips)
    with memory_for(model, limit):
        refused = verifier.score(CLAIMS[:3], CLIP)
        found = verifier.score(CLAIMS[:3], CLIP, shrink_frames=True)
    assert all(v.error for v in refused)
    assert close(margins(found), margins(expected))
    assert all(v.note == "memory ran out: judged on at most 4 frames of a video instead of 8" for v in found)
    assert close(margins(verifier.score(CLAIMS[:3], CLIP)), margins(whole))  # no prefix of fewer frames was kept


def test_a_score_over_joint_videos_fails_or_is_judged_on_fewer_frames_and_says_so(make, model, tmp_path, capsys):
    pair = Pair("p", CLAIMS[0], (CLIP, VideoSegment("clip.mp4", 1.0, 5.0)))
    both = make()
    n_tokens = both.encoder.count_prefix_tokens(pair.evidence, both.media_root)
    with memory_for(model, n_tokens - 1):
        failed = by_verifier(make(), tmp_path / "failed.parquet")([pair]).of["p"]
        for out in (None, tmp_path / "halved.parquet"):
            assert by_verifier(make(), out, shrink_frames=True)([pair]).of["p"].supported is not None
    assert "shrink_frames=True" in (failed.error or "")
    assert "1 claims, the first: memory ran out: judged on at most 4 frames" in capsys.readouterr().err
    with pytest.raises(RowError, match="shrink_frames"):
        by_verifier(make(), tmp_path / "halved.parquet")([pair])


def test_frames_are_not_halved_below_a_pair(make, model):
    with memory_for(model, 10) as memory:
        found = make().score(CLAIMS[:1], CLIP, shrink_frames=True)
    assert "give less evidence" in (found[0].error or "")
    assert memory.ran_out == 3  # at 8, 4 and 2 frames


def test_kept_prefixes_are_given_back_before_the_next_try(make, model):
    verifier = make()
    verifier.score(CLAIMS[:2], PASSAGES[1])
    verifier.score(CLAIMS[:2], PASSAGES[2])
    assert len(verifier.prefixes) == 2
    with memory_for(model, 10):
        verifier.score(CLAIMS[:1], PASSAGES[0])
    assert len(verifier.prefixes) == 0


@pytest.mark.parametrize("times", [1, 99])
def test_memory_that_runs_out_in_a_reading_thread_is_tried_again_and_fails_its_segment_only(
    make, model, tmp_path, times
):
    left = iter(range(times))

    def fail(*args: Any) -> None:
        if next(left, None) is not None:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    pairs = [Pair(str(i), CLAIMS[i], (e,)) for i, e in enumerate([CLIP, PASSAGES[0], CLIP])]
    pairs.append(Pair("3", "", (CLIP,)))
    expected = make().score_pairs(pairs)
    hook = model.model.visual.register_forward_pre_hook(fail)
    try:
        found = make(vision_cache=tmp_path).score_pairs(pairs)
    finally:
        hook.remove()
    assert found[1].error is None
    assert "empty" in (found[3].error or "")
    if times == 1:
        assert close(margins(found[:3]), margins(expected[:3]))
    else:
        assert all("memory: ran out" in (found[i].error or "") for i in (0, 2))


def test_another_error_is_not_taken_for_a_lack_of_memory(make, model):
    def fail(*args: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    hook = model.model.language_model.register_forward_pre_hook(fail)
    try:
        with pytest.raises(RuntimeError, match="illegal"):
            make().score(CLAIMS[:2], PASSAGES[0])
    finally:
        hook.remove()
