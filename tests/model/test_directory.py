"""A verifier directory is read as a stranger's: what is changed, hostile or of another kind is refused, never run."""

import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import pytest

from proofreel.core.errors import DirectoryError
from proofreel.core.storage import sha256_of
from proofreel.models.backbones.safety import (
    MAX_JSON_BYTES,
    check_safetensors,
    check_settings,
)
from proofreel.models.directory.format import MANIFEST, SCHEMA_VERSION, fingerprint, read_directory, write_manifest

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests" / "fixtures" / "verifier_v1_1"


@pytest.fixture
def copy(tmp_path):
    """The kept directory, to break."""
    return shutil.copytree(KEPT, tmp_path / "verifier")


def sign(directory):
    """A manifest over all files there are, whatever they are: what someone who plants a file would write."""
    files = sorted(p for p in directory.rglob("*") if p.is_file() and p.name != MANIFEST)
    lines = [f"{sha256_of(p)}  {p.relative_to(directory).as_posix()}" for p in files]
    (directory / MANIFEST).write_text("\n".join(lines) + "\n")


def edit(path, **changes):
    """Set keys of a JSON file and sign the directory anew."""
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(values | changes))


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


@pytest.fixture
def mark(tmp_path):
    """What a planted pickle would leave behind; the pickle is a live one."""
    pickle.loads(pickle.dumps(Bomb(tmp_path / "mark")))
    (tmp_path / "mark").rmdir()
    return tmp_path / "mark"


def test_directories_of_this_schema_and_of_older_ones_are_read(copy):
    kept, shipped = read_directory(KEPT), read_directory(ROOT / "checkpoints" / "kitchen-verifier")
    values = json.loads((copy / "verifier_config.json").read_text())
    for later in ("labels", "modalities", "requirements", "windowing"):
        del values[later]
    (copy / "verifier_config.json").write_text(json.dumps(values | {"schema_version": "1.0"}))
    sign(copy)
    first = read_directory(copy)
    assert [each.time_rule for each in (first, kept, shipped)] == ["truncated", "truncated", "rounded"]
    assert (kept.schema_version, shipped.schema_version) == ("1.1", SCHEMA_VERSION)
    assert (first.modalities, first.chat, kept.chat) == (None, None, None)
    assert json.loads(kept.to_json())["schema_version"] == SCHEMA_VERSION
    assert kept.modalities == ("video",)
    assert "torch" in kept.requirements
    assert (first.schema_version, first.modalities, first.requirements) == ("1.0", None, {})


@pytest.mark.parametrize("name", ["adapter/adapter_model.bin", "model.pt", "golden/x.pkl", "a.pth", "x.npy", "run.py"])
def test_a_planted_pickle_or_program_is_refused_unopened(copy, mark, name):
    (copy / name).write_bytes(pickle.dumps(Bomb(mark)))
    sign(copy)
    with pytest.raises(DirectoryError, match="files of this kind are refused"):
        read_directory(copy)
    with pytest.raises(DirectoryError, match="files of this kind are refused"):
        write_manifest(copy)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["adapter/adapter_model.safetensors", "golden/media.safetensors", "new.safetensors"])
@pytest.mark.parametrize("zipped", [False, True])
def test_a_pickle_named_as_weights_is_refused_unopened(copy, mark, name, zipped):
    if zipped:  # as torch.save writes
        with zipfile.ZipFile(copy / name, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(Bomb(mark)))
    else:
        (copy / name).write_bytes(pickle.dumps(Bomb(mark)))
    sign(copy)
    with pytest.raises(DirectoryError, match="a pickle under another name"):
        read_directory(copy)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["calibration.json", "processor/tokenizer.json", "golden/golden.json", "new.json"])
def test_a_pickle_named_as_json_is_refused_unopened(copy, mark, name):
    (copy / name).write_bytes(pickle.dumps(Bomb(mark)))
    sign(copy)
    with pytest.raises(DirectoryError, match="not valid JSON"):
        read_directory(copy)
    assert not mark.exists()


@pytest.mark.parametrize("length", [0x80, 0x4B50])
def test_weights_whose_first_bytes_are_those_of_a_pickle_are_weights(tmp_path, length):
    header = b"{}".ljust(length)
    (tmp_path / "model.safetensors").write_bytes(length.to_bytes(8, "little") + header)
    check_safetensors(tmp_path / "model.safetensors")


