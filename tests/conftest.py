"""Fixtures shared by all tests, and a check that the tests run against this checkout."""

import os
from pathlib import Path

import pytest

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
