"""MiRAGE's metrics on the kitchen, where the truth is known: articles of two invented systems, and commands.

    python -m examples.kitchen.make --out runs/kitchen-small --clips 2 2 2 40 --long 0 0 0 0
    python -m examples.kitchen.articles --kitchen runs/kitchen-small --out runs/articles

Four test clips are a topic. Each system describes every clip in one sentence of four claims. `careful` is wrong in 10 %
of them and cites the clip; `careless` is wrong in 40 % and cites the next clip as well. `proofreel mirage score` then
scores both with the shipped verifier; below stands what the truth gives, with the same formulas.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from examples.kitchen.commands import python
from proofreel.core import Pair, VideoSegment
from proofreel.eval.articles import mirage_scores, read_responses, read_topics, result_table, shares_of
from proofreel.eval.scores import Judgments, by_labels

SYSTEMS = {"careful": (0.1, 1), "careless": (0.4, 2)}
CLIPS_PER_TOPIC = 4
METRICS = ("infof1", "citef1", "alce", "argue", "ragas")
ROLES = ("Action", "Ingredient", "Tool", "Location")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the articles, score them by a verifier, and by the truth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kitchen", type=Path, required=True, help="folder that examples.kitchen.make wrote")
    parser.add_argument("--verifier", type=Path, default=Path("checkpoints/kitchen-verifier"))
    parser.add_argument("--out", type=Path, required=True, help="folder for all that is made")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    records = json.loads((args.kitchen / "annotations.json").read_text(encoding="utf-8"))
    verbs = json.loads((args.kitchen / "world.json").read_text(encoding="utf-8"))["values"]["Action"]
    clips = {Path(record["video"]).stem: record for record in records if record["split"] == "test"}
    topics = [list(clips)[i : i + CLIPS_PER_TOPIC] for i in range(0, len(clips), CLIPS_PER_TOPIC)]
    files = [args.out / f"{name}.json" for name in ("topics", *SYSTEMS)]
    _write(files[0], {f"clips {names[0]}": topic_of(names, clips) for names in topics})
    facts: dict[str, Mapping[str, str]] = {}
    for file, (false_share, n_cited) in zip(files[1:], SYSTEMS.values(), strict=True):
        rng = np.random.default_rng(0)
        articles = {
            f"clips {names[0]}": article_of(names, clips, verbs, facts, false_share, n_cited, rng) for names in topics
        }
        _write(file, articles)
    words = ["--responses", *files[1:], "--topics", files[0], "--media", args.kitchen / "clips", "--metrics", *METRICS]
    words += ["--forms", "collection", "--precision-only", "--verifier", args.verifier, "--device", "cpu"]
    words.append("--without-context")  # the shipped verifier was trained without
    python("eval/mirage.py", "score", *words, "--out", args.out)
    shares = shares_of(METRICS, ["collection"], precision_only=True)
    responses = [response for file in files[1:] for response in read_responses(file)]
    judge = truth(facts, {name: clips[name]["conceptual"] for name in clips})
    print("\nBy the truth:\n\n" + result_table(mirage_scores(responses, read_topics(files[0]), judge, shares=shares)))
    return 0


def topic_of(names: Sequence[str], clips: Mapping[str, Any]) -> dict[str, Any]:
    """A topic as MiRAGE's files have it: the clips, what is true of them, and which of them show it."""
    shown: dict[str, list[str]] = defaultdict(list)
    for name in names:
        for role in ROLES:
            shown[claim_of(role, clips[name]["conceptual"][role])].append(name)
    supporting = {claim: {"supporting_videos": videos} for claim, videos in shown.items()}
    return {"videos": {name: {} for name in names}, "claims_to_supporting_videos": supporting}


def article_of(
    names: Sequence[str],
    clips: Mapping[str, Any],
    verbs: Sequence[str],
    facts: dict[str, Mapping[str, str]],
    false_share: float,
    n_cited: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """One system's article about the clips of a topic; `facts` gets what each sentence says."""
    sentences, claims, citations = [], [], []
    for i, name in enumerate(names):
        said = dict(clips[name]["conceptual"])
        for role in ROLES:
            if rng.random() < false_share:
                said[role] = clips[name]["negative_conceptual"][role]["text"]
        verb = next(verb for verb in verbs if said["Action"].startswith(verb[:-1]))
        place = "in" if said["Location"] == "bowl" else "on"
        text = f"{verb.capitalize()} {said['Ingredient']} with {said['Tool']} {place} {said['Location']}."
        facts[text] = said
        sentences.append(text)
        claims.append([claim_of(role, said[role]) for role in ROLES])
        citations.append([names[(i + k) % len(names)] for k in range(n_cited)])
    return {"sentences": sentences, "claims": claims, "citations": citations}


def claim_of(role: str, value: str) -> str:
    """A claim about one role, in the format's words."""
    return f"{role} is {value}."


def truth(facts: Mapping[str, Mapping[str, str]], shown: Mapping[str, Mapping[str, str]]) -> Any:
    """A judge that knows what each clip shows; several clips support what one of them does."""

    def supports(pair: Pair) -> bool:
        said = facts.get(pair.claim) or dict([pair.claim.removesuffix(".").split(" is ")])
        names = [Path(piece.path).stem for piece in pair.evidence if isinstance(piece, VideoSegment)]
        return any(said.items() <= shown[name].items() for name in names)

    def judge(pairs: Sequence[Pair]) -> Judgments:
        return by_labels({pair.id: supports(pair) for pair in pairs})(pairs)

    return judge


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
