"""Kitchen timers: sounds whose true facts are known, and a tiny Qwen2.5-Omni that learns to tell what it hears.

    python -m examples.kitchen.hearing --out runs/hearing
    python -m examples.kitchen.hearing --speech --out runs/speech     (needs espeak-ng: examples/kitchen/speaking.py)

A sound is two to four beeps; their pitch, their number, whether they climb or fall, and whether they are loud or soft
are its facts. Or it is a spoken sentence that names an ingredient and a tool, in a high or a low voice. Every sound has
a true and a false claim of each role. The base is made here at random, with ears, eyes and language model, and all of
it is trained: there is no pretraining, and nothing is downloaded. Then come the steps of `proofreel run
configs/kitchen_hearing_run.yaml`, with two controls: another sound in the place of each, and the claim alone.
"""

from __future__ import annotations

import argparse
import itertools
import os
import wave
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from examples.kitchen.commands import python
from examples.kitchen.speaking import speak
from proofreel.core import Audio, Label, Pair, Prompt, Split
from proofreel.data_prep.dataset import write_pairs
from proofreel.models.backbones import TinySizes, save_tiny_model

ROOT = Path(__file__).resolve().parent.parent.parent
RATE = 16_000
PITCHES = {"low": 330.0, "middle": 740.0, "high": 1660.0}  # hertz of the first beep
STEPS = {"falling": 2 ** (-3 / 12), "level": 1.0, "rising": 2 ** (3 / 12)}  # from one beep to the next
NUMBERS = {"two": 2, "three": 3, "four": 4}
LOUDNESS = {"soft": 0.04, "loud": 0.5}  # of full scale
VOICES = {"low": 20, "high": 80}  # espeak-ng's pitch
CLIPS: dict[Split, int] = {"train": 1200, "validation": 60, "calibration": 120, "test": 200}
SIZES = TinySizes(
    hidden=128, layers=3, heads=4, mlp=256, vision_hidden=64, vision_depth=2, vision_mlp=128, vocab=480,
    initializer_range=0.08,
)  # fmt: skip


Facts = dict[str, str]
"""What is true of a sound, by role."""


class Kind(NamedTuple):
    """A kind of sounds: the values of each role, and what makes samples, and their rate in hertz, of facts."""

    values: dict[str, list[str]]
    sound: Callable[[Facts, np.random.Generator], tuple[np.ndarray, int]]


