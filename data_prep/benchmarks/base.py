"""What every benchmark shares: where its files and media lie, and questions that become statements by rule.

A row keeps in `meta` what its protocol needs: `part` (a file or split of the benchmark), `item` (what is right or wrong
as a whole), `kind`, `side`, `question`, `answer` and `rule`, which says how the statement was made. Statements of a
yes/no question say what "yes" would say, so yes is supported and no is refuted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core import Evidence, Label, Pair, RowError
from ..importers import Record, Rejected, Row, reject, statement

_WORD = r"[\w'-]+"
_NO_VERB = r"(?!(?:ring|king|string|wing|thing|spring|building|ceiling|morning|evening|clothing|painting)\b)"
_RULES: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("there", re.compile(r"(Is|Are) there (?!any\b)([^?]+)\?"), r"There {0} {1}."),
    ("quoted event", re.compile(r"Does ('[^']+') happen ([^?]+)\?"), r"{0} happens {1}."),
    ("quoted events", re.compile(r"(Is) (the event '.+?') ((?:shorter|longer) than '.+?')\?"), r"{1} {0} {2}."),
    ("should", re.compile(r"(Based on the video), should we ([^?]+)\?"), r"{0}, we should {1}."),
    ("does", re.compile(rf"(Does) (the {_WORD}) ({_WORD}) in this image\?"), r"{1} {0} {2} in this image."),
    ("is", re.compile(rf"(Is|Are) (the {_WORD}) ({_WORD}) in this image\?"), r"{1} {0} {2} in this image."),
    (
        "is doing",
        re.compile(rf"(Is|Are) ((?:the|a|an) (?!\w+ing\b){_WORD}) ({_NO_VERB}\w+ing\b[^?,]*)\?"),
        r"{1} {0} {2}.",
    ),
)


@dataclass(frozen=True)
class Benchmark:
    """A public benchmark: its annotation files and how they are read.

    Attributes:
        name: what `proofreel bench` calls it.
        title: as its authors write it.
        source: the paper, and the repository of the annotations and of the published evaluation.
        files: by part, the annotation files that it is read from, relative to the folder given with --annotations.
        media: what the folder given with --media holds, in one sentence.
        read: `read(folder, part)` gives the rows and rejections of a part.
    """

    name: str
    title: str
    source: str
    files: Mapping[str, tuple[str, ...]]
    media: str
    read: Callable[[Path, str], Iterator[Row | Rejected]]


def benchmark_rows(benchmark: Benchmark, folder: Path, parts: Sequence[str] = ()) -> Iterator[Row | Rejected]:
    """Rows and rejections of the parts, all of them by default.

    Raises:
        RowError: no such part, or an annotation file is not there.
    """
    if unknown := [part for part in parts if part not in benchmark.files]:
        raise RowError(f"{benchmark.name}: no such part, got {unknown}; it has {list(benchmark.files)}")
    wanted = list(parts or benchmark.files)
    missing = {file: part for part in wanted for file in benchmark.files[part] if not (folder / file).is_file()}
    if missing:
        raise RowError(
            f"{folder}: annotation files are missing, got no {sorted(missing)}; copy them from {benchmark.source}, or "
            f"name the parts that are there with --parts"
        )
    for part in wanted:
        yield from benchmark.read(folder, part)


def as_statement(question: str) -> tuple[str, str]:
    """What "yes" to a question says, and the rule that made the sentence; `template` where no rule fits.

    Rules only fit where subject and predicate cannot be taken apart wrongly; everything else keeps its question.
    """
    text = " ".join(question.split())
    for name, pattern, sentence in _RULES:
        if match := pattern.fullmatch(text):
            words = [word.lower() if word in ("Is", "Are", "Does") else word for word in match.groups()]
            made = sentence.format(*words)
            return made[0].upper() + made[1:], name
    return statement(text, "yes"), "template"


def yes_no_row(
    record: Record,
    name: str,
    question: Any,
    answer: Any,
    evidence: Evidence,
    group: str,
    **meta: Any,
) -> Row:
    """The row of a yes/no question.

    Raises:
        RowError: the question is no text, or the answer neither yes nor no.
    """
    if not isinstance(question, str) or not question.strip():
        raise RowError(f"question must be text, got {question!r}; fill it in")
    if not isinstance(answer, str) or answer.strip().lower() not in ("yes", "no"):
        raise RowError(f"answer must be yes or no, got {answer!r}; correct it")
    claim, rule = as_statement(question)
    label: Label = "supported" if answer.strip().lower() == "yes" else "refuted"
    said = {"question": question, "answer": answer.strip().lower(), "rule": rule}
    return claim_row(record, name, claim, label, evidence, group, **said, **meta)


def claim_row(record: Record, name: str, claim: str, label: Label, evidence: Evidence, group: str, **meta: Any) -> Row:
    """The row of a sentence that may be true; `meta` as the module says."""
    pair = Pair(
        id=name,
        claim=" ".join(claim.split()),
        evidence=(evidence,),
        label=label,
        group=group,
        role=str(meta.get("kind") or meta["part"]),
        meta=meta,
    )
    return Row(pair, record.file, record.line, str(meta["item"]))


def rows_of(
    records: Iterable[Record | Rejected], make: Callable[[Record], Iterable[Row]], name: str
) -> Iterator[Row | Rejected]:
    """The rows that `make` gives of each record; a record that lacks a key or holds a wrong value is rejected."""
    for record in records:
        if isinstance(record, Rejected):
            yield record
            continue
        try:
            yield from list(make(record))
        except RowError as error:
            yield reject(record, str(error), id=name)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            got = f"{type(error).__name__} {error}"
            yield reject(record, f"{name}: the record has another shape, got {got}; compare it with the published file")


def text_of(value: Mapping[str, Any], key: str) -> str:
    """A key's text.

    Raises:
        RowError: the key is missing, or holds no text.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get(key), str) or not value[key].strip():
        got = value.get(key) if isinstance(value, Mapping) else value
        raise RowError(f"{key} must be text, got {got!r:.60}; fill it in")
    return value[key]
