"""Every format goes through a whole build on real annotations: rows counted, nothing lost silently, a card to read."""

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest
from chat_server import chat, running_server, send

from proofreel.core.config import load_config
from proofreel.core.errors import ConfigError
from proofreel.data_prep.dataset.shards import read_manifest, read_split
from proofreel.data_prep.language.client import LanguageModelConfig
from proofreel.data_prep.pipeline.config import BuildConfig, ByModelConfig, NegativesConfig, SourceConfig, SplitsConfig
from proofreel.data_prep.pipeline.pipeline import build

ROOT = Path(__file__).resolve().parents[2]
PLAIN = NegativesConfig(swapped_per_claim=0)


def sources(data: Path, name: str) -> SourceConfig:
    mirage = data / "mirage"
    found: dict[str, tuple[list[Path], dict]] = {
        "mirage": ([mirage / "human_eval_subset.json"], {}),
        "mirage_predictions": (sorted((mirage / "model_preds").glob("*_relevant_citations.json")), {}),
        "mirage_judgments": (sorted((mirage / "metric_preference").glob("metric_*.json")), {"annotators": "majority"}),
        "murgat": ([data / "video-clips" / "responses.json"], {}),
        "cgbench": ([data / "cg-bench" / "cgbench_mini.8records.json"], {"gap_s": 2.0}),
        "youcook2": ([data / "youcook2" / "youcookii_annotations_trainval.40videos.json"], {"use_subsets": True}),
        "videommmu": (sorted((data / "video-mmmu").glob("*.json")), {}),
        "facts": ([data / "video-clips" / "annotations.json"], {}),
    }
    paths, options = found[name]
    return SourceConfig(name, paths=tuple(map(str, paths)), options=options)  # type: ignore[arg-type]


def config(data: Path, tmp_path: Path, name: str, **changes: object) -> BuildConfig:
    base = BuildConfig(
        str(tmp_path / name), (sources(data, name),), media="absent", negatives=PLAIN, shortcut_probe=False, card=False
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "rows", "supported"),
    [
        ("mirage", 5_378, 907),
        ("mirage_judgments", 1_821, 495),
        ("murgat", 12, 9),
        ("cgbench", 60, 8),
        ("youcook2", 296, 296),
    ],
)
def test_a_format_builds_whole(shared_data, tmp_path, name, rows, supported):
    manifest = build(config(shared_data, tmp_path, name), skip_invalid=name == "murgat")
    assert manifest["counts"]["all"]["rows"] == rows
    assert manifest["counts"]["all"]["label"]["supported"] == supported
    assert sum(source["rows"] for source in manifest["sources"]) >= rows


def test_predictions_carry_no_labels_and_their_sentences_as_context(shared_data, tmp_path):
    settings = config(shared_data, tmp_path, "mirage_predictions")
    manifest = build(settings)
    assert manifest["counts"]["all"]["label"] == {"None": manifest["counts"]["all"]["rows"]}
    pairs = [p for split in manifest["shards"] for p in read_split(settings.output, split)]
    assert all(p.context and p.origin == "prediction" for p in pairs)


def test_all_annotators_may_disagree_side_by_side(shared_data, tmp_path):
    source = dataclasses.replace(sources(shared_data, "mirage_judgments"), options={"annotators": "all"})
    manifest = build(config(shared_data, tmp_path, "mirage_judgments", sources=(source,)))
    assert manifest["counts"]["all"]["rows"] == 5_689
    assert manifest["merged_repeats"] == 0


def test_use_subsets_fixes_the_splits(shared_data, tmp_path):
    manifest = build(config(shared_data, tmp_path, "youcook2"))
    assert set(manifest["shards"]) == {"train", "test"}


def test_lectures_are_not_divided(shared_data, tmp_path):
    settings = config(shared_data, tmp_path, "videommmu")
    manifest = build(settings, skip_invalid=True)
    splits: dict[str, set] = {}
    for split in manifest["shards"]:
        for pair in read_split(settings.output, split):
            splits.setdefault(pair.group, set()).add(split)
    assert {len(found) for found in splits.values()} == {1}
    assert {"Perception", "Comprehension", "Adaptation"} <= set(manifest["counts"]["all"]["role"])


def test_the_shipped_presets_build(shared_data, tmp_path, monkeypatch):
    (tmp_path / "cgbench_mini.json").write_bytes((shared_data / "cg-bench/cgbench_mini.8records.json").read_bytes())
    monkeypatch.setenv("CGBENCH", str(tmp_path))
    assert build(load_config(BuildConfig, ROOT / "configs/cgbench_build.yaml", [f"output={tmp_path}/cg"]))
    clips = shared_data / "video-clips"
    source = f"sources=[{{format: facts, path: {clips}/annotations.json}}]"
    manifest = build(load_config(BuildConfig, ROOT / "configs/facts_build.yaml", [f"output={tmp_path}/facts", source]))
    origins = manifest["counts"]["all"]["origin"]
    wanted = {"annotated", "negative_annotated", "swapped_evidence", "altered_claim", "altered_claim_B", "other_time"}
    assert wanted <= set(origins)
    assert manifest["shortcut_probe"]["overall"]["value"] is not None
    assert manifest["media_files"]
    card = (tmp_path / "facts" / "README.md").read_text()
    assert all(word in card for word in ("altered_claim", "claim alone", "annotations.json", "other_time"))
    assert "/" + str(clips).strip("/") not in card
    assert list((tmp_path / "facts" / "card").glob("*.png"))


