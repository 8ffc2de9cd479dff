"""MiRAGE by people: InfoP, InfoR and InfoF1 of annotators' judgments, their groundedness, and their preferences.

Released files (alexmartin1722/mirage, data/wikivideo): `metric_preference/` (claims that three annotators judged
against a text), `human_preference/` (ratings of three systems, and the key that says which prediction is whose) and
`grounding_judgments/` (claims judged against videos).

What the paper's numbers were made with, found by recomputing them:

- A claim left unjudged counts as unsupported. Here it is a failed judgment: the score is not a number, and its lower
  bound is the paper's (`Score.low`).
- Claims are counted as often as they stand in the prediction. Reference claims are those that some video supports.
- Grounding (table 2): the share of a prediction's different claims that any judged video supports.
- Agreement is Kendall's tau over three systems, per topic, then the mean over topics. Where a side ranks all systems
  equal it is not defined and counts as 0.

Of tables 1 to 8 the files allow the column of ROUGE-L (table 1) and all of table 2. Every other cell needs an automatic
metric's values for all three systems. In tables 1 and 2 annotators 2 and 3 of the claim judgments (ICJ) have changed
places against table 9 and the files.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from ...core import RowError
from ...data_prep.importers import IMPORTERS, Record, Rejected, Row, read_json_members
from ..scores import Score, bounded, mean_over
from .files import read_responses, read_topics
from .formulas import f1_of

Ranking = Mapping[str, Mapping[str, float]]
"""Topic -> system -> value; the more, the better. NaN: not known, as judgments failed."""


@dataclass(frozen=True)
class RankingAgreement:
    """Agreement of two rankings of systems.

    Attributes:
        per_topic: tau-b (SciPy); NaN where undefined or not known.
        mean: over topics, with bounds where some topic's tau is not known (it may be -1 or 1), and an interval.
        n_undefined: topics in which one side ranks all systems equal.
        n_unknown: topics with a value that is not known.
    """

    per_topic: dict[str, float]
    mean: Score
    n_undefined: int
    n_unknown: int


def ranking_agreement(
    metric: Ranking, people: Ranking, undefined: Literal["zero", "left_out"] = "zero"
) -> RankingAgreement:
    """The mean over topics of Kendall's tau between a metric and people.

    Args:
        metric, people: with the same topics, and in each topic the same systems, two at least.
        undefined: what a topic without a tau counts as; the paper's tables are made with zero.

    Raises:
        RowError: topics or systems differ.
    """
    _same("topics", set(metric), set(people), "rankings")
    per_topic: dict[str, float] = {}
    units: dict[str, Score] = {}
    unknown = 0
    for topic in metric:
        _same("systems", set(metric[topic]), set(people[topic]), topic)
        systems = sorted(metric[topic])
        values, ratings = [metric[topic][s] for s in systems], [people[topic][s] for s in systems]
        if any(math.isnan(value) for value in [*values, *ratings]):
            unknown += 1
            per_topic[topic] = math.nan
            units[topic] = Score(math.nan, -1.0, 1.0, 1, 1)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a constant side gives NaN, which is what is wanted
            statistic: Any = kendalltau(values, ratings)[0]
        tau = per_topic[topic] = float(statistic)
        if not math.isnan(tau) or undefined == "zero":
            value = 0.0 if math.isnan(tau) else tau
            units[topic] = Score(value, value, value, 1, 0)
    n_undefined = sum(math.isnan(tau) for tau in per_topic.values()) - unknown
    return RankingAgreement(per_topic, mean_over(units), n_undefined, unknown)


def _same(what: str, one: set[str], other: set[str], where: str) -> None:
    if one != other:
        raise RowError(
            f"{where}: {what} of the metric and of people differ, got {sorted(one ^ other)} on one side only; "
            "rank the same on both"
        )


_PLACES = ("first_prediction", "second_prediction", "third_prediction")
_SAME_SYSTEM: dict[str, str] = {"qwen3_llm_only": "qwen3_llm"}  # the release writes one system in two ways
_GROUNDING_FILE = re.compile(r"all_(?P<system>.+)_claims-.*")
_PREFERENCE_FILE = re.compile(r"preference_json_(?P<number>\d+)")


@dataclass(frozen=True)
class InfoScores:
    """InfoP, InfoR and InfoF1 of one response by one annotator; n counts claims, n_failed those left unjudged."""

    precision: Score
    recall: Score
    f1: Score


Ratings = dict[int, dict[str, dict[str, float]]]
"""Annotator -> topic -> system -> value."""


def same_system(name: str) -> str:
    """A system's name as the claim judgments write it."""
    return _SAME_SYSTEM.get(name) or name


