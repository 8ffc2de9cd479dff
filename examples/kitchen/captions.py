"""MultiFactScore on the kitchen, where the truth is known: captions of two invented systems, and a command.

    python -m examples.kitchen.make --out runs/kitchen --clips 0 0 0 200 --long 0 0 0 0
    python -m examples.kitchen.captions --kitchen runs/kitchen --out runs/captions

Each system says of every clip what is done, with what and where. A role is left out, named wrongly by something that
lies about unused (a saliency error) or by something that is not there (a hallucination), as often as ERRORS says.
`proofreel multifact` scores both systems by the truth, which the files hold as labels, and by the verifier.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from examples.kitchen.commands import python
from examples.kitchen.vocabulary import ACTIONS, LOCATIONS, VALUES

ERRORS = {"careful": (0.05, 0.05, 0.05), "careless": (0.15, 0.15, 0.15)}  # left out, lying about, not there
RELATIONS = {"Ingredient": "act/ing", "Tool": "act/with"}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the systems' captions, and score them twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kitchen", type=Path, required=True, help="folder of examples.kitchen.make")
    parser.add_argument("--verifier", default="checkpoints/kitchen-verifier", help="verifier directory")
    parser.add_argument("--out", type=Path, required=True, help="folder for all that is made")
    parser.add_argument("--seed", type=int, default=0, help="of the systems' errors")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    gold = args.kitchen / "annotations.json"
    clips = [clip | {"id": clip["group"]} for clip in json.loads(gold.read_text(encoding="utf-8"))]
    write(args.out / "gold.jsonl", clips)
    for place, (system, shares) in enumerate(ERRORS.items()):
        write(args.out / f"{system}.jsonl", captions_of(clips, shares, args.seed + place))
    files = [args.out / f"{system}.jsonl" for system in ERRORS]
    common = ["eval/multifact.py", "--captions", *files, "--gold", args.out / "gold.jsonl"]
    python(*common, "--out", args.out / "truth")
    python(*common, "--media", args.kitchen, "--verifier", args.verifier, "--out", args.out / "verifier")
    return 0


def write(path: Path, rows: Sequence[Mapping[str, Any]] | Iterator[Mapping[str, Any]]) -> None:
    """Rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def captions_of(clips: Sequence[Mapping[str, Any]], shares: Sequence[float], seed: int) -> Iterator[dict[str, Any]]:
    """A system's captions, with its facts and the truth about them.

    Args:
        clips: annotations.
        shares: of roles left out, named by something that lies about, named by something that is not there.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    for clip in clips:
        said: dict[str, dict[str, Any]] = {}
        for role, value in clip["conceptual"].items():
            kind = rng.choice(("omitted", "lying", "absent", "right"), p=(*shares, 1 - sum(shares)))
            lying = clip["meta"]["lying"].get(role, [])
            if kind == "omitted" and role != "Action":
                continue
            if kind == "right" or (kind != "absent" and not lying):
                said[role] = fact(value, True, True)
            elif kind == "lying":
                said[role] = fact(str(rng.choice(lying)), False, True)
            else:
                values = VALUES[role] if role != "Action" else [action.gerund for action in ACTIONS.values()]
                absent = [name for name in values if name != value and name not in clip["distractors"]]
                said[role] = fact(str(rng.choice(absent)), False, False)
        yield {"id": clip["id"], "caption": caption(said), "conceptual": said, "contextual": phrases(said)}


def fact(text: str, holds: bool, visible: bool) -> dict[str, Any]:
    """A fact with what is so: by the video, by the gold caption (which says all of it), and whether it is visible."""
    return {"text": text, "visual": holds, "textual": holds, "grounded": visible}


def phrases(said: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The contextual facts of a caption; one holds if its verb and its argument do."""
    verb = verb_of(said)
    made = []
    for role, value in said.items():
        if role != "Action":
            preposition = {"Ingredient": "", "Tool": "with "}.get(role, place(value["text"]) + " ")
            relation = RELATIONS.get(role, f"act/{preposition.strip()}")
            truth = {key: said["Action"][key] and value[key] for key in ("visual", "textual", "grounded")}
            made.append({"text": f"{verb} {preposition}{value['text']}", "role": relation} | truth)
    return made


def caption(said: Mapping[str, Mapping[str, Any]]) -> str:
    """The sentence that a system writes."""
    words = [verb_of(said), f"the {said['Ingredient']['text']}" if "Ingredient" in said else "it"]
    if "Tool" in said:
        words.append(f"with the {said['Tool']['text']}")
    if "Location" in said:
        words.append(f"{place(said['Location']['text'])} the {said['Location']['text']}")
    return " ".join(words)


def verb_of(said: Mapping[str, Mapping[str, Any]]) -> str:
    """The bare verb of what is said to be done."""
    return next(verb for verb, action in ACTIONS.items() if action.gerund == said["Action"]["text"])


def place(location: str) -> str:
    """On or in."""
    return LOCATIONS.get(location, "")


if __name__ == "__main__":
    raise SystemExit(main())
