"""Text judgments: one row per annotator and claim, each against the other text."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from proofreel.core.pairs import Passage, problems_of
from proofreel.data_prep.importers.base import Rejected, Row
from proofreel.data_prep.importers.mirage_judgments import MirageJudgmentsOptions, read

SYSTEMS = {"qwen3_llm": 259, "qwen_72b_cag": 316, "qwen_72b_rag": 389}
REFERENCE_CLAIMS = 316


def item(claim: str, judgment: Any) -> dict[str, Any]:
    return {"claim": claim, "judgment": judgment}


def predicted(**changes: Any) -> dict[str, Any]:
    return {
        "prediction": "P.",
        "claims": {"S one.": [item("a", True), item("b", False)], "S two.": [item("a", None)]},
    } | changes


def reference(**changes: Any) -> dict[str, Any]:
    return {"reference": "R.", "claims": [item("x", True), item("y", None)]} | changes


def write(path: Path, **topics: Any) -> Path:
    path.write_text(json.dumps(topics, indent=1), encoding="utf-8")
    return path


def write_both(folder: Path, prediction: Any, ref: Any, annotator: int = 1) -> tuple[Path, Path]:
    name = f"sys_a_annotator_{annotator}_DONE.json"
    return (
        write(folder / f"metric_prediction_{name}", A_topic=prediction),
        write(folder / f"metric_reference_{name}", A_topic=ref),
    )


def rows_of(path: Path, **options: Any) -> list[Row]:
    return [found for found in read(path, MirageJudgmentsOptions(**options)) if isinstance(found, Row)]


def rejected_of(path: Path, **options: Any) -> list[Rejected]:
    return [found for found in read(path, MirageJudgmentsOptions(**options)) if isinstance(found, Rejected)]


@pytest.mark.parametrize("system", sorted(SYSTEMS))
@pytest.mark.parametrize("annotator", [1, 2, 3])
def test_the_real_files_have_the_documented_counts(shared_data, system, annotator):
    folder = shared_data / "mirage" / "metric_preference"
    for kind, count in (("prediction", SYSTEMS[system]), ("reference", REFERENCE_CLAIMS)):
        found = list(read(folder / f"metric_{kind}_{system}_annotator_{annotator}_DONE.json", MirageJudgmentsOptions()))
        pairs = [row.pair for row in found if isinstance(row, Row)]
        assert len(pairs) == len(found) == len({pair.id for pair in pairs}) == count
        assert len({pair.group for pair in pairs}) == 10
        assert not [problem for pair in pairs for problem in problems_of(pair)]
        assert all((pair.context is None) == (kind == "reference") for pair in pairs)


def test_39_reference_claims_of_one_real_file_are_unjudged_and_stay(shared_data):
    path = shared_data / "mirage" / "metric_preference" / "metric_reference_qwen_72b_cag_annotator_1_DONE.json"
    assert Counter(row.pair.label for row in rows_of(path)) == {"supported": 107, "not_enough": 170, None: 39}


def test_the_real_texts_are_the_same_wherever_they_are_taken_from(shared_data):
    folder = shared_data / "mirage" / "metric_preference"
    predicted_file = folder / "metric_prediction_qwen_72b_rag_annotator_2_DONE.json"
    reference_file = folder / "metric_reference_qwen_72b_rag_annotator_2_DONE.json"
    assert rows_of(predicted_file) == rows_of(predicted_file, reference="../human_eval_subset.json")
    elsewhere = "../model_preds/qwen_72b_rag_relevant_citations.json"
    assert rows_of(reference_file) == rows_of(reference_file, prediction=elsewhere)


def test_every_real_reference_claim_finds_its_sentence(shared_data):
    path = shared_data / "mirage" / "metric_preference" / "metric_reference_qwen3_llm_annotator_2_DONE.json"
    assert all(row.pair.context for row in rows_of(path, sentences="../human_eval_subset.json"))


def test_a_claim_is_judged_against_the_other_text(tmp_path):
    one, two = write_both(tmp_path, predicted(), reference())
    rows = [row.pair for row in rows_of(one)]
    assert [(p.claim, p.label, p.context) for p in rows] == [
        ("a", "supported", "S one."),
        ("b", "not_enough", "S one."),
        ("a", None, "S two."),
    ]
    assert {(p.evidence, p.group, p.role, p.modality) for p in rows} == {
        ((Passage("R."),), "A topic", "prediction_claim", "text")
    }
    assert rows[0].meta == {"system": "sys_a", "annotator": 1}
    back = [row.pair for row in rows_of(two)]
    assert [(p.claim, p.label, p.context, p.role) for p in back] == [
        ("x", "supported", None, "reference_claim"),
        ("y", None, None, "reference_claim"),
    ]
    assert {p.evidence for p in back} == {(Passage("P."),)}
    assert len({p.id for p in rows + back}) == 5


def test_annotators_differ_in_the_end_of_the_id_only(tmp_path):
    first, _ = write_both(tmp_path, predicted(), reference())
    third, _ = write_both(tmp_path, predicted(), reference(), annotator=3)
    ids = [[row.pair.id for row in rows_of(path)] for path in (first, third)]
    assert [id.removesuffix("/annotator_1") for id in ids[0]] == [id.removesuffix("/annotator_3") for id in ids[1]]


def test_a_missing_text_is_listed_with_the_option_that_names_it(tmp_path):
    one, two = write_both(tmp_path, predicted(), reference())
    two.unlink()
    (bad,) = rejected_of(one)
    assert "file with the other text is missing" in bad.reason
    assert "set the option `reference`" in bad.reason
    assert rows_of(one) == []
    other = write(tmp_path / "texts.json", Another={"article": "R."})
    (bad,) = rejected_of(one, reference=other.name)
    assert "topic has no text to be judged against, got no reference of 'A_topic'; set the option" in bad.reason
    assert (bad.id, bad.line, bad.pairs) == ("A_topic", 2, 3)
    other.write_text('{"A_topic": {"article": "R."}, ')
    assert [(item.file, item.kind) for item in rejected_of(one, reference=other.name)] == [
        (str(other), "not valid JSON")
    ]
    (tmp_path / "metric_reference_sys_a_annotator_1_DONE.json").write_text("{}")
    assert "sentences" in rejected_of(write_both(tmp_path, predicted(), reference())[1], sentences="no.json")[0].reason


def test_a_file_name_that_tells_nothing_is_listed(tmp_path):
    path = write(tmp_path / "judgments.json", t=predicted())
    assert [found.kind for found in rejected_of(path)] == ["file name says no kind, system and annotator"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prediction": None}, "topic must hold its prediction as text"),
        ({"claims": [item("a", True)]}, "claims must map sentences to lists"),
        ({"claims": {"S.": None}}, "claims must map sentences to lists"),
        ({"claims": {"S.": ["a"]}}, "item needs a claim and a judgment"),
        ({"claims": {"S.": [{"claim": "a"}]}}, "item needs a claim and a judgment"),
        ({"claims": {"S.": [item("a", 1)]}}, "judgment must be true, false or null, got 1"),
        ({"claims": {"S.": [item("a", "true")]}}, "judgment must be true, false or null, got 'true'"),
    ],
)
def test_damaged_predicted_claims_are_listed(tmp_path, changes, words):
    path, _ = write_both(tmp_path, predicted(**changes), reference())
    (bad,) = rejected_of(path)
    assert words in bad.reason
    assert (bad.id, bad.line, bad.blocking) == ("A_topic", 2, True)
    assert rows_of(path) == []


def test_damaged_reference_claims_are_listed(tmp_path):
    _, path = write_both(tmp_path, predicted(), reference(claims={"x": True}))
    assert "claims must be a list" in rejected_of(path)[0].reason
    _, path = write_both(tmp_path, predicted(), reference(claims=[item("x", True), item("x", False)]))
    assert [(found.kind, found.pairs) for found in rejected_of(path)] == [("claim is judged twice in one sentence", 1)]
    assert [row.pair.label for row in rows_of(path)] == ["supported"]
    path.write_text(path.read_text()[:-10])
    assert [found.kind for found in rejected_of(path)] == ["not valid JSON"]
