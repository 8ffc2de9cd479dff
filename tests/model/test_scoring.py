"""Scoring on a shared prefix: chunks, kept prefixes, batches and threads change no margin and do no work twice."""

import contextlib
import dataclasses
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from deciding_verifiers import verifier_of
from hypothesis import given, settings
from hypothesis import strategies as st
from nightly import FAMILIES, first_of
from numbered_clips import encode

from proofreel.core.errors import ConfigError, ModelInputError
from proofreel.core.pairs import Image, Pair, Passage, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.data_prep.media.frame_cache import FrameCache
from proofreel.models.backbones.families import vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.backbones.lora import attach_lora
from proofreel.models.engine import packing
from proofreel.models.engine.batching import BatchScorer
from proofreel.models.engine.forward import margins
from proofreel.models.engine.heads import NextToken
from proofreel.models.engine.packing import collate, pack
from proofreel.models.engine.prefix_cache import PrefixCache
from proofreel.models.engine.scorer import PrefixScorer, Segment
from proofreel.models.engine.segments import ReadGroup
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.models.inputs.encoder import EncodedEvidence, Encoder, Media
from proofreel.models.verifier.verifier import Verifier

VIDEO = (VideoSegment("a.mp4", 0.0, 4.0),)
MIXED = (Passage("It moves."), VideoSegment("a.mp4", 0.0, 2.0), Image("b.png"), VideoSegment("c.mp4", 0.0, 4.0))
WORDS = ["red ball", "moving left", "a long grey table", "no", "blue", "the far end of the room", "two"]
CLAIMS = [f"Object {i} is {WORDS[i % len(WORDS)]}." for i in range(40)]


@pytest.fixture(scope="module", params=first_of(FAMILIES))
def tiny_base(request, tiny_of):
    return tiny_of(request.param)


@pytest.fixture(scope="module")
def encoder(tiny_base, small_sampling) -> Encoder:
    return Encoder(load_processor(tiny_base), vision_layout(load_backbone(tiny_base).config), Prompt(), small_sampling)


@pytest.fixture(scope="module")
def words(encoder) -> LabelWords:
    return LabelWords.of(Prompt(), encoder.tokenizer)


@pytest.fixture
def model(tiny_base) -> Any:
    return load_backbone(tiny_base).eval()


@pytest.fixture(scope="module")
def clips(tmp_path_factory) -> Path:
    """Three clips of different lengths."""
    folder = tmp_path_factory.mktemp("clips")
    for i, fps in enumerate((10, 15, 20)):
        encode(folder / f"clip{i}.mp4", fps=fps)
    return folder


@pytest.fixture
def make_scorer(model, encoder, words):
    def make(gib: float = 1.0, **limits: int) -> PrefixScorer:
        return PrefixScorer(model, NextToken(words), encoder.layout, encoder.pad_id, PrefixCache(gib), **limits)

    return make


@pytest.fixture
def make_verifier(model, encoder, words, clips):
    def make(**options: Any) -> Verifier:
        return verifier_of(model, encoder, NextToken(words), media_root=clips, **options)

    return make


@dataclasses.dataclass
class Work:
    """What the network was given to do."""

    tokens: int = 0
    forwards: int = 0
    towers: int = 0


