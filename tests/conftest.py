"""Fixtures shared by all tests, and a check that the tests run against this checkout."""

import functools
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from proofreel.data_prep.media.frames import FrameSampling
    from proofreel.models.inputs.encoder import Media

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


def pytest_collection_finish() -> None:
    """What imports have made stays: no collection of garbage needs to walk through its millions of objects again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real annotations and clips, which users do not have."""
    if "PROOFREEL_SHARED" not in os.environ:
        pytest.skip("PROOFREEL_SHARED is unset: it names the folder with the real annotations and clips")
    return Path(os.environ["PROOFREEL_SHARED"]) / "data"


@pytest.fixture(scope="session")
def tiny_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """By `model_type`: a randomly initialised checkpoint of the smallest sensible size, on disk."""
    from proofreel.core.prompt import Prompt
    from proofreel.models.backbones.tiny import TinySizes, save_tiny_model

    sizes = TinySizes(hidden=64, layers=2, mlp=128, vision_hidden=32, vision_depth=2, vision_mlp=64, vocab=420)
    texts = [Prompt().system, "Claim: Object is red ball.", "Claim: Action is moving left."] * 20

    @functools.cache
    def make(model_type: str) -> Path:
        directory = tmp_path_factory.mktemp("models") / "tiny-base"
        return save_tiny_model(directory, texts, sizes, model_type=model_type)

    return make


@pytest.fixture(scope="session")
def tiny_base(tiny_of: Callable[[str], Path]) -> Path:
    """A tiny Qwen2.5-VL. A module whose laws hold for all families that see overrides it with `FAMILIES`."""
    return tiny_of("qwen2_5_vl")


@pytest.fixture(scope="session")
def small_sampling() -> "FrameSampling":
    """Few, small frames: what tests of the network look at."""
    from proofreel.data_prep.media.frames import FrameSampling

    return FrameSampling(fps=2.0, min_frames=4, max_frames=8, min_pixels=56 * 56, max_pixels=84 * 84)


@pytest.fixture(scope="session")
def make_media() -> "Callable[..., Media]":
    """Decoded media without a file: seeded noise, sizes and times as asked; sounds by their seconds."""
    import numpy as np

    from proofreel.data_prep.media import Frames, Sound
    from proofreel.models.inputs.encoder import Media

    def make(
        *n_frames: int,
        seed: int = 0,
        side: int = 84,
        step_s: float = 0.5,
        images: int = 0,
        sounds: tuple[float, ...] = (),
    ) -> Media:
        rng = np.random.default_rng(seed)
        videos = tuple(
            Frames(rng.integers(0, 256, (n, side, side, 3), dtype=np.uint8), np.arange(n) * step_s, "noise")
            for n in n_frames
        )
        shown = tuple(rng.integers(0, 256, (side, side, 3), dtype=np.uint8) for _ in range(images))
        heard = tuple(rng.normal(0, 0.1, round(s * 16_000)).astype(np.float32) for s in sounds)
        return Media(videos, shown, sounds=tuple(Sound(samples, 0.0) for samples in heard))

    return make


COLOURS = {"red": (220, 30, 30), "green": (30, 200, 30), "blue": (40, 60, 230), "yellow": (230, 220, 40)}


@pytest.fixture(scope="session")
def colour_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built data set: 16 one-second mp4 clips of one colour each, with true and false claims of which it is."""
    import json

    import av
    import numpy as np

    from proofreel.data_prep.build import main

    folder = tmp_path_factory.mktemp("colours")
    annotations, names = [], list(COLOURS)
    for i in range(16):
        name, other = names[i % 4], names[(i + 1 + i // 4) % 4]
        with av.open(str(folder / f"clip{i}.mp4"), "w") as container:
            stream = container.add_stream("libx264", rate=8)
            stream.width = stream.height = 84
            stream.pix_fmt = "yuv420p"
            for k in range(8):
                pixels = np.full((84, 84, 3), COLOURS[name], np.uint8)
                pixels[10 * k : 10 * k + 8] = 255  # a white bar that falls, so that frames differ
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            container.mux(stream.encode())
        other = other if other != name else names[i % 4 - 1]
        facts = {"video": f"clip{i}.mp4", "start_s": 0.0, "end_s": 1.0, "caption": name}
        facts |= {"conceptual": {"Colour": name}, "negative_conceptual": {"Colour": other}}
        # Every other clip has more claims: a mean over claims must differ from a mean of means over rows.
        facts |= {"contextual": [f"show {name}"] * (i % 2), "negative_contextual": [f"show {other}"] * (i % 2)}
        annotations.append(facts)
    (folder / "facts.json").write_text(json.dumps(annotations), encoding="utf-8")
    config = f"output: {folder}/data\nsources: [{{format: facts, path: {folder}/facts.json}}]\n"
    config += (
        "splits: {train: 0.5, validation: 0.125, calibration: 0.125, test: 0.25}\nnegatives: {swapped_per_claim: 0}\n"
        "leaks: {media: allow}\n"  # clips of one colour are the same file
    )
    (folder / "build.yaml").write_text(config, encoding="utf-8")
    assert main(["--config", str(folder / "build.yaml")]) == 0
    return folder / "data"


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory, tiny_base: Path, colour_dataset: Path) -> Path:
    """A few real LoRA steps of train/sft.py on the colour clips: a run directory with a draft verifier."""
    from proofreel.train.sft import main

    out = tmp_path_factory.mktemp("runs") / "run"
    assert main(sft_arguments(tiny_base, colour_dataset, out)) == 0
    return out


def sft_arguments(base: Path, dataset: Path, out: Path, **changes: object) -> list[str]:
    """Command-line arguments of a tiny training run; `changes` win."""
    values: dict[str, object] = {
        "model_name_or_path": base,
        "dataset_dir": dataset,
        "output_dir": out,
        "dtype": "float32",
        "use_peft": True,
        "lora_r": 4,
        "lora_dropout": 0.0,
        "learning_rate": 1e-2,
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "fps": 4,
        "max_frames": 4,
        "min_pixels": 84 * 84,
        "max_pixels": 84 * 84,
        "use_cpu": True,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
    return [str(word) for key, value in (values | changes).items() for word in (f"--{key}", value)]


@pytest.fixture(scope="session")
def published(trained_run: Path, colour_dataset: Path) -> Path:
    """The run's verifier, calibrated and exported."""
    from proofreel.eval import calibrate, export, predict

    predictions = trained_run / "calibration.parquet"
    common = ["--verifier", str(trained_run / "draft"), "--data", str(colour_dataset)]
    assert predict.main([*common, "--split", "calibration", "--out", str(predictions), "--device", "cpu"]) == 0
    assert calibrate.main(["--predictions", str(predictions), "--out", str(trained_run / "calibrated")]) == 0
    out = trained_run / "verifier"
    assert export.main([*common, "--calibration", str(trained_run / "calibrated"), "--out", str(out)]) == 0
    return out