def test_negatives_never_contradict_what_is_known(shared_data, tmp_path):
    clips = shared_data / "video-clips"
    rules = NegativesConfig(altered_per_claim=2, swapped_per_claim=1)
    settings = config(shared_data, tmp_path, "facts", negatives=rules, splits=SplitsConfig(1.0, 0.0, 0.0, 0.0))
    build(settings)
    labels: dict = {}
    for pair in read_split(settings.output, "train"):
        labels.setdefault((pair.claim.casefold(), pair.evidence), Counter())[pair.label] += 1
    assert max(len(found) for found in labels.values()) == 1
    assert max(found.total() for found in labels.values()) == 1
    assert clips.is_dir()


def test_statements_by_a_language_model_and_replay(shared_data, tmp_path):
    def answer(request: dict) -> dict:
        pairs = json.loads(request["messages"][-1]["content"].rpartition("\n\n")[0])
        sentences = [f"In the video, {p['answer'].rstrip('.')} is what is shown." for p in pairs]
        return chat(json.dumps({"statements": sentences}))

    source = dataclasses.replace(sources(shared_data, "cgbench"), statements="model")
    with running_server() as server:
        server.answer = answer
        model = LanguageModelConfig(base_url=server.url, model="any", cache_dir=str(tmp_path / "answers"))
        first = config(shared_data, tmp_path, "cgbench", sources=(source,), language_model=model)
        manifest = build(first)
    assert server.bodies
    assert manifest["counts"]["all"]["rows"] == 60
    pairs = [p for split in manifest["shards"] for p in read_split(first.output, split)]
    assert all(p.claim.startswith("In the video, ") for p in pairs)
    replay = dataclasses.replace(model, mode="replay")
    again = dataclasses.replace(first, language_model=replay, output=str(tmp_path / "again"))
    assert build(again)["shards"] == manifest["shards"]


def test_a_question_no_model_answers_is_rejected_or_told_by_template(shared_data, tmp_path):
    def answer(request: dict) -> dict:
        pairs = json.loads(request["messages"][1]["content"].rpartition("\n\n")[0])
        if pairs[0]["question"].startswith("What"):
            return chat("I would rather not.")
        return chat(json.dumps({"statements": [f"It is {n}: {p['answer']}" for n, p in enumerate(pairs)]}))

    with running_server() as server:
        server.answer = answer
        model = LanguageModelConfig(base_url=server.url, model="any", cache_dir=str(tmp_path / "answers"))
        source = dataclasses.replace(sources(shared_data, "cgbench"), statements="model")
        strict = config(shared_data, tmp_path, "cgbench", sources=(source,), language_model=model)
        manifest = build(strict, skip_invalid=True)
        lenient = dataclasses.replace(source, statements="model_or_template")
        told = build(dataclasses.replace(strict, sources=(lenient,), output=str(tmp_path / "told")))
    assert sum(manifest["rejected"].values()) > 0
    assert manifest["counts"]["all"]["rows"] < told["counts"]["all"]["rows"] == 60
    claims = [p.claim for split in told["shards"] for p in read_split(tmp_path / "told", split)]
    assert {claim.startswith("The answer to the question") for claim in claims} == {True, False}
    assert manifest["language_model"]["requests"] > 0


def test_a_model_that_refuses_service_loses_nothing_that_was_done(shared_data, tmp_path, monkeypatch):
    with running_server() as server:
        model = LanguageModelConfig(base_url=server.url, model="any", cache_dir=str(tmp_path / "answers"))
        rules = NegativesConfig(swapped_per_claim=0, by_model=ByModelConfig(per_claim=1))
        settings = config(shared_data, tmp_path, "facts", negatives=rules, language_model=model)
        server.plan = [send({"error": "no such key"}, status=401)] * 50
        with pytest.raises(ConfigError, match="401"):
            build(settings)
        server.plan = []
        read = []
        monkeypatch.setattr(
            "proofreel.data_prep.pipeline.sources.check_contents", lambda rows: read.append(rows) or (rows, [])
        )
        manifest = build(settings)
    assert read == []  # the rows were still there
    assert manifest["counts"]["all"]["rows"] == 270


def test_a_wrong_option_or_a_missing_model_is_named_before_any_file_is_read(shared_data, tmp_path):
    wrong = SourceConfig("cgbench", "none.json", options={"clue": "joint"})
    path = str(shared_data / "cg-bench" / "cgbench_mini.8records.json")
    for source, words in (
        (dataclasses.replace(wrong, path=path), r"sources\[0\].options.*clue.*did you mean clues"),
        (SourceConfig("facts", path, options={"x": 1}), "format has no options"),
        (SourceConfig("cgbench", path, statements="model"), "language_model: required"),
        (SourceConfig("facts", path, statements="model"), "format writes none"),
    ):
        with pytest.raises(ConfigError, match=words):
            build(BuildConfig(str(tmp_path / "x"), (source,), media="absent"))
    by_model = NegativesConfig(by_model=ByModelConfig(per_claim=1))
    with pytest.raises(ConfigError, match="required for negatives"):
        build(BuildConfig(str(tmp_path / "x"), (SourceConfig("facts", path),), media="absent", negatives=by_model))


def test_the_manifest_of_a_finished_build_is_the_one_returned(shared_data, tmp_path):
    settings = config(shared_data, tmp_path, "murgat")
    assert build(settings, skip_invalid=True) == read_manifest(settings.output)
