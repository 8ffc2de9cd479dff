"""Write a split of a data set in the format of another trainer, or as premise/hypothesis/label rows.

    python data_prep/convert.py runs/data/clips --split train --format qwen --out q/train.jsonl --clips q/clips
    python data_prep/convert.py runs/data/texts --split test --format nli --out nli/test.jsonl

Formats: llama-factory, ms-swift, qwen (QwenLM's qwen-vl-finetune), nli. docs/exports.md describes each.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from proofreel.core import CommandParser, Prompt, ProofreelError
from proofreel.data_prep.exports import FORMATS, dataset_info, export_split


def main(argv: Sequence[str] | None = None) -> int:
    """Run an export from the command line; the exit status is 0 when the file was written, else 1."""
    arguments = _parser().parse_args(argv)
    values = vars(arguments)
    try:
        prompt = Prompt(**{field.name: values[field.name] for field in dataclasses.fields(Prompt)})
        report = export_split(
            arguments.dataset,
            arguments.split,
            arguments.format,
            arguments.out,
            prompt,
            arguments.clips,
            arguments.skip_unusable,
            arguments.workers,
        )
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"wrote {report.rows} rows to {arguments.out}, {report.clips} segments as clips")
    for reason, rows in report.skipped.items():
        print(f"left out: {rows} x {reason}")
    for what, rows in report.not_carried.items():
        print(f"not in this format: {what}, of {rows} rows")
    if arguments.format == "llama-factory":
        entry = dataset_info(arguments.out.stem, str(arguments.out.absolute()), report.columns)
        print(f"for LLaMA-Factory's dataset_info.json: {json.dumps(entry)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="proofreel convert", description=__doc__)
    parser.add_argument("dataset", type=Path, help="data set directory")
    parser.add_argument("--split", required=True, help="train, validation, calibration or test")
    parser.add_argument("--format", required=True, choices=FORMATS)
    parser.add_argument("--out", required=True, type=Path, help="file to write, .jsonl")
    parser.add_argument("--clips", type=Path, help="folder for the clips of segments that are not whole files")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that cut clips")
    parser.add_argument(
        "--skip-unusable", action="store_true", help="leave out rows that cannot be written; say how many and why"
    )
    words = parser.add_argument_group("words of chat rows (defaults: those of a verifier's prompt)")
    for field in dataclasses.fields(Prompt):
        shown = repr(field.default).replace("%", "%%")
        words.add_argument(f"--{field.name.replace('_', '-')}", default=field.default, help=f"default: {shown}")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
