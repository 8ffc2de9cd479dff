"""Mining a directory: train is mined, all else stays byte for byte, and the manifest says where it came from."""

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from proofreel.core.config import load_config
from proofreel.core.errors import ConfigError, RowError
from proofreel.core.pairs import Image, Pair, VideoSegment, evidence_key
from proofreel.core.storage import sha256_of
from proofreel.data_prep.dataset.shards import read_manifest, read_split, write_pairs
from proofreel.data_prep.mine import main
from proofreel.data_prep.negatives.hard_mining import MiningConfig
from proofreel.data_prep.pipeline.config import BuildConfig
from proofreel.data_prep.pipeline.mine import MineConfig, mine_data_set
from proofreel.data_prep.pipeline.pipeline import build
from proofreel.eval.scoring.predictions import Prediction, read_predictions, write_predictions

ROOT = Path(__file__).resolve().parents[2]
SHARES = (
    "card: false\nsplits: {train: 0.5, validation: 0.2, calibration: 0.1, test: 0.2}\nnegatives: {swapped_per_claim: 3}"
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """An annotation-only data set of 20 videos, three swapped negatives for every positive."""
    lines = []
    for n in range(20):
        facts = {"Action": f"action{n}", "Object": f"object{n}"}
        lines.append(json.dumps({"video": f"v{n}.mp4", "start_s": 0.0, "end_s": 1.0, "conceptual": facts}))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "facts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    config = tmp_path / "build.yaml"
    config.write_text(
        f"output: {tmp_path}/data\nmedia: absent\n{SHARES}\n"
        f"sources: [{{format: facts, path: {tmp_path}/in/facts.jsonl}}]\n"
    )
    build(load_config(BuildConfig, config))
    return tmp_path / "data"


def predict(data: Path, p_of: Callable[[Pair, int], float]) -> Path:
    """Made-up predictions on the train split, as any model's JSON lines."""
    path = data.with_name("predictions.jsonl")
    rows = sorted(read_split(data, "train"), key=lambda pair: pair.id)
    path.write_text(
        "".join(json.dumps({"pair_id": p.id, "p_supported": p_of(p, n)}) + "\n" for n, p in enumerate(rows))
    )
    return path


def config_of(data: Path, **mining) -> MineConfig:
    names = ("predictions.jsonl", "mined")
    predictions, output = (str(data.with_name(name)) for name in names)
    return MineConfig(str(data), predictions, output, mining=MiningConfig(**{"uncalibrated": "allow", **mining}))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "manifest.json"
    }


def test_train_is_balanced_and_every_other_split_is_copied_byte_for_byte(data):
    predict(data, lambda pair, n: 0.99 if pair.origin == "annotated" else n % 90 / 100)
    manifest = mine_data_set(config_of(data))
    mined, parent = Path(config_of(data).output), read_manifest(data)
    assert read_manifest(mined) == manifest
    rows = read_split(mined, "train")
    before = {pair.id: pair for pair in read_split(data, "train")}
    assert all(before[pair.id] == pair for pair in rows)
    positives = [p for p in rows if p.label == "supported"]
    assert len(rows) == 2 * len(positives)
    assert len(positives) == sum(p.label == "supported" for p in before.values())
    for split in ("validation", "calibration", "test"):
        assert manifest["shards"][split] == parent["shards"][split]
        assert manifest["counts"][split] == parent["counts"][split]
        assert read_split(mined, split) == read_split(data, split)
        for shard in manifest["shards"][split]:
            assert (mined / shard["file"]).read_bytes() == (data / shard["file"]).read_bytes()
    assert manifest["counts"]["train"]["label"] == {"refuted": len(positives), "supported": len(positives)}
    assert manifest["counts"]["all"]["rows"] == sum(manifest["counts"][s]["rows"] for s in manifest["shards"])
    assert (mined / "rejected.jsonl").read_bytes() == (data / "rejected.jsonl").read_bytes()


def test_the_manifest_names_predictions_parent_and_settings_and_rounds_form_a_chain(data):
    predictions = predict(data, lambda pair, n: 0.1)
    config = config_of(data)
    said = mine_data_set(config)["mining"]
    assert said["predictions"]["sha256"] == sha256_of(predictions)
    assert said["parent"]["manifest_sha256"] == sha256_of(data / "manifest.json")
    assert said["parent"]["shards"] == read_manifest(data)["shards"]
    assert said["config"] == json.loads(json.dumps(dataclasses.asdict(config)))
    assert said["scored_this_manifest"] is None
    first = Path(config.output)
    again = dataclasses.replace(config_of(first), output=str(first.with_name("again")))
    predict(first, lambda pair, n: 0.2)
    assert mine_data_set(again)["mining"]["parent"]["mining"] == said


