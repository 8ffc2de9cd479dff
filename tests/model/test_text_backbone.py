"""A text backbone is asked, packed, cached, trained, saved and loaded like one that sees, and is never shown anything.

The independent reference is transformers' own network on one whole prompt: no mask, no positions, nothing of ours.
"""

import dataclasses
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import sft_arguments
from hypothesis import given, settings
from hypothesis import strategies as st
from nightly import first_of, nightly
from peft import LoraConfig, PeftModel
from reference_forward import classes_of, label_loss_sum, verdict_loss_sum
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, BitsAndBytesConfig, Qwen2ForCausalLM

from proofreel.core.errors import DirectoryError, ModelInputError
from proofreel.core.pairs import Image, Pair, Passage, Transcript, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.data_prep.dataset.shards import read_manifest, read_split, write_shards
from proofreel.models.backbones.families import BACKBONES, published_config, vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor, read_config
from proofreel.models.backbones.lora import attach_lora, trainable_summary
from proofreel.models.backbones.shapes import lora_parameters, meta_model
from proofreel.models.backbones.tiny import TinySizes, save_tiny_text_model
from proofreel.models.engine.forward import margins, verdict_logits
from proofreel.models.engine.heads import THREE_LABELS, TWO_LABELS, NextToken, NLIHead, margin
from proofreel.models.engine.packing import IGNORED, collate, pack
from proofreel.models.engine.prefix_cache import PrefixCache
from proofreel.models.engine.scorer import PrefixScorer, Segment
from proofreel.models.engine.segments import SegmentReader
from proofreel.models.inputs.chat_text import ChatText, LabelWords
from proofreel.models.inputs.encoder import Encoder, Media
from proofreel.models.inputs.features import MediaFeatures, PieceFeatures
from proofreel.models.inputs.mrope import TEXT_LAYOUT

CLAIMS = ["Object is red ball.", "Action is moving left.", "Location is the far end of a long grey table.", "No."]
TALK = (Transcript("She takes the red ball.\n\nThen she leaves.", 0.0, 4.5), Passage("It ends here."))
SHORT = (Passage("Hi."),)
VIDEO = VideoSegment("a.mp4", 0, 2)
LAYERS = r"model\.layers\..*_proj"
READOUTS = {"next token": None, "two labels": NLIHead(TWO_LABELS), "three labels": NLIHead(THREE_LABELS)}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": torch.float32}


def tiny(folder, tied):
    sizes = TinySizes(hidden=64, layers=2, mlp=128, vocab=420, initializer_range=0.1)
    return save_tiny_text_model(folder, [Prompt().system, *CLAIMS] * 20, sizes, tied=tied)


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    return {tied: tiny(tmp_path_factory.mktemp("text") / str(tied), tied) for tied in (False, True)}


@pytest.fixture(scope="module")
def base(bases):
    return bases[False]


@pytest.fixture(scope="module")
def encoder(base, small_sampling):
    return Encoder(load_processor(base), vision_layout(read_config(base)), Prompt(), small_sampling)


@pytest.fixture(scope="module")
def words(encoder):
    return LabelWords.of(Prompt(), encoder.tokenizer)


@pytest.fixture(scope="module")
def model(base):
    return load(base).eval()


def load(path, **options) -> Any:
    """The backbone; untyped, for its parts are not declared by transformers."""
    return load_backbone(path, **options)


def encode(encoder, evidence=TALK, claims=CLAIMS):
    return encoder.evidence(evidence, Media()), [encoder.claim_ids(c) for c in claims]


def packed(model, encoder, readout, evidence=TALK, claims=CLAIMS):
    encoded, ids = encode(encoder, evidence, claims)
    with torch.no_grad():
        return margins(model.eval(), collate([pack(encoded, ids)], encoder.pad_id), readout, encoder.layout)[0]


def whole_logits(network, prefix_P, claim_L):
    """(V,) logits of one ordinary sequence, all of it transformers' own business."""
    return network(input_ids=torch.cat([prefix_P, claim_L])[None], use_cache=False).logits[0, -1:]


