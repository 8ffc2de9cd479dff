"""Loading: what was written is what runs, or a sentence says why not. Nothing is unpickled, fetched or left at random.

Each kind of tampering is tried twice: with the manifest as it was, which always notices, and with a manifest written
anew, where the meaning of the change must be noticed: by loading, or by the self-test.
"""

import dataclasses
import json
import pickle
import re
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
from bombs import Bomb
from random_drafts import HEADS, random_draft
from safetensors.torch import load_file, save_file

from proofreel.core.errors import CalibrationError, ConfigError, DirectoryError, ModelInputError
from proofreel.core.pairs import Pair, Passage, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.data_prep.media.frames import Frames
from proofreel.models.backbones.load import load_backbone, load_processor, weights_sha256
from proofreel.models.backbones.tiny import TinySizes, save_tiny_text_model
from proofreel.models.directory.format import CONFIG, fingerprint, read_directory, write_manifest
from proofreel.models.directory.load import UNRECORDED_EVIDENCE, _warn_once, make_encoder
from proofreel.models.engine.heads import NLIHead
from proofreel.models.engine.vision_features import check_frozen
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.models.inputs.encoder import Media
from proofreel.models.verifier.self_test import selftest, write_golden
from proofreel.models.verifier.verifier import Verifier

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests" / "fixtures"
SMALL = TinySizes(hidden=32, layers=1, heads=2, kv_heads=1, mlp=32, vocab=330)


@pytest.fixture
def copy(tmp_path):
    """The kept directory and its base, to break."""
    shutil.copytree(KEPT / "tiny_base", tmp_path / "tiny_base")
    return shutil.copytree(KEPT / "verifier_v1_1", tmp_path / "verifier")


@pytest.fixture(scope="module")
def kept():
    return Verifier.from_pretrained(KEPT / "verifier_v1_1", device="cpu")


def load(directory, **options):
    return Verifier.from_pretrained(directory, device="cpu", **options)


def margins(verifier):
    claims = [(f"Colour is {i}.", None) for i in range(3)]
    return verifier.score_media(claims, (Passage("The clip is red."),), Media()).tolist()


def test_older_directories_keep_their_positions_and_say_so_once(caplog):
    directory = KEPT / "verifier_v1_1"
    _warn_once.cache_clear()
    old = load(directory)
    load(directory)
    told = [r.getMessage() for r in caplog.records if "time rule 'truncated'" in r.getMessage()]
    assert len(told) == 1
    assert "--time-rule rounded" in told[0]
    config = dataclasses.replace(read_directory(directory), time_rule="rounded")
    new = make_encoder(directory / "processor", old.model.config, config)
    exact_s = np.arange(10) * 0.5
    noisy_s = exact_s * np.array([1.0] * 9 + [1.0 - 2e-16])  # seconds per grid just below one
    assert times_of(old.encoder, noisy_s) == [0, 1, 3, 5, 7]
    assert times_of(old.encoder, exact_s) == times_of(new, noisy_s) == times_of(new, exact_s) == [0, 2, 4, 6, 8]


def times_of(encoder, times_s):
    """Temporal positions of the grids of a drawn video, from its start."""
    media = Media((Frames(np.zeros((len(times_s), 56, 56, 3), np.uint8), times_s, "drawn"),))
    encoded = encoder.evidence((VideoSegment("clip.mp4", 0.0, 5.0),), media)
    time = encoded.positions_3P[0, encoded.ids_P == encoder.layout.video_token_id]
    return (time - time[0]).unique().tolist()