def main(argv: Sequence[str] | None = None) -> int:
    """Render, make the base, and run the project's own steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/hearing"), help="folder for all outputs")
    parser.add_argument("--speech", action="store_true", help="spoken sentences in the place of beeps")
    parser.add_argument("--clips", type=int, nargs=4, default=list(CLIPS.values()), help="of each split")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="more for `proofreel run`")
    args = parser.parse_args(argv)
    out = args.out.resolve()
    os.chdir(ROOT)
    os.environ.setdefault("OMP_NUM_THREADS", str(min(2, os.cpu_count() or 1)))
    kind = SPEECH if args.speech else BEEPS
    if not (out / "pairs.parquet").exists():
        write_pairs(out / "pairs.parquet", render(kind, out, dict(zip(CLIPS, args.clips, strict=True)), args.seed))
    if not (out / "base").is_dir():
        save_tiny_model(out / "base", _texts(kind), SIZES, args.seed, "qwen2_5_omni_thinker")
    source = f"build.options.sources=[{{format: pairs, path: {out / 'pairs.parquet'}}}]"
    given = [f"output={out / 'run'}", source, f"build.options.media_root={out}"]
    base = [f"train.options.model_name_or_path={out / 'base'}", f"train.options.seed={args.seed}"]
    python("-m", "proofreel.cli", "run", "configs/kitchen_hearing_run.yaml", *given, *base, *args.set)
    return 0


def everything(kind: Kind) -> list[Facts]:
    """All combinations."""
    return [dict(zip(kind.values, values, strict=True)) for values in itertools.product(*kind.values.values())]


def held_out(kind: Kind, facts: Facts) -> bool:
    """Whether a combination is kept for calibration and test: a quarter, every value among them."""
    return sum(values.index(facts[role]) * (i + 1) for i, (role, values) in enumerate(kind.values.items())) % 4 == 0


def render(kind: Kind, out: Path, clips: dict[Split, int], seed: int) -> list[Pair]:
    """Write all sounds below `out` and return their rows, every true claim beside a false one of its role."""
    (out / "sounds").mkdir(parents=True, exist_ok=True)
    rows = []
    for number, (split, n) in enumerate(clips.items()):
        unseen = split in ("calibration", "test")
        pool = [facts for facts in everything(kind) if held_out(kind, facts) == unseen]
        for i in range(n):
            rng = np.random.default_rng([seed, number, i])
            facts, name = pool[int(rng.integers(len(pool)))], f"sounds/{split}-{i}.wav"
            write_sound(out / name, *kind.sound(facts, rng))
            rows += rows_of(kind, name, facts, split, rng)
    return rows


def beeps(facts: Facts, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Samples in [-1, 1] and their rate: beeps with a pause between, at a tempo of their own, over faint noise."""
    pitch = PITCHES[facts["Pitch"]] * rng.uniform(0.92, 1.08)
    length_s, pause_s = rng.uniform(0.12, 0.2), rng.uniform(0.1, 0.18)
    parts = [np.zeros(int(RATE * rng.uniform(0.05, 0.4)))]
    for beep in range(NUMBERS[facts["Count"]]):
        time_s = np.arange(int(RATE * length_s)) / RATE
        envelope = np.minimum(1.0, np.minimum(time_s, length_s - time_s) / 0.01)
        hertz = pitch * STEPS[facts["Movement"]] ** beep
        parts += [envelope * np.sin(2 * np.pi * hertz * time_s), np.zeros(int(RATE * pause_s))]
    samples = np.concatenate(parts) * LOUDNESS[facts["Volume"]] * rng.uniform(0.8, 1.25)
    return np.clip(samples + rng.normal(0, 0.002, len(samples)), -1, 1), RATE


def sentence(facts: Facts) -> str:
    """What is said."""
    return f"{facts['Ingredient']}, with a {facts['Tool']}."


def speech(facts: Facts, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Samples in [-1, 1] and their rate: a sentence at a tempo and pitch of its own, over faint noise."""
    pitch = VOICES[facts["Voice"]] + int(rng.integers(-10, 11))
    samples, rate = speak(sentence(facts), int(rng.integers(150, 200)), pitch)
    samples = np.concatenate([np.zeros(int(rate * rng.uniform(0.05, 0.3))), samples * rng.uniform(0.6, 1.2)])
    return np.clip(samples + rng.normal(0, 0.002, len(samples)), -1, 1), rate


def write_sound(path: Path, samples: np.ndarray, rate: int) -> None:
    """A WAV file of 16 bits, one channel."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())


def rows_of(kind: Kind, name: str, facts: Facts, split: Split, rng: np.random.Generator) -> list[Pair]:
    """A true and a false claim for every role."""
    rows = []
    for role, values in kind.values.items():
        others = [value for value in values if value != facts[role]]
        false = others[int(rng.integers(len(others)))]
        judged: tuple[tuple[str, Label], ...] = ((facts[role], "supported"), (false, "refuted"))
        for value, label in judged:
            rows.append(
                Pair(
                    id=f"{name}-{role}-{value}",
                    claim=f"{role} is {value}.",
                    evidence=(Audio(name),),
                    label=label,
                    split=split,
                    group=name,
                    role=role,
                    modality="audio",
                )
            )
    return rows


def _texts(kind: Kind) -> list[str]:
    claims = [f"{role} is {value}." for role, values in kind.values.items() for value in values]
    return [*claims, Prompt().system] * 50


BEEPS = Kind({"Pitch": list(PITCHES), "Movement": list(STEPS), "Count": list(NUMBERS), "Volume": list(LOUDNESS)}, beeps)
SPEECH = Kind(
    {
        "Ingredient": ["onion", "tomato", "carrot", "garlic", "butter", "chicken"],
        "Tool": ["knife", "spoon", "whisk", "peeler"],
        "Voice": list(VOICES),
    },
    speech,
)


if __name__ == "__main__":
    raise SystemExit(main())