@pytest.mark.parametrize("cut", [0, 4, 100, -1])
def test_cut_weights_are_refused(copy, cut):
    path = copy / "adapter" / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    sign(copy)
    with pytest.raises(DirectoryError, match="not a safetensors file"):
        read_directory(copy)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("processor/tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}}),
        ("processor/tokenizer_config.json", {"trust_remote_code": True}),
        ("processor/tokenizer_config.json", {"tokenizer_class": "EvilTokenizer"}),
        ("processor/tokenizer_config.json", {"vocab_file": "/etc/passwd"}),
        ("processor/tokenizer_config.json", {"tokenizer_file": "../../tokenizer.json"}),
        ("processor/processor_config.json", {"auto_map": {"AutoProcessor": "evil.Processor"}}),
        ("processor/processor_config.json", {"processor_class": "EvilProcessor"}),
        ("processor/processor_config.json", {"image_processor": {"image_processor_type": "os.system"}}),
        ("processor/processor_config.json", {"video_processor": {"auto_map": {"AutoVideoProcessor": "evil.V"}}}),
        ("processor/processor_config.json", {"audio_tokenizer": {"audio_tokenizer_name_or_path": "evil/repo"}}),
        ("processor/config.json", {"auto_map": {"AutoConfig": "evil/repo--code.Config"}}),
        ("processor/config.json", {"text_config": {"_attn_implementation": "evil/kernel"}}),
        ("processor/config.json", {"transformers_weights": "../x.safetensors"}),
        ("processor/generation_config.json", {"custom_generate": "evil/repo"}),
        ("model/config.json", {"auto_map": {"AutoModel": "evil.Model"}}),
        ("model/config.json", {"quantization_config": {"quant_method": "gptq"}}),
        ("adapter/adapter_config.json", {"auto_mapping": {"base_model_class": "X", "parent_library": "evil"}}),
        ("adapter/adapter_config.json", {"base_model_class": "X"}),
        ("adapter/adapter_config.json", {"parent_library": "evil"}),
        ("adapter/adapter_config.json", {"megatron_config": {"a": 1}, "megatron_core": "evil"}),
        ("adapter/adapter_config.json", {"megatron_core": "evil"}),
        ("adapter/adapter_config.json", {"peft_type": "XLORA"}),
        ("adapter/adapter_config.json", {"task_type": "EVIL"}),
        ("adapter/adapter_config.json", {"modules_to_save": ["lm_head"]}),
        ("adapter/adapter_config.json", {"loftq_config": {"loftq_bits": 4}}),
        ("adapter/adapter_config.json", {"a_setting_of_tomorrow": 1}),
        ("adapter/adapter_config.json", {"rank_pattern": {"(a+)+b": 4}}),
        ("adapter/adapter_config.json", {"rank_pattern": True}),
        ("adapter/adapter_config.json", {"alpha_pattern": {".*" * 9: 4}}),
        ("adapter/adapter_config.json", {"alpha_pattern": {"a" * 3000: 4}}),
    ],
)
def test_settings_that_order_a_library_about_are_refused(copy, name, changes):
    (copy / name).parent.mkdir(exist_ok=True)
    edit(copy / name, **changes)
    sign(copy)
    with pytest.raises(DirectoryError, match=Path(name).name):
        read_directory(copy)


@pytest.mark.parametrize(
    "name",
    [
        "../x.json",
        "/etc/passwd",
        "a/../../x.json",
        "a/../x.json",
        "./x.json",
        "a//x.json",
        "..\\x.json",
        "C:\\x.json",
        "C:x",
    ],
)
def test_manifest_entries_that_leave_the_directory_or_are_written_oddly_are_refused(copy, name):
    (copy.parent / "x.json").write_text("{}")
    path = copy / MANIFEST
    path.write_text(f"{path.read_text()}{sha256_of(copy.parent / 'x.json')}  {name}\n")
    with pytest.raises(DirectoryError, match="inside the directory"):
        read_directory(copy)


def test_a_file_listed_twice_is_refused(copy):
    path = copy / MANIFEST
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")
    with pytest.raises(DirectoryError, match="inside the directory"):
        read_directory(copy)


@pytest.mark.parametrize("base", ["/tmp/base", "../a/../../b", "a/../b", "..\\base", "C:\\base", "C:/base", "a\nb", ""])
def test_a_base_that_is_named_absolutely_or_deviously_is_refused(copy, base):
    path = copy / "verifier_config.json"
    values = json.loads(path.read_text())
    values["base"]["path"] = base
    path.write_text(json.dumps(values))
    sign(copy)
    with pytest.raises(DirectoryError, match=r"base\.path"):
        read_directory(copy)


