"""The tables and plots of docs/choosing.md, from the tables in benchmarks/results.

    python -m benchmarks.choosing    # writes docs/plots/*.svg, and the tables between the marks of docs/choosing.md

A test holds the page's tables, its sentences' numbers and the plots to what the results say.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE, PLOTS = ROOT / "benchmarks" / "results", ROOT / "docs" / "choosing.md", ROOT / "docs" / "plots"
PRESETS = ROOT / "docs" / "presets.md"
COLOURS = {"teacher": "#5f6b76", "distilled": "#00796b", "labels alone": "#d9730d"}


@dataclass(frozen=True)
class Student:
    """One student of distillation.md's second part, beside its teacher and the same student on labels alone."""

    name: str
    teacher: str
    rows: dict[str, dict[str, str]]
    facts: dict[str, str]


def tables(text: str) -> list[list[dict[str, str]]]:
    """Every Markdown table of a text: its rows, by column."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
        found.append([dict(zip(head, row, strict=True)) for row in rows])
    return found


def result(name: str) -> str:
    """One file of benchmarks/results."""
    return (RESULTS / name).read_text(encoding="utf-8")


def number(text: str) -> float:
    """The first number of a cell; `~`, which marks a prediction, is left out."""
    match = re.search(r"-?\d+(?:\.\d+)?", text.replace(",", ""))
    assert match, text
    return float(match[0])


def interval(text: str) -> tuple[float, float]:
    """The 95 % interval of a cell such as `0.983 (0.980 to 0.986)`."""
    match = re.search(r"\(([\d.]+) to ([\d.]+)\)", text)
    assert match, text
    return float(match[1]), float(match[2])


def claims_rows() -> list[dict[str, str]]:
    """The table of shared_prefix_cpu.md."""
    return tables(result("shared_prefix_cpu.md"))[0]


def students() -> list[Student]:
    """The comparisons of distillation.md's second part."""
    text = result("distillation.md").partition("## Other ways to be small")[2]
    rows = tables(text)[0]
    what = "what it saw and learnt from"
    found = []
    for head, bullets in re.findall(r"^(.+):\n\n((?:- .+\n)+)", text, re.MULTILINE):
        if " after " not in head:
            continue
        student, _, teacher = head.partition(", after ")
        at = next(i for i, row in enumerate(rows) if row["verifier"] == "distilled" and row[what] == student)
        alone = next(row for row in reversed(rows[:at]) if row["verifier"] == "labels alone")
        taught_by = next(row for row in rows if row["verifier"] == "teacher" and row[what] == teacher)
        facts = dict(line[2:].split(": ", 1) for line in bullets.splitlines())
        verifiers = {"teacher": taught_by, "distilled": rows[at], "labels alone": alone}
        found.append(Student(shorter(student), shorter(teacher), verifiers, facts))
    return found


def shorter(name: str) -> str:
    """What is alike in all rows left out of the name of one."""
    name = re.sub(r", (the same labels, and the teacher on 960 clips|its own 480 clips|all labels)", "", name)
    return name + ", new adapter" if name == "4 frames" else name


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table; all columns but the first hold numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def claims_table() -> str:
    """How much faster K claims are together, by the size of the evidence."""
    rows = {(row["task"], row["visual tokens"], row["K"]): row["measured x"] for row in claims_rows()}
    tokens = sorted({row["visual tokens"] for row in claims_rows()}, key=int)
    cells = sorted({(task, int(k)) for task, _, k in rows})  # scoring, then training
    head = ["visual tokens", *(f"{task}, K = {k}" for task, k in cells)]
    values = [[f"{rows[task, t, str(k)]}x" for task, k in cells] for t in tokens]
    return markdown(head, [[f"{int(t):,}", *line] for t, line in zip(tokens, values, strict=True)])


def costs_table() -> str:
    """GPU hours of a million claims, by shape, frames and claims about one video."""
    hours = ": GPU hours per million"
    rows = tables(result("counted_cost.md"))[0]
    every_k = [column.removesuffix(hours) for column in rows[0] if column.endswith(hours)]
    lines = [[f"{row['shape']}, {row['frames']} frames", *(row[k + hours] for k in every_k)] for row in rows]
    return markdown(["GPU hours per million claims", *every_k], lines)


def students_table() -> str:
    """What each student keeps of its teacher, gains over labels alone, and how fast it is."""
    head = ["student", "teacher", "AUC of the student", "share of the teacher's", "above labels alone", "claims/s"]
    rows = [
        [
            s.name,
            s.teacher,
            s.rows["distilled"]["AUC (95 %)"],
            s.facts["AUC over that of the teacher"],
            "+" + s.facts["AUC, distilled minus labels alone"],
            s.facts["claims per second over those of the teacher"] + "x",
        ]
        for s in students()
    ]
    return markdown(head, rows)


