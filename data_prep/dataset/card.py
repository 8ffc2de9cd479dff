"""The data set card: a README.md beside the shards that says what is in them, how it was made, and its known problems.

Everything comes from plain inputs: the manifest, counts taken row by row, and the claim-only probe's report. The same
inputs give the same bytes. Front matter follows the hubs that show such cards; no host is named.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import yaml

from ...core import LABELS, SPLITS
from ..media import media_table
from .card_figures import draw_pictures
from .card_statistics import QUANTILES, CardStatistics, quantiles, shortened, sizes
from .shortcut import WARN_ABOVE

CARD = "README.md"
PICTURES = "card"
MAX_LINES = 40
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def write_card(
    directory: str | Path, manifest: Mapping[str, Any], statistics: CardStatistics, probe: Mapping[str, Any] | None
) -> Path:
    """Write `README.md` and its pictures (folder `card/`) into a data set directory; gives the card's path.

    Args:
        directory: where the shards lie, or will lie under the name of `manifest["config"]["output"]`.
        manifest: the data set's; keys it lacks are left out of the card.
        statistics: counts over all rows.
        probe: `ShortcutReport.as_dict()`, or None where no probe was run.
    """
    directory = Path(directory)
    pictures = draw_pictures(statistics, directory / PICTURES)
    output = manifest.get("config", {}).get("output") or directory.resolve()
    name = PurePath(output).name
    sections = (
        _front_matter(name, manifest, statistics),
        [f"# {name}", "", *_opening(manifest, statistics)],
        ["## What is in it", *_counts(manifest, statistics), *_shown(pictures)],
        ["## Sizes", *_sizes(statistics), *_media(manifest)],
        ["## Can labels be guessed without evidence?", *_probe(probe)],
        ["## Left out, rejected, moved", *_left_out(manifest)],
        ["## Examples", *_examples(statistics)],
        ["## How it was made", *_made(manifest)],
        ["## Sources and licence", *_sources(manifest)],
    )
    text = "\n".join("\n".join(section) + "\n" for section in sections)
    path = directory / CARD
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def _front_matter(name: str, manifest: Mapping[str, Any], statistics: CardStatistics) -> list[str]:
    files = {split: [entry["file"] for entry in entries] for split, entries in manifest.get("shards", {}).items()}
    matter = {
        "pretty_name": name,
        "license": "unknown",
        "tags": ["claim-verification", "multimodal", "proofreel"],
        "size_categories": [next((size for limit, size in _SIZES if statistics.rows < limit), "n>1M")],
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": split, "path": paths} for split, paths in files.items()],
            }
        ],
    }
    return ["---", yaml.safe_dump(matter, sort_keys=False, allow_unicode=True).strip(), "---"]


def _opening(manifest: Mapping[str, Any], statistics: CardStatistics) -> list[str]:
    supported = sum(rows for stratum, rows in statistics.strata.items() if stratum.label == "supported")
    hours = statistics.total_s / 3600
    share = f", {supported / statistics.rows:.1%} supported" if statistics.rows else ""
    lines = [
        f"{statistics.rows:,} claims with the evidence they are judged against{share}. {len(statistics.group_rows):,} "
        f"groups, {len(statistics.evidence_rows):,} pieces of evidence, {len(statistics.media_files):,} media files"
        f"{f', {hours:.2f} hours of video segments' if hours else ''}. No group is in two splits."
    ]
    if manifest.get("media") == "absent":
        lines += ["", "**Annotations only:** the media are not here; rows can be counted and split, not trained on."]
    return lines


def _counts(manifest: Mapping[str, Any], statistics: CardStatistics) -> list[str]:
    labels = [label for label in (*LABELS, None) if any(stratum.label == label for stratum in statistics.strata)]
    names = [label or "no label" for label in labels]
    counts = manifest.get("counts", {})
    lines = []
    for field in ("split", "role", "origin", "modality"):
        table = statistics.table(field)
        order = [s for s in SPLITS if s in table] + [s for s in table if s not in SPLITS]
        keys = order if field == "split" else sorted(table, key=lambda name: -table[name].total())
        more = ["groups", "evidence"] if field == "split" else []
        rows = [
            [_named(key), f"{table[key].total():,}", *(f"{table[key][label]:,}" for label in labels)]
            + [f"{counts[key][more_key]:,}" if key in counts else "" for more_key in ("groups", "segments") if more]
            for key in keys
        ]
        lines += ["", *_table([field, "rows", *names, *more], rows)]
    return lines


def _shown(pictures: Mapping[str, str]) -> list[str]:
    return [line for name, title in pictures.items() for line in ("", f"![{title}]({PICTURES}/{name})")]


def _sizes(statistics: CardStatistics) -> list[str]:
    measured: dict[str, Mapping[int, int]] = {
        "rows of a group": sizes(statistics.group_rows),
        "claims of a piece of evidence": sizes(statistics.evidence_rows),
        **{
            f"words of a claim, {label or 'no label'}": words
            for label, words in sorted(statistics.claim_words().items(), key=lambda item: str(item[0]))
        },
    }
    distributions = {name: quantiles(counted) for name, counted in measured.items() if counted}
    rows = [[name, *(f"{value:,}" for value in values.values())] for name, values in distributions.items()]
    if statistics.durations_ds:
        tenths = quantiles(statistics.durations_ds).values()
        rows.append(["seconds of a video segment", *(f"{value / 10:,.1f}" for value in tenths)])
    lines = ["", *_table(["", *QUANTILES], rows), ""]
    kinds = ", ".join(f"{rows:,} x {kind}" for kind, rows in sorted(statistics.evidence_kinds.items()))
    lines.append(f"Distinct evidence by kind: {kinds or 'none'}.")
    if statistics.open_ended:
        lines.append(f"{statistics.open_ended:,} segments run to the end of their file: not in durations and hours.")
    return lines


def _media(manifest: Mapping[str, Any]) -> list[str]:
    """What the media files are, if they were opened."""
    if not (tables := manifest.get("media_files")):
        return []
    return ["", "Media files:", "", "```", *media_table(tables).splitlines(), "```"]


def _probe(probe: Mapping[str, Any] | None) -> list[str]:
    if probe is None:
        return ["", "Not checked: the build ran without the claim-only probe."]
    lines = [
        "",
        f"A claim-only probe (TF-IDF and logistic regression, {probe['folds']} folds of whole groups) on "
        f"{probe['overall']['rows']:,} of {probe['rows']:,} labelled rows. 0.5 is chance; above {WARN_ABOVE} the "
        "negatives can be recognised by their words; far below 0.5 is no leak: sentences recur with both labels. "
        "Each origin of negatives is probed on its own, against the claims they were made from.",
        "",
    ]
    parts = [("all rows", probe["overall"])]
    parts += [(f"role {_named(role)}", part) for role, part in probe["roles"].items()]
    parts += [(f"origin {origin}", part) for origin, part in probe["origins"].items()]
    rows = []
    for name, part in parts:
        value = "-" if part["value"] is None else f"{part['value']:.3f}"
        value = f"**{value}**" if (part["value"] or 0) > WARN_ABOVE else value
        rows.append([name, value, f"{part['rows']:,}", f"{part['supported']:,}", part["reason"] or ""])
    lines += _table(["", "AUC", "rows", "supported", ""], rows)
    if probe["warnings"]:
        lines += ["", "**Warning: labels can be guessed without evidence.**", ""]
        lines += [f"- {_plain(warning)}" for warning in probe["warnings"][:MAX_LINES]]
        words = [
            [word["text"], f"{word['weight']:+.2f}", f"{word['supported']:,}", f"{word['rest']:,}"]
            for word in probe["words"]
        ]
        told = f"The words that tell most in {probe['words_of']} (weight above 0: towards supported):"
        lines += ["", told if words else "No single word tells."]
        lines += ["", *_table(["word", "weight", "in supported rows", "in other rows"], words)] if words else []
    return lines


def _left_out(manifest: Mapping[str, Any]) -> list[str]:
    rows = [["rejected", kind, f"{number:,}"] for kind, number in manifest.get("rejected", {}).items()]
    rows += [["left out", reason, f"{number:,}"] for reason, number in manifest.get("left_out", {}).items()]
    if merged := manifest.get("merged_repeats"):
        rows.append(["merged", "repeats of a judged pair", f"{merged:,}"])
    if torn := manifest.get("media_in_several_splits"):
        rows.append(["leak", "media files in several splits", f"{len(torn):,}"])
    for key, title in (("leaks", "leaks"), ("held_out", "held out")):
        rows += [
            [title, name.replace("_", " "), _value(value)] for name, value in manifest.get(key, {}).items() if value
        ]
    if not rows:
        return ["", "Nothing."]
    return ["", *_table(["", "what", "how many"], rows), "", "Every rejection is in `rejected.jsonl`, with its place."]


def _examples(statistics: CardStatistics) -> list[str]:
    rows = [
        [example.label or "no label", example.origin, example.role, shortened(example.claim, 160), example.evidence]
        for _, examples in sorted(statistics.examples.items(), key=lambda item: (str(item[0][0]), item[0][1]))
        for example in examples
    ]
    return ["", *_table(["label", "origin", "role", "claim", "evidence"], rows)]


def _made(manifest: Mapping[str, Any]) -> list[str]:
    facts = {
        "seed": manifest.get("seed"),
        "git revision": manifest.get("git_revision"),
        "schema version": manifest.get("schema_version"),
        **manifest.get("versions", {}),
    }
    lines = ["", *_table(["", ""], [[name, str(value)] for name, value in facts.items() if value is not None])]
    if config := manifest.get("config"):
        shown = yaml.safe_dump(_without_folders(config), sort_keys=False, allow_unicode=True).strip()
        lines += ["", "The configuration (absolute paths are cut to the file's name):", "", "```yaml", shown, "```"]
    return lines


def _sources(manifest: Mapping[str, Any]) -> list[str]:
    rows = [
        [
            PurePath(entry["path"]).name,
            entry["format"],
            f"{entry['rows']:,}",
            f"`{entry['sha256'][:16]}`",
            "to be stated",
        ]
        for entry in manifest.get("sources", [])
    ]
    note = "Before this data set is passed on, state the licence of each source here and set `license` at the top."
    return ["", *_table(["file", "format", "rows", "SHA-256", "licence"], rows), "", note]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table, cut after `MAX_LINES` rows with a note; columns that hold numbers only stand right."""
    rows = [[_plain(cell) for cell in row] for row in rows]
    number = re.compile(r"[-+\d.,*%]*")
    columns = [[row[column] for row in rows] for column in range(len(header))]
    right = [any(column) and all(number.fullmatch(cell) for cell in column) for column in columns]
    lines = [f"| {' | '.join(header)} |", f"| {' | '.join('---:' if is_right else '---' for is_right in right)} |"]
    lines += [f"| {' | '.join(row)} |" for row in rows[:MAX_LINES]]
    if len(rows) > MAX_LINES:
        lines += ["", f"and {len(rows) - MAX_LINES:,} more."]
    return lines


def _plain(text: str) -> str:
    """Text of the data as a cell: one line, and nothing in it is Markdown or HTML."""
    text = " ".join(text.split())
    return re.sub(r"([\\|<>\[\]$])", r"\\\1", text)


def _named(name: str) -> str:
    return name if name not in ("", "None") else "(none)"


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"{len(value):,}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _without_folders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_folders(item) for item in value]
    return PurePath(value).name if isinstance(value, str) and os.path.isabs(value) else value
