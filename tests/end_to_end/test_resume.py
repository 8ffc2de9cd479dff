"""A build gives the same bytes in every process, and where it was killed; two builds of one output do not mix."""

import dataclasses
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nightly import first_of

from proofreel.core.errors import ConfigError
from proofreel.core.storage import sha256_of
from proofreel.data_prep.dataset.shards import read_manifest, read_split, shard_name
from proofreel.data_prep.negatives.vocabulary import SHIPPED
from proofreel.data_prep.pipeline import pipeline
from proofreel.data_prep.pipeline.config import BuildConfig, NegativesConfig, SourceConfig
from proofreel.data_prep.pipeline.pipeline import build
from proofreel.data_prep.pipeline.staging import Staging

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config(tmp_path: Path) -> BuildConfig:
    """150 videos of 6 facts; swapped and altered negatives; small shards."""
    path = tmp_path / "facts.jsonl"
    actions = ["chopping", "stirring", "frying", "washing", "pouring", "measuring"]
    objects = ["carrot", "onion", "dough", "soup", "bread", "fish", "egg"]
    with path.open("w", encoding="utf-8") as file:
        for i in range(150):
            roles = {"Action": actions[i % 6], "Object": objects[i % 7], "Tool": ["knife", "spoon", "whisk"][i % 3]}
            phrases = [f"carry {objects[(i * 3 + k) % 7]}" for k in range(3)]
            file.write(json.dumps({"video": f"v{i}.mp4", "conceptual": roles, "contextual": phrases}) + "\n")
    return BuildConfig(
        str(tmp_path / "out"),
        (SourceConfig("facts", str(path)),),
        media="absent",
        negatives=NegativesConfig(altered_per_claim=1),
        shortcut_probe=False,
        card=False,
        rows_per_shard=1000,  # few shards: written here, where many are by processes
    )


def shards(output: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(output).glob("*.parquet"))}


class Cut(BaseException):
    """A kill, seen from inside."""