@pytest.mark.parametrize(("recorded", "warned"), [("this", False), ("another", True)])
def test_predictions_of_the_verifier_itself_say_which_verifier_and_data_they_are_of(data, recorded, warned, capsys):
    sha256 = sha256_of(data / "manifest.json") if recorded == "this" else "0" * 64
    rows = [
        Prediction(p.id, 1.0, 0.7, p.label, p.split, p.group, p.role, p.origin, p.modality, claim=p.claim)
        for p in read_split(data, "train")
    ]
    predictions = data.with_name("predictions.parquet")
    write_predictions(predictions, rows, {"verifier_fingerprint": "f" * 64, "manifest_sha256": sha256})
    config = data.with_name("mine.yaml")
    config.write_text(f"data: {data}\npredictions: {predictions}\noutput: {data.with_name('mined')}\n")
    assert main(["--config", str(config), "mining.uncalibrated=allow"]) == 0
    said = read_manifest(data.with_name("mined"))["mining"]
    assert said["predictions"]["source"]["verifier_fingerprint"] == "f" * 64
    assert said["scored_this_manifest"] is not warned
    assert ("another manifest" in capsys.readouterr().out) == warned


def test_predictions_of_another_data_set_with_the_same_ids_and_claims_are_refused(data):
    rows = [
        Prediction(p.id, 1.0, 0.7, p.label, p.split, p.group, p.role, p.origin, p.modality, claim=p.claim, evidence=e)
        for p in read_split(data, "train")
        for e in [evidence_key(tuple(dataclasses.replace(piece, end_s=0.5) for piece in p.evidence))]
    ]
    predictions = data.with_name("predictions.parquet")
    write_predictions(predictions, rows, {"calibrated": True})
    with pytest.raises(
        RowError, match=rf"predictions\.parquet: other evidence was scored, got {len(rows)} of {len(rows)}"
    ):
        mine_data_set(dataclasses.replace(config_of(data), predictions=str(predictions)))


def test_nothing_but_a_data_set_is_ever_replaced(data):
    predictions = predict(data, lambda pair, n: 0.1)
    mine_data_set(config_of(data))
    output = Path(config_of(data).output)
    inside = output / predictions.name
    inside.write_bytes(predictions.read_bytes())
    config = dataclasses.replace(config_of(data), predictions=str(inside))
    with pytest.raises(ConfigError, match=r"output: holds .*predictions\.jsonl, got .*mined; name another"):
        mine_data_set(config)
    with pytest.raises(ConfigError, match=r"output: holds more than a data set, got \['predictions\.jsonl'\]"):
        mine_data_set(config_of(data))
    assert inside.read_bytes() == predictions.read_bytes()
    inside.unlink()
    shutil.copytree(data, output / "pool")
    with pytest.raises(ConfigError, match=r"output: holds .*pool, got"):
        mine_data_set(dataclasses.replace(config_of(data), data=str(output / "pool")))
    assert read_manifest(output / "pool") == read_manifest(data)
    shutil.rmtree(output / "pool")
    mine_data_set(config_of(data))


def test_the_mined_data_set_has_a_card_of_its_own_unless_its_parent_has_none(data):
    predict(data, lambda pair, n: 0.99 if n % 5 == 0 else 0.1)
    output = Path(config_of(data).output)
    mine_data_set(config_of(data))
    assert not (output / "README.md").exists()
    manifest = json.loads((data / "manifest.json").read_text())
    manifest["config"]["card"] = True
    (data / "manifest.json").write_text(json.dumps(manifest))
    mined = mine_data_set(config_of(data))
    card = (output / "README.md").read_text()
    assert "# mined" in card
    assert f"| by mining: too certain | {mined['mining']['counts']['too_certain']} |" in card
    assert mined["versions"]["python"]


def test_the_claim_only_probe_looks_at_what_mining_kept(data):
    predict(data, lambda pair, n: 0.1)
    manifest = mine_data_set(config_of(data))
    assert manifest["mining"]["claim_only_probe"]["rows"] == manifest["counts"]["train"]["rows"]


