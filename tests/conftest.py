"""Fixtures shared by all tests, and a check that the tests run against this checkout."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from proofreel.data_prep.frames import FrameSampling
    from proofreel.models.encoding import Media

# Two busy thread pools on two cores run many times slower than one thread each; nothing may reach for a network.
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import proofreel

ROOT = Path(__file__).resolve().parent.parent


def pytest_sessionstart(session: pytest.Session) -> None:
    """An editable install points at one checkout: refuse to test another one by accident."""
    installed = Path(proofreel.__file__).resolve().parent.parent
    if installed != ROOT:
        pytest.exit(f"proofreel is installed from {installed}, not from {ROOT}; run `pip install -e .` here", 4)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real annotations and clips, which users do not have."""
    if "PROOFREEL_SHARED" not in os.environ:
        pytest.skip("PROOFREEL_SHARED is unset: it names the folder with the real annotations and clips")
    return Path(os.environ["PROOFREEL_SHARED"]) / "data"


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A randomly initialised Qwen2.5-VL of the smallest sensible size, on disk."""
    from proofreel.models.prompt import Prompt
    from proofreel.models.tiny import TinySizes, save_tiny_model

    sizes = TinySizes(hidden=64, layers=2, mlp=128, vision_hidden=32, vision_depth=2, vision_mlp=64, vocab=420)
    texts = [Prompt().system, "Claim: Object is red ball.", "Claim: Action is moving left."] * 20
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny-base", texts, sizes)


@pytest.fixture(scope="session")
def small_sampling() -> "FrameSampling":
    """Few, small frames: what tests of the network look at."""
    from proofreel.data_prep.frames import FrameSampling

    return FrameSampling(fps=2.0, min_frames=4, max_frames=8, min_pixels=56 * 56, max_pixels=84 * 84)


@pytest.fixture(scope="session")
def make_media() -> "Callable[..., Media]":
    """Decoded media without a file: seeded noise, sizes and times as asked."""
    import numpy as np

    from proofreel.data_prep.frames import Frames
    from proofreel.models.encoding import Media

    def make(*n_frames: int, seed: int = 0, side: int = 84, step_s: float = 0.5, images: int = 0) -> Media:
        rng = np.random.default_rng(seed)
        videos = tuple(
            Frames(rng.integers(0, 256, (n, side, side, 3), dtype=np.uint8), np.arange(n) * step_s, "noise")
            for n in n_frames
        )
        return Media(videos, tuple(rng.integers(0, 256, (side, side, 3), dtype=np.uint8) for _ in range(images)))

    return make