def bits_table() -> str:
    """LoRA over the base as it is, and over one of four bits."""
    text = result("kitchen_table.md")
    rows = {(row["evidence"], row["verdict"], row["tuned"]): row for row in tables(text)[0]}
    lines = []
    for evidence, verdict in dict.fromkeys((e, v) for e, v, _ in rows):
        pair = [rows[evidence, verdict, tuned] for tuned in ("LoRA", "QLoRA")]
        found = re.search(rf"LoRA minus QLoRA \({evidence}, {verdict}\): (.*)$", text, re.MULTILINE)
        assert found, (evidence, verdict)
        lines.append([f"{evidence}, {verdict}", *(f"{row['AUC (95 %)']}; {row['by seed']}" for row in pair), found[1]])
    return markdown(["", "LoRA: AUC, by seed", "QLoRA: AUC, by seed", "LoRA minus QLoRA"], lines)


def memory_table() -> str:
    """What the presets of one card hold, by bits of the base."""
    rows = {row["preset"].strip("`"): row["memory per GPU"] for row in tables(PRESETS.read_text(encoding="utf-8"))[0]}
    sizes = ["qwen25vl_3b", "qwen25vl_7b", "qwen25vl_3b_nli", "qwen25vl_7b_nli", "qwen25_7b_text"]
    lines = [[f"`{size}`", rows[f"{size}_lora"], rows[f"{size}_qlora"]] for size in sizes]
    return markdown(["preset", "LoRA", "QLoRA"], lines)


def labels_table() -> str:
    """What the automatic choice of a calibration loses at most, by rows."""
    rows = tables(result("calibration_choice.md"))[0]
    head, lost = [row["rows"] for row in rows], [row["most lost"] for row in rows]
    return markdown(["calibration rows", *head], [["nats lost", *lost]])


TABLES = {
    "claims": claims_table,
    "costs": costs_table,
    "students": students_table,
    "bits": bits_table,
    "memory": memory_table,
    "labels": labels_table,
}


def page_with_tables(page: str) -> str:
    """The page, each table between its marks made anew."""
    for name, table in TABLES.items():
        before, start, rest = page.partition(f"<!-- table: {name} -->")
        _, end, after = rest.partition(f"<!-- end: {name} -->")
        assert end, f"{PAGE}: no marks of the table {name!r}"
        page = f"{before}{start}\n\n{table()}\n\n{end}{after}"
    return page


