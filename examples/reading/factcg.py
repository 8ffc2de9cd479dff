"""FactCG's pairs of document and claim, as rows to train on (Lei et al., NAACL 2025; derenlei/FactCG, MIT).

    python -m examples.reading.factcg FILE... --out pairs.parquet

Each line of a file has `text_a` (the document), `text_b` (a list of one claim) and `orig_label` (1: supported). Claims
are synthetic, documents are real. In the public files most records of the multi-hop set have lost their document: such
rows are counted and left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from proofreel.core import Pair, Passage, RowError
from proofreel.data_prep.dataset import write_pairs

LABELS = {"1": "supported", "0": "refuted"}
NO_DOCUMENT = "no document"


def main(argv: Sequence[str] | None = None) -> int:
    """Read files and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True, help="file of pairs to write (.parquet or .jsonl)")
    args = parser.parse_args(argv)
    pairs, left_out = read_factcg(args.files)
    write_pairs(args.out, pairs)
    for reason, n in sorted(left_out.items()):
        print(f"left out     {n} x {reason}")
    print(f"wrote        {args.out}: {len(pairs)} pairs of {len({p.group for p in pairs})} documents")
    return 0


def read_factcg(files: Sequence[Path]) -> tuple[list[Pair], Counter[str]]:
    """The rows of all files, grouped by document, and how many were left out for which reason.

    Raises:
        RowError: a file that is missing, or a line that is no record of FactCG.
    """
    pairs: dict[tuple[str, str], Pair] = {}
    left_out: Counter[str] = Counter()
    for file in files:
        for where, record in _records(file):
            document, claim, label = _checked(record, where)
            if not document:
                left_out[NO_DOCUMENT] += 1
                continue
            name = hashlib.sha256(document.encode()).hexdigest()[:16]
            row = Pair(
                id=f"factcg-{name}-{hashlib.sha256(claim.encode()).hexdigest()[:16]}",
                claim=claim,
                evidence=(Passage(document),),
                label=label,
                group=f"factcg-{name}",
                modality="text",
            )
            if (known := pairs.setdefault((document, claim), row)) is not row:
                left_out["repeated" if known.label == row.label else "repeated with the other label"] += 1
    return list(pairs.values()), left_out


def _records(file: Path) -> Iterator[tuple[str, Any]]:
    if not file.is_file():
        raise RowError(f"{file}: no such file, got nothing to read; give CG2C_doc.json of FactCG")
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield f"{file}:{number}", json.loads(line)
            except ValueError as error:
                raise RowError(f"{file}:{number}: not JSON, got {error}; give FactCG's file as it is") from error


def _checked(record: Any, where: str) -> tuple[str, str, Any]:
    """Document, claim and label of a record."""
    values = record if isinstance(record, dict) else {}
    document, claims, label = values.get("text_a"), values.get("text_b"), str(values.get("orig_label"))
    claim = claims[0] if isinstance(claims, list) and len(claims) == 1 else None
    if not isinstance(document, str) or not isinstance(claim, str) or label not in LABELS:
        raise RowError(
            f"{where}: not a record of FactCG, got {str(record)[:80]!r}; it has text_a, a text_b of one claim, and an "
            "orig_label of 1 or 0"
        )
    return document.strip(), claim.strip(), LABELS[label]


if __name__ == "__main__":
    raise SystemExit(main())