def test_the_directory_kept_from_schema_1_1_loads_and_reproduces_itself(kept, capsys):
    from proofreel.cli import main

    result = selftest(KEPT / "verifier_v1_1", kept, "float32")
    assert result.passed
    assert result.n == 4
    assert kept.notes == ()
    assert kept.fingerprint == fingerprint(KEPT / "verifier_v1_1")
    assert kept.modalities == ("video",)
    assert main(["selftest", str(KEPT / "verifier_v1_1")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("ok: 4 selftest margins")
    assert kept.fingerprint in said
    assert "requires    torch >=2.11 (its sdpa kernels" in said


def test_a_directory_that_records_no_kinds_of_evidence_says_so_at_load_and_in_every_verdict(copy, caplog):
    change_json(CONFIG, "modalities", value=None)(copy)
    write_manifest(copy)
    _warn_once.cache_clear()
    verifier = load(copy)
    assert any(UNRECORDED_EVIDENCE in record.getMessage() for record in caplog.records)
    assert UNRECORDED_EVIDENCE in verifier.notes
    assert {v.note for v in verifier.score(["It is red.", "It is blue."], Passage("It is red."))} == {
        UNRECORDED_EVIDENCE
    }


def test_the_kept_directory_is_small_and_names_no_place():
    files = [p for p in KEPT.rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < 300 * 2**10
    assert all(str(ROOT.parent) not in p.read_text() for p in files if p.suffix in {".json", ".md", ".sha256"})


# ---------------------------------------------------------------------------------------------- nothing is unpickled


def test_no_source_of_ours_calls_torch_load_or_trusts_remote_code():
    for folder in ("data_prep", "models", "eval", "train", "proofreel"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            assert "torch.load(" not in text, path
            assert not re.search(r"trust_remote_code\W*[:=]\s*True", text), path


@pytest.fixture
def nothing_foreign(monkeypatch):
    """No pickle is read, and no address is connected to."""

    def refuse(*_, **__):
        raise AssertionError("a verifier directory must not lead here")

    monkeypatch.setattr(torch, "load", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def full_model(base, out, sampling, head=None):
    """A draft that holds a whole model instead of an adapter."""
    random_draft(base, out, sampling, head, config={"weights": "full"})
    shutil.rmtree(out / "adapter")
    words = LabelWords.of(Prompt(), load_processor(base).tokenizer)
    load_backbone(base, head=head, words=words if head else None).save_pretrained(out / "model")
    write_manifest(out)
    return out


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("weights", ["adapter", "full"])
def test_every_kind_of_verifier_loads_without_torch_load_and_without_a_network(
    tiny_base, small_sampling, tmp_path, nothing_foreign, head, weights
):
    make = random_draft if weights == "adapter" else full_model
    verifier = load(make(tiny_base, tmp_path / "draft", small_sampling, HEADS[head]))
    assert all(abs(m) < 1e3 for m in margins(verifier))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "training_args.bin", "modeling_evil.py"])
def test_pickles_and_programs_beside_a_base_are_never_opened(copy, kept, tmp_path, name):
    mark = tmp_path / "mark"
    (copy.parent / "tiny_base" / name).write_bytes(pickle.dumps(Bomb(mark)))
    assert margins(load(copy)) == margins(kept)
    assert not mark.exists()


def test_a_base_of_pickles_alone_is_refused_unopened(copy, tmp_path):
    (copy.parent / "tiny_base" / "model.safetensors").unlink()
    (copy.parent / "tiny_base" / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "mark")))
    with pytest.raises(DirectoryError, match="pickled checkpoints are not read"):
        load(copy)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("place", ["evil/repository", "../elsewhere", "/nowhere"])
def test_the_base_an_adapter_names_itself_is_never_followed(copy, kept, nothing_foreign, place):
    path = copy / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": place, "revision": "x"}))
    write_manifest(copy)
    assert margins(load(copy)) == margins(kept)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_an_adapter_that_lacks_a_file_is_refused_before_the_hub_is_asked_for_it(copy, nothing_foreign, name):
    (copy / "adapter" / name).unlink()
    write_manifest(copy)
    with pytest.raises(DirectoryError, match=f"missing {name}"):
        load(copy)


@pytest.mark.parametrize("pattern", [".*" * 8 + "x", "(a|a)*b", ["q_proj", "k_proj"], None])
def test_the_layers_of_an_adapter_are_those_of_its_weights_and_no_pattern_is_matched(copy, kept, pattern):
    """The first of these is matched against every module's name for hours."""
    change_json("adapter/adapter_config.json", "target_modules", value=pattern)(copy)
    change_json("adapter/adapter_config.json", "exclude_modules", value=".*" * 8 + "q_proj")(copy)
    write_manifest(copy)
    assert margins(load(copy)) == margins(kept)


def test_an_adapter_beside_a_bases_weights_is_refused(copy):
    shutil.copy2(copy / "adapter" / "adapter_config.json", copy.parent / "tiny_base")
    with pytest.raises(DirectoryError, match="an adapter lies beside the weights"):
        load(copy)


def test_a_base_that_asks_for_code_is_refused(copy):
    path = copy.parent / "tiny_base" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": {"AutoModel": "evil.Model"}}))
    with pytest.raises(DirectoryError, match="asks for code"):
        load(copy)


# ---------------------------------------------------------------------------------------------------- tampering


def change_json(name, *keys, value):
    def change(directory):
        path = directory / name
        values = json.loads(path.read_text())
        inner = values
        for key in keys[:-1]:
            inner = inner[key]
        assert inner[keys[-1]] != value
        inner[keys[-1]] = value
        path.write_text(json.dumps(values))

    return change


def change_text(name, old, new):
    def change(directory):
        text = (directory / name).read_text()
        assert old in text
        (directory / name).write_text(text.replace(old, new, 1))

    return change


def change_weight(directory):
    """One exponent bit of one stored number."""
    path = directory / "adapter" / "adapter_model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def change_merge(directory):
    path = directory / "processor" / "tokenizer.json"
    values = json.loads(path.read_text())
    values["model"]["merges"] = [m for m in values["model"]["merges"] if m not in (["y", "es"], "y es", ["e", "s"])]
    path.write_text(json.dumps(values))


def swap_words(directory):
    """The tokenizer calls "yes" what it called "no"."""
    path = directory / "processor" / "tokenizer.json"
    values = json.loads(path.read_text())
    vocab = values["model"]["vocab"]
    vocab["yes"], vocab["no"] = vocab["no"], vocab["yes"]
    path.write_text(json.dumps(values))


CONFIG_PROMPT = (CONFIG, "prompt")
TAMPERINGS = {  # what changes, and who notices although the manifest was written anew
    "prompt": (change_json(*CONFIG_PROMPT, "system", value="Say yes."), "recorded hash"),
    "label word": (
        change_json(*CONFIG_PROMPT, "supported_word", value="no"),
        "config.json: prompt: label words must be two different",
    ),
    "label id": (change_json(CONFIG, "supported_id", value=5), "label words tokenise"),
    "frames per second": (change_json(CONFIG, "sampling", "fps", value=1.0), "selftest: sampling"),
    "frame size": (change_json(CONFIG, "sampling", "max_pixels", value=112 * 112), "selftest: sampling"),
    "position rule": (change_json(CONFIG, "position_rule", value="hf5"), "selftest: position_rule"),
    "base": (change_json(CONFIG, "base", "weights_sha256", value="0" * 64), "not the base"),
    "calibration": (change_json("calibration.json", "slope", value=2.0), "selftest: calibration"),
    "threshold": (change_json("thresholds.json", "points", 0, "threshold", value=0.9), "selftest: thresholds"),
    "default point": (change_json("thresholds.json", "default", value="mcc"), "selftest: default"),
    "weight byte": (change_weight, "selftest: margin"),
    "scale of the adapter": (change_json("adapter/adapter_config.json", "lora_alpha", value=64), "selftest: margin"),
    "merges": (change_merge, "not the tokenizer|label words tokenise"),
    "vocabulary": (swap_words, "label words tokenise"),
    "chat template": (change_text("processor/chat_template.jinja", "<|im_end|>\n", "<|im_end|>"), "selftest: margin"),
    "pixels": (
        change_json("processor/processor_config.json", "video_processor", "rescale_factor", value=0.01),
        "selftest: margin",
    ),
    "requirement": (change_json(CONFIG, "requirements", "torch", "versions", value="<1"), "torch is .* needed is <1"),
    "requirement of nothing": (
        change_json(CONFIG, "requirements", "torch", "versions", value="new"),
        "no version range",
    ),
}


@pytest.mark.parametrize("what", TAMPERINGS)
def test_tampering_is_caught_by_the_manifest_and_by_its_meaning(copy, what):
    change, reason = TAMPERINGS[what]
    change(copy)
    with pytest.raises(DirectoryError, match="changed since the directory was written"):
        load(copy)
    write_manifest(copy)
    try:
        result = selftest(copy, load(copy), "float32")
    except DirectoryError as error:
        found = str(error)
        assert found.count("; ") <= 2
    else:
        assert not result.passed
        found = f"selftest: {result.problems[0] if result.problems else 'margin'}"
    assert re.search(reason, found), found


def drop_from_golden(key):
    def change(directory):
        path = directory / "golden" / "golden.json"
        path.write_text(
            json.dumps([{k: v for k, v in case.items() if k != key} for case in json.loads(path.read_text())])
        )

    return change


def unlink(name):
    return lambda directory: (directory / name).unlink()


def empty(name, text):
    return lambda directory: (directory / name).write_text(text)


# What is noticed of today's schema, beyond the above; each of these once loaded or passed.
TODAYS_TAMPERINGS = {
    "positive rate": (change_json("calibration.json", "positive_rate", value=0.4), "selftest: sha256"),
    "counts": (change_json("thresholds.json", "points", 0, "tp", value=911), "selftest: sha256"),
    "curve": (change_json("thresholds.json", "curve", "tp", 0, value=0), "selftest: sha256"),
    "settings emptied": (empty("golden/settings.json", "{}"), r"selftest: golden/settings.json: .* got no \['abstain'"),
    "settings lost": (unlink("golden/settings.json"), r"selftest: golden/settings.json: .* got no \['abstain'"),
    "golden probabilities lost": (drop_from_golden("p_supported"), "selftest: golden/golden.json"),
    "golden labels lost": (drop_from_golden("labels"), "selftest: golden/golden.json"),
    "golden emptied": (empty("golden/golden.json", "[]"), "not golden inputs"),
    "golden lost": (unlink("golden/golden.json"), "no golden inputs"),
    "threshold of 7": (change_json("thresholds.json", "points", 0, "threshold", value=7), r"points\[0\].threshold: 7"),
    "negative n": (change_json("calibration.json", "n", value=-5), "n: -5 is less than the minimum"),
    "n that is a text": (change_json("calibration.json", "n", value="1920"), "n: '1920' is not of type 'integer'"),
    "schema": (change_json(CONFIG, "schema_version", value="1.evil"), "schema_version must be two numbers"),
    "calibration lost": (unlink("calibration.json"), "calibration.json is missing, got thresholds.json and"),
    "thresholds lost": (unlink("thresholds.json"), "thresholds.json: cannot be read"),
    "chat turns": (change_json(CONFIG, "chat", "after_user", value="<|im_end|>"), "selftest: margin"),
}


@pytest.mark.parametrize("what", TODAYS_TAMPERINGS)
def test_tampering_with_a_directory_of_todays_schema_is_caught_though_its_manifest_fits(tmp_path, what):
    shutil.copytree(ROOT / "checkpoints", tmp_path / "checkpoints")
    directory = tmp_path / "checkpoints" / "kitchen-verifier"
    change, reason = TODAYS_TAMPERINGS[what]
    change(directory)
    write_manifest(directory)
    try:
        result = selftest(directory, load(directory), "float32")
    except (DirectoryError, CalibrationError) as error:
        found = str(error)
    else:
        assert not result.passed
        found = f"selftest: {result.problems[0] if result.problems else 'margin'}"
    assert re.search(reason, found), found


@pytest.mark.parametrize("where", ["base", "full model"])
def test_one_changed_byte_of_large_weights_is_caught(copy, tiny_base, small_sampling, tmp_path, where):
    if where == "base":
        path, directory = copy.parent / "tiny_base" / "model.safetensors", copy
    else:
        directory = full_model(tiny_base, tmp_path / "full", small_sampling)
        path = directory / "model" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    with pytest.raises(DirectoryError, match="not the base" if where == "base" else "changed since"):
        load(directory)


def test_selftest_says_what_is_wrong_and_fails(copy, capsys):
    from proofreel.cli import main

    change_json("thresholds.json", "default", value="mcc")(copy)
    assert main(["selftest", str(copy)]) == 1
    assert "thresholds.json: changed since" in capsys.readouterr().err
    write_manifest(copy)
    assert main(["selftest", str(copy)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("FAILED")
    assert "default: golden inputs were made with f1, the directory says mcc" in said
    assert main(["selftest", str(copy / "nowhere")]) == 1


# --------------------------------------------------------------------------------------- packages, weights, base


def test_packages_are_checked_before_any_weight_is_touched(copy, monkeypatch):
    change_json(CONFIG, "requirements", "transformers", "versions", value="<1")(copy)
    shutil.rmtree(copy.parent / "tiny_base")
    write_manifest(copy)
    with pytest.raises(DirectoryError, match=r"transformers is .*, needed is <1 .*its names of modules"):
        load(copy)


@pytest.mark.parametrize("fault", ["missing", "unexpected", "misshapen"])
@pytest.mark.parametrize("weights", ["base", "full"])
def test_weights_that_do_not_fit_are_refused_rather_than_filled_with_noise(
    copy, tiny_base, small_sampling, tmp_path, fault, weights
):
    directory = copy if weights == "base" else full_model(tiny_base, tmp_path / "full", small_sampling)
    path = (copy.parent / "tiny_base" if weights == "base" else directory / "model") / "model.safetensors"
    tensors = load_file(path)
    name = next(n for n in sorted(tensors) if "q_proj.weight" in n)
    if fault == "missing":
        tensors.pop(name)
    elif fault == "unexpected":
        tensors[f"{name}.more"] = tensors[name].clone()
    else:
        tensors[name] = tensors[name][:-1].clone()
    save_file(tensors, path, {"format": "pt"})
    if weights == "base":
        values = json.loads((copy / CONFIG).read_text())
        values["base"]["weights_sha256"] = weights_sha256(path.parent)
        (copy / CONFIG).write_text(json.dumps(values))
    write_manifest(directory)
    with pytest.raises(DirectoryError, match=r"weights do not fit|cannot be loaded"):
        load(directory)


def test_a_full_model_without_the_head_it_should_have_is_refused(tiny_base, small_sampling, tmp_path):
    directory = full_model(tiny_base, tmp_path / "full", small_sampling)  # a language model under an output layer
    change_json(CONFIG, "head", value="nli")(directory)
    write_manifest(directory)
    with pytest.raises(DirectoryError, match="its head is missing and would be random"):
        load(directory)


def test_a_full_models_head_that_lost_its_weights_is_refused(tiny_base, small_sampling, tmp_path):
    directory = full_model(tiny_base, tmp_path / "full", small_sampling, NLIHead())
    path = directory / "model" / "model.safetensors"
    tensors = load_file(path)
    save_file({n: w for n, w in tensors.items() if n != "score.weight"}, path, {"format": "pt"})
    assert "score.weight" in tensors
    write_manifest(directory)
    with pytest.raises(DirectoryError, match=r"missing_keys.*score"):
        load(directory)


def test_an_adapter_that_lost_its_head_is_refused(tiny_base, small_sampling, tmp_path):
    directory = random_draft(tiny_base, tmp_path / "draft", small_sampling, NLIHead())
    path = directory / "adapter" / "adapter_model.safetensors"
    tensors = load_file(path)
    kept = {name: weight for name, weight in tensors.items() if "score" not in name}
    assert len(kept) == len(tensors) - 1
    save_file(kept, path, {"format": "pt"})
    write_manifest(directory)
    with pytest.raises(DirectoryError, match=r"missing.*score"):
        load(directory)


def snapshot_of(base, root, commit):
    return shutil.copytree(base, root / "models--a--base" / "snapshots" / commit)


def test_a_base_of_another_revision_is_refused_though_its_weights_are_the_same(copy, tmp_path):
    wanted, other = "1" * 40, "2" * 40
    values = json.loads((copy / CONFIG).read_text())
    values["base"] |= {"path": "a/base", "revision": wanted}
    (copy / CONFIG).write_text(json.dumps(values))
    write_manifest(copy)
    base = copy.parent / "tiny_base"
    with pytest.raises(DirectoryError, match="another revision of the base"):
        load(copy, base=snapshot_of(base, tmp_path, other))
    assert load(copy, base=snapshot_of(base, tmp_path / "right", wanted)).notes == ()
    assert load(copy, base=base).notes == ()  # a plain folder has no revision: its weights' hash decides


@pytest.mark.parametrize("revision", [None, "main", "v1"])
def test_a_hub_base_without_a_pinned_commit_is_refused(copy, nothing_foreign, revision):
    values = json.loads((copy / CONFIG).read_text())
    values["base"] |= {"path": "a/base", "revision": revision}
    (copy / CONFIG).write_text(json.dumps(values))
    write_manifest(copy)
    with pytest.raises(DirectoryError, match="a hub id needs its commit"):
        load(copy)


# ------------------------------------------------------------------------------------------------ dtype and such


def test_another_dtype_is_allowed_said_and_held_to_its_own_tolerance(kept, recwarn):
    directory = KEPT / "verifier_v1_1"
    for dtype in ("bfloat16", torch.bfloat16):
        verifier = load(directory, dtype=dtype)
        assert verifier.notes == ("calibrated in float32, runs in bfloat16",)
        assert selftest(directory, verifier, "bfloat16").passed
        assert not selftest(directory, verifier, "float32").passed
        assert next(p.dtype for p in verifier.model.parameters()) == torch.bfloat16
    assert not [w for w in recwarn if "calibrated" in str(w.message)]
    assert load(directory, dtype="float32").notes == ()
    assert verifier.fingerprint == kept.fingerprint


def test_quantization_can_be_put_on_and_left_off_and_is_said(tiny_base, small_sampling, tmp_path):
    plain = random_draft(tiny_base, tmp_path / "plain", small_sampling)
    quantised = random_draft(tiny_base, tmp_path / "quantised", small_sampling, quantised=True)
    assert load(quantised).notes == load(quantised, quantization="nf4").notes == ()
    on, off = load(plain, quantization="nf4"), load(quantised, quantization=False)
    assert on.notes == ("calibrated over unquantised weights, runs over NF4 ones",)
    assert off.notes == ("calibrated over NF4 weights, runs over unquantised ones",)
    assert margins(on) == margins(load(quantised))  # the same adapter, seed for seed
    assert margins(off) == margins(load(plain))
    assert margins(on) != margins(off)


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"dtype": "float8"}, ConfigError, "dtype: must be one of"),
        ({"dtype": "load"}, ConfigError, "dtype: must be one of"),
        ({"quantization": "int8"}, ConfigError, "quantization: must be"),
        ({"quantization": True}, ConfigError, "quantization: must be"),
        ({"revision": "main"}, DirectoryError, "a folder has no revisions"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(options, error, reason):
    with pytest.raises(error, match=reason):
        load(KEPT / "verifier_v1_1", **options)


@pytest.mark.parametrize("setting", [{"llm_int8_skip_modules": ["x"]}, {"bnb_4bit_compute_dtype": "load"}, {"x": 1}])
def test_recorded_quantization_settings_come_from_a_list(copy, setting):
    change_json(CONFIG, "quantization", value={"load_in_4bit": True, **setting})(copy)
    write_manifest(copy)
    with pytest.raises(DirectoryError, match="quantization setting that is refused"):
        load(copy)


def test_leaving_the_adapter_out_is_said():
    verifier = load(KEPT / "verifier_v1_1", adapter=False)
    assert verifier.notes == ("runs without its adapter: uncalibrated verdicts of the base",)
    assert verifier.decision is None


def test_golden_inputs_of_a_text_backbone_are_text_and_it_has_no_vision_cache(tmp_path, small_sampling):
    base = save_tiny_text_model(tmp_path / "base", ["Claim: x is red."] * 20, SMALL)
    draft = random_draft(base, tmp_path / "draft", small_sampling)
    verifier = load(draft)
    seen = Pair(id="0", claim="Colour is red.", evidence=(VideoSegment("gone.mp4", 0.0, 1.0),))
    with pytest.raises(ModelInputError, match="reads transcripts and passages only"):
        write_golden(tmp_path / "golden", verifier, [seen])
    with pytest.raises(ConfigError, match="a text backbone has no vision tower; leave it out"):
        check_frozen(verifier.model)
    with pytest.raises(ConfigError, match="leave it out"):
        load(draft, vision_cache=tmp_path / "cache")


def test_a_hub_id_that_is_not_there_says_so_in_one_sentence():
    with pytest.raises(DirectoryError, match=r"neither a folder here nor a reachable hub id, got 'nobody/nothing'"):
        load("nobody/nothing")
    for place in ("/no/such/folder", "../no/such/folder", "three/part/name", "a/..", "a b"):
        with pytest.raises(DirectoryError, match="no such folder"):
            load(place)
