"""The two readouts: what a margin is, where a head starts from, and that what was trained is what is loaded."""

import json
import logging
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, PeftModel
from reference_forward import classes_of, plain_logits, plain_margins
from safetensors.torch import load_file, save_file
from transformers import BitsAndBytesConfig

from proofreel.core.errors import DirectoryError, ModelInputError
from proofreel.core.pairs import VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.models.backbones.families import BACKBONES, vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.backbones.lora import attach_lora, trainable_summary
from proofreel.models.engine.forward import margins
from proofreel.models.engine.heads import THREE_LABELS, TWO_LABELS, NextToken, NLIHead, margin
from proofreel.models.engine.packing import collate, pack
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.models.inputs.encoder import Encoder

CLAIMS = ["Object is red ball.", "Action is moving left.", "No."]


def load(path, **options) -> Any:
    """The backbone; untyped, for its parts are not declared by transformers."""
    return load_backbone(path, **options)


@pytest.fixture(scope="module")
def encoder(tiny_base, small_sampling):
    return Encoder(load_processor(tiny_base), vision_layout(load(tiny_base).config), Prompt(), small_sampling)


@pytest.fixture(scope="module")
def words(encoder):
    return LabelWords.of(Prompt(), encoder.tokenizer)


@pytest.fixture(scope="module")
def evidence(encoder, make_media):
    return encoder.evidence((VideoSegment("a.mp4", 0, 2),), make_media(8))


def margins_of(model, encoder, evidence, readout):
    batch = collate([pack(evidence, [encoder.claim_ids(c) for c in CLAIMS])], encoder.pad_id)
    with torch.no_grad():
        return margins(model.eval(), batch, readout, encoder.layout)[0]


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=3))
def test_a_margin_is_the_log_odds_of_supported_against_the_rest(logits):
    p = torch.softmax(torch.tensor(logits, dtype=torch.float64), 0)[0]
    found = margin(torch.tensor(logits, dtype=torch.float64))
    assert torch.allclose(torch.sigmoid(found), p, atol=1e-12)


def test_of_two_labels_a_margin_is_the_difference():
    logits = torch.tensor([[1.5, -0.25], [0.5, 2.0]])
    assert torch.equal(margin(logits), logits[:, 0] - logits[:, 1])


def test_next_token_reads_the_verdict_words_alone():
    readout = NextToken(LabelWords(supported_id=4, refuted_id=1))
    assert classes_of(readout, torch.arange(6.0)[None].half()).tolist() == [[4.0, 1.0]]
    assert classes_of(readout, torch.arange(6.0)[None].half()).dtype == torch.float32


@pytest.mark.parametrize("labels", [("refuted", "supported"), ("supported",), ("supported", "not_enough", "refuted")])
def test_labels_in_an_order_a_margin_would_misread_are_refused(labels):
    with pytest.raises(ModelInputError, match="use one in this order"):
        NLIHead(labels)


def test_a_head_that_does_not_fit_the_model_is_refused(tiny_base, encoder, evidence):
    with pytest.raises(ModelInputError, match="load the backbone with this head"):
        margins_of(load(tiny_base), encoder, evidence, NLIHead(TWO_LABELS))


def test_a_head_of_two_labels_starts_as_the_next_token_verifier(tiny_base, encoder, words, evidence):
    told = margins_of(load(tiny_base), encoder, evidence, NextToken(words))
    scored = margins_of(load(tiny_base, head=NLIHead(), words=words), encoder, evidence, NLIHead())
    assert torch.allclose(told, scored, atol=1e-6)


def test_a_head_of_three_labels_starts_log_two_below_and_tells_its_labels_apart(tiny_base, encoder, words, evidence):
    head = NLIHead(THREE_LABELS)
    model = load(tiny_base, head=head, words=words)
    told = margins_of(load(tiny_base), encoder, evidence, NextToken(words))
    assert torch.allclose(margins_of(model, encoder, evidence, head), told - torch.tensor(2.0).log(), atol=1e-3)
    supported, refuted, not_enough = model.score.weight
    assert torch.allclose((refuted + not_enough) / 2, load(tiny_base).lm_head.weight[words.refuted_id])
    assert torch.norm(supported - refuted) > torch.norm(supported - not_enough)


def test_without_words_a_head_starts_at_random(tiny_base, words):
    torch.manual_seed(0)
    model = load(tiny_base, head=NLIHead())
    assert model.score.weight.std() > 0
    assert not torch.equal(model.score.weight, load(tiny_base, head=NLIHead(), words=words).score.weight)


def test_the_start_is_read_from_the_embeddings_where_the_output_layer_is_tied_to_them(tiny_base, words, tmp_path):
    model = load(tiny_base)
    model.config.tie_word_embeddings = model.config.text_config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    head = load(tmp_path, head=NLIHead(), words=words)
    expected = model.get_input_embeddings().weight[[words.supported_id, words.refuted_id]]
    assert torch.equal(head.score.weight, expected)
    assert head.get_input_embeddings().weight.shape[0] > 2  # and nothing was tied to the head


