"""What `proofreel mirage` writes and prints: of systems scored by a verifier, and of the released human judgments."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core import ConfigError, RowError
from ..scores import Score, mean_difference, plain
from .formulas import F1S, MirageResult, MirageScores
from .human import (
    TABLE_1_ROUGE_L,
    TABLE_2,
    TABLE_9,
    Ranking,
    agreements,
    audit,
    human_groundedness,
    human_info_scores,
    human_preferences,
    same_system,
    texts_of,
    values_of,
)
from .records import MirageOptions
from .shares import SHARES
from .text_overlap import rouge
from .textrag import TEXTRAG_SHARES

ABOUT_REFERENCE_CLAIMS = ("info_r", "cite_r", "alce_claim_recall", "argue_nugget_coverage")
MEASURES = ("f1", "precision", "recall")


METRICS = ("infof1", "citef1", "alce", "argue", "ragas")


def shares_of(metrics: Sequence[str], forms: Sequence[str], precision_only: bool) -> list[str]:
    """The shares that metrics are made of.

    Args:
        metrics: of `METRICS`.
        forms: of MiRAGE's own precision: collection, reference or both.
        precision_only: none that is about reference claims.
    """
    starts = tuple(metric.removesuffix("f1") for metric in metrics)
    chosen = [share for share in (*SHARES, *TEXTRAG_SHARES) if share.startswith(starts)]
    chosen = [share for share in chosen if "_p_" not in share or share.endswith(tuple(forms))]
    return [share for share in chosen if not (precision_only and share in ABOUT_REFERENCE_CLAIMS)]


def result_to_dict(result: MirageResult, options: MirageOptions) -> dict[str, Any]:
    """A result as JSON values; NaN is None."""
    return {
        "options": dataclasses.asdict(options),
        "n_questions": result.n_questions,
        "n_passes": result.n_passes,
        "systems": {
            system: {name: score.to_dict() | {"n_topics_undefined": result.undefined[system][name]}
                     for name, score in scores.items()}
            for system, scores in result.systems.items()
        },
        "differences": {
            system: {name: score.to_dict() for name, score in scores.items()}
            for system, scores in differences(result).items()
        },
        "topics": {
            topic: {system: _response_to_dict(by_topic[topic]) for system, by_topic in result.responses.items()
                    if topic in by_topic}
            for topic in dict.fromkeys(topic for by_topic in result.responses.values() for topic in by_topic)
        },
    }  # fmt: skip


def differences(result: MirageResult) -> dict[str, dict[str, Score]]:
    """Each further system minus the first one, paired over their common topics."""
    first, *others = result.systems
    return {
        system: {name: mean_difference(result.units(system, name), result.units(first, name))
                 for name in result.systems[system]}
        for system in others
    }  # fmt: skip


def result_table(result: MirageResult) -> str:
    """Scores of the systems side by side in percent, as a Markdown table."""
    systems = list(result.systems)
    names = list(result.systems[systems[0]])
    apart = differences(result)
    head = ["score", *systems, *(f"{system} - {systems[0]}" for system in apart)]
    rows = [
        [name, *(_printed(result.systems[s][name]) for s in systems), *(_printed(d[name], "+") for d in apart.values())]
        for name in names
    ]
    return "\n".join([
        *_markdown(head, rows),
        "",
        "Percent, mean over topics [95 % interval over resampled topics].",
        f"{result.n_questions} questions, {result.n_passes} encoder passes; "
        f"{sum(s[n].n_failed for s in result.systems.values() for n in s if n not in F1S)} judgments failed.",
    ])  # fmt: skip


def human_report(root: Path, metrics: Sequence[Path] = ()) -> dict[str, Any]:
    """Human scores, their taus with preferences, beside the paper's, and taus of further metrics; as JSON values.

    Taus stand times 100, None where failed judgments leave one open; under `agreement` with bounds and intervals over
    topics.

    Args:
        root: the release's data/wikivideo folder, or one that holds its folders of human judgments directly.
        metrics: result.json files of `proofreel mirage score`.
    """
    judgments = root / "human_judgments" if (root / "human_judgments").is_dir() else root
    scores = human_info_scores(judgments / "metric_preference")
    ratings = human_preferences(judgments / "human_preference")
    grounded = human_groundedness(judgments / "grounding_judgments")
    people = {measure: {a: values_of(scores[a], measure) for a in sorted(scores)} for measure in MEASURES}
    with_preferences = {
        measure: list(zip(*(agreements(metric, ratings) for metric in by_annotator.values()), strict=True))
        for measure, by_annotator in people.items()
    }
    of_groundedness = agreements(grounded, ratings)
    report: dict[str, Any] = {
        "info": {str(a): {t: {s: {m: getattr(e, m).to_dict() for m in MEASURES} for s, e in by_system.items()}
                          for t, by_system in by_topic.items()} for a, by_topic in scores.items()},
        "groundedness": grounded,
        "tau_with_preferences": {m: [_times_100(row) for row in rows] for m, rows in with_preferences.items()},
        "tau_of_groundedness": _times_100(of_groundedness),
        "agreement": plain({"tau_with_preferences": with_preferences, "tau_of_groundedness": of_groundedness}),
        "metrics": {},
        "audit": _audits(root),
    }  # fmt: skip
    further: dict[str, Ranking] = {}
    try:
        further["rougeL"] = _rouge(judgments / "metric_preference")
    except ConfigError as error:
        report["without_rouge"] = str(error)
    for path in metrics:
        further |= _metrics_of(path)
    for name, metric in further.items():
        against = {"preferences": agreements(metric, ratings)}
        against |= {measure: agreements(metric, by_annotator) for measure, by_annotator in people.items()}
        grounding = agreements(metric, {1: grounded})
        report["metrics"][name] = {
            **{other: _times_100(means) for other, means in against.items()},
            "grounding": _times_100(grounding)[0],
            "agreement": plain(against | {"grounding": grounding[0]}),
        }
    return report


def human_report_text(report: Mapping[str, Any]) -> str:
    """The report as Markdown: each value beside the printed one where the paper has it."""
    agreement = report["agreement"]
    lines = ["## Table 9: human InfoF1 and its parts against preferences", ""]
    head = ["measure", "preferences of", *(f"judgments of {a}" for a in report["info"])]
    rows = [
        [measure, str(e + 1), *(_beside(*both) for both in zip(values, TABLE_9[measure][e], strict=True))]
        for measure, by_annotator in agreement["tau_with_preferences"].items()
        for e, values in enumerate(by_annotator)
    ]
    lines += [*_markdown(head, rows), "", "## Table 2: InfoF1 again, and groundedness", ""]
    f1 = zip(agreement["tau_with_preferences"]["f1"], TABLE_2["f1"], strict=True)
    rows = [[str(e + 1), *(_beside(*both) for both in zip(*row, strict=True)), _beside(grounding, printed)]
            for e, (row, grounding, printed) in enumerate(
                zip(f1, agreement["tau_of_groundedness"], TABLE_2["grounding"], strict=True))]  # fmt: skip
    lines += [*_markdown(["preferences of", *head[2:], "grounding"], rows), ""]
    lines += ["## Metrics against people", ""]
    rows = []
    for name, metric in report["metrics"].items():
        printed, means = TABLE_1_ROUGE_L if name == "rougeL" else {}, metric["agreement"]
        for people in ("preferences", *MEASURES):
            cells = printed.get(people, [None] * len(means[people]))
            rows.append([name, people, *(_beside(*both) for both in zip(means[people], cells, strict=True))])
        rows.append([name, "grounding", _beside(means["grounding"], printed.get("grounding")), "", ""])
    lines += _markdown(["metric", "against", "1", "2", "3"], rows) if rows else [report.get("without_rouge", "none")]
    for name, topics in report["audit"].items():
        lines += ["", f"## Released scores of {name}", "", *_audit_table(topics)]
    last = (
        "Kendall's tau times 100, mean over topics [95 % interval over resampled topics]. "
        "ok: as printed; otherwise (printed)."
    )
    return "\n".join([*lines, "", last])


def _rouge(folder: Path) -> Ranking:
    references, predictions = texts_of(folder)
    return {
        topic: dict(zip(by_system, rouge(list(by_system.values()), [references[topic]] * len(by_system)), strict=True))
        for topic, by_system in predictions.items()
    }


def _times_100(means: Sequence[Score]) -> list[float | None]:
    return [None if math.isnan(mean.value) else 100 * mean.value for mean in means]


def _audits(root: Path) -> dict[str, Any]:
    """Of every system whose released scores, predictions and reference claims are there."""
    audits = {}
    for info in sorted((root / "metric_outputs").glob("*_collection_info_f1_*.json")):
        system = info.name.partition("_collection_")[0]
        predictions = root / "model_preds" / f"{system}_relevant_citations.json"
        cite = info.with_name(info.name.replace("_info_f1_", "_cite_f1_"))
        topics = audit(info, cite, predictions, root / "human_eval_subset.json")
        audits[system] = {topic: dataclasses.asdict(audited) for topic, audited in topics.items()}
    return audits


def _audit_table(topics: Mapping[str, Any]) -> list[str]:
    def count(value: Sequence[int] | None) -> str:
        return "no whole count" if value is None else f"{value[0]}/{value[1]}"

    head = ["topic", "InfoP", "InfoR", "CiteP", "most by code", "CiteR", "most", "most by code", "F1 agree"]
    rows = [
        [topic, *(count(a[key]) for key in ("info_p", "info_r")), count(a["cite_p"]), f"{a['cite_p_most_by_code']:.3f}",
         count(a["cite_r"]), f"{a['cite_r_most']:.3f}", f"{a['cite_r_most_by_code']:.3f}", str(a["f1_agrees"]).lower()]
        for topic, a in topics.items()
    ]  # fmt: skip
    return _markdown(head, rows)


def _metrics_of(path: Path) -> dict[str, Ranking]:
    """The scores in a result.json of `proofreel mirage score`, by name."""
    try:
        topics = json.loads(path.read_text(encoding="utf-8"))["topics"]
        metrics: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
        for topic, by_system in topics.items():
            for system, scores in by_system.items():
                for name, score in scores["scores"].items():
                    value = math.nan if score["value"] is None else score["value"]
                    metrics[name][topic][same_system(system)] = value
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RowError(f"{path}: is no result.json of `proofreel mirage score`, got {error!r}; give one") from None
    return dict(metrics)


def _response_to_dict(scores: MirageScores) -> dict[str, Any]:
    return {
        "scores": {name: score.to_dict() for name, score in scores.scores.items()},
        "details": plain(scores.details),
        "items": {
            share: [
                {
                    "claim": judged.item.claim,
                    **({} if judged.item.citation is None else {"citation": judged.item.citation}),
                    **({} if judged.item.error is None else {"error": judged.item.error}),
                    "importance": judged.item.importance,
                    "value": None if math.isnan(judged.value) else judged.value,
                    "low": judged.low,
                    "high": judged.high,
                    "judgments": [
                        {
                            "source": question.pair.id.rpartition("/")[2],
                            "quality": question.quality,
                            "supported": (answer := judged.judgments[question.pair.id]).supported,
                            "p_supported": None if math.isnan(answer.p_supported) else answer.p_supported,
                            "error": answer.error,
                        }
                        for question in judged.item.questions
                    ],
                }
                for judged in items
            ]
            for share, items in scores.items.items()
        },
    }


def _printed(score: Score, sign: str = "") -> str:
    """A score in percent; its bounds where judgments failed."""
    if math.isnan(score.low):
        return "undefined"
    value = f"{100 * score.value:{sign}.1f}"
    if math.isnan(score.value):
        value = f"{100 * score.low:{sign}.1f} to {100 * score.high:{sign}.1f}"
    interval = score.interval
    if interval is None or math.isnan(interval.low):
        return value
    return f"{value} [{100 * interval.low:{sign}.1f}, {100 * interval.high:{sign}.1f}]"


def _beside(mean: Mapping[str, Any], printed: float | None) -> str:
    """A recomputed tau, the printed one where it differs, and the interval; bounds where judgments failed."""
    if mean["value"] is None:
        text = f"{100 * mean['low']:.1f} to {100 * mean['high']:.1f}"
    else:
        text = f"{100 * mean['value'] + 0.0:.1f}"
    if printed is not None:
        text += " ok" if text == f"{printed:.1f}" else f" ({printed:.1f})"
    ends = mean["interval_95"]
    return text if ends is None else f"{text} [{100 * ends[0]:.0f}, {100 * ends[1]:.0f}]"


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