def cut_off(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Stop the build dead at its n-th commit, before it is made."""
    commit, seen = Staging.commit, [0]

    def counted(staging: Staging) -> None:
        seen[0] += 1
        if seen[0] > after:
            staging.db.rollback()
            raise Cut
        commit(staging)

    monkeypatch.setattr(Staging, "commit", counted)


@pytest.mark.parametrize("after", first_of([8, 1, 4, 12]))
def test_cut_off_at_any_commit_the_next_run_gives_the_same_bytes(config, tmp_path, monkeypatch, after):
    monkeypatch.setattr("proofreel.data_prep.pipeline.sources._BATCH", 150)
    monkeypatch.setattr("proofreel.data_prep.pipeline.negatives._COMMIT_EVERY", 75)
    whole = build(dataclasses.replace(config, output=str(tmp_path / "whole")))
    with monkeypatch.context() as patch:
        cut_off(patch, after)
        with pytest.raises(Cut):
            build(config)
    assert Path(f"{config.output}.building").is_dir()
    assert not Path(config.output).exists()
    manifest = build(config)
    assert shards(config.output) == shards(str(tmp_path / "whole"))
    assert {"altered_claim", "altered_claim_B", "swapped_evidence"} <= set(manifest["counts"]["all"]["origin"])
    same = {key: manifest[key] for key in ("counts", "shards", "left_out", "rejected", "merged_repeats", "leaks")}
    assert same == {key: whole[key] for key in same}
    assert len(whole["shards"]["train"]) > 1
    assert not Path(f"{config.output}.building").exists()


def test_what_is_done_is_not_done_again(config, monkeypatch):
    with monkeypatch.context() as patch:
        cut_off(patch, 3)
        with pytest.raises(Cut):
            build(config)
    read = []
    monkeypatch.setattr(
        "proofreel.data_prep.pipeline.sources.check_contents", lambda rows: read.append(rows) or (rows, [])
    )
    build(config)
    assert read == []


def test_a_changed_source_or_config_begins_anew(config, monkeypatch):
    with monkeypatch.context() as patch:
        cut_off(patch, 3)
        with pytest.raises(Cut):
            build(config)
    path = Path(config.sources[0].path or "")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:100]))
    manifest = build(config)
    assert manifest["sources"][0]["rows"] == 100 * 6
    assert {p.group for s in manifest["shards"] for p in read_split(config.output, s)} == {
        f"v{i}.mp4" for i in range(100)
    }


def test_killed_by_the_system_it_goes_on_too(config, tmp_path):
    config = dataclasses.replace(config, rows_per_shard=250)
    yaml = tmp_path / "c.yaml"
    yaml.write_text(
        f"output: {tmp_path}/killed\nmedia: absent\nshortcut_probe: false\ncard: false\nrows_per_shard: 250\n"
        f"negatives: {{altered_per_claim: 1}}\nsources: [{{format: facts, path: {config.sources[0].path}}}]\n"
    )
    command = [sys.executable, str(ROOT / "data_prep" / "build.py"), "--config", str(yaml)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    staging = tmp_path / "killed.building" / "rows.sqlite"
    while not (staging.exists() and staging.stat().st_size > 50_000) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    build(config)
    assert shards(str(tmp_path / "killed")) == shards(config.output)


def test_two_builds_of_one_output_do_not_mix(config):
    folder = Path(f"{config.output}.building")
    folder.mkdir()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another build is writing it"):
            build(config)
    build(config)
    assert read_manifest(config.output)["schema_version"] == pipeline.SCHEMA_VERSION


def test_a_damaged_working_file_is_begun_anew(config):
    folder = Path(f"{config.output}.building")
    folder.mkdir()
    (folder / "rows.sqlite").write_bytes(os.urandom(5_000))
    assert build(config)["counts"]["all"]["groups"] == 150


def test_changed_word_groups_begin_anew_and_are_in_the_manifest(config, tmp_path, monkeypatch):
    words = tmp_path / "words.yaml"
    words.write_text(SHIPPED.read_text(encoding="utf-8"), encoding="utf-8")
    config = dataclasses.replace(config, negatives=dataclasses.replace(config.negatives, word_groups=str(words)))
    with monkeypatch.context() as patch:
        cut_off(patch, 3)
        with pytest.raises(Cut):
            build(config)
    words.write_text(words.read_text(encoding="utf-8") + "\n# seen again\n", encoding="utf-8")
    read = []
    check = pipeline.import_sources
    monkeypatch.setattr(
        pipeline, "import_sources", lambda staging, *rest: read.append(staging._last) or check(staging, *rest)
    )
    manifest = build(config)
    assert read == [0]
    assert manifest["other_files"] == {str(words): sha256_of(words)}


def test_an_output_that_cannot_be_written_is_an_error_of_the_config(config, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"output: nothing can be written beside it, got .*; name another folder"):
        build(dataclasses.replace(config, output=str(tmp_path / "file" / "out")))


def test_the_bytes_do_not_depend_on_python_s_hash_seed(config, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(
        f"output: {tmp_path}/x\nmedia: absent\ncard: false\n"
        f"sources: [{{format: facts, path: {config.sources[0].path}}}]\n"
    )
    shards = []
    for hash_seed in ("1", "2"):
        command = [sys.executable, "data_prep/build.py", "--config", str(path), f"output={tmp_path}/h{hash_seed}"]
        subprocess.run(
            [*command, "negatives.balanced=true", "splits={train: 1.0, validation: 0.0, calibration: 0.0, test: 0.0}"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            env={"PYTHONHASHSEED": hash_seed, "PATH": "/usr/bin:/bin"},
        )
        shards.append((tmp_path / f"h{hash_seed}" / shard_name("train")).read_bytes())
    assert shards[0] == shards[1]