def test_what_looks_true_is_in_the_review_list_and_not_in_train(data):
    predict(data, lambda pair, n: 0.99 if n % 5 == 0 else 0.3)
    manifest = mine_data_set(config_of(data))
    mined = Path(config_of(data).output)
    listed = [json.loads(line) for line in (mined / "review.jsonl").read_text().splitlines()]
    assert len(listed) == manifest["mining"]["counts"]["too_certain"] > 0
    reviewed = [Pair.from_dict(item["pair"]) for item in listed]
    assert not {p.id for p in reviewed} & {p.id for p in read_split(mined, "train")}
    assert {(item["kind"], item["p_supported"]) for item in listed} == {("too_certain", 0.99)}
    assert {e.path for p in reviewed for e in p.evidence if isinstance(e, VideoSegment)} <= {
        f"v{n}.mp4" for n in range(20)
    }


def test_mining_twice_gives_the_same_bytes_and_replaces_only_data_sets(data):
    predict(data, lambda pair, n: n % 97 / 100)
    config = config_of(data)
    mine_data_set(config)
    first = contents(Path(config.output))
    mine_data_set(config)
    assert contents(Path(config.output)) == first
    assert {p.name for p in data.parent.iterdir()} == {"in", "data", "mined", "build.yaml", "predictions.jsonl"}
    with pytest.raises(ConfigError, match="exists and is no data set"):
        mine_data_set(dataclasses.replace(config, output=str(data.parent / "in")))
    with pytest.raises(ConfigError, match="is the data set that is mined"):
        mine_data_set(dataclasses.replace(config, output=f"{data}/../data"))


def test_a_failed_run_leaves_the_last_good_data_set_and_no_litter(data):
    path = predict(data, lambda pair, n: 0.1)
    mine_data_set(config_of(data))
    before = contents(data.with_name("mined"))
    path.write_text(path.read_text() + '{"pair_id": "other", "margin": 1}\n')
    with pytest.raises(RowError, match="not of these rows, got 1 of"):
        mine_data_set(config_of(data))
    lines = path.read_text().splitlines()[:-1]
    lines.remove(next(line for line in lines if "/swapped/" in line))
    path.write_text("\n".join(lines))
    with pytest.raises(RowError, match=r"predictions\.jsonl: rows have no usable prediction, got 1 of"):
        mine_data_set(config_of(data))
    assert contents(data.with_name("mined")) == before
    assert {p.name for p in data.parent.iterdir()} == {"in", "data", "mined", "build.yaml", "predictions.jsonl"}


def test_a_damaged_shard_of_any_split_is_not_passed_on(data):
    predict(data, lambda pair, n: 0.1)
    (shard,) = read_manifest(data)["shards"]["test"]
    (data / shard["file"]).write_bytes(b"")
    with pytest.raises(RowError, match="differs from its manifest"):
        mine_data_set(config_of(data))


def test_media_are_still_found_from_the_new_directory(tmp_path):
    from PIL import Image as Picture

    (tmp_path / "media").mkdir()
    for n in range(4):
        Picture.new("RGB", (40, 40), (60 * n, 0, 0)).save(tmp_path / "media" / f"{n}.png")
    pairs = [
        Pair(f"{n}{label[0]}", f"Number is {n}.", (Image(f"{n}.png"),), label, group=str(n), split=split)  # type: ignore[arg-type]
        for n, split in enumerate(["train", "train", "validation", "test"])
        for label in ("supported", "refuted")
        if not (label == "refuted" and n > 1)
    ]
    pairs = [dataclasses.replace(p, claim=p.claim + p.label) for p in pairs if p.label]
    write_pairs(tmp_path / "in.jsonl", pairs)
    config = tmp_path / "b.yaml"
    config.write_text(
        f"output: {tmp_path}/data\nmedia_root: {tmp_path}/media\nnegatives: {{swapped_per_claim: 0}}\n"
        f"sources: [{{format: pairs, path: {tmp_path}/in.jsonl}}]\n"
    )
    build(load_config(BuildConfig, config))
    predict(tmp_path / "data", lambda pair, n: 0.5)
    out = tmp_path / "deeper" / "mined"
    mine_data_set(dataclasses.replace(config_of(tmp_path / "data"), output=str(out)))
    paths = {
        e.path
        for s in ("train", "validation", "test")
        for p in read_split(out, s)
        for e in p.evidence
        if isinstance(e, Image)
    }
    assert paths == {str((tmp_path / "media" / f"{n}.png").resolve()) for n in range(4)}
    assert b"media" not in (out / read_manifest(out)["shards"]["train"][0]["file"]).read_bytes()


