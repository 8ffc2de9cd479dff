"""Text families beside Qwen2.5: their margins and gradients are those of transformers' own network, claim by claim."""

import json
import shutil

import pytest
import torch
from gguf_files import as_gguf, gguf
from nightly import first_of
from peft import LoraConfig
from random_drafts import random_draft
from reference_forward import classes_of
from transformers import AutoModelForCausalLM

from proofreel.core.errors import DirectoryError
from proofreel.core.pairs import Pair, Passage, Transcript
from proofreel.core.prompt import Prompt
from proofreel.models.backbones.families import vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor, read_config, resolve_base
from proofreel.models.backbones.lora import attach_lora
from proofreel.models.directory.adapters import write_merged
from proofreel.models.engine.forward import margins
from proofreel.models.engine.heads import NextToken, margin
from proofreel.models.engine.packing import collate, pack
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.models.inputs.encoder import Encoder, Media
from proofreel.models.verifier.verifier import Verifier

TALK = (Transcript("She takes the red ball.\n\nThen she leaves.", 0.0, 4.5), Passage("It ends here."))
KINDS = ("llama", "qwen3")


@pytest.fixture(scope="module", params=KINDS)
def base(request, tiny_of):
    return tiny_of(request.param)


@pytest.fixture(scope="module")
def encoder(base, small_sampling):
    return Encoder(load_processor(base), vision_layout(read_config(base)), Prompt(), small_sampling)


def claims_of(encoder, k):
    return [encoder.claim_ids(f"Object {i} is {'red' if i % 2 else 'a ball that rolls'}.") for i in range(k)]


def one_by_one(network, encoded, ids, readout):
    """(K,) margins of ordinary sequences, all of it transformers' own business."""
    return torch.stack(
        [
            margin(
                classes_of(
                    readout, network(torch.cat([encoded.ids_P, i])[None], use_cache=False).logits[0, -1:]
                )
            )[0]
            for i in ids
        ]
    )  # fmt: skip


def close(a, b):
    return torch.allclose(a, b, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("k", [1, 7, 33])
def test_packed_margins_are_those_of_transformers_own_network_on_whole_prompts(base, encoder, k):
    readout = NextToken(LabelWords.of(Prompt(), encoder.tokenizer))
    encoded, ids = encoder.evidence(TALK, Media()), claims_of(encoder, k)
    with torch.no_grad():
        expected = one_by_one(AutoModelForCausalLM.from_pretrained(base).eval(), encoded, ids, readout)
        batch = collate([pack(encoded, ids)], encoder.pad_id)
        found = margins(load_backbone(base).eval(), batch, readout, encoder.layout)[0]
    assert close(found, expected)
    assert k == 1 or found.std() > 1e-3


def test_gradients_of_packed_claims_are_those_of_claims_one_by_one(base, encoder):
    readout = NextToken(LabelWords.of(Prompt(), encoder.tokenizer))
    torch.manual_seed(0)
    targets = r"model\.layers\..*_proj"
    model = attach_lora(load_backbone(base), LoraConfig(r=4, init_lora_weights=False, target_modules=targets))
    encoded, ids = encoder.evidence(TALK, Media()), claims_of(encoder, 5)
    found = []
    for loss in (
        lambda: margins(model, collate([pack(encoded, ids)], encoder.pad_id), readout, encoder.layout).sum(),
        lambda: one_by_one(model, encoded, ids, readout).sum(),
    ):
        model.zero_grad()
        loss().backward()
        found.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
    packed, plain = found
    assert packed.keys() == plain.keys()
    assert len(packed) == 2 * 7 * 2
    assert all(torch.allclose(packed[n], plain[n], atol=1e-5, rtol=1e-3) for n in packed)


@pytest.mark.parametrize("head", first_of([None, "two labels"]))
def test_a_verifier_keeps_prefixes_and_merges_like_any_other(base, small_sampling, tmp_path, head):
    from proofreel.models.engine.heads import TWO_LABELS, NLIHead

    draft = random_draft(base, tmp_path / "draft", small_sampling, NLIHead(TWO_LABELS) if head else None)
    write_merged(draft, tmp_path / "merged")
    pairs = [Pair(str(i), f"Object {i} is red.", TALK) for i in range(5)]
    apart, merged = (Verifier.from_pretrained(folder, device="cpu") for folder in (draft, tmp_path / "merged"))
    first = [v.margin for v in apart.score_pairs(pairs)]
    assert apart.prefixes.misses == 1
    assert [v.margin for v in apart.score_pairs(pairs)] == pytest.approx(first, abs=1e-4, rel=1e-5)
    assert apart.prefixes.hits == 1
    assert [v.margin for v in merged.score_pairs(pairs)] == pytest.approx(first, abs=1e-4, rel=1e-5)


@pytest.mark.skipif(gguf is None, reason="gguf is not installed")
def test_a_gguf_file_is_a_base_like_its_checkpoint(tiny_of, tmp_path):
    base, file = tiny_of("llama"), tmp_path / "tiny.gguf"
    as_gguf(base, file)
    folder = resolve_base(file)
    assert folder == tmp_path / "tiny-checkpoint"
    assert resolve_base(file) == folder
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tiny-checkpoint", "tiny.gguf"]
    plain, read = (load_backbone(path).eval() for path in (base, folder))
    text = "She takes the ball."
    ids, again = (load_processor(path).tokenizer(text)["input_ids"] for path in (base, folder))
    assert ids == again
    with torch.no_grad():
        expected, found = (network(torch.tensor([ids])).logits for network in (plain, read))
    assert torch.allclose(found, expected, atol=0.02)  # written in bfloat16
    assert expected.std() > 0.1


@pytest.mark.skipif(gguf is None, reason="gguf is not installed")
def test_a_file_that_is_no_gguf_is_named(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"GGUF?")
    with pytest.raises(DirectoryError, match=r"x\.gguf: not GGUF of a language model"):
        resolve_base(tmp_path / "x.gguf")
    assert [p.name for p in tmp_path.iterdir()] == ["x.gguf"]


def test_a_tokenizer_without_a_class_of_its_own_is_read(tiny_of, tmp_path, small_sampling):
    base = shutil.copytree(tiny_of("llama"), tmp_path / "base")
    before = load_processor(base).tokenizer("She takes the ball.")["input_ids"]
    path = base / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": "TokenizersBackend"}))
    assert load_processor(base).tokenizer("She takes the ball.")["input_ids"] == before
