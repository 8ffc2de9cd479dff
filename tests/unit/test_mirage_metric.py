"""`proofreel mirage human --metric`: people's labels, scored and written as `mirage score` does, give table 9."""

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from nightly import first_of

from proofreel.core import VideoSegment
from proofreel.eval import mirage as command
from proofreel.eval.articles import (
    Claim,
    MirageOptions,
    ReferenceClaim,
    Response,
    Sentence,
    Source,
    Topic,
    mirage_scores,
    result_to_dict,
)
from proofreel.eval.articles.human import TABLE_9
from proofreel.eval.scores import by_labels

SYSTEMS = ("qwen3_llm", "qwen_72b_cag", "qwen_72b_rag")
SHARES = ["info_p_reference", "info_r"]


@pytest.fixture(scope="module")
def released(shared_data: Path) -> Path:
    return shared_data / "mirage"


def members(path: Path) -> list[tuple[str, Any]]:
    return [(topic.replace("_", " "), value) for topic, value in json.loads(path.read_text()).items()]


def result_by_annotator(folder: Path, annotator: int, unjudged: bool | None) -> dict[str, Any]:
    """The three systems scored by one annotator's labels, as `mirage score` writes it; a copy of its own."""
    return json.loads(_result_by_annotator(folder, annotator, unjudged))


@cache
def _result_by_annotator(folder: Path, annotator: int, unjudged: bool | None) -> str:
    labels: dict[str, bool | None] = {}
    responses, claims = [], defaultdict(list)
    for system in SYSTEMS:
        end = f"{system}_annotator_{annotator}_DONE.json"
        for topic, value in members(folder / f"metric_prediction_{end}"):
            made = [(s, claim) for s, of_sentence in value["claims"].items() for claim in of_sentence]
            sentences = tuple(Sentence(s, ("x",), (Claim(claim["claim"]),)) for s, claim in made)
            responses.append(Response(topic, system, value["prediction"], sentences))
            for i, (_, claim) in enumerate(made):
                labels[f"{system}/{topic}/info_p_reference/{i}/reference"] = claim["judgment"]
        for topic, value in members(folder / f"metric_reference_{end}"):
            claims[topic] = [ReferenceClaim(claim["claim"], ("x",)) for claim in value["claims"]]
            for i, claim in enumerate(value["claims"]):
                labels[f"{system}/{topic}/info_r/{i}/response"] = claim["judgment"]
    topics = {
        topic: Topic(topic, "reference", tuple(each), {"x": Source(VideoSegment("x.mp4"))})
        for topic, each in claims.items()
    }
    judge = by_labels({name: unjudged if label is None else label for name, label in labels.items()})
    options = MirageOptions(duplicates="keep")
    result = mirage_scores(responses, topics, judge, shares=SHARES, options=options)
    return json.dumps(result_to_dict(result, options))


def agreement_of(released: Path, result: Any, folder: Path) -> dict[str, Any]:
    path = folder / "scores.json"
    path.write_text(json.dumps(result))
    assert command.main(["human", "--judgments", str(released), "--metric", str(path), "--out", str(folder)]) == 0
    return json.loads((folder / "result.json").read_text())["metrics"]


@pytest.mark.parametrize("annotator", first_of([1, 2, 3]))
def test_scores_by_an_annotators_labels_give_table_9_and_agree_with_themselves(released, tmp_path, annotator):
    result = result_by_annotator(released / "metric_preference", annotator, unjudged=False)
    metrics = agreement_of(released, result, tmp_path)
    columns = {"info_f1_reference": "f1", "info_p_reference": "precision", "info_r": "recall"}
    for name, measure in columns.items():
        printed = [row[annotator - 1] for row in TABLE_9[measure]]
        assert [round(tau, 1) for tau in metrics[name]["preferences"]] == printed
        itself = metrics[name]["agreement"][measure][annotator - 1]
        assert itself["interval_95"] == pytest.approx([1.0, 1.0])
        low, high = metrics[name]["agreement"]["preferences"][0]["interval_95"]
        assert low < printed[0] / 100 < high


def test_topics_whose_claims_were_left_unjudged_bound_the_tau(released, tmp_path, capsys):
    metrics = agreement_of(released, result_by_annotator(released / "metric_preference", 1, unjudged=None), tmp_path)
    assert metrics["info_r"]["preferences"] == [None] * 3
    first = metrics["info_r"]["agreement"]["preferences"][0]
    assert first["low"] < TABLE_9["recall"][0][0] / 100 < first["high"]
    assert f"{100 * first['low']:.1f} to {100 * first['high']:.1f}" in capsys.readouterr().out


def test_a_file_that_is_no_result_or_ranks_other_systems_is_named(released, tmp_path, capsys):
    path = tmp_path / "scores.json"
    path.write_text('{"topics": [1]}')
    assert command.main(["human", "--judgments", str(released), "--metric", str(path)]) == 1
    assert "scores.json: is no result.json" in capsys.readouterr().err
    result = result_by_annotator(released / "metric_preference", 1, unjudged=False)
    for by_system in result["topics"].values():
        del by_system["qwen3_llm"]
    path.write_text(json.dumps(result))
    assert command.main(["human", "--judgments", str(released), "--metric", str(path)]) == 1
    assert "qwen3_llm" in capsys.readouterr().err