def data_hash(name: str) -> str:
    """The identity of the tables that a plot was drawn from; sentences around them may change."""
    rows = [line for line in result(name).splitlines() if line.startswith("|")]
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def plot_claims() -> None:
    """Speed over K: how much faster claims are together than one by one."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.0), sharey=True)
    for axis, task in zip(axes, ("scoring", "training"), strict=True):
        every_k = sorted({int(row["K"]) for row in claims_rows()})
        axis.plot(every_k[:: len(every_k) - 1], every_k[:: len(every_k) - 1], ":", color="#999999", linewidth=1)
        for tokens, colour in zip(("256", "1024", "4096"), ("#d9730d", "#00796b", "#37474f"), strict=True):
            rows = [row for row in claims_rows() if (row["task"], row["visual tokens"]) == (task, tokens)]
            k, times = [int(row["K"]) for row in rows], [number(row["measured x"]) for row in rows]
            axis.plot(k, times, "o-", color=colour, markersize=4, label=f"{int(tokens):,} visual tokens")
        axis.set(xscale="log", yscale="log", title=task, xlabel="claims about one evidence")
        axis.set_xticks(every_k, [str(k) for k in every_k])
        axis.set_yticks([1, 2, 5, 10, 20, 50], ["1x", "2x", "5x", "10x", "20x", "50x"])
        axis.minorticks_off()
    axes[0].set_ylabel("times faster")
    axes[0].legend(frameon=False, loc="upper left", fontsize=8)
    save(figure, "claims", "shared_prefix_cpu.md")


def plot_costs() -> None:
    """Claims a second of a GPU over K, a line for each number of frames, beside the hours that a million takes."""
    from matplotlib import pyplot as plt

    rows = tables(result("counted_cost.md"))[0]
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    figure, axes = plt.subplots(1, len(shapes), figsize=(7.2, 3.2), sharey=True)
    for axis, shape in zip(axes, shapes, strict=True):
        of_shape = [row for row in rows if row["shape"] == shape]
        for row, shade in zip(of_shape, ("#80cbc4", "#26a69a", "#00796b", "#37474f", "#d9730d"), strict=True):
            by_k = {int(c.split()[2][:-1]): number(v) for c, v in row.items() if c.endswith(": claims/s")}
            axis.plot(list(by_k), list(by_k.values()), "o-", color=shade, markersize=4, label=f"{row['frames']} frames")
        axis.set(xscale="log", yscale="log", title=shape, xlabel="claims about one video")
        axis.set_xticks(list(by_k), [str(k) for k in by_k])
        axis.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
        axis.minorticks_off()
    hours = axes[-1].secondary_yaxis("right", functions=(hours_per_million, hours_per_million))
    hours.set_yticks([0.3, 3, 30, 300], ["0.3", "3", "30", "300"])
    hours.set_ylabel("GPU hours per million")
    axes[0].set_ylabel("claims a second")
    axes[0].legend(frameon=False, loc="upper left", fontsize=7)
    save(figure, "costs", "counted_cost.md")


def hours_per_million(claims_per_second: np.ndarray) -> np.ndarray:
    """Hours for a million claims; of hours, claims a second."""
    with np.errstate(divide="ignore"):  # an axis is tried at 0, too
        return 1e6 / 3600 / claims_per_second


def plot_students() -> None:
    """AUC of teacher, student and labels alone, for each way to be small."""
    from matplotlib import pyplot as plt

    found = students()
    figure, axis = plt.subplots(figsize=(7.2, 3.6))
    for y, student in enumerate(reversed(found)):
        for kind, row in student.rows.items():
            low, high = interval(row["AUC (95 %)"])
            axis.plot([low, high], [y, y], "-", color=COLOURS[kind], linewidth=3, alpha=0.45)
            label = kind if y == 0 else None
            axis.plot(number(row["AUC (95 %)"]), y, "o", color=COLOURS[kind], markersize=6, label=label)
    axis.set_yticks(range(len(found)), [on_two_lines(s.name) for s in reversed(found)], fontsize=8)
    axis.set_xlabel("AUC on 220 test clips (95 % over clips, two seeds)")
    axis.grid(axis="x", color="#e0e0e0", linewidth=0.6)
    axis.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.3, 1.0), ncols=3, fontsize=8)
    save(figure, "students", "distillation.md")


def plot_heads() -> None:
    """AUC of every trained row of the kitchen table: a dot for each seed, a tick for the mean."""
    from matplotlib import pyplot as plt

    rows = [row for row in tables(result("kitchen_table.md"))[0] if row["tuned"] != "zero-shot"]
    figure, axis = plt.subplots(figsize=(7.2, 2.9))
    for y, row in enumerate(reversed(rows)):
        colour = "#00796b" if row["tuned"] == "LoRA" else "#d9730d"
        seeds = [float(value) for value in row["by seed"].split(", ")]
        axis.plot(seeds, [y] * len(seeds), "o-", color=colour, markersize=5, linewidth=1, alpha=0.8)
        axis.plot(number(row["AUC (95 %)"]), y, "|", color=colour, markersize=13, markeredgewidth=2)
    axis.set_yticks(
        range(len(rows)), [f"{r['evidence']}, {r['verdict']}, {r['tuned']}" for r in reversed(rows)], fontsize=8
    )
    axis.set_xlabel("AUC: each seed, and their mean")
    axis.grid(axis="x", color="#e0e0e0", linewidth=0.6)
    save(figure, "heads", "kitchen_table.md")


def on_two_lines(name: str) -> str:
    """A student's name, broken where it is long."""
    head, _, tail = name.partition(", ")
    return name if len(name) < 35 or not tail else f"{head},\n{tail}"


def save(figure, name: str, source: str) -> None:
    """An SVG that says which results it was drawn from, and no time."""
    from matplotlib import pyplot as plt

    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    PLOTS.mkdir(exist_ok=True)
    figure.savefig(PLOTS / f"{name}.svg", bbox_inches="tight", metadata={"Date": None, "Source": data_hash(source)})
    plt.close(figure)


PLOTTED = {
    "claims": "shared_prefix_cpu.md",
    "costs": "counted_cost.md",
    "students": "distillation.md",
    "heads": "kitchen_table.md",
}


def main() -> None:
    """Tables into the page, plots beside it."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "proofreel", "font.size": 9, "svg.fonttype": "none"})
    PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    for plot in (plot_claims, plot_costs, plot_students, plot_heads):
        plot()


if __name__ == "__main__":
    main()
