"""Cells of a long measurement: each is measured once, written down at once, and skipped by the next call.

A cell is a part's name and a setting. Before it runs, a line says that it began; a cell that began twice and never
ended (a killed process, a crashed driver) is given up, so that one cell cannot hold up all others. No torch here but
for what its errors are called.
"""

from __future__ import annotations

import gc
import json
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_BEGINNINGS = 2

Setting = Mapping[str, Any]
Values = dict[str, Any]


class NotYetError(Exception):
    """A cell that the deadline stopped, and that goes on in the next call."""


@dataclass(frozen=True)
class Part:
    """One table.

    Attributes:
        name: of the part, as `--parts` takes it.
        question: one sentence, the table's heading.
        settings: every cell of the table, in order of measuring.
        measure: a cell's values.
    """

    name: str
    question: str
    settings: Callable[[Any], Iterable[Setting]]
    measure: Callable[[Any, Setting], Values]


@dataclass
class Rows:
    """The cells that were measured, in a file of one JSON object a line.

    Attributes:
        file: where they lie; created with the first of them.
        lines: what it holds.
    """

    file: Path
    lines: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> Rows:
        """What the file holds; a last line that was cut short is left out."""
        lines = []
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            try:
                lines.append(json.loads(line))
            except ValueError:
                continue
        return cls(file, lines)

    def add(self, part: str, setting: Setting, state: str, **values: Any) -> None:
        """Write one line; it is on disk when this returns."""
        self.lines.append({"part": part, "setting": dict(setting), "state": state, **values})
        self.file.parent.mkdir(parents=True, exist_ok=True)
        torn = self.file.exists() and not self.file.read_bytes().endswith(b"\n") and self.file.stat().st_size > 0
        with self.file.open("a", encoding="utf-8") as out:
            out.write(("\n" if torn else "") + json.dumps(self.lines[-1]) + "\n")

    def of(self, part: str, setting: Setting) -> list[dict[str, Any]]:
        """All lines of one cell."""
        return [row for row in self.lines if row["part"] == part and row["setting"] == dict(setting)]

    def is_due(self, part: str, setting: Setting, *, again: bool = False) -> bool:
        """Whether a cell is still to be measured; with `again` also one that ended with an error or was given up."""
        states = [row["state"] for row in self.of(part, setting)]
        if "measured" in states:
            return False
        beginnings = states.count("began") - states.count("stopped")
        return again or ("error" not in states and beginnings < MOST_BEGINNINGS)

    def ended(self, part: str) -> list[dict[str, Any]]:
        """The last result of every cell of a part; of a cell that never ended, that it did not."""
        last: dict[str, dict[str, Any]] = {}
        for row in (row for row in self.lines if row["part"] == part):
            last[json.dumps(row["setting"])] = row
        unended = {"began": "did not end", "stopped": "goes on in the next call"}
        return [row | {"error": unended[s]} if (s := row["state"]) in unended else row for row in last.values()]


def run_part(part: Part, args: Any, rows: Rows, deadline: float) -> bool:
    """Measure what is due of a part and print each row; False if the deadline (`time.monotonic()`) came before."""
    again = bool(args.again)
    for setting in part.settings(args):
        if not rows.is_due(part.name, setting, again=again):
            continue
        if time.monotonic() >= deadline:
            return False
        rows.add(part.name, setting, "began")
        began = time.monotonic()
        try:
            values = part.measure(args, setting)
        except NotYetError as error:
            rows.add(part.name, setting, "stopped")
            print(error, flush=True)
            return False
        except Exception as error:
            gc.collect()
            rows.add(part.name, setting, "error", error=said(error), trace=traceback.format_exc()[-2000:])
            print(f"{part.name} {dict(setting)}: {said(error)}", flush=True)
            if "CUDA error" in str(error):  # nothing works after it in this process
                raise SystemExit(
                    "the device is in an unknown state; call again, and the next cell is measured"
                ) from None
            continue
        rows.add(part.name, setting, "measured", seconds=round(time.monotonic() - began, 1), values=values)
        print(f"{part.name} {dict(setting)}: {values}", flush=True)
    return True


def said(error: BaseException) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"


def table(part: Part, rows: Rows) -> list[str]:
    """A part's heading and table in Markdown; nothing where no cell was measured."""
    ended = rows.ended(part.name)
    if not ended:
        return []
    heads = list(dict.fromkeys(key for row in ended for key in row["setting"]))
    values = list(dict.fromkeys(key for row in ended for key in row.get("values", {})))
    values += ["error"] if any("error" in row for row in ended) else []
    lines = [
        "",
        f"## {part.question}",
        "",
        _line([*heads, *values]),
        _line(["---"] * len(heads) + ["---:"] * len(values)),
    ]
    for row in ended:
        found = row.get("values", {}) | ({"error": row["error"]} if "error" in row else {})
        lines.append(_line([shown(row["setting"].get(h)) for h in heads] + [shown(found.get(v)) for v in values]))
    return lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def shown(value: Any) -> str:
    """A cell's text: whole numbers with commas, others with three digits that count."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value).replace("|", "/").replace("\n", " ")
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
