"""Kept prefixes: never more bytes than allowed, oldest use first out, and keyed by all that they depend on."""

import math
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proofreel.core.errors import ConfigError, MediaError
from proofreel.core.pairs import Image, Passage, VideoSegment
from proofreel.models.engine.prefix_cache import Prefix, PrefixCache, prefix_key, weights_state
from proofreel.models.inputs.encoder import EncodedEvidence

GIB = 2**30


def prefix(n_tokens: int) -> Prefix:
    """A prefix of 8 bytes per token."""
    evidence = EncodedEvidence(torch.zeros(n_tokens), torch.zeros(3, n_tokens), n_tokens, {})
    return Prefix(evidence, ((torch.zeros(1, 1, n_tokens, 1), torch.zeros(1, 1, n_tokens, 1)),))


@given(
    steps=st.lists(st.tuples(st.booleans(), st.integers(0, 6), st.integers(1, 12)), max_size=60),
    limit=st.integers(0, 40),
)
def test_the_least_recently_used_goes_first_and_the_limit_holds(steps, limit):
    cache, model = PrefixCache(8 * limit / GIB), dict[int, Prefix]()  # the model's order is that of use
    for puts, key, n_tokens in steps:
        if puts:
            one = prefix(n_tokens)
            assert cache.put(key, one) == (n_tokens <= limit)
            if n_tokens <= limit:
                model.pop(key, None)
                while sum(p.n_tokens for p in model.values()) + n_tokens > limit:
                    del model[next(iter(model))]
                model[key] = one
        else:
            assert cache.get(key) is model.get(key)
            if key in model:
                model[key] = model.pop(key)
        assert len(cache) == len(model)
        assert cache.n_bytes == sum(p.n_bytes for p in model.values()) <= cache.max_bytes
    asked = [key for puts, key, _ in steps if not puts]
    assert cache.hits + cache.misses == len(asked)


def test_counts_tell_hits_misses_and_evictions():
    cache = PrefixCache(80 / GIB)
    for key, n_tokens in (("a", 4), ("b", 4), ("c", 5)):
        cache.put(key, prefix(n_tokens))
    assert [cache.get(k) is not None for k in "abc"] == [False, True, True]
    assert (cache.hits, cache.misses, cache.evicted, len(cache)) == (2, 1, 1, 2)
    cache.clear()
    assert (len(cache), cache.n_bytes, cache.get("b")) == (0, 0, None)


@pytest.mark.parametrize("limit", [-0.5, math.nan])
def test_a_limit_below_nothing_is_refused(limit):
    with pytest.raises(ConfigError, match="prefix_cache_gib"):
        PrefixCache(limit)


def test_a_limit_without_end_is_a_limit():
    assert PrefixCache(math.inf).put("a", prefix(3))


def test_the_key_follows_span_text_file_and_weights(tmp_path):
    path = tmp_path / "a.mp4"
    path.write_bytes(b"one")

    def key(*evidence, weights=0):
        return prefix_key(evidence, tmp_path, weights)

    clip = VideoSegment("a.mp4", 0.0, 1.0)
    keys = [
        key(clip),
        key(VideoSegment("a.mp4", 0.0, 2.0)),
        key(Image("a.mp4")),
        key(clip, Passage("Hi.")),
        key(clip, Passage("Ho.")),
        key(Passage("Hi."), clip),
        key(clip, weights=1),
    ]
    assert len(set(keys)) == len(keys)
    assert key(clip) == keys[0]
    status = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # a new content of the same size and time
    assert key(clip) != keys[0]
    path.unlink()
    with pytest.raises(MediaError, match=r"a\.mp4"):
        key(clip)


def test_equal_names_in_other_folders_are_other_files(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.mp4").write_bytes(b"same")
    clip = (VideoSegment("a.mp4", 0.0, 1.0),)
    assert prefix_key(clip, tmp_path / "one", 0) != prefix_key(clip, tmp_path / "two", 0)


def test_weights_written_or_replaced_are_other_weights():
    linear, norm = torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)
    model = torch.nn.Sequential(linear, norm)
    states = [weights_state(model)]
    with torch.no_grad():
        linear.weight.add_(1)
    states.append(weights_state(model))
    linear.bias = torch.nn.Parameter(torch.ones(2))
    states.append(weights_state(model))
    torch.nn.init.constant_(norm.running_mean, 2.0)  # type: ignore[arg-type]
    states.append(weights_state(model))
    assert len(set(states)) == 4
    assert weights_state(model) == states[-1]
