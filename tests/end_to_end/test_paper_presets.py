"""Presets after a paper: what its appendix states stands in the file, and what it leaves open is said to be chosen."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from nightly import first_of
from peft import LoraConfig
from random_drafts import random_draft
from reference_forward import classes_of
from safetensors.torch import load_file
from trl import get_peft_config, get_quantization_config

from proofreel.core.config import load_config, read_yaml
from proofreel.core.pairs import Pair, Passage, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.data_prep import build as build_entry
from proofreel.data_prep import mine as mine_entry
from proofreel.data_prep.dataset.shards import read_manifest, read_split
from proofreel.data_prep.negatives.hard_mining import mine
from proofreel.data_prep.negatives.scores import Score
from proofreel.data_prep.pipeline.config import BuildConfig
from proofreel.data_prep.pipeline.mine import MineConfig
from proofreel.eval.calibration.fit import fit_decision
from proofreel.eval.calibration.fitted_rows import write_fitted_rows
from proofreel.eval.publishing.exporting import Evaluation, export
from proofreel.eval.scoring.score import predict
from proofreel.models.backbones.families import published_config, vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.backbones.lora import attach_lora
from proofreel.models.backbones.shapes import meta_model
from proofreel.models.decision.thresholds import write_decision
from proofreel.models.directory.format import fingerprint, read_directory
from proofreel.models.directory.load import Parts
from proofreel.models.engine.forward import margins
from proofreel.models.engine.heads import NextToken, margin
from proofreel.models.engine.packing import collate, pack
from proofreel.models.inputs.chat_text import ChatText, LabelWords
from proofreel.models.inputs.encoder import Encoder, Media
from proofreel.models.verifier.verifier import Verifier
from proofreel.train import recipe
from proofreel.train.arguments import parse

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
MIRAGE = ("mirage_next_token", "mirage_nli", "mirage_text_next_token", "mirage_text_nli")
STATED = {  # in the papers; every other key of these presets is chosen, or a matter of where files are
    **{name: {"model_name_or_path", "num_train_epochs", "learning_rate", "response_prefix"} for name in MIRAGE},
    "dualfact_qlora": {
        *("model_name_or_path", "dtype", "load_in_4bit", "bnb_4bit_quant_type", "use_bnb_nested_quant", "use_peft"),
        *("lora_target_modules", "activation_checkpointing"),
    },
}


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda *_, **__: True)  # the machine they are meant for
    return lambda name: parse(
        ["--config", str(CONFIGS / f"{name}.yaml"), "--use_cpu", "true", "--output_dir", str(tmp_path)]
    )


def text_of(name):
    return (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")


# MiRAGE, appendix H.2.


@pytest.mark.parametrize("name", MIRAGE)
def test_mirage_trains_ten_epochs_at_the_rate_of_its_kind_on_the_backbone_of_its_evidence(read, name):
    arguments, training, model = read(name)
    assert training.num_train_epochs == 10
    assert training.learning_rate == (2e-4 if "nli" in name else 2e-5)
    assert model.model_name_or_path == ("Qwen/Qwen2.5-7B-Instruct" if "text" in name else "Qwen/Qwen2.5-VL-7B-Instruct")
    assert (arguments.labels, arguments.head_init) == ((2, "random") if "nli" in name else (2, "verdict_words"))
    # The mined rows are balanced: nothing weighs the labels a second time.
    assert (arguments.balance_classes, arguments.class_weights, arguments.early_stopping) == (False, None, None)


@pytest.mark.parametrize("name", MIRAGE)
def test_mirage_asks_its_own_question_and_reads_the_verdict_inside_its_tags(read, tiny_base, name):
    prompt = read(name)[0].prompt()
    what = "passage" if "text" in name else "video"
    asked = ChatText(prompt, load_processor(tiny_base)).claim("Smoke rises.", "Smoke rises from the roof.")
    assert f"Is the claim: Smoke rises., supported by the {what}?" in asked
    assert "<claim> Smoke rises. </claim>" in asked
    assert "Smoke rises from the roof." in asked
    assert "\n" not in prompt.system.strip()
    forms = all(f"<response>{word}</response>" in prompt.system for word in ("yes", "no"))
    assert (asked.endswith("<response>"), forms) == (("nli" not in name),) * 2
    assert (prompt.supported_word, prompt.refuted_word) == ("yes", "no")


def test_mirage_mines_all_positives_and_as_many_negatives_three_quarters_of_them_hard():
    config = load_config(MineConfig, CONFIGS / "mirage_mine.yaml").mining
    assert (config.positives, config.negatives_per_positive, config.hard_share) == (None, 1, 0.75)
    labels = ["supported"] * 40 + ["not_enough"] * 400
    pairs = [
        Pair(f"p{n}", f"claim {n}.", (VideoSegment(f"{n % 4}.mp4"),), label, group=str(n % 4), origin="annotated")  # type: ignore[arg-type]
        for n, label in enumerate(labels)
    ]
    scores = {pair.id: Score(n / len(pairs)) for n, pair in enumerate(pairs)}
    mined = mine(pairs, scores, config)
    assert Counter(pair.label for pair in mined.pairs) == {"supported": 40, "not_enough": 40}
    assert (mined.counts["hard"], mined.counts["random"]) == (30, 10)
    # Seven or eight hard ones for the ten positives of each topic.
    assert {f"p{n}" for n in range(len(pairs) - 28, len(pairs))} <= {pair.id for pair in mined.pairs}


@pytest.mark.parametrize("name", MIRAGE)
def test_the_launch_lines_chain_each_reads_what_the_one_before_it_wrote(name):
    header = "\n".join(line for line in text_of(name).splitlines() if line.startswith("#"))
    built = re.search(r"build\.py --config configs/(\w+\.yaml)", header)
    mined = re.search(r"mine\.py --config configs/mirage_mine\.yaml((?:[^\\\n]|\\\n)*)", header)
    assert built is not None
    assert mined is not None
    words = re.findall(r"(\w+=\S+)", mined[1])
    mining = load_config(MineConfig, CONFIGS / "mirage_mine.yaml", words)
    assert mining.data == load_config(BuildConfig, CONFIGS / built[1]).output
    assert mining.output == read_yaml(CONFIGS / f"{name}.yaml")["dataset_dir"]
    assert bool(words) == ("text" in name)


def test_the_real_text_judgments_are_built_and_mined_as_the_launch_lines_say(shared_data, tmp_path, monkeypatch):
    monkeypatch.setenv("MIRAGE_JUDGMENTS", str(shared_data / "mirage" / "metric_preference"))
    data, mined, teacher = (tmp_path / name for name in ("data", "mined", "teacher.jsonl"))
    build = ["--config", str(CONFIGS / "mirage_text_build.yaml"), f"output={data}"]
    assert build_entry.main(build) == 0
    manifest = read_manifest(data)
    assert (manifest["counts"]["all"]["rows"], manifest["counts"]["all"]["groups"]) == (1821, 10)
    assert manifest["media"] == "required"  # there is none; absent would mark rows that cannot be trained on
    train = read_split(data, "train")
    teacher.write_text(
        "".join(json.dumps({"pair_id": p.id, "p_supported": n / len(train)}) + "\n" for n, p in enumerate(train))
    )
    words = [f"data={data}", f"predictions={teacher}", f"output={mined}", "mining.uncalibrated=allow"]
    assert mine_entry.main(["--config", str(CONFIGS / "mirage_mine.yaml"), *words]) == 0
    counts = read_manifest(mined)["mining"]["counts"]
    positives = sum(pair.label == "supported" for pair in train)
    assert counts["positives"] == counts["negatives"] == positives > 100
    assert counts["hard"] == round(0.75 * positives)
    assert counts["hard"] + counts["random"] == positives


# DualFact, appendix A.


def test_dualfact_is_nf4_with_double_quantisation_and_adapters_on_the_layers_it_names(read):
    arguments, training, model = read("dualfact_qlora")
    quantization = get_quantization_config(model)
    assert quantization is not None
    assert (quantization.load_in_4bit, quantization.bnb_4bit_quant_type) == (True, "nf4")
    assert quantization.bnb_4bit_use_double_quant
    assert quantization.bnb_4bit_compute_dtype == torch.bfloat16
    assert (training.activation_checkpointing, training.bf16) == (True, True)
    assert model.model_name_or_path == "Qwen/Qwen2.5-VL-7B-Instruct"
    assert (model.lora_modules_to_save, arguments.train_vision) == (None, False)  # adapters alone train


def test_the_layers_dualfact_names_would_by_name_alone_be_in_the_vision_tower_as_well(read):
    def adapted(config):
        with torch.device("meta"):
            model = attach_lora(meta_model(shape), config)
        return {n.removeprefix("base_model.model.") for n, m in model.named_modules() if hasattr(m, "base_layer")}

    model, shape = read("dualfact_qlora")[2], published_config("Qwen2.5-VL-7B-Instruct")
    ours = adapted(get_peft_config(model))
    named = adapted(LoraConfig(r=16, target_modules=["q_proj", "k_proj", "v_proj", "mlp.gate_proj", "lm_head"]))
    assert named - ours == {f"model.visual.blocks.{i}.mlp.gate_proj" for i in range(32)}
    assert not ours - named
    assert len(ours) == 28 * 4 + 1


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_batch_padded_on_either_side_as_transformers_pads_gives_our_margins(tiny_base, small_sampling, side):
    model = load_backbone(tiny_base).eval()
    encoder = Encoder(load_processor(tiny_base), vision_layout(model.config), Prompt(), small_sampling)
    readout = NextToken(LabelWords.of(Prompt(), encoder.tokenizer))
    texts, claims = ("It moves.", "A red ball rolls over a long grey table, and stops."), ("No.", "Object is red ball.")
    rows = [
        pack(encoder.evidence((Passage(text),), Media()), [encoder.claim_ids(claim)])
        for text, claim in zip(texts, claims, strict=True)
    ]
    longest = max(len(row.ids_T) for row in rows)
    pads = [longest - len(row.ids_T) for row in rows]
    assert sorted(pads)[-1] > 10

    def padded(values_T, n, value):
        return torch.nn.functional.pad(values_T, (n, 0) if side == "left" else (0, n), value=value)

    logits = model(
        input_ids=torch.stack([padded(r.ids_T, n, encoder.pad_id) for r, n in zip(rows, pads, strict=True)]),
        attention_mask=torch.stack([padded(torch.ones_like(r.ids_T), n, 0) for r, n in zip(rows, pads, strict=True)]),
        position_ids=torch.stack([padded(r.positions_3T, n, 0) for r, n in zip(rows, pads, strict=True)], 1),
    ).logits
    last = [-1 if side == "left" else len(row.ids_T) - 1 for row in rows]
    theirs = torch.stack([margin(classes_of(readout, logits[b, t][None]))[0] for b, t in enumerate(last)])
    ours = margins(model, collate(rows, encoder.pad_id), readout, encoder.layout)[:, 0]
    assert torch.allclose(ours, theirs, atol=1e-4, rtol=1e-5)
    assert abs(ours[0] - ours[1]) > 1e-2


# Both.


@pytest.mark.parametrize("name", STATED)
def test_what_the_paper_leaves_open_is_said_to_be_chosen(name):
    text = text_of(name)
    assert "Stated in the paper:" in text
    unsaid = re.findall(r"^(\w+):.*# not stated", text, re.M)
    assert {"lora_r", "per_device_train_batch_size", "seed"} <= set(unsaid)
    assert {"lr_scheduler_type", "num_train_epochs"} & set(unsaid)
    assert not STATED[name] & set(unsaid)
    said = re.findall(r"^(\w+):.*# stated", text, re.M)
    assert set(said) <= STATED[name]
    assert set(said) >= STATED[name] & {"num_train_epochs", "learning_rate", "dtype", "load_in_4bit"}


@pytest.mark.parametrize("name", first_of(["mirage_next_token", "mirage_nli", "dualfact_qlora"]))
def test_a_preset_trains_a_tiny_base_and_the_draft_reloads_to_the_trainers_margins(
    tiny_base, colour_dataset, tmp_path, monkeypatch, name
):
    pairs, kept = read_split(colour_dataset, "test"), []

    def keep(trainer, encoder, config):
        verifier = Verifier(Parts(trainer.model.eval(), encoder, trainer.head, config.claims_per_row))
        kept.extend(v.margin for v in verifier.score_pairs(pairs))
        return save(trainer, encoder, config)

    save = recipe.save_draft
    monkeypatch.setattr(recipe, "save_draft", keep)
    sizes = {"fps": 4, "max_frames": 4, "min_pixels": 84 * 84, "max_pixels": 84 * 84}
    here = {"dtype": "float32", "bf16": "false", "use_cpu": "true", "max_steps": 2, "dataloader_num_workers": 0}
    here |= {"gradient_accumulation_steps": 1, "learning_rate": 1e-2}
    quiet = {"save_strategy": "no", "eval_strategy": "no", "load_best_model_at_end": "false", "report_to": "none"}
    places = {"model_name_or_path": tiny_base, "dataset_dir": colour_dataset, "output_dir": tmp_path / "run"}
    places |= {"vision_cache": tmp_path / "features"}
    words = [str(w) for key, value in (places | sizes | here | quiet).items() for w in (f"--{key}", value)]
    draft = recipe.run(
        *parse(["--config", str(CONFIGS / f"{name}.yaml"), *words]), head_kind="nli" if "nli" in name else "next_token"
    )
    assert draft is not None
    assert [v.margin for v in Verifier.from_pretrained(draft, device="cpu").score_pairs(pairs)] == kept
    assert len(set(kept)) > 4
    without = Verifier.from_pretrained(draft, device="cpu", adapter=False).score_pairs(pairs)
    assert all(abs(v.margin - margin) > 1e-3 for v, margin in zip(without, kept, strict=True))

    saved = load_file(draft / "adapter" / "adapter_model.safetensors")
    assert all("lora_" in n or n.endswith("score.weight") for n in saved), list(saved)
    assert any("lm_head" in n for n in saved) == (name == "dualfact_qlora")
    assert any("score" in n for n in saved) == (name == "mirage_nli")
    config = read_directory(draft)
    assert (config.quantization is not None) == (name == "dualfact_qlora")
    assert config.prompt.response_prefix == ("<response>" if name == "mirage_next_token" else "")


def test_dualfacts_layers_over_nf4_are_published_and_give_the_drafts_margins(
    read, tiny_base, small_sampling, colour_dataset, tmp_path
):
    named = {"target_modules": read("dualfact_qlora")[2].lora_target_modules}
    draft = random_draft(tiny_base, tmp_path / "draft", small_sampling, quantised=True, **named)
    verifier, pairs = Verifier.from_pretrained(draft, device="cpu"), read_split(colour_dataset, "test")
    rows = predict(verifier, read_split(colour_dataset, "calibration"))
    about = {"split": "calibration", "verifier_fingerprint": fingerprint(draft)}
    write_decision(tmp_path / "calibrated", fit_decision(rows, "temperature", "f1", about))
    write_fitted_rows(tmp_path / "calibrated", rows)
    export(draft, tmp_path / "calibrated", colour_dataset, tmp_path / "out", evaluation=Evaluation(split="test"))
    published = Verifier.from_pretrained(tmp_path / "out", device="cpu")
    before, after = ([v.margin for v in each.score_pairs(pairs)] for each in (verifier, published))
    assert before == after
    layers = {n.split(".lora_")[0] for n in load_file(tmp_path / "out" / "adapter" / "adapter_model.safetensors")}
    expected = [
        f"layers.{i}.{n}_proj" for i in (0, 1) for n in ("self_attn.q", "self_attn.k", "self_attn.v", "mlp.gate")
    ]
    prefix = "base_model.model."
    assert layers == {f"{prefix}lm_head", *(f"{prefix}model.language_model.{name}" for name in expected)}