@pytest.mark.parametrize("labels", [TWO_LABELS, THREE_LABELS])
def test_a_full_model_with_its_head_is_loaded_as_it_was_saved(tiny_base, encoder, evidence, tmp_path, labels):
    model = load(tiny_base, head=NLIHead(labels))
    model.save_pretrained(tmp_path)
    again = load(tmp_path, head=NLIHead(labels))
    assert torch.equal(*(margins_of(m, encoder, evidence, NLIHead(labels)) for m in (model, again)))
    saved = json.loads((tmp_path / "config.json").read_text())
    assert list(saved["id2label"].values()) == list(labels)
    assert "attn" not in json.dumps(saved)
    names, before = set(load_file(tmp_path / "model.safetensors")), set(load_file(tiny_base / "model.safetensors"))
    assert names ^ before == {"score.weight", "lm_head.weight"}  # named as in released files, the head aside


@pytest.mark.parametrize("head", [None, NLIHead(TWO_LABELS)])
def test_a_checkpoint_with_another_head_is_refused(tiny_base, tmp_path, head):
    load(tiny_base, head=NLIHead(THREE_LABELS)).save_pretrained(tmp_path)
    with pytest.raises(DirectoryError, match="its head has the labels" if head else "weights do not fit"):
        load(tmp_path, head=head)


def test_a_head_lost_from_its_checkpoint_is_not_made_up(tiny_base, tmp_path, words):
    load(tiny_base, head=NLIHead()).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop("score.weight")
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(DirectoryError, match=r"score\.weight"):
        load(tmp_path, head=NLIHead(), words=words)


@pytest.fixture
def reports(caplog, monkeypatch):
    """What transformers says of a load."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    return caplog


@pytest.mark.parametrize("start", ["verdict words", "adapter"])
def test_a_head_that_is_given_is_not_reported_as_newly_initialised(tiny_base, words, tmp_path, reports, start):
    if start == "verdict words":
        load(tiny_base, head=NLIHead(), words=words)
    else:
        attach_lora(load(tiny_base, head=NLIHead()), LoraConfig(r=2)).save_pretrained(tmp_path)
        PeftModel.from_pretrained(load(tiny_base, head=NLIHead()), str(tmp_path))
    assert [record for record in reports.records if record.name.startswith("transformers")] == []


def test_of_weights_that_are_missing_beside_a_new_head_all_are_reported_but_the_head(tiny_base, tmp_path, reports):
    load(tiny_base).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    lost = next(name for name in sorted(weights) if name.endswith("q_proj.weight"))
    weights.pop(lost)
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(DirectoryError, match=r"missing_keys.*q_proj") as found:
        load(tmp_path, head=NLIHead())
    report = next(r.getMessage() for r in reports.records if "MISSING" in r.getMessage())
    for text in (report, str(found.value)):
        assert "q_proj" in text
        assert "score" not in text


@pytest.mark.parametrize("task_type", [None, "CAUSAL_LM"])
def test_an_adapter_carries_the_trained_head(tiny_base, encoder, words, evidence, tmp_path, task_type):
    head = NLIHead(THREE_LABELS)
    config = LoraConfig(r=2, init_lora_weights=False, task_type=task_type)
    model = attach_lora(load(tiny_base, head=head, words=words), config)
    counts = trainable_summary(model)
    assert counts["score"] == 3 * 64
    assert counts["visual"] == 0
    with torch.no_grad():
        model.base_model.model.score.weight.add_(1.0 * torch.randn(3, 64))
    model.save_pretrained(tmp_path)
    assert any("score" in name for name in load_file(tmp_path / "adapter_model.safetensors"))
    again = PeftModel.from_pretrained(load(tiny_base, head=head), str(tmp_path), autocast_adapter_dtype=False)
    found = [margins_of(m, encoder, evidence, head) for m in (model, again)]
    assert torch.equal(*found)
    assert not torch.allclose(found[0], margins_of(load(tiny_base, head=head, words=words), encoder, evidence, head))


def test_quantisation_leaves_the_head_as_it_is(tiny_base, encoder, words, evidence):
    nf4 = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32)
    model = load(tiny_base, quantization_config=nf4, head=NLIHead(), words=words)
    assert isinstance(model, BACKBONES["qwen2_5_vl"].network(scored=True))
    assert type(model.score) is torch.nn.Linear
    assert torch.equal(model.score.weight, load(tiny_base, head=NLIHead(), words=words).score.weight)
    packed = margins_of(model, encoder, evidence, NLIHead())
    with torch.no_grad():
        alone = plain_margins(model, evidence, [encoder.claim_ids(c) for c in CLAIMS], NLIHead())
    assert torch.allclose(packed, alone, atol=1e-4, rtol=1e-5)


def test_logits_exist_at_kept_positions_only(tiny_base, encoder, evidence):
    model = load(tiny_base, head=NLIHead(THREE_LABELS))
    shapes = []
    model.score.register_forward_hook(lambda _, args, out: shapes.append((args[0].shape, out.shape)))
    margins_of(model, encoder, evidence, NLIHead(THREE_LABELS))
    assert shapes == [((len(CLAIMS), 64), (len(CLAIMS), 3))]
    with torch.no_grad():
        assert plain_logits(model, evidence, encoder.claim_ids("No."), NLIHead(THREE_LABELS)).shape == (3,)