@pytest.mark.parametrize(
    "file", ["../evil.safetensors", "/tmp/evil.safetensors", "a/b.safetensors", "model.bin", "lost.safetensors", 3]
)
def test_an_index_that_names_weights_elsewhere_is_refused(copy, file):
    (copy / "model").mkdir()
    (copy / "model" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": file}}))
    sign(copy)
    with pytest.raises(DirectoryError, match=r"index\.json"):
        read_directory(copy)


@pytest.mark.parametrize("what", ["file", "folder", "manifest"])
def test_links_out_of_the_directory_are_refused(copy, tmp_path, what):
    if what == "folder":
        (tmp_path / "outside").mkdir()
        (copy / "more").symlink_to(tmp_path / "outside")
    else:
        name = MANIFEST if what == "manifest" else "calibration.json"
        shutil.move(copy / name, tmp_path / "outside")
        (copy / name).symlink_to(tmp_path / "outside")
    with pytest.raises(DirectoryError, match="symbolic links"):
        read_directory(copy)


def test_a_snapshot_of_the_hubs_cache_is_read_through_its_own_links_only(tmp_path):
    snapshot, blobs = tmp_path / "models--a--v" / "snapshots" / ("0" * 40), tmp_path / "models--a--v" / "blobs"
    blobs.mkdir(parents=True)
    for path in [p for p in KEPT.rglob("*") if p.is_file()]:
        blob, link = blobs / sha256_of(path), snapshot / path.relative_to(KEPT)
        shutil.copy2(path, blob)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    assert read_directory(snapshot) == read_directory(KEPT)
    (tmp_path / "outside.json").write_text("{}")
    (snapshot / "calibration.json").unlink()
    (snapshot / "calibration.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(DirectoryError, match="symbolic links"):
        read_directory(snapshot)


def test_what_git_and_downloads_leave_behind_is_not_part_of_the_directory(copy):
    for name in (".git/config", ".gitattributes", ".cache/huggingface/download/x.lock"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(b"\x80")
    assert read_directory(copy) == read_directory(KEPT)
    assert fingerprint(copy) == fingerprint(KEPT)


@pytest.mark.parametrize(
    "name", ["adapter/MANIFEST.sha256", "adapter/.gitattributes", "processor/.git/config", "adapter/x.JSON"]
)
def test_no_unlisted_file_hides_in_a_subfolder(copy, name):
    (copy / name).parent.mkdir(exist_ok=True)
    (copy / name).write_text("{}")
    with pytest.raises(DirectoryError, match="refused"):
        read_directory(copy)


def test_a_file_that_is_none_is_refused(copy):
    os.mkfifo(copy / "adapter" / "pipe.json")
    with pytest.raises(DirectoryError, match="refused"):
        read_directory(copy)


def replaced(text, old, new):
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: replaced(t, '"max_tokens"', '"max_tokens": 9, "max_tokens"'), "'max_tokens' twice"),
        (lambda t: replaced(t, '"fps": 4.0', '"fps": NaN'), "no number"),
        (lambda t: replaced(t, '"fps": 4.0', '"fps": -Infinity'), "no number"),
        (lambda t: replaced(t, '"fps": 4.0', '"fps": 1e999'), "no number"),
        (lambda t: replaced(t, '"fps": 4.0', '"fps": "nan"'), "fps must be a positive number"),
        (lambda t: replaced(t, '"max_tokens": 512', '"max_tokens": 1' + "0" * 5000), "not valid JSON"),
        (lambda t: replaced(t, '"max_tokens": 512', '"max_tokens": ' + "[" * 100_000 + "]" * 100_000), "too deeply"),
        (lambda t: t + " " * MAX_JSON_BYTES, "too large"),
        (lambda t: t[:-3], "not valid JSON"),
        (lambda t: f"[{t}]", "must be a JSON object"),
        (lambda t: replaced(t, '"max_tokens": 512', '"max_tokens": 0'), "max_tokens: 0 is less than the minimum"),
        (lambda t: replaced(t, '"next_token"', '"nli"').replace('"refuted"', '"not_enough"'), "labels that no nli"),
        (lambda t: replaced(t, '"1.1"', '"2.0"'), "schema version 2.0 is not readable"),
        (lambda t: replaced(t, '"1.1"', '"1.evil"'), "schema_version must be two numbers, got '1.evil'"),
        (lambda t: replaced(t, '"supported_id": ', '"supported_id": -'), "supported_id: -[0-9]+ is less"),
        (lambda t: replaced(t, '"1.1"', '"1.7", "new": 1'), "written with schema 1.7"),
    ],
)
def test_a_configuration_that_reads_in_two_ways_or_in_none_is_refused(copy, change, reason):
    path = copy / "verifier_config.json"
    path.write_text(change(path.read_text()))
    sign(copy)
    with pytest.raises(DirectoryError, match=reason):
        read_directory(copy)


@pytest.mark.parametrize(
    "name", ["calibration.json", "thresholds.json", "golden/golden.json", "processor/processor_config.json"]
)
@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": NaN}', "{"])
def test_every_json_file_is_read_as_strictly(copy, name, text):
    (copy / name).write_text(text)
    sign(copy)
    with pytest.raises(DirectoryError, match=Path(name).name):
        read_directory(copy)


def test_reports_for_people_may_hold_what_they_like(copy):
    (copy / "eval").mkdir()
    (copy / "eval" / "metrics.json").write_text('{"auc": NaN}')
    sign(copy)
    assert read_directory(copy) == read_directory(KEPT)


def test_a_base_is_checked_in_the_files_that_libraries_read_and_no_others(tmp_path):
    (tmp_path / "trainer_state.json").write_text('{"loss": NaN}')
    check_settings(tmp_path)
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoModel": "evil.Model"}}')
    with pytest.raises(DirectoryError, match="auto_map"):
        check_settings(tmp_path)
