"""What a checkpoint says about clips, word by word, and how often each role in it is right. From the repository root:

python -m examples.kitchen.measure checkpoints/kitchen-base                           # drawn clips
python -m examples.kitchen.measure checkpoints/kitchen-base --world runs/kitchen      # and files of held-out splits

Words are chosen greedily with our own positions in every call; `generate` would use transformers' rope deltas, which
place the words elsewhere than training did (docs/positions.md).
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import DynamicCache

from examples.kitchen.filming import HELD_OUT_SPLITS
from examples.kitchen.lessons import DESCRIBE
from examples.kitchen.streaming import stream
from examples.kitchen.teaching import END, SAMPLING, Teacher, drawn_frames
from examples.kitchen.vocabulary import ROLES
from proofreel.core import VideoSegment
from proofreel.data_prep.media import Frames, read_frames
from proofreel.models.backbones import load_backbone, vision_layout
from proofreel.models.engine import VISION_KEYS

LONGEST_ANSWER = 40  # tokens
CAPTION = re.compile(r"(?P<Action>.+?) the (?P<Ingredient>.+) with the (?P<Tool>.+) (?:on|in) the (?P<Location>.+)")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the accuracy of each role."""
    parser = argparse.ArgumentParser(description="Accuracy of a checkpoint's captions on unseen combinations.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--clips", type=int, default=512, help="clips to draw (default 512)")
    parser.add_argument("--world", type=Path, help="folder made by examples.kitchen.make: its held-out files too")
    args = parser.parse_args(argv)
    model = load_backbone(args.checkpoint)
    teacher = Teacher(args.checkpoint, vision_layout(model.config))
    _print(f"{args.clips} drawn clips", held_out_accuracy(model, teacher, args.clips))
    for name in ("annotations.json", "annotations_long.json") if args.world else ():
        rows = [r for r in json.loads((args.world / name).read_text()) if r["split"] in HELD_OUT_SPLITS]
        if rows:
            _print(f"{len(rows)} segments of {name}", file_accuracy(model, teacher, rows, args.world))
    return 0


def held_out_accuracy(model: Any, teacher: Teacher, count: int, seed: int = 1) -> dict[str, float]:
    """Role -> share of drawn clips of unseen combinations whose caption names it rightly."""
    clips = list(islice(stream(seed, fps=SAMPLING.fps, held_out=True), count))
    captions = answer(model, teacher, [drawn_frames(clip) for clip in clips])
    return role_accuracy(captions, [clip.caption for clip in clips])


def file_accuracy(model: Any, teacher: Teacher, rows: Sequence[dict[str, Any]], root: Path) -> dict[str, float]:
    """The same on annotated files; `rows` hold video, start_s, end_s and caption."""
    segments = [VideoSegment(row["video"], row["start_s"], row["end_s"]) for row in rows]
    captions = answer(model, teacher, [read_frames(segment, SAMPLING, root) for segment in segments])
    return role_accuracy(captions, [row["caption"] for row in rows])


def role_accuracy(captions: Sequence[str], true: Sequence[str]) -> dict[str, float]:
    """Role -> share of captions whose value is that of the true one; another form is wrong in every role."""
    pairs = list(zip([_roles(text) for text in captions], [_roles(text) for text in true], strict=True))
    return {role: sum(named.get(role) == fact[role] for named, fact in pairs) / len(pairs) for role in ROLES}


def answer(
    model: Any, teacher: Teacher, clips: Sequence[Frames], question: str = DESCRIBE, batch: int = 64
) -> list[str]:
    """Greedy answers to one question about each clip; clips of one batch have equally many frames."""
    texts: list[str] = []
    for start in range(0, len(clips), batch):
        ids_BT = answer_ids(model.eval(), teacher, clips[start : start + batch], question)
        texts += [teacher.encoder.tokenizer.decode(row).partition(END)[0] for row in ids_BT]
    return texts


@torch.inference_mode()
def answer_ids(model: Any, teacher: Teacher, clips: Sequence[Frames], question: str) -> torch.Tensor:
    """(B, `LONGEST_ANSWER`) greedily chosen token ids; what follows the first end of turn means nothing."""
    prefixes, question_Q = [teacher.prefix(frames) for frames in clips], teacher.question_ids(question)
    ids_BT = torch.stack([torch.cat([p.ids_P, question_Q]) for p in prefixes]).to(model.device)
    next_B = torch.tensor([p.next_position for p in prefixes])
    turn_3BT = (next_B[:, None] + torch.arange(len(question_Q))).expand(3, -1, -1)
    positions_3BT = torch.cat([torch.stack([p.positions_3P for p in prefixes], 1), turn_3BT], dim=2)
    vision = {k: torch.cat([p.vision[k] for p in prefixes]) for k in VISION_KEYS if k in prefixes[0].vision}
    vision = {k: v.to(model.device) for k, v in vision.items()}
    cache = DynamicCache(config=model.config)
    words: list[torch.Tensor] = []
    for step in range(LONGEST_ANSWER):
        positions_3BT = positions_3BT.to(model.device)
        out = model(ids_BT, position_ids=positions_3BT, past_key_values=cache, logits_to_keep=1, **vision)
        ids_BT, vision = out.logits[:, -1:].argmax(-1), {}
        positions_3BT = (next_B + len(question_Q) + step)[:, None].expand(3, -1, -1)
        words.append(ids_BT[:, 0])
    return torch.stack(words, 1)


def _roles(text: str) -> dict[str, str]:
    match = CAPTION.fullmatch(text)
    return match.groupdict() if match else {}


def _print(what: str, shares: dict[str, float]) -> None:
    print(f"{what}: " + "  ".join(f"{role} {share:.3f}" for role, share in shares.items()))


if __name__ == "__main__":
    raise SystemExit(main())