def test_the_command_says_what_it_did_and_fails_with_status_one(data, capsys):
    predict(data, lambda pair, n: 0.99 if n % 5 == 0 else n % 9 / 10)
    arguments = ["--config", str(ROOT / "configs" / "mine.yaml"), f"data={data}", f"output={data.with_name('mined')}"]
    arguments += [f"predictions={data.with_name('predictions.jsonl')}", "mining.uncalibrated=allow"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("positives", "hard", "random", "review.jsonl", "wrote", "mined"))
    assert main([*arguments, "mining.hard_shar=0.5"]) == 1
    assert "did you mean mining.hard_share" in capsys.readouterr().err
    assert main([*arguments, "mining.hard_share=7"]) == 1
    assert "hard_share: must be in [0, 1], got 7.0" in capsys.readouterr().err
    assert main([*arguments, "predictions=${NO_SUCH_VARIABLE}/p.parquet"]) == 1
    assert "an environment variable is unset" in capsys.readouterr().err


def teacher_file(data: Path, source: dict, p_of: Callable[[Pair, int], float] = lambda pair, n: 0.1) -> Path:
    """A predictions file of the train split with this source, where `config_of` does not look for it."""
    path, rows = data.with_name("teacher.parquet"), sorted(read_split(data, "train"), key=lambda pair: pair.id)
    predictions = [
        Prediction(
            p.id, math.log(p_of(p, n) / (1 - p_of(p, n))), p_of(p, n), p.label, p.split, p.group, p.role, p.origin,
            p.modality, claim=p.claim,
        )
        for n, p in enumerate(rows)
    ]  # fmt: skip
    write_predictions(path, predictions, source)
    return path


@pytest.mark.parametrize(
    ("source", "said"),
    [({"verifier_fingerprint": "f" * 64}, "null"), ({"calibrated": False}, "false"), ({"calibrated": "yes"}, '"yes"')],
)
def test_uncalibrated_teachers_are_refused_unless_they_are_allowed(data, source, said, capsys):
    config, output = data.with_name("mine.yaml"), data.with_name("mined")
    config.write_text(f"data: {data}\npredictions: {teacher_file(data, source)}\noutput: {output}\n")
    assert main(["--config", str(config)]) == 1
    message = capsys.readouterr().err
    assert (
        f"teacher.parquet: must say that its probabilities are calibrated on gold labels, got calibrated: {said}; "
        in message
    )
    assert "eval/teach.py" in message
    assert "mining.uncalibrated: allow" in message
    assert not output.exists()
    assert main(["--config", str(config), "mining.uncalibrated=allow"]) == 0
    assert main(["--config", str(config), "mining.uncalibrated=maybe"]) == 1


def test_json_lines_say_nothing_of_calibration_and_are_refused_likewise(data):
    predict(data, lambda pair, n: 0.1)
    with pytest.raises(RowError, match=r"predictions\.jsonl: .* got calibrated: null; .*eval/teach\.py"):
        mine_data_set(config_of(data, uncalibrated="refuse"))


def test_a_calibrated_teacher_passes_and_the_manifest_names_it_first(data):
    teachers = [{"verifier_fingerprint": "a" * 64, "method": "platt"}, {"verifier_fingerprint": "b" * 64}]
    source = {"verifier_fingerprint": "f" * 64, "calibrated": True, "prompt_sha256": "c" * 64, "teachers": teachers}
    source["labels"] = ["supported", "refuted", "not_enough"]
    config = dataclasses.replace(config_of(data), predictions=str(teacher_file(data, source)), mining=MiningConfig())
    said = mine_data_set(config)["mining"]
    assert next(iter(said)) == "teacher"
    del source["labels"]
    assert said["teacher"] == source
    del source["teachers"], source["prompt_sha256"]
    teacher_file(data, source)
    assert mine_data_set(config)["mining"]["teacher"] == {**source, "prompt_sha256": None}


