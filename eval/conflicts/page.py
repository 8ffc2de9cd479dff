"""OMD-Bench's tables as text: percent with intervals, one block per kind of media and table of the paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..scores import Score, shown
from .answers import ConditionAnswer
from .formulas import CONDITIONS, MODALITIES
from .tables import OMDComparison, OMDTables, Unit, compare_models, model_tables


@dataclass(frozen=True)
class ModelResult:
    """One model's tables by kind of media, and the answers they rest on."""

    tables: dict[str, OMDTables]
    answers: tuple[ConditionAnswer, ...]


@dataclass(frozen=True)
class OMDResult:
    """What `proofreel omd` measures.

    Attributes:
        unit: what was resampled as a whole.
        models: by name.
        comparisons: by kind of media; empty for one model.
    """

    unit: Unit
    models: dict[str, ModelResult]
    comparisons: dict[str, OMDComparison]


def omd_result(
    answers: Mapping[str, Sequence[ConditionAnswer]], unit: Unit = "question", n_draws: int = 10_000, seed: int = 0
) -> OMDResult:
    """Tables of every model, and of every two of them, by kind of media.

    Args:
        answers: by model.
        unit, n_draws, seed: see `model_tables`.
    """
    by_data: dict[str, dict[str, list[ConditionAnswer]]] = {}
    for name, given in answers.items():
        for answer in given:
            by_data.setdefault(answer.data, {}).setdefault(name, []).append(answer)
    models = {
        name: ModelResult(
            {d: model_tables(parts[name], unit, n_draws, seed) for d, parts in by_data.items() if name in parts},
            tuple(given),
        )
        for name, given in answers.items()
    }
    comparisons = {d: compare_models(parts, unit, n_draws, seed) for d, parts in by_data.items() if len(parts) > 1}
    return OMDResult(unit, models, comparisons)


def omd_markdown(result: OMDResult) -> str:
    """All tables of a result."""
    kinds = sorted({data for model in result.models.values() for data in model.tables})
    lines = [f"Percent with 95 % intervals over {result.unit}s. ACE: abstention calibration error."]
    for data in kinds:
        tables = {name: model.tables[data] for name, model in result.models.items() if data in model.tables}
        lines += _of_data(data, tables)
        if data in result.comparisons:
            lines += _of_comparison(result.comparisons[data])
    return "\n".join(lines)


def _of_data(data: str, tables: Mapping[str, OMDTables]) -> list[str]:
    lines = [f"\n# {data}\n"]
    for name, t in tables.items():
        lines.append(f"{name}: {t.n} answers, {t.n_invalid} unreadable (left out), {t.n_failed} failed (bounded)")
    levels = [f"k={k}" for k in range(4)]
    lines += _table("Accuracy (table 1)", ["all", *levels], {n: (t.accuracy, *t.by_level) for n, t in tables.items()})
    lines += _table(
        "Accuracy by condition (table 6)",
        CONDITIONS,
        {n: tuple(t.by_condition[c] for c in CONDITIONS) for n, t in tables.items()},
    )
    target = next(iter(tables.values())).should_abstain
    lines += _table(
        "Abstention and ACE (tables 2, 8, 15)",
        [*(f"{k} ({100 * rate:.1f})" for k, rate in zip(levels, target, strict=True)), "ACE"],
        {n: (*t.abstention, t.calibration_error) for n, t in tables.items()},
    )
    for method in ("restricted_softmax", "token_probability"):
        lines += _table(
            f"Confidence, ECE, RC-AUC (tables 3, 9): {method}",
            [*levels, "ECE", "RC-AUC"],
            {
                n: (*t.confidence, t.ece, t.rc_auc)
                for n, t in tables.items()
                if t.confidence_method == method and t.confidence and t.ece and t.rc_auc
            },
        )
    lines += _table(
        "Shapley values (table 4)", MODALITIES, {n: tuple(t.shapley[m] for m in MODALITIES) for n, t in tables.items()}
    )
    lines += _table(
        "Normalised reliance (table 5)",
        MODALITIES,
        {n: tuple(t.reliance[m] for m in MODALITIES) for n, t in tables.items()},
    )
    lines.append("\nSigned-rank tests of accuracy lost, by anchor (table 14)\n")
    for name, t in tables.items():
        for pair, test in t.reliance_tests.items():
            lines.append(f"{name}: {pair} {100 * test.mean_difference:+.1f} pp, p = {test.p_value:.3g}")
    return lines


def _of_comparison(comparison: OMDComparison) -> list[str]:
    lines = ["\nDifferences, paired over the same units; p by permutation; McNemar adjusted (appendix A.11)\n"]
    for pair in comparison.pairs:
        lines.append(
            f"{pair.first} - {pair.second}: p = {pair.permutation_p:.3g}, {pair.n_left_out} instances left out"
        )
        lines += [f"  {what}: {shown(score)}" for what, score in pair.differences.items()]
        lines.append("  McNemar: " + ", ".join(f"{c} {p:.3g}" for c, p in pair.mcnemar_p.items()))
    lines += [f"Friedman {level}: p = {test.p_value:.3g}" for level, test in comparison.friedman.items()]
    return lines


def _table(title: str, columns: Iterable[str], rows: Mapping[str, Sequence[Score]]) -> list[str]:
    if not rows:
        return []
    names = ["model", *columns]
    cells = ["| " + " | ".join([name, *map(shown, row)]) + " |" for name, row in rows.items()]
    return [f"\n{title}\n", "| " + " | ".join(names) + " |", "|" + " --- |" * len(names), *cells]