def info_scores(predicted: Iterable[bool | None], reference: Iterable[bool | None]) -> InfoScores:
    """InfoP, InfoR, InfoF1 (MiRAGE, equations 1 and 2).

    Args:
        predicted: is each predicted claim supported by the reference; None: unknown.
        reference: is each reference claim supported by the prediction.
    """
    predicted, reference = list(predicted), list(reference)
    n = len(predicted)

    def f1(supported: NDArray[np.bool_]) -> float:
        return f1_of(_share(supported[:n]), _share(supported[n:]))

    return InfoScores(bounded(_share, predicted), bounded(_share, reference), bounded(f1, predicted + reference))


def _share(supported: NDArray[np.bool_]) -> float:
    return float(supported.mean()) if len(supported) else float("nan")


def human_info_scores(folder: Path) -> dict[int, dict[str, dict[str, InfoScores]]]:
    """Annotator -> topic -> system -> scores, from the files of `metric_preference/`.

    Raises:
        RowError: no such files, or one cannot be read.
    """
    judged: dict[tuple[int, str, str], dict[str, list[bool | None]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows("mirage_judgments", _files(folder, "metric_*_annotator_*.json")):
        pair = row.pair
        key = pair.meta["annotator"], pair.group, same_system(pair.meta["system"])
        judged[key][pair.role].append(None if pair.label is None else pair.label == "supported")
    scores: dict[int, dict[str, dict[str, InfoScores]]] = defaultdict(lambda: defaultdict(dict))
    for (annotator, topic, system), claims in judged.items():
        if missing := {"prediction_claim", "reference_claim"} - set(claims):
            raise RowError(
                f"{folder}: {topic!r} of {system!r} by annotator {annotator} lacks judgments, got no "
                f"{sorted(missing)[0]}; put both of its files there"
            )
        scores[annotator][topic][system] = info_scores(claims["prediction_claim"], claims["reference_claim"])
    return scores


def human_preferences(folder: Path) -> Ratings:
    """Likert ratings of the systems, from `human_preference/`; annotators are numbered by the order of their files.

    Raises:
        RowError: no such files, or one cannot be read.
    """
    key_file = _files(folder, "preference_key.json")[0]
    key = {topic: _checked(value, record, _PLACES, str) for record, topic, value in _members(key_file)}
    files = {int(match["number"]): path for path in _files(folder, "preference_json_*.json")
             if (match := _PREFERENCE_FILE.fullmatch(path.stem))}  # fmt: skip
    ratings: Ratings = {}
    for annotator, number in enumerate(sorted(files), start=1):
        ratings[annotator] = {}
        for record, topic, value in _members(files[number]):
            if topic not in key:
                raise RowError(f"{record.file}:{record.line}: topic is not in the key, got {topic!r}; add it")
            likert = _checked(value, record, [f"{place}_likert" for place in _PLACES], int)
            systems = [same_system(key[topic][place]) for place in _PLACES]
            ratings[annotator][_spaced(topic)] = {
                system: float(likert[f"{place}_likert"]) for system, place in zip(systems, _PLACES, strict=True)
            }
    return ratings


def human_groundedness(folder: Path) -> dict[str, dict[str, float]]:
    """Topic -> system -> share of different claims that at least one video supports, from `grounding_judgments/`.

    A pair judged twice with both labels counts as supported, as whoever found support found it somewhere.
    """
    supported: dict[tuple[str, str], dict[str, bool]] = defaultdict(dict)
    for path in _files(folder, "*.csv"):
        named = _GROUNDING_FILE.fullmatch(path.stem)
        if named is None:
            raise RowError(f"{path}: file name says no system, got {path.name!r}; name it all_<system>_claims-*.csv")
        system = same_system(named["system"])
        for row in _rows("grounding", [path]):
            claims = supported[_spaced(row.pair.group), system]
            claims[row.pair.claim] = claims.get(row.pair.claim, False) or row.pair.label == "supported"
    shares: dict[str, dict[str, float]] = defaultdict(dict)
    for (topic, system), claims in supported.items():
        shares[topic][system] = sum(claims.values()) / len(claims)
    return shares


def texts_of(folder: Path) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """References by topic, and predictions by topic and system, from the first annotator's `metric_preference/`."""
    references: dict[str, str] = {}
    predictions: dict[str, dict[str, str]] = defaultdict(dict)
    for path in _files(folder, "metric_*_annotator_1*.json"):
        kind, system = path.stem.removeprefix("metric_").partition("_annotator_")[0].split("_", 1)
        for record, topic, value in _members(path):
            text = _checked(value, record, [kind], str)[kind]
            if kind == "reference":
                references[_spaced(topic)] = text
            else:
                predictions[_spaced(topic)][same_system(system)] = text
    return references, predictions


def values_of(scores: Mapping[str, Mapping[str, InfoScores]], measure: str) -> dict[str, dict[str, float]]:
    """Topic -> system -> one of precision, recall, f1, as the paper counts it: unjudged is unsupported."""
    return {t: {s: getattr(each, measure).low for s, each in systems.items()} for t, systems in scores.items()}


def _files(folder: Path, pattern: str) -> list[Path]:
    found = sorted(folder.glob(pattern))
    if not found:
        raise RowError(f"{folder}: must hold {pattern}, got none; give the release's data/wikivideo folder")
    return found


def _rows(format: str, files: list[Path]) -> Iterator[Row]:
    importer = IMPORTERS[format]
    options = importer.parse_options({}, format)
    for path in files:
        for item in importer.read(path, options):
            if isinstance(item, Rejected):
                raise RowError(str(item))
            yield item


def _members(path: Path) -> Iterator[tuple[Record, str, Any]]:
    for record in read_json_members(path):
        if isinstance(record, Rejected):
            raise RowError(str(record))
        yield record, *record.value


def _checked(value: Any, record: Record, keys: Iterable[str], kind: type) -> dict[str, Any]:
    for key in keys:
        if not isinstance(value, dict) or not isinstance(value.get(key), kind):
            got = value.get(key) if isinstance(value, dict) else value
            raise RowError(
                f"{record.file}:{record.line}: {key} must be {kind.__name__}, got {got!r}; complete the topic"
            )
    return value


def _spaced(topic: str) -> str:
    return topic.replace("_", " ")


# Kendall's tau times 100. Rows: preferences (EQJ) of annotators 1 to 3; columns: claim judgments (ICJ) of 1 to 3.
TABLE_9 = {
    "f1": ((49.0, 65.3, 60.5), (61.3, 76.3, 81.2), (54.5, 70.8, 72.7)),
    "precision": ((37.8, 68.7, 36.0), (49.7, 53.0, 51.5), (43.3, 57.8, 49.7)),
    "recall": ((40.8, 59.0, 52.3), (68.0, 74.5, 81.2), (64.2, 77.2, 74.2)),
}
# The same InfoF1 again, in the order of the paper's rows put back to the files' annotators, and grounding (GJ).
TABLE_2 = {"f1": ((49.0, 65.4, 60.5), (61.3, 76.3, 81.2), (54.5, 70.8, 72.7)), "grounding": (18.2, -5.5, 23.0)}
# Table 1, column R-L: against preferences, against InfoF1 of the claim judgments (annotators 2 and 3 put back), and GJ.
TABLE_1_ROUGE_L = {"preferences": (55.8, 71.2, 41.2), "f1": (66.7, 68.2, 70.0), "grounding": -11.5}


def agreements(metric: Ranking, ratings: Ratings) -> list[Score]:
    """The mean tau of a metric with each annotator's ratings, an undefined tau as 0, with intervals over topics."""
    return [ranking_agreement(metric, ratings[annotator]).mean for annotator in sorted(ratings)]


def taus(metric: Ranking, ratings: Ratings) -> list[float]:
    """The same times 100, without intervals."""
    return [100 * mean.value for mean in agreements(metric, ratings)]


@dataclass(frozen=True)
class AuditedTopic:
    """What one topic's released InfoF1 and CiteF1 values are made of; see docs/scores.md.

    Attributes:
        n_claims, n_different: claims of the prediction as they stand, and different ones.
        n_reference: reference claims that some video supports.
        info_p, info_r, cite_p, cite_r: the released values as (count, out of); None where no whole count gives it. Of
            claims as they stand in InfoP, of different claims in CiteP, of `n_reference` in the recalls.
        f1_agrees: both released F1 are the harmonic means of the released parts.
        cite_p_most_by_code: the most that the released code can give: it adds each cited video's share of supported
            claims, which is at most 1, where the paper counts claims.
        cite_r_most: share of reference claims with a supporting video that the prediction cites.
        cite_r_most_by_code: the same where `watch?v=ID` and `ID` are two videos, as the released code has it.
    """

    n_claims: int
    n_different: int
    n_reference: int
    info_p: tuple[int, int] | None
    info_r: tuple[int, int] | None
    cite_p: tuple[int, int] | None
    cite_r: tuple[int, int] | None
    f1_agrees: bool
    cite_p_released: float
    cite_p_most_by_code: float
    cite_r_released: float
    cite_r_most: float
    cite_r_most_by_code: float


def audit(info_f1: Path, cite_f1: Path, responses: Path, topics: Path) -> dict[str, AuditedTopic]:
    """Hold one system's released score files against its predictions and the reference claims, topic by topic.

    Args:
        info_f1, cite_f1: released files of {topic: {precision, recall, f1}}, collection form.
        responses: the system's predictions.
        topics: `human_eval_subset.json`.
    """
    info, cite = _scores(info_f1), _scores(cite_f1)
    references = read_topics(topics, written_ids=True)
    joined = read_topics(topics)
    audited = {}
    for response in read_responses(responses):
        claims = [claim.text for sentence in response.sentences for claim in sentence.claims]
        cited = {source for sentence in response.sentences for source in sentence.citations}
        grounded = [claim for claim in joined[response.topic].claims if claim.sources]
        written = [claim for claim in references[response.topic].claims if claim.sources]
        p, c = info[response.topic], cite[response.topic]
        n, n_different = len(claims), len(set(claims))
        audited[response.topic] = AuditedTopic(
            n,
            n_different,
            len(grounded),
            _count(p["precision"], n),
            _count(p["recall"], len(grounded)),
            _count(c["precision"], n_different),
            _count(c["recall"], len(grounded)),
            all(math.isclose(f1_of(v["precision"], v["recall"]), v["f1"], abs_tol=1e-12) for v in (p, c)),
            c["precision"],
            len(cited) / n_different,
            c["recall"],
            sum(bool(cited & set(claim.sources)) for claim in grounded) / len(grounded),
            sum(bool(cited & set(claim.sources)) for claim in written) / len(grounded),
        )
    return audited


def _count(value: float, out_of: int) -> tuple[int, int] | None:
    count = round(value * out_of)
    return (count, out_of) if math.isclose(count / out_of, value, abs_tol=1e-12) else None


def _scores(path: Path) -> Mapping[str, Mapping[str, float]]:
    if not path.is_file():
        raise RowError(f"{path}: file of released scores is missing, got no such file; give the release's folder")
    return {topic.replace("_", " "): values for topic, values in json.loads(path.read_text(encoding="utf-8")).items()}