def close(a, b):
    return torch.allclose(a, b, atol=1e-4, rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("evidence", [TALK, SHORT, ()])
def test_packed_margins_are_those_of_transformers_own_network_on_whole_prompts(bases, encoder, words, tied, evidence):
    plain = Qwen2ForCausalLM.from_pretrained(bases[tied]).eval()
    encoded, ids = encode(encoder, evidence)
    with torch.no_grad():
        expected = torch.stack(
            [margin(classes_of(NextToken(words), whole_logits(plain, encoded.ids_P, i))[0]) for i in ids]
        )
    found = packed(load(bases[tied]), encoder, NextToken(words), evidence)
    assert close(found, expected)
    assert found.std() > 0.01  # the claims are told apart, or equality would prove nothing


def test_margins_depend_on_the_evidence(model, encoder, words):
    readout = NextToken(words)
    assert not close(packed(model, encoder, readout, TALK), packed(model, encoder, readout, SHORT))


def test_changing_one_claim_leaves_the_others_bit_identical(model, encoder, words):
    evidence, ids = encode(encoder)
    other = ids[0].clone()
    other[len(other) // 2] = encoder.tokenizer.convert_tokens_to_ids("!")
    with torch.no_grad():
        before, after = (
            margins(model, collate([pack(evidence, [first, *ids[1:]])], 0), NextToken(words), encoder.layout)[0]
            for first in (ids[0], other)
        )
    assert before[0] != after[0]
    assert torch.equal(before[1:], after[1:])


drawn = st.lists(
    st.tuples(st.integers(0, 12), st.lists(st.integers(1, 9), min_size=0, max_size=5)), min_size=1, max_size=3
)


@settings(deadline=None, max_examples=25)
@given(rows=drawn, seed=st.integers(0, 99))
def test_margins_do_not_depend_on_what_is_packed_or_batched_together(model, encoder, words, rows, seed):
    generator = torch.Generator().manual_seed(seed)
    encoded = [encoder.evidence((Passage("x" * n),), Media()) for n, _ in rows]
    claims = [[torch.randint(30, 300, (n,), generator=generator) for n in lengths] for _, lengths in rows]
    batch = collate([pack(e, c) for e, c in zip(encoded, claims, strict=True)], encoder.pad_id)
    with torch.no_grad():
        found = margins(model, batch, NextToken(words), encoder.layout)
        for b, (e, ids) in enumerate(zip(encoded, claims, strict=True)):
            alone = [margin(classes_of(NextToken(words), whole_logits(model, e.ids_P, i))[0]) for i in ids]
            assert torch.isnan(found[b, len(ids) :]).all()
            assert close(found[b, : len(ids)], torch.tensor([float(a) for a in alone]))


def test_the_network_is_given_one_position_per_token_that_restarts_after_the_prefix(model, encoder, words):
    seen: list[torch.Tensor] = []
    hook = model.model.rotary_emb.register_forward_hook(lambda _, args, __: seen.append(args[1]))
    packed(model, encoder, NextToken(words))
    hook.remove()
    encoded, ids = encode(encoder)
    start = len(encoded.ids_P)
    expected = torch.cat([torch.arange(start), *(start + torch.arange(len(i)) for i in ids)])
    assert torch.equal(seen[0], expected[None])


def prepared(path, words, head, how, checkpointing):
    torch.manual_seed(0)
    quantization = BitsAndBytesConfig(**NF4) if how == "qlora" else None
    model = load(path, head=head, words=words, quantization_config=quantization)
    if how != "full":
        model = attach_lora(model, LoraConfig(r=4, init_lora_weights=False, target_modules=LAYERS))
    if checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    return model.train(), head or NextToken(words)


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def loss_of(logits_BKC, labels_BK):
    if logits_BKC.shape[-1] == 3:
        return label_loss_sum(logits_BKC, labels_BK)
    supported = torch.where(labels_BK == IGNORED, IGNORED, 1 - labels_BK)
    return verdict_loss_sum(margin(logits_BKC), supported)


@pytest.mark.parametrize("readout_name", READOUTS)
@pytest.mark.parametrize(("how", "tied"), [("lora", False), ("full", False), ("full", True), ("qlora", False)])
@pytest.mark.parametrize("checkpointing", first_of([True, False]))
def test_packed_loss_and_gradients_equal_those_of_separate_sequences(
    bases, encoder, words, how, tied, checkpointing, readout_name
):
    """Two evidences of different length in a batch, against one plain forward and backward per claim."""
    model, readout = prepared(bases[tied], words, READOUTS[readout_name], how, checkpointing)
    rows = [encode(encoder, TALK), encode(encoder, SHORT, CLAIMS[1:])]
    labels = torch.tensor([[0, 1, 1, 0], [1, 0, 1, IGNORED]])
    if len(readout.labels) == 3:
        labels[0, 2] = 2
    batch = collate([pack(e, i) for e, i in rows], encoder.pad_id)
    loss = loss_of(verdict_logits(model, batch, readout, encoder.layout), labels)
    found = gradients(model, loss)
    total, summed = 0.0, {}
    for b, k in (labels != IGNORED).nonzero().tolist():
        evidence, ids = rows[b]
        logits = classes_of(readout, whole_logits(model, evidence.ids_P, ids[k]))
        part = loss_of(logits[None], labels[b : b + 1, k : k + 1])
        total += float(part.detach())
        for name, g in gradients(model, part).items():
            summed[name] = summed.get(name, 0) + g
    assert abs(float(loss.detach()) - total) / 7 <= 1e-6
    assert found
    assert set(found) == set(summed)
    assert any("score" in n for n in found) == (READOUTS[readout_name] is not None)
    for name, g in found.items():
        assert torch.norm(g - summed[name]) <= 1e-4 * torch.norm(summed[name]) + 1e-7, name


@pytest.mark.parametrize("readout_name", READOUTS)
def test_a_kept_prefix_answers_as_the_whole_does(base, encoder, words, readout_name):
    head = READOUTS[readout_name]
    model, readout = load(base, head=head, words=words).eval(), head or NextToken(words)
    expected = packed(model, encoder, readout).numpy()
    kept = PrefixCache(1.0)
    scorer = PrefixScorer(model, readout, encoder.layout, encoder.pad_id, kept, claims_per_chunk=2)
    evidence, ids = encode(encoder)
    first = scorer.score([Segment(evidence, tuple(ids), key="talk")])[0]  # two chunks, the second after the cache
    again = scorer.score([Segment(evidence, tuple(ids), key="talk", prefix=kept.get("talk"))])[0]
    for found in (first, again):
        assert np.allclose(found, expected, atol=1e-4, rtol=1e-5)
    assert kept.hits == 1


# What it is asked, and what it is not.


def test_it_is_asked_in_the_same_words_as_a_backbone_that_sees(tiny_base, encoder):
    seeing, reading = (
        ChatText(Prompt(response_prefix="<r>"), p) for p in (load_processor(tiny_base), encoder.processor)
    )
    assert reading.prefix(TALK) == seeing.prefix(TALK)
    assert reading.claim("A.", "Some context.") == seeing.claim("A.", "Some context.")


def test_tokenising_the_parts_equals_tokenising_the_whole(encoder):
    chat = encoder.chat
    whole = chat.prefix(TALK) + chat.claim("A.", "Some context.")
    parts = torch.cat([encode(encoder)[0].ids_P, encoder.claim_ids("A.", "Some context.")])
    assert encoder.tokenizer(whole, add_special_tokens=False)["input_ids"] == parts.tolist()
    assert encoder.count_prefix_tokens(TALK) == len(encode(encoder)[0].ids_P)


def test_the_prefix_is_what_the_template_gives_for_joined_strings(encoder):
    evidence = "".join(part["text"] for part in Prompt().parts(TALK))
    messages = [{"role": "system", "content": Prompt().system}, {"role": "user", "content": evidence}]
    assert encoder.tokenizer.apply_chat_template(messages, tokenize=False) == encoder.chat.prefix(TALK)


@pytest.mark.parametrize("evidence", [(VIDEO,), (*TALK, VIDEO), (Image("b.png"), Passage("Hi."))])
def test_evidence_that_shows_something_is_refused_with_its_name(encoder, evidence):
    shown = "a.mp4" if VIDEO in evidence else "b.png"
    for ask in (encoder.check_readable, encoder.count_prefix_tokens, lambda e: encoder.evidence(e, Media())):
        with pytest.raises(ModelInputError, match=rf"text backbone .*{shown}.*transcript"):
            ask(evidence)
    encoder.check_readable(TALK)


def test_media_that_came_with_text_evidence_is_refused(encoder, make_media):
    with pytest.raises(ModelInputError, match="takes no pixels, got 1"):
        encoder.evidence(TALK, make_media(4))
    with pytest.raises(ModelInputError, match="must never be asked about pixels it is not given"):
        encoder.evidence(TALK, MediaFeatures(videos=(PieceFeatures(torch.zeros(4, 64), (1, 4, 4), 2, 1.0),)))


def test_a_refused_segment_fails_its_own_claims_only(model, encoder, words, colour_dataset):
    video = read_split(colour_dataset, "test")[0].evidence
    readout = NextToken(words)
    reader = SegmentReader(encoder, PrefixScorer(model, readout, TEXT_LAYOUT, 0, PrefixCache(0)))
    pairs = [Pair("a", CLAIMS[0], TALK), Pair("b", CLAIMS[0], video), Pair("c", CLAIMS[1], (*TALK, *video))]
    read = [reader.read(group) for group in reader.group(pairs)]
    assert [r.places for r in read] == [(0,), (), ()]
    assert all("text backbone" in reason for r in read for reason in r.failed.values())
    assert [list(r.failed) for r in read] == [[], [1], [2]]


def test_control_tokens_of_vision_are_refused_in_text_though_it_has_no_eyes(encoder):
    with pytest.raises(ModelInputError, match="control token"):
        encoder.evidence((Passage("Look <|video_pad|> here"),), Media())


def test_a_tokenizer_alone_does_not_do_for_a_backbone_that_sees(tiny_base, base, small_sampling):
    with pytest.raises(ModelInputError, match="needs one that takes pixels, got a TextProcessor"):
        Encoder(load_processor(base), vision_layout(read_config(tiny_base)), Prompt(), small_sampling)


# What is loaded, and what is saved.


def test_the_processor_is_saved_and_loaded_from_a_folder_without_a_model(base, encoder, tmp_path):
    load_processor(base).save_pretrained(tmp_path / "processor")
    again = load_processor(tmp_path / "processor")
    assert not (tmp_path / "processor" / "config.json").exists()
    assert ChatText(Prompt(), again).prefix(TALK) == encoder.chat.prefix(TALK)
    text = encoder.chat.prefix(TALK)
    assert again.tokenizer(text)["input_ids"] == encoder.tokenizer(text)["input_ids"]
    assert again.tokenizer.pad_token_id == encoder.pad_id
    assert {f.suffix for f in (tmp_path / "processor").iterdir()} <= {".json", ".jinja", ".txt"}


def test_a_tokenizer_without_a_chat_template_is_refused(base, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(DirectoryError, match="no chat template"):
        load_processor(tmp_path)


def test_on_disk_it_is_named_as_released_checkpoints_are(bases):
    for tied, path in bases.items():
        config, names = json.loads((path / "config.json").read_text()), set(load_file(path / "model.safetensors"))
        assert config["model_type"] == "qwen2"
        assert config["architectures"] == ["Qwen2ForCausalLM"]
        assert ("lm_head.weight" in names) != tied
        assert {"model.embed_tokens.weight", "model.norm.weight", "model.layers.0.self_attn.q_proj.bias"} <= names
        assert {"generation_config.json", "tokenizer.json", "tokenizer_config.json"} <= {f.name for f in path.iterdir()}


@pytest.mark.parametrize("kind", ["qwen2_vl", "mistral", "qwen2_5_vl_text", None], ids=lambda k: str(k))
def test_an_architecture_that_is_not_supported_is_refused_by_name_with_those_that_are(base, tmp_path, kind):
    values = json.loads((base / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(values | {"model_type": kind}))
    told = rf"got model_type {kind!r}; supported are Qwen2\.5-VL \(qwen2_5_vl\), .*Qwen2\.5 text \(qwen2\)"
    with pytest.raises(DirectoryError, match=told):
        load(tmp_path)


def test_a_layout_is_made_of_supported_configurations_only(base):
    assert vision_layout(read_config(base)) is TEXT_LAYOUT
    assert not TEXT_LAYOUT.sees
    config = read_config(base)
    config.model_type = "qwen2_vl"
    with pytest.raises(DirectoryError, match="qwen2_vl"):
        vision_layout(config)


def test_a_folder_without_a_readable_configuration_is_refused(tmp_path):
    with pytest.raises(DirectoryError, match=r"no config\.json"):
        load(tmp_path)
    for content in ("{}", "[]", "{", '{"model_type": ["qwen2"]}'):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(DirectoryError, match="model_type"):
            load(tmp_path)


def test_sliding_windows_are_refused(base, tmp_path):
    values = json.loads((base / "config.json").read_text()) | {
        "use_sliding_window": True,
        "sliding_window": 8,
        "max_window_layers": 1,
        "layer_types": None,
    }
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(DirectoryError, match="sliding window"):
        load(tmp_path)


def altered(base, folder, change):
    """A copy of a checkpoint whose weights went through `change`."""
    for file in base.glob("*.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(base / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize("lost", ["model.norm.weight", "model.layers.1.mlp.up_proj.weight", "lm_head.weight"])
@pytest.mark.parametrize("head", [None, NLIHead()])
def test_a_weight_that_is_missing_is_not_made_up(base, tmp_path, words, lost, head):
    folder = altered(base, tmp_path, lambda weights: weights.pop(lost))
    if head is not None and lost == "lm_head.weight":
        load(folder, head=head)  # whose place the head takes
        return
    with pytest.raises(DirectoryError, match=rf"do not fit Qwen2\.5 text.*missing_keys.*{lost}"):
        load(folder, head=head)


def test_a_weight_that_has_no_place_is_refused(base, tmp_path):
    folder = altered(
        base, tmp_path, lambda weights: weights.update({"model.layers.2.mlp.up_proj.weight": torch.ones(2)})
    )
    with pytest.raises(DirectoryError, match="unexpected_keys"):
        load(folder)


def test_tied_embeddings_stay_one_matrix(bases):
    tied, untied = load(bases[True]), load(bases[False])
    assert tied.lm_head.weight is tied.get_input_embeddings().weight
    assert untied.lm_head.weight is not untied.get_input_embeddings().weight


@pytest.mark.parametrize("tied", [False, True])
def test_a_head_of_two_labels_starts_as_the_next_token_verifier(bases, encoder, words, tied):
    told = packed(load(bases[tied]), encoder, NextToken(words))
    model = load(bases[tied], head=NLIHead(), words=words)
    assert torch.allclose(told, packed(model, encoder, NLIHead()), atol=1e-6)
    assert model.score.weight.shape == (2, 64)
    assert model.get_input_embeddings().weight.shape[0] > 2  # and nothing was tied to the head


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("labels", [TWO_LABELS, THREE_LABELS])
def test_a_full_model_with_its_head_is_loaded_as_it_was_saved(bases, encoder, tmp_path, labels, tied):
    model = load(bases[tied], head=NLIHead(labels))
    model.save_pretrained(tmp_path)
    again = load(tmp_path, head=NLIHead(labels))
    assert torch.equal(*(packed(m, encoder, NLIHead(labels)) for m in (model, again)))
    saved = json.loads((tmp_path / "config.json").read_text())
    assert list(saved["id2label"].values()) == list(labels)
    assert "attn" not in json.dumps(saved)
    names = set(load_file(tmp_path / "model.safetensors"))
    assert names ^ set(load_file(bases[tied] / "model.safetensors")) == {"score.weight"} | (
        set() if tied else {"lm_head.weight"}
    )
    with pytest.raises(DirectoryError, match="weights do not fit"):
        load(tmp_path)
    other = NLIHead(THREE_LABELS if labels == TWO_LABELS else TWO_LABELS)
    with pytest.raises(DirectoryError, match="its head has the labels"):
        load(tmp_path, head=other)


def test_a_full_model_is_loaded_as_it_was_saved(bases, encoder, words, tmp_path):
    for tied, path in bases.items():
        model = load(path)
        with torch.no_grad():
            model.model.embed_tokens.weight.mul_(1.5)
        model.save_pretrained(tmp_path / str(tied))
        again = load(tmp_path / str(tied))
        assert torch.equal(*(packed(m, encoder, NextToken(words)) for m in (model, again)))


@pytest.mark.parametrize("readout_name", READOUTS)
def test_an_adapter_is_loaded_as_it_was_trained(base, encoder, words, tmp_path, readout_name):
    head = READOUTS[readout_name]
    readout = head or NextToken(words)
    config = LoraConfig(r=2, init_lora_weights=False, target_modules=LAYERS)
    model = attach_lora(load(base, head=head, words=words), config)
    if head is not None:
        with torch.no_grad():
            model.base_model.model.score.weight.add_(torch.randn(len(head.labels), 64))
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(load(base, head=head), str(tmp_path), autocast_adapter_dtype=False)
    found = [packed(m, encoder, readout) for m in (model, again)]
    assert torch.equal(*found)
    assert not close(found[0], packed(load(base, head=head, words=words), encoder, readout))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("head", [None, NLIHead()])
def test_quantisation_takes_every_linear_layer_and_leaves_the_output_alone(bases, encoder, words, head, tied):
    from bitsandbytes.nn import Linear4bit

    model = load(bases[tied], quantization_config=BitsAndBytesConfig(**NF4), head=head, words=words)
    quantised = {name for name, module in model.named_modules() if isinstance(module, Linear4bit)}
    plain = load(bases[tied], head=head, words=words)
    linears = {name for name, module in plain.named_modules() if type(module) is torch.nn.Linear}
    assert quantised == {name for name in linears if name.startswith("model.layers.")}
    assert linears - quantised == {"score" if head else "lm_head"}
    output = model.score if head else model.lm_head
    assert torch.equal(output.weight, (plain.score if head else plain.lm_head).weight)


def test_what_trains_is_counted_as_language_model_and_head(base, words):
    model = attach_lora(load(base, head=NLIHead(), words=words), LoraConfig(r=2, target_modules=LAYERS))
    counts = trainable_summary(model)
    assert counts["score"] == 2 * 64
    assert counts["language_model"] > 0
    assert counts["visual"] == counts["merger"] == counts["lm_head"] == 0


# The true 7B, without its weights.


@pytest.fixture(scope="module")
def text_7b():
    return published_config("Qwen2.5-7B-Instruct")


LINEARS = {f"self_attn.{n}_proj" for n in "qkvo"} | {f"mlp.{n}_proj" for n in ("gate", "up", "down")}
ALL_LINEARS = {f"model.layers.{i}.{linear}" for i in range(28) for linear in LINEARS}


@pytest.mark.parametrize("head", [None, NLIHead(THREE_LABELS)])
def test_adapters_hit_every_linear_layer_of_the_7b_and_nothing_else(text_7b, head):
    with torch.device("meta"):
        model = attach_lora(meta_model(text_7b, head), LoraConfig(r=16))
    adapted = {name for name, module in model.named_modules() if hasattr(module, "base_layer")}
    assert adapted == {f"base_model.model.{name}" for name in ALL_LINEARS}
    counts = trainable_summary(model)
    assert counts["language_model"] == lora_parameters(text_7b, 16)
    assert counts["score"] == (0 if head is None else 3 * 3584)


@pytest.mark.parametrize("head", [None, NLIHead()])
def test_nf4_takes_every_linear_layer_of_the_7b_and_leaves_the_output_alone(text_7b, head):
    from bitsandbytes.nn import Linear4bit
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear

    network = meta_model(text_7b, head)
    model = replace_with_bnb_linear(network, list(BACKBONES["qwen2"].unquantised), BitsAndBytesConfig(**NF4))
    assert {name for name, module in model.named_modules() if isinstance(module, Linear4bit)} == ALL_LINEARS
    assert type(network.get_submodule("score" if head else "lm_head")) is torch.nn.Linear


# From training to a published directory.


@pytest.fixture(scope="module")
def spoken(colour_dataset, tmp_path_factory):
    """The colour clips with a transcript in place of each, as a data set."""
    folder = tmp_path_factory.mktemp("spoken")
    manifest = read_manifest(colour_dataset)
    rows = [pair for split in manifest["shards"] for pair in read_split(colour_dataset, split)]
    shown = [(pair, e.path) for pair in rows for e in pair.evidence if isinstance(e, VideoSegment)]
    said = {path: pair.claim for pair, path in shown if pair.label == "supported"}
    pairs = [
        dataclasses.replace(pair, evidence=(Transcript(f"{said[path]} It is {Path(path).stem}.", 0.0, 1.0),))
        for pair, path in shown
    ]
    shards = write_shards(folder, pairs)
    (folder / "manifest.json").write_text(json.dumps(manifest | {"shards": shards}))
    return folder


def run_of(script, base, data, out, **changes):
    main = importlib.import_module(f"proofreel.train.{script}").main
    assert main(sft_arguments(base, data, out, learning_rate=1e-3, **changes)) == 0
    return out / "draft"


@pytest.mark.parametrize(
    ("script", "use_peft", "tied"),
    [
        ("sft", False, True),
        ("nli", True, False),
        nightly(("sft", True, False)),
        nightly(("nli", True, True)),
        nightly(("nli", False, False)),
    ],
)
def test_a_trained_text_verifier_is_published_and_reloads_to_the_same_margins(
    bases, spoken, colour_dataset, tmp_path, script, use_peft, tied
):
    from proofreel.eval import calibrate, export, predict
    from proofreel.models.verifier.verifier import Verifier

    draft = run_of(script, bases[tied], spoken, tmp_path / "run", use_peft=use_peft)
    rows, videos = read_split(spoken, "test"), read_split(colour_dataset, "test")
    verifier = Verifier.from_pretrained(draft, device="cpu")
    found = verifier.score_pairs([*rows, *videos])
    assert all(v.error is None and np.isfinite(v.margin) for v in found[: len(rows)])
    assert all(v.label is None and np.isnan(v.margin) for v in found[len(rows) :])
    assert all("text backbone" in str(v.error) for v in found[len(rows) :])
    again = verifier.score_pairs(rows)
    assert verifier.prefixes.hits == len({pair.evidence for pair in rows})  # answered from what was kept
    expected = [v.margin for v in found[: len(rows)]]
    assert np.allclose([v.margin for v in again], expected, atol=1e-4, rtol=1e-5)

    common = ["--verifier", str(draft), "--data", str(spoken)]
    predictions, calibrated, out = tmp_path / "p.parquet", tmp_path / "calibrated", tmp_path / "verifier"
    assert predict.main([*common, "--split", "calibration", "--out", str(predictions), "--device", "cpu"]) == 0
    assert calibrate.main(["--predictions", str(predictions), "--out", str(calibrated)]) == 0
    assert export.main([*common, "--calibration", str(calibrated), "--out", str(out)]) == 0
    apart, merged = (Verifier.from_pretrained(out, device="cpu", merge=merge) for merge in (False, True))
    assert [v.margin for v in apart.score_pairs(rows)] == expected
    assert np.allclose([v.margin for v in merged.score_pairs(rows)], expected, atol=1e-4, rtol=1e-5)


def test_rows_that_show_something_stop_a_run_before_any_weight_is_loaded(base, colour_dataset, tmp_path, capsys):
    from proofreel.train.sft import main

    assert main(sft_arguments(base, colour_dataset, tmp_path / "run")) != 0
    told = capsys.readouterr().err
    assert "24 rows cannot be trained on" in told
    assert "text backbone reads transcripts and passages only, got VideoSegment" in told
    assert not (tmp_path / "run").exists()