@pytest.mark.parametrize("labels", [["refuted", "supported"], ["entailed"], "supported"])
def test_log_odds_of_another_label_are_refused_even_where_uncalibrated_ones_are_allowed(data, labels):
    path = teacher_file(data, {"calibrated": True, "labels": labels})
    for mining in (MiningConfig(), MiningConfig(uncalibrated="allow")):
        config = dataclasses.replace(config_of(data), predictions=str(path), mining=mining)
        with pytest.raises(RowError, match=r"teacher\.parquet: must be scores of supported, the first label, got"):
            mine_data_set(config)


def test_a_teacher_file_gives_the_hard_positives_as_well_as_the_hard_negatives(data):
    path = teacher_file(data, {"calibrated": True}, lambda pair, n: (n % 89 + 1) / 100)
    mining = MiningConfig(positives=6, positive_share_hard=0.5, hard_share=1.0)
    mine_data_set(dataclasses.replace(config_of(data), predictions=str(path), mining=mining))
    p = {pair.id: (n % 89 + 1) / 100 for n, pair in enumerate(sorted(read_split(data, "train"), key=lambda q: q.id))}
    everything = [pair for pair in read_split(data, "train") if pair.label == "supported"]
    kept = [pair for pair in read_split(data.with_name("mined"), "train") if pair.label == "supported"]
    assert len(kept) == 6 < len(everything)
    assert sorted(p[pair.id] for pair in kept)[:3] == sorted(p[pair.id] for pair in everything)[:3]


def test_a_teacher_file_of_more_than_the_train_split_is_refused(data):
    path = teacher_file(data, {"calibrated": True})
    rows, source = read_predictions(path)
    write_predictions(path, [*rows, dataclasses.replace(rows[0], pair_id="of another split")], source)
    with pytest.raises(RowError, match=r"not of these rows, got 1 of \d+ unknown, e\.g\. 'of another split'"):
        mine_data_set(dataclasses.replace(config_of(data), predictions=str(path)))


def test_mirages_mix_comes_out_of_the_real_judgments(shared_data, tmp_path, monkeypatch):
    monkeypatch.setenv("MIRAGE_DATA", str(shared_data / "mirage" / "grounding_judgments"))
    overrides = [f"output={tmp_path}/data", "splits={train: 1.0, validation: 0.0, calibration: 0.0, test: 0.0}"]
    built = build(load_config(BuildConfig, ROOT / "configs" / "mirage_grounding_build.yaml", overrides))
    predict(tmp_path / "data", lambda pair, n: (7 * n % 1000) / 1000)
    manifest = mine_data_set(config_of(tmp_path / "data"))
    counts, positives = manifest["mining"]["counts"], built["counts"]["all"]["label"]["supported"]
    assert counts["positives"] == counts["negatives"] == positives > 1_500
    assert counts["hard"] == math.floor(0.75 * positives + 0.5)
    assert (counts["missing"], counts["too_certain"]) == (0, 0)
    per_group: dict[str, int] = {}
    for pair in read_split(tmp_path / "mined", "train"):
        per_group[pair.group] = per_group.get(pair.group, 0) + (1 if pair.label == "supported" else -1)
    assert len(per_group) == 10
    assert sum(map(abs, per_group.values())) == 2 * sum(n for n in per_group.values() if n > 0)


def test_without_predictions_all_negatives_are_random_and_nobody_is_the_teacher(data):
    predict(data, lambda pair, n: 0.99 if pair.label == "supported" else n % 90 / 100)
    scored = mine_data_set(config_of(data, hard_share=0.0, guard_p=1.0))
    rows = contents(Path(config_of(data).output))
    config = dataclasses.replace(config_of(data, hard_share=0.0, uncalibrated="refuse"), predictions=None)
    manifest = mine_data_set(config)
    found = contents(Path(config.output))
    assert all(found[name] == rows[name] for name in rows if name.endswith(".parquet"))
    assert manifest["mining"]["counts"] == scored["mining"]["counts"]
    assert manifest["mining"]["teacher"] is None
    assert manifest["mining"]["predictions"] is None
    assert found["review.jsonl"] == b""


@pytest.mark.parametrize("share", [{"hard_share": 0.1}, {"hard_share": 0, "positives": 2, "positive_share_hard": 0.5}])
def test_without_predictions_nothing_is_hard(data, share):
    with pytest.raises(ConfigError, match=f"predictions, got none and {list(share)[-1]} 0"):
        mine_data_set(dataclasses.replace(config_of(data, **share), predictions=None))
