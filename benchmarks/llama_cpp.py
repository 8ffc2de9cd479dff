"""How far from a verifier's own are the margins that llama.cpp gives?

    python -m benchmarks.llama_cpp --served DIRECTORY=http://127.0.0.1:8080=float32 --out PAGE

Each directory is a merged verifier, and at its address llama.cpp's server runs the GGUF file of its model (with the
file of its tower, where it sees); a word behind the address says how. Texts go through the completions and the chat
route, pictures through the chat route. Tokens count as the same where the server reads as many as our encoder writes.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import math
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as PILImage

from benchmarks.pages import made_on, publish
from proofreel import Image, Passage, Verifier, VideoSegment
from proofreel.core import Evidence
from proofreel.data_prep.media import read_frames
from proofreel.models.directory import VerifierConfig, read_directory, word_settings
from proofreel.models.inputs import Media

CLAIMS = ["Action is chopping.", "Tool is knife.", "Ingredient is onion.", "Location is kitchen."]
TEXTS = ["A cook is chopping an onion.", "The knife lies in the sink.", "Nobody is to be seen in the kitchen."]
SAMPLE = Path(__file__).resolve().parents[1] / "examples" / "kitchen" / "sample.mp4"


def main(argv: Sequence[str] | None = None) -> int:
    """Ask every server, and publish the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--served", nargs="+", required=True, metavar="DIRECTORY=URL=HOW")
    parser.add_argument("--out", type=Path, help="page to write")
    args = parser.parse_args(argv)
    began = time.time()
    lines = ["# Margins that llama.cpp gives", "", (__doc__ or "").split("\n\n", 2)[2].strip(), ""]
    lines += [
        "| network | server | evidence | route | questions | margins | same tokens | largest difference | median |"
    ]
    lines += ["| --- | --- | --- | --- | ---: | --- | --- | ---: | ---: |"]
    for pair in args.served:
        directory, url, how = pair.split("=")
        lines += _rows(Path(directory), url, how)
    publish([*lines, "", f"`python -m benchmarks.llama_cpp`; {made_on(began)}"], args.out)
    return 0


def _rows(directory: Path, url: str, how: str) -> list[str]:
    config, verifier = read_directory(directory), Verifier.from_pretrained(directory, device="cpu")
    network = f"{verifier.model.config.model_type} | {how}"
    texts: list[tuple[tuple[Evidence, ...], Media]] = [((Passage(text),), Media()) for text in TEXTS]
    lines = [_row(network, "text", route, url, verifier, config, texts) for route in ("completion", "chat")]
    if verifier.encoder.layout.sees:
        frames = read_frames(VideoSegment(str(SAMPLE), 0.0, 2.0), config.sampling).pixels_FHWC
        shown: list[tuple[tuple[Evidence, ...], Media]] = [
            ((Image("frame.png"),), Media(images_HWC=(f,))) for f in frames
        ]
        lines.append(_row(network, "picture", "chat", url, verifier, config, shown))
    return lines


def _row(
    network: str, kind: str, route: str, url: str, verifier: Verifier, config: VerifierConfig, shown: Sequence[Any]
) -> str:
    """One line of the table: every claim about every evidence."""
    same, ours, theirs = True, [], []
    for evidence, media in shown:
        ours += verifier.score_media([(claim, None) for claim in CLAIMS], evidence, media).tolist()
        for claim in CLAIMS:
            n_tokens = len(verifier.encoder.evidence(evidence, media).ids_P) + len(verifier.encoder.claim_ids(claim))
            margin, n_read = _ask(url, route, verifier, config, evidence, media, claim)
            theirs.append(margin)
            same &= n_read == n_tokens
    apart = np.abs(np.array(ours) - np.array(theirs))
    cells = [network, kind, route, str(len(ours)), f"{min(ours):.2f} to {max(ours):.2f}", "yes" if same else "no"]
    return f"| {' | '.join([*cells, f'{apart.max():.1e}', f'{np.median(apart):.1e}'])} |"


def _ask(
    url: str,
    route: str,
    verifier: Verifier,
    config: VerifierConfig,
    evidence: tuple[Evidence, ...],
    media: Media,
    claim: str,
) -> tuple[float, int]:
    """The margin, and how many tokens the server read."""
    encoder, settings = verifier.encoder, word_settings(config)
    if route == "completion":
        prompt = encoder.chat.prefix(evidence) + encoder.chat.claim(claim, None)
        answer = _post(f"{url}/completion", {"prompt": prompt} | settings)
        said, n_tokens = answer["completion_probabilities"][0]["top_probs"], answer["tokens_evaluated"]
    else:
        parts, images = encoder.prompt.parts(evidence), iter(media.images_HWC)
        content = [part if part["type"] == "text" else _picture(next(images)) for part in parts]
        turns = [("system", encoder.prompt.system), ("user", content), ("user", encoder.prompt.claim_text(claim))]
        bias = {str(word): value for word, value in settings["logit_bias"]}
        asked = {"messages": [{"role": role, "content": said} for role, said in turns], "logit_bias": bias}
        asked |= {"max_tokens": 1, "logprobs": True, "top_logprobs": 2, "post_sampling_probs": True}
        answer = _post(
            f"{url}/v1/chat/completions", asked | {key: settings[key] for key in ("samplers", "temperature")}
        )
        first = answer["choices"][0]["logprobs"]["content"][0]
        said, n_tokens = first["top_probs"], answer["usage"]["prompt_tokens"]
    logs = {each["id"]: math.log(each["prob"]) for each in said}
    return logs[config.supported_id] - logs[config.refuted_id], n_tokens


def _picture(pixels_HWC: np.ndarray) -> dict[str, Any]:
    file = io.BytesIO()
    PILImage.fromarray(pixels_HWC).save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def _post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


if __name__ == "__main__":
    raise SystemExit(main())
