"""Look at annotations and write a commented config for `proofreel run`.

    proofreel init annotations.csv --media videos/
    proofreel init youcookii_annotations_trainval.json --media videos/ --out youcook2.yaml --output runs/youcook2

The format is recognised, columns of CSV, JSON lines and Parquet are guessed, splits fit the number of groups, and the
preset fits the card. What was guessed, and why, stands as comments; no file is overwritten.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proofreel.core import CommandParser, ConfigError, Passage, ProofreelError, from_mapping, load_config, say_next

if TYPE_CHECKING:
    from proofreel.data_prep.pipeline import MediaGuess, SourceGuess, SplitsGuess

WIDTH = 118
SHOWN = 3  # bad rows named in a comment


def main(argv: Sequence[str] | None = None) -> int:
    """Look, write, and say what was guessed; exit status 1 where nothing was written."""
    args = _parser().parse_args(argv)
    try:
        if args.out.exists():
            raise ConfigError(f"{args.out}: exists already, got --out {args.out}; name another file or remove it")
        if args.media is not None and not args.media.is_dir():
            raise ConfigError(f"{args.media}: no such folder, got nothing under --media; check the path")
        text = config_text(args.annotations, args.media, args.output or f"runs/{args.annotations.stem}")
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text, encoding="utf-8")
        _check(args.out)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"wrote        {args.out}: read its comments, which say what was guessed and why")
    say_next("run", args.out, "--plan")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="proofreel init", description=__doc__)
    parser.add_argument("annotations", type=Path, help="annotation file of any format, or a folder of tables")
    parser.add_argument("--media", type=Path, help="folder of the videos and images; default: beside the annotations")
    parser.add_argument("--out", type=Path, default=Path("proofreel.yaml"), help="file to write")
    parser.add_argument("--output", help="folder of the run; default: runs/NAME of the annotations")
    return parser


def config_text(annotations: Path, media: Path | None, output: str) -> str:
    """The config, with what was guessed as comments."""
    from proofreel.data_prep.pipeline import guess_media, guess_source, guess_splits
    from proofreel.train.presets import card, guess_preset

    source, files = guess_media(guess_source(annotations), annotations, media)
    textual = all(isinstance(e, Passage) for pair in source.pairs for e in pair.evidence)
    preset = guess_preset(card(), textual)
    lines = [
        *_comment(
            f"What `proofreel init` guessed of {annotations}. Every key: docs/run.md, docs/data.md, docs/training.md."
        ),
        "#   proofreel run THIS_FILE --plan",
        "#   proofreel run THIS_FILE",
        f"output: {_value(output)}",
        "build:",
        *_build(source, files, guess_splits(source.pairs), annotations),
        "train:",
        "  script: sft                      # nli trains a head that tells two or three labels apart",
        *_comment(preset.reason, "  "),
        f"  config: {_value(preset.config)}",
        f"  options: {_value(preset.options)}" if preset.options else "  options: {}",
        "  # several cards: launch: [accelerate, launch, --config_file, configs/accelerate_ddp.yaml]",
        "  launch: null",
        "controls: [mismatched-evidence]    # claims against another group's evidence: must fall to chance",
        *([] if preset.on_card else ["predict:", "  options: {device: cpu}"]),
        "calibrate: {}                      # e.g. {objective: [f1, precision_at:0.95]}",
        f"report: {{title: {_value(annotations.stem)}}}",
        "export: {}                         # e.g. {license: apache-2.0}",
    ]
    return "\n".join(lines) + "\n"


def _build(source: SourceGuess, media: MediaGuess, splits: SplitsGuess, annotations: Path) -> Iterable[str]:
    """The build's section."""
    from proofreel.data_prep.pipeline import guess_swapped

    skip = bool(source.rejected) or 0 < media.n_found < media.n_named
    if source.rejected:
        shown = "; ".join(f"{r.line}: {r.reason}" for r in source.rejected[:SHOWN])
        yield from _comment(f"{len(source.rejected)} bad rows, left out; set false to stop at them. {shown}", "  ")
    yield f"  skip_invalid: {_value(skip)}"
    yield "  options:"
    yield "    sources:"
    yield from _comment(f"{source.format}: {source.reasons['format']}.", "      ")
    yield f"      - format: {source.format}"
    yield f"        path: {_value(str(annotations))}"
    if source.options:
        yield "        options:"
    for name, value in source.options.items():
        if name in source.reasons:
            yield from _comment(source.reasons[name], "          ")
        yield f"          {name}: {_value(value)}"
    yield from _media(media)
    swapped, why = guess_swapped(source.pairs)
    yield from _comment(why, "    ")
    yield f"    negatives: {{swapped_per_claim: {swapped}}}"
    groups = ", ".join(f"{split} {n}" for split, n in splits.groups.items())
    yield from _comment(f"{splits.remark}; groups of each: {groups}", "    ")
    yield f"    splits: {_value(splits.shares)}"
    yield "    seed: 0"


def _media(media: MediaGuess) -> Iterable[str]:
    if media.root is None:
        yield "    # All evidence is text: there are no media."
        return
    found = f"{media.n_found} of {media.n_named} named files are in {media.root}"
    if media.n_found:
        rest = "" if media.n_found == media.n_named else "; rows about the others are left out"
        yield from _comment(f"{found}{rest}", "    ")
        yield f"    media_root: {_value(str(media.root))}"
        return
    yield from _comment(f"{found}: rows can be counted and split, but not trained on. With the files:", "    ")
    yield "    # media_root: FOLDER"
    yield "    media: absent"


def _comment(text: str, indent: str = "") -> list[str]:
    """A comment, in lines of bounded length."""
    import textwrap

    return [f"{indent}# {line}" for line in textwrap.wrap(" ".join(text.split()), WIDTH - len(indent))]


def _value(value: Any) -> str:
    """A value as JSON, which YAML reads."""
    if isinstance(value, str) and value.replace("/", "").replace("_", "").replace(".", "").replace("-", "").isalnum():
        import yaml

        return value if yaml.safe_load(value) == value else json.dumps(value)
    return json.dumps(value, ensure_ascii=False)


def _check(path: Path) -> None:
    """What was written is a config that the run and the build accept."""
    from proofreel.data_prep.pipeline import BuildConfig
    from proofreel.train.run_config import RunConfig

    config = load_config(RunConfig, path)
    assert config.build is not None
    from_mapping(BuildConfig, {"output": "x", **config.build.options}, where=str(path))


if __name__ == "__main__":
    raise SystemExit(main())
