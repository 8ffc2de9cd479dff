"""The kitchen in words: what a clip's reference text lets a text verifier judge, and a text checkpoint to begin from.

    python -m examples.kitchen.reference --data runs/kitchen-data --out runs/kitchen-reference

Writes `<out>/pairs.parquet`, the rows of the data set with each clip's caption in the clip's place (format
`pairs` of data_prep/build.py), and `<out>/base`, the language model of checkpoints/kitchen-base as a Qwen2.5 text
checkpoint: on text alone the two are the same function, for M-RoPE with equal coordinates is RoPE.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofreel.core import ConfigError, Pair, Passage
from proofreel.data_prep.dataset import read_split, write_pairs

ROOT = Path(__file__).resolve().parent.parent.parent
SPLITS = ("train", "validation", "calibration", "test")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the rows and the checkpoint; 2 where the folder holds them already."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="data set of the kitchen's clips")
    parser.add_argument("--base", type=Path, default=ROOT / "checkpoints" / "kitchen-base", help="its checkpoint")
    parser.add_argument("--out", type=Path, required=True, help="folder to write; must not exist")
    args = parser.parse_args(argv)
    if args.out.exists():
        parser.exit(2, f"{args.out}: already exists; remove it or choose another folder\n")
    args.out.mkdir(parents=True)
    write_pairs(args.out / "pairs.parquet", [in_words(p) for split in SPLITS for p in read_split(args.data, split)])
    save_text_base(args.base, args.out / "base")
    print(f"wrote {args.out}")
    return 0


def in_words(pair: Pair) -> Pair:
    """The same claim and label, judged against the clip's caption."""
    caption = pair.meta.get("caption")
    if not caption:
        raise ConfigError(f"{pair.id}: a row of the kitchen has a caption in its meta, got none; build the data again")
    # Named after its clip: equal captions of two clips are two references, not one judged twice.
    return dataclasses.replace(pair, evidence=(Passage(f"{pair.group}: {caption}."),), modality="text")


def save_text_base(vision_base: str | Path, out: str | Path) -> Path:
    """Write the language model of a Qwen2.5-VL checkpoint as a Qwen2.5 text checkpoint, with its tokenizer."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from proofreel.models.backbones import load_backbone

    vision_base, out = Path(vision_base), Path(out)
    whole: Any = load_backbone(vision_base)
    values = whole.config.text_config.to_dict()
    rope = {k: v for k, v in values.pop("rope_parameters").items() if k != "mrope_section"}
    for key in ("model_type", "architectures", "transformers_version"):
        values.pop(key, None)
    text: Any = Qwen2ForCausalLM(
        Qwen2Config(**values, rope_parameters=rope, tie_word_embeddings=whole.config.tie_word_embeddings)
    )
    text.model.load_state_dict(whole.model.language_model.state_dict())
    text.lm_head.load_state_dict(whole.lm_head.state_dict())
    text.to(whole.dtype).save_pretrained(out)
    for name in _TOKENIZER_FILES:
        shutil.copy2(vision_base / name, out / name)
    return out


if __name__ == "__main__":
    raise SystemExit(main())