@contextlib.contextmanager
def counted(model: Any) -> Iterator[Work]:
    """Count tokens (pads too) that enter the text model, and runs of the vision tower."""
    work = Work()

    def text(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        work.tokens += kwargs["inputs_embeds"].shape[:2].numel()
        work.forwards += 1

    def vision(module: Any, args: Any) -> None:
        work.towers += 1

    hooks = [
        model.model.language_model.register_forward_pre_hook(text, with_kwargs=True),
        model.model.visual.register_forward_pre_hook(vision),
    ]
    try:
        yield work
    finally:
        for hook in hooks:
            hook.remove()


def close(found: Any, expected: Any) -> bool:
    """Within the tolerance of the same function by another route."""
    found, expected = np.asarray(found), np.asarray(expected)
    return found.shape == expected.shape and bool((abs(found - expected) <= 1e-4 + 1e-5 * abs(expected)).all())


def alone(scorer: PrefixScorer, evidence: EncodedEvidence, claims: tuple[torch.Tensor, ...]) -> np.ndarray:
    """Margins by one full forward per claim, without any cache."""
    with torch.no_grad():
        batches = [collate([pack(evidence, [claim])], scorer.pad_id) for claim in claims]
        return torch.cat([margins(scorer.model, b, scorer.head, scorer.layout)[0] for b in batches]).numpy()


def ids_of(encoder: Encoder, claims: list[str]) -> tuple[torch.Tensor, ...]:
    return tuple(encoder.claim_ids(c) for c in claims)


@pytest.fixture(scope="module")
def mixed(tiny_base, encoder, words, make_media) -> tuple[EncodedEvidence, np.ndarray]:
    """Evidence of two videos, an image and a passage, and the margins of all claims about it by separate forwards."""
    evidence, model = encoder.evidence(MIXED, make_media(4, 8, images=1)), load_backbone(tiny_base).eval()
    scorer = PrefixScorer(model, NextToken(words), encoder.layout, encoder.pad_id, PrefixCache(0))
    return evidence, alone(scorer, evidence, ids_of(encoder, CLAIMS))


@pytest.mark.parametrize("n_claims", [1, 2, 7, 40])
@pytest.mark.parametrize(("claim_tokens", "claims_per_chunk"), [(1, 64), (60, 64), (2048, 3), (2048, 64)])
def test_margins_equal_one_full_forward_per_claim(
    make_scorer, encoder, mixed, n_claims, claim_tokens, claims_per_chunk
):
    scorer = make_scorer(claim_tokens=claim_tokens, claims_per_chunk=claims_per_chunk)
    evidence, claims, expected = mixed[0], ids_of(encoder, CLAIMS[:n_claims]), mixed[1][:n_claims]
    first = scorer.score([Segment(evidence, claims, "k")])[0]
    prefix = scorer.prefixes.get("k")
    again = scorer.score([Segment(prefix.evidence, claims, "k", prefix)])[0]
    assert first.dtype == np.float32
    assert close(first, expected)
    assert close(again, expected)
    assert len(set(expected.tolist())) == n_claims  # the claims are told apart, or equality would prove nothing


def test_a_chunk_of_claims_ends_at_its_limits_and_no_claim_is_lost(make_scorer, encoder, model, make_media):
    evidence, claims = encoder.evidence(VIDEO, make_media(8)), ids_of(encoder, CLAIMS[:7])
    n_tokens = sum(len(c) for c in claims)
    for limits, n_forwards in (
        ({"claims_per_chunk": 3}, 3),
        ({"claim_tokens": n_tokens}, 1),
        ({"claim_tokens": n_tokens - 1}, 2),
        ({"claim_tokens": 1}, 7),
    ):
        with counted(model) as work:
            make_scorer(0, **limits).score([Segment(evidence, claims)])
        assert (work.forwards, work.towers, work.tokens) == (n_forwards, 1, len(evidence.ids_P) + n_tokens)


def test_claims_of_a_row_do_not_meet_those_far_away_in_it(make_scorer, encoder, model, monkeypatch):
    evidence, claims = encoder.evidence((Passage("The ball is red."),), Media()), ids_of(encoder, CLAIMS)
    n_prefix, n_tokens = len(evidence.ids_P), sum(map(len, claims))
    scorer, pairs, attend = make_scorer(), [], packing.sdpa_attention_forward

    def attention(module, query, key, *args, **options):
        pairs.append(query.shape[2] * key.shape[2])
        return attend(module, query, key, *args, **options)

    scorer.score([Segment(evidence, claims[:1], "k")])
    monkeypatch.setattr(packing, "sdpa_attention_forward", attention)
    prefix = scorer.prefixes.get("k")
    margins = scorer.score([Segment(prefix.evidence, claims, "k", prefix)])[0]
    dense = model.config.text_config.num_hidden_layers * n_tokens * (n_prefix + n_tokens)
    assert sum(pairs) < dense / 2
    assert close(margins, alone(scorer, evidence, claims))


def test_chunks_do_not_influence_one_another(make_scorer, encoder, make_media):
    scorer = make_scorer(claims_per_chunk=2)
    evidence, claims = encoder.evidence(VIDEO, make_media(8)), ids_of(encoder, CLAIMS[:6])
    other = claims[2].clone()
    other[len(other) // 2] = encoder.tokenizer.convert_tokens_to_ids("!")
    before = scorer.score([Segment(evidence, claims)])[0]
    after = scorer.score([Segment(evidence, (*claims[:2], other, *claims[3:]))])[0]
    assert before[2] != after[2]
    assert np.delete(before, 2).tolist() == np.delete(after, 2).tolist()


def test_a_kept_prefix_holds_exactly_its_tokens_and_never_changes(make_scorer, encoder, make_media):
    scorer = make_scorer(claims_per_chunk=3)
    evidence, claims = encoder.evidence(VIDEO, make_media(8)), ids_of(encoder, CLAIMS)
    scorer.score([Segment(evidence, claims, "k")])
    prefix = scorer.prefixes.get("k")
    before = [(keys.clone(), values.clone()) for keys, values in prefix.layers]
    for n in (1, 7, 40):
        scorer.score([Segment(prefix.evidence, claims[:n], "k", prefix)])
    for pair, old in zip(prefix.layers, before, strict=True):
        for tensor, expected in zip(pair, old, strict=True):
            assert tensor.shape[-2] == prefix.n_tokens == len(evidence.ids_P)
            assert tensor.untyped_storage().nbytes() == tensor.nbytes  # and not those of its batch
            assert torch.equal(tensor, expected)
    assert prefix.evidence.vision == {}
    assert scorer.prefixes.n_bytes == prefix.n_bytes


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_forward_that_fails_half_way_leaves_the_prefix_as_it_was(make_scorer, encoder, model, make_media, fails_at):
    scorer = make_scorer(claims_per_chunk=2)
    evidence, claims = encoder.evidence(VIDEO, make_media(8)), ids_of(encoder, CLAIMS[:6])
    expected = scorer.score([Segment(evidence, claims)])[0]
    forwards = iter(range(1, 99))

    def fail(*args: Any) -> None:
        if next(forwards) == fails_at:
            raise RuntimeError("out of memory")

    hook = model.model.language_model.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        scorer.score([Segment(evidence, claims, "k")])
    hook.remove()
    prefix = scorer.prefixes.get("k")
    assert (prefix is None) == (fails_at == 1)
    if prefix is not None:
        assert close(scorer.score([Segment(prefix.evidence, claims, "k", prefix)])[0], expected)
    assert scorer.score([Segment(evidence, claims)])[0].tolist() == expected.tolist()


def test_one_claim_costs_the_tokens_of_the_plain_forward(make_scorer, encoder, model, make_media):
    evidence, claims = encoder.evidence(VIDEO, make_media(8)), ids_of(encoder, CLAIMS[:1])
    plain = alone(make_scorer(), evidence, claims)
    for scorer in (make_scorer(0), make_scorer(1.0)):
        with counted(model) as work:
            found = scorer.score([Segment(evidence, claims, "k")])[0]
        assert (work.forwards, work.towers, work.tokens) == (1, 1, len(evidence.ids_P) + len(claims[0]))
        assert found.tolist() == plain.tolist()


def test_state_left_on_the_model_does_not_leak(make_scorer, encoder, model, make_media):
    scorer = make_scorer(claims_per_chunk=2)
    segment = Segment(encoder.evidence(VIDEO, make_media(8)), ids_of(encoder, CLAIMS[:5]))
    expected = scorer.score([segment])[0]
    model.model.rope_deltas = torch.tensor([[777]])
    assert scorer.score([segment])[0].tolist() == expected.tolist()


def test_a_prefix_larger_than_the_limit_is_used_and_not_kept(make_scorer, encoder, make_media):
    evidence, claims = encoder.evidence(VIDEO, make_media(8)), ids_of(encoder, CLAIMS[:5])
    small = make_scorer(1000 / 2**30, claims_per_chunk=2)
    for _ in range(2):
        assert close(small.score([Segment(evidence, claims, "k")])[0], alone(small, evidence, claims))
    assert (len(small.prefixes), small.prefixes.n_bytes) == (0, 0)


def test_a_model_in_training_mode_is_refused(make_verifier, model):
    verifier = make_verifier()
    model.train()
    with pytest.raises(ModelInputError, match=r"model\.eval"):
        verifier.score(CLAIMS[:2], Passage("Hi."))


def test_a_backbone_that_keeps_nothing_is_noticed(make_scorer, encoder, model, make_media):
    model.activation_checkpointing_enable({"use_reentrant": False})
    model.model.language_model.train()  # behind the model's back: the cache is then dropped without a word
    for layer in model.model.language_model.layers:
        layer.train()
    segment = Segment(encoder.evidence(VIDEO, make_media(8)), ids_of(encoder, CLAIMS[:3]), "k")
    with pytest.raises(ModelInputError, match="kept 0 tokens"):
        make_scorer().score([segment])


# The verifier: the next question, changed files and weights, mixed batches, failures.


def test_a_second_question_runs_no_tower_and_no_prefix(make_verifier, model, encoder):
    verifier, segment = make_verifier(), VideoSegment("clip0.mp4", 0.0, 2.0)
    verifier.score(CLAIMS[:1], segment)
    for claims in (CLAIMS[1:2], CLAIMS[2:9]):
        with counted(model) as work:
            found = [v.margin for v in verifier.score(claims, segment)]
        assert work.towers == 0
        assert work.tokens == sum(len(c) for c in ids_of(encoder, claims))
        assert close(found, [v.margin for v in make_verifier(prefix_cache_gib=0).score(claims, segment)])
    assert (verifier.prefixes.hits, verifier.prefixes.misses, len(verifier.prefixes)) == (2, 1, 1)


def test_every_segment_of_a_batch_is_kept_for_the_next_question(make_verifier, model):
    verifier = make_verifier()
    pairs = [Pair(str(i), CLAIMS[i], (VideoSegment(f"clip{i % 3}.mp4", 0.0, 1.5),)) for i in range(9)]
    first = [v.margin for v in verifier.score_pairs(pairs)]
    with counted(model) as work:
        second = [v.margin for v in verifier.score_pairs(pairs)]
    assert work.towers == 0
    assert close(second, first)


def test_without_a_prefix_cache_every_question_is_computed_anew(make_verifier, model):
    verifier = make_verifier(prefix_cache_gib=0)
    for _ in range(2):
        with counted(model) as work:
            verifier.score(CLAIMS[:1], VideoSegment("clip0.mp4", 0.0, 2.0))
        assert work.towers == 1
    assert len(verifier.prefixes) == 0


def test_a_changed_file_is_read_again_and_a_lost_one_is_an_error(make_verifier, tmp_path):
    path = tmp_path / "clip.mp4"
    encode(path, fps=10)
    verifier, segment = make_verifier(), VideoSegment(str(path), 0.0, 2.0)
    before = verifier.score(CLAIMS[:3], segment)
    path.unlink()
    assert all(math.isnan(v.margin) and "clip.mp4" in (v.error or "") for v in verifier.score(CLAIMS[:3], segment))
    encode(path, fps=20)
    after = [v.margin for v in verifier.score(CLAIMS[:3], segment)]
    assert after == [v.margin for v in make_verifier().score(CLAIMS[:3], segment)]
    assert after != [v.margin for v in before]


def test_changed_weights_are_not_answered_from_old_prefixes(tiny_base, encoder, words):
    from peft import LoraConfig

    torch.manual_seed(0)
    model = attach_lora(load_backbone(tiny_base), LoraConfig(r=4, init_lora_weights=False))
    verifier, evidence = verifier_of(model, encoder, NextToken(words)), Passage("The ball is red.")

    def asked() -> list[float]:
        kept = [v.margin for v in verifier.score(CLAIMS[:3], evidence)]
        anew = verifier_of(model, encoder, NextToken(words)).score(CLAIMS[:3], evidence)
        assert close(kept, [v.margin for v in anew])
        return kept

    tuned = asked()
    model.disable_adapter_layers()
    base = asked()
    model.enable_adapter_layers()
    assert close(asked(), tuned)
    with torch.no_grad():
        next(p for n, p in model.named_parameters() if "lora_B" in n).mul_(-3.0)
    changed = asked()
    assert not close(base, tuned)
    assert not close(changed, tuned)


def test_the_same_call_gives_the_same_bits(make_verifier):
    pairs = [Pair(str(i), CLAIMS[i], (VideoSegment(f"clip{i % 3}.mp4", 0.0, 1.0 + i % 2),)) for i in range(12)]
    without, fresh, kept = make_verifier(prefix_cache_gib=0), make_verifier(), make_verifier()
    expected = [v.margin for v in without.score_pairs(pairs)]
    assert [v.margin for v in without.score_pairs(pairs)] == expected
    assert [v.margin for v in fresh.score_pairs(pairs)] == expected
    kept.score_pairs(pairs)
    again = [v.margin for v in kept.score_pairs(pairs)]
    assert [v.margin for v in kept.score_pairs(pairs)] == again


EVIDENCES = (
    (Passage("Hi."),),
    (Passage("The ball is red and lies on a long grey table."),),
    (VideoSegment("clip0.mp4", 0.0, 1.0),),
    (VideoSegment("clip1.mp4", 0.0, 1.5),),
    (Passage("It moves."), VideoSegment("clip2.mp4", 0.5, 2.0)),
)


@pytest.fixture(scope="module")
def reference(tiny_base, encoder, words, clips) -> dict[tuple[int, int], float]:
    """Margins of claims 0 to 7 about each evidence, each asked alone."""
    verifier = verifier_of(load_backbone(tiny_base), encoder, NextToken(words), media_root=clips, prefix_cache_gib=0)
    return {
        (e, c): verifier.score([CLAIMS[c]], evidence)[0].margin
        for e, evidence in enumerate(EVIDENCES)
        for c in range(8)
    }


@settings(max_examples=15, deadline=None)
@given(
    asked=st.lists(st.tuples(st.integers(0, len(EVIDENCES) - 1), st.integers(0, 7)), min_size=1, max_size=14),
    batch_tokens=st.sampled_from([1, 150, 400, 4096]),
    cache_bytes=st.sampled_from([0, 20_000, 60_000, 2**20]),
    claim_tokens=st.sampled_from([1, 40, 2048]),
)
def test_any_mix_of_pairs_gets_the_margins_of_pairs_asked_alone(
    tiny_base, encoder, words, clips, reference, asked, batch_tokens, cache_bytes, claim_tokens
):
    verifier = verifier_of(
        shared_model(tiny_base),
        encoder,
        NextToken(words),
        media_root=clips,
        prefix_cache_gib=cache_bytes / 2**30,
        batch_tokens=batch_tokens,
    )
    verifier.scorer.claim_tokens = claim_tokens
    pairs = [Pair(str(i), CLAIMS[c], EVIDENCES[e]) for i, (e, c) in enumerate(asked)]
    done: list[int] = []
    for _ in range(2):
        found = [v.margin for v in verifier.score_pairs(pairs, progress=done.append)]
        assert close(found, [reference[pair] for pair in asked])
        assert verifier.prefixes.n_bytes <= cache_bytes
    assert sum(done) == 2 * len(pairs)


_MODELS: dict[Path, Any] = {}


def shared_model(path: Path) -> Any:
    """One model for all examples of a property."""
    if path not in _MODELS:
        _MODELS[path] = load_backbone(path).eval()
    return _MODELS[path]


def test_segments_of_similar_length_share_a_forward(make_verifier, model):
    pairs = [Pair(str(i), CLAIMS[0], (Passage(f"The ball is red {i}."),)) for i in range(10)]
    for batch_tokens, n_forwards in ((4096, 1), (1, 10)):
        with counted(model) as work:
            make_verifier(batch_tokens=batch_tokens).score_pairs(pairs)
        assert work.forwards == n_forwards


def test_a_claim_that_is_too_long_fails_alone(make_verifier, encoder, monkeypatch):
    verifier = make_verifier()
    monkeypatch.setattr(encoder, "max_tokens", 300)
    claims = [CLAIMS[0], "Object is " + "red ball " * 200 + ".", CLAIMS[1]]
    for _ in range(2):  # read, and from the kept prefix
        found = verifier.score(claims, VideoSegment("clip0.mp4", 0.0, 1.0))
        assert [v.error is None for v in found] == [True, False, True]
        assert "too long" in (found[1].error or "")


def test_a_bad_file_fails_its_own_claims_only(make_verifier, clips):
    (clips / "damaged.mp4").write_bytes(b"not a video")
    names = ["clip0.mp4", "damaged.mp4", "clip1.mp4", "missing.mp4", "clip0.mp4", "damaged.mp4"]
    pairs = [Pair(str(i), CLAIMS[i], (VideoSegment(name, 0.0, 1.0),)) for i, name in enumerate(names)]
    found = make_verifier().score_pairs(pairs)
    assert [v.error is None for v in found] == [True, False, True, False, True, False]
    assert all(n in (v.error or n) for n, v in zip(names, found, strict=True))
    assert all(math.isnan(v.margin) == (v.error is not None) for v in found)


def test_what_the_network_is_not_given_fails_its_segment_only(make_verifier, encoder, make_media):
    verifier = make_verifier()
    good = encoder.evidence(VIDEO, make_media(8))
    blind = dataclasses.replace(good, vision={"video_grid_thw": good.vision["video_grid_thw"]})
    claims = ids_of(encoder, CLAIMS[:1])
    batch = [ReadGroup(Segment(e, claims), (i,), {}) for i, e in enumerate((good, blind, good))]
    found = dict(BatchScorer(verifier.scorer, verifier.reader, 4096).answer(batch))
    assert [found[i].error is None for i in range(3)] == [True, False, True]
    assert "pixels" in (found[1].error or "")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_unexpected_error_ends_the_call_and_its_threads(make_verifier, encoder, monkeypatch, error):
    verifier = make_verifier()
    pairs = [Pair(str(i), CLAIMS[i], (Passage(f"Passage {i}."),)) for i in range(12)]

    def fail(*args: Any) -> None:
        raise error("stop")

    with monkeypatch.context() as patch:
        patch.setattr(encoder, "evidence", fail)
        with pytest.raises(error):
            verifier.score_pairs(pairs)
    with pytest.raises(error):
        verifier.score_pairs(pairs, progress=fail)
    assert not [t for t in threading.enumerate() if t.name.startswith("read-ahead")]
    assert all(v.error is None for v in verifier.score_pairs(pairs))


def test_threads_may_ask_at_once(make_verifier, model):
    verifier = make_verifier()
    evidences = [VideoSegment(f"clip{i}.mp4", 0.0, 1.5) for i in range(3)]
    expected = [[v.margin for v in verifier.score(CLAIMS[:6], e)] for e in evidences]
    inside, found, failures = [0], {}, []

    def enter(*args: Any) -> None:
        inside[0] += 1
        if inside[0] > 1:
            failures.append("two threads in the network")

    def leave(*args: Any) -> None:
        inside[0] -= 1

    def ask(i: int) -> None:
        found[i] = [v.margin for v in verifier.score(CLAIMS[:6], evidences[i % 3])]

    model.register_forward_pre_hook(enter)
    model.register_forward_hook(leave)
    verifier.prefixes.clear()
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert all(close(found[i], expected[i % 3]) for i in range(9))


def test_frames_and_features_from_disk_give_the_same_margins(make_verifier, model, tmp_path):
    pairs = [Pair(str(i), CLAIMS[i], (VideoSegment(f"clip{i % 3}.mp4", 0.0, 1.5),)) for i in range(6)]
    expected = [v.margin for v in make_verifier().score_pairs(pairs)]
    frames = FrameCache(tmp_path / "frames")  # each thread needs a decoder process of its own
    assert [v.margin for v in make_verifier(frame_cache=frames).score_pairs(pairs)] == expected
    for n_towers in (3, 0):
        with counted(model) as work:
            found = make_verifier(frame_cache=frames, vision_cache=tmp_path / "features").score_pairs(pairs)
        assert close([v.margin for v in found], expected)
        assert work.towers == n_towers


@pytest.mark.parametrize("options", [{"prefix_cache_gib": -1}, {"prefix_cache_gib": math.nan}, {"batch_tokens": 0}])
def test_limits_out_of_range_are_refused(make_verifier, options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        make_verifier(**options)
