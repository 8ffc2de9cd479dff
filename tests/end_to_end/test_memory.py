"""The memory estimate: its parts add up, more of anything takes more, and small networks really take that much."""

import contextlib
import weakref
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bitsandbytes.functional import quantize_4bit
from nightly import FAMILIES, first_of, nightly
from peft import LoraConfig
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import BitsAndBytesConfig, Qwen2_5_VLConfig, Qwen2Config

from proofreel.models.backbones import qwen3_5, qwen3_vl, qwen25_omni, qwen25_vl
from proofreel.models.backbones.base import TinySizes
from proofreel.models.backbones.families import BACKBONES, published_config, vision_layout
from proofreel.models.backbones.load import load_backbone, run_without_graph_while_frozen
from proofreel.models.backbones.lora import attach_lora, keep_float32_masters
from proofreel.models.backbones.shapes import Parameters
from proofreel.models.engine.forward import margins
from proofreel.models.engine.heads import NextToken
from proofreel.models.engine.packing import use_prefix_split
from proofreel.models.engine.towers import all_towers
from proofreel.train.memory import GIB, Engine, Estimate, Load, Setting, estimate

ONE = Engine()
LOAD = Load(rows=1, row_tokens=4096, claim_tokens=512, patches=8192)


def qwen(size):
    return published_config(f"Qwen2.5-VL-{size}-Instruct")


LORA = Setting(qwen("7B"), lora_rank=16)
QLORA = replace(LORA, nf4=True, double_quantised=True)
FULL = Setting(qwen("7B"))


def test_weights_of_published_checkpoints_are_as_large_as_their_files():
    sizes = {"3B": 6.99, "7B": 15.45, "72B": 136.74}  # GiB: two bytes of every parameter on the hub
    for size, gib in sizes.items():
        frozen = replace(LORA, config=qwen(size), n_trainable=0)
        assert estimate(frozen, LOAD, ONE).weights / GIB == pytest.approx(gib, abs=0.01)


def test_the_sum_is_of_all_parts_and_is_printed_with_them():
    found = estimate(QLORA, LOAD, Engine(8, 2, True))
    assert found.gib * GIB == pytest.approx(sum(getattr(found, f.name) for f in fields(Estimate)))
    assert str(found).startswith(f"{found.gib:.1f} GiB per GPU: weights {found.weights / GIB:.1f}, ")


@pytest.mark.parametrize("setting", [LORA, QLORA, FULL, replace(FULL, train_vision=True, checkpointing=False)])
@pytest.mark.parametrize("name", ["rows", "row_tokens", "claim_tokens", "patches"])
@pytest.mark.parametrize("learning", [True, False])
def test_more_of_anything_takes_more(setting, name, learning):
    more = replace(LOAD, **{name: 4 * getattr(LOAD, name)})
    before, after = (estimate(setting, load, ONE, learning=learning).gib for load in (LOAD, more))
    assert after > before


def test_each_saving_saves():
    def gib(setting, engine=ONE, learning=True):
        return estimate(setting, LOAD, engine, learning=learning).gib

    ladder = [
        gib(replace(FULL, train_vision=True)),
        gib(FULL),
        gib(replace(LORA, lora_rank=64)),
        gib(LORA),
        gib(replace(QLORA, double_quantised=False)),
        gib(QLORA),
        gib(QLORA, learning=False),
    ]
    assert ladder == sorted(ladder, reverse=True)
    assert gib(LORA) < gib(replace(LORA, checkpointing=False))
    sharded = [gib(FULL, Engine(8, stage, True)) for stage in (2, 3)]
    assert sharded == sorted(sharded, reverse=True)
    assert gib(FULL, Engine(8, 3, True, offload_optimizer=True)) < sharded[1]
    assert gib(FULL, Engine(8, 3, True, True, offload_weights=True)) < gib(FULL, Engine(8, 3, True, True))
    assert gib(FULL, Engine(16, 3, True)) < sharded[1]


@pytest.mark.parametrize("deepspeed", [True, False])
def test_stages_shard_what_they_say(deepspeed):
    parts = {stage: estimate(FULL, LOAD, Engine(8, stage, deepspeed)) for stage in (2, 3)}
    trained = Parameters.of(FULL.config).total - Parameters.of(FULL.config).vision
    per_parameter = 12 if deepspeed else 8
    assert parts[2].optimizer == pytest.approx(per_parameter * trained / 8)
    of_one = estimate(FULL, LOAD, ONE).weights  # masters in place of weights
    assert parts[2].weights == (of_one - 2 * trained if deepspeed else of_one)
    if deepspeed:
        assert parts[3].weights == pytest.approx(parts[2].weights / 8)
        assert parts[3].optimizer == parts[2].optimizer


def test_a_step_of_plain_adamw_over_everything_takes_sixteen_bytes_a_parameter_in_float32():
    # Weight, gradient and two moments: the count of ZeRO's section 3 without half precision.
    config = qwen("3B")
    found = estimate(Setting(config, dtype_bytes=4, train_vision=True), LOAD, ONE)
    assert found.weights + found.gradients + found.optimizer == 16 * Parameters.of(config).total


def test_adapters_of_a_published_run_come_out_with_the_logits_it_kept():
    # Qwen-7B (text, all linears, r=64), one A100: 21.5 to 36.6 GB at 1024 to 8192 tokens (README of QwenLM/Qwen). It
    # keeps logits of the whole vocabulary at all positions, 14 bytes each with their float32 copies and gradient.
    config = Qwen2Config(
        vocab_size=151_936,
        hidden_size=4096,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=32,
        intermediate_size=11_008,
    )
    for tokens, published in ((1024, 21.5), (2048, 23.8), (4096, 29.7), (8192, 36.6)):
        found = estimate(Setting(config, lora_rank=64), Load(1, tokens, 0, 0), ONE)
        assert found.gib + 14 * tokens * config.vocab_size / GIB == pytest.approx(published, rel=0.15)


@pytest.mark.parametrize("nested", [False, True])
def test_nf4_takes_what_bitsandbytes_stores(nested):
    state: Any
    packed, state = quantize_4bit(torch.randn(1024, 1024), quant_type="nf4", compress_statistics=nested)
    stored = packed.nbytes + state.absmax.nbytes + (state.state2.absmax.nbytes if nested else 0)
    setting = replace(QLORA, double_quantised=nested)
    linears = Parameters.of(setting.config).linears
    of_linears = estimate(setting, LOAD, ONE).weights - estimate(LORA, LOAD, ONE).weights + 2 * linears
    assert of_linears / linears == pytest.approx(stored / 2**20, rel=1e-3)


def test_what_trains_is_float32_also_over_quantised_weights(tiny_base):
    quantised = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
    for config, setting in ((None, LORA), (quantised, QLORA)):
        model = load_backbone(tiny_base, dtype=torch.bfloat16, quantization_config=config)
        model = attach_lora(model, LoraConfig(r=2))
        keep_float32_masters(model, autocast=True)
        trained = [p for p in model.parameters() if p.requires_grad]
        assert {p.element_size() for p in trained} == {setting.trainable_bytes(ONE)}


class Live(TorchDispatchMode):
    """Follows the bytes of all storages that operations make, until they are freed."""

    def __init__(self, *known):
        super().__init__()
        self.now = self.peak = 0
        self.alive = {t.untyped_storage()._cdata: weakref.ref(t.untyped_storage()) for t in known}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and (key := tensor.untyped_storage()._cdata) not in self.alive:
                size = tensor.untyped_storage().nbytes()
                self.now += size
                self.peak = max(self.peak, self.now)
                self.alive[key] = weakref.ref(tensor.untyped_storage(), lambda _, k=key, n=size: self.free(k, n))
        return out

    def free(self, key, size):
        self.alive.pop(key, None)
        self.now -= size


def small(hidden, mlp, layers=3, vision_hidden=64, vision_mlp=171, depth=3):
    sizes = TinySizes(
        hidden=hidden,
        layers=layers,
        heads=8,
        kv_heads=2,
        mlp=mlp,
        vision_hidden=vision_hidden,
        vision_depth=depth,
        vision_mlp=vision_mlp,
        vocab=512,
    )
    return sizes


class Ids:
    """Stands for a tokenizer where only ids matter."""

    def __len__(self):
        return 512

    def convert_tokens_to_ids(self, text):
        return 500 + len(text) % 10


IDS: Any = Ids()
WORDS: Any = SimpleNamespace(supported_id=1, refuted_id=2)


def config_of(family, sizes):
    """A small configuration; of Qwen3-VL one whose queries are twice as wide as its hidden states, as in the 4B."""
    if family == "qwen2_5_vl":
        return qwen25_vl.tiny_config(IDS, sizes)
    if family == "qwen2_5_omni_thinker":
        return qwen25_omni.tiny_config(IDS, sizes)
    if family == "qwen3_5":
        return qwen3_5.tiny_config(IDS, sizes)
    config = qwen3_vl.tiny_config(IDS, sizes)
    head = 2 * sizes.hidden // sizes.heads
    rope = {"rope_type": "default", "mrope_section": [head // 4, head // 8, head // 8], "rope_theta": 1e4}
    text = config.text_config.to_dict() | {"head_dim": head, "rope_parameters": rope}
    return type(config)(text_config=text, vision_config=config.vision_config.to_dict())


def network(hidden, mlp, *, family="qwen2_5_vl", lora=True, checkpointing=False, layers=3):
    config = config_of(family, small(hidden, mlp, layers))
    torch.manual_seed(0)
    model = BACKBONES[family].network_class()(config).bfloat16()
    use_prefix_split(model)
    for tower in all_towers(model):
        run_without_graph_while_frozen(tower)
        tower.requires_grad_(False)
    if lora:
        model = attach_lora(model, LoraConfig(r=8))
    if checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    keep_float32_masters(model, autocast=True)
    return model.train(), config


def packed_rows(prefix, claims, length):
    block = [0] * prefix + [k + 1 for k in range(claims) for _ in range(length)]
    return {
        "input_ids": torch.randint(0, 400, (1, len(block))),
        "position_ids": torch.arange(len(block)).expand(3, 1, -1),
        "block": torch.tensor([block]),
        "verdicts": prefix - 1 + length * torch.arange(1, claims + 1)[None],
        "prefix_len": prefix,
    }


@pytest.mark.parametrize(("hidden", "mlp"), [(128, 704), nightly((256, 704)), (256, 1408)])
@pytest.mark.parametrize("how", ["kept", "checkpointed", "full", "full checkpointed", "evaluated"])
@pytest.mark.parametrize("family", first_of(FAMILIES))
def test_a_real_step_takes_the_activations_that_are_estimated(hidden, mlp, how, family):
    lora, checkpointing, learning = "full" not in how, "checkpointed" in how, how != "evaluated"
    model, config = network(hidden, mlp, family=family, lora=lora, checkpointing=checkpointing)
    batch = packed_rows(500, 6, 40)
    tensors = [t for t in batch.values() if isinstance(t, torch.Tensor)]
    readout = NextToken(WORDS)
    with Live(*model.parameters(), *model.buffers(), *tensors) as live, torch.set_grad_enabled(learning):
        with torch.autocast("cpu", torch.bfloat16):
            loss = margins(model, batch, readout, vision_layout(config)).sum()
        if learning:
            loss.backward()
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    setting = Setting(config, lora_rank=8 if lora else None, checkpointing=checkpointing)
    load = Load(1, 740, 240, 0)
    found = estimate(setting, load, ONE, learning=learning)
    assert found.gradients == gradients or not learning
    # The step's gradients are whole only at its end, when no other layer is at work: never all of both at once.
    measured = live.peak - (gradients if lora else gradients / 2)
    assert 0.9 < (found.activations + found.buffers) / measured < 1.25


@pytest.mark.parametrize("how", ["checkpointed", nightly("kept"), nightly("full"), nightly("evaluated")])
@pytest.mark.parametrize(("hidden", "mlp"), [(128, 704), nightly((256, 704)), nightly((256, 1408))])
def test_a_real_step_of_layers_that_carry_a_state_takes_what_is_estimated(hidden, mlp, how):
    lora, checkpointing, learning = how != "full", how == "checkpointed", how != "evaluated"
    model, config = network(hidden, mlp, family="qwen3_5", lora=lora, checkpointing=checkpointing, layers=4)
    row = {"input_ids": torch.randint(0, 400, (1, 512)), "position_ids": torch.arange(512).expand(3, 1, -1)}
    batch = {**row, "block": torch.ones(1, 512, dtype=torch.long), "verdicts": torch.tensor([[511]])}
    with Live(*model.parameters(), *model.buffers(), *batch.values()) as live, torch.set_grad_enabled(learning):
        with torch.autocast("cpu", torch.bfloat16):
            loss = margins(model, {**batch, "prefix_len": None}, NextToken(WORDS), vision_layout(config)).sum()
        if learning:
            loss.backward()
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    setting = Setting(config, lora_rank=8 if lora else None, checkpointing=checkpointing)
    found = estimate(setting, Load(1, 512, 0, 0), ONE, learning=learning)
    assert 0.9 < (found.activations + found.buffers) / (live.peak - (gradients if lora else gradients / 2)) < 1.25


@pytest.mark.parametrize(("hidden", "mlp"), [(160, 428), (320, 428), (160, 1712)])
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("family", first_of(FAMILIES))
def test_a_real_tower_takes_what_is_estimated(hidden, mlp, trains, family):
    config = config_of(family, small(64, 64, vision_hidden=hidden, vision_mlp=mlp, depth=6))
    tower = BACKBONES[family].network_class()(config).bfloat16().model.visual.requires_grad_(trains)
    grid, values = torch.tensor([[4, 16, 16]]), 6 * config.vision_config.patch_size**2
    pixels = torch.randn(1024, values)
    with Live(*tower.parameters(), *tower.buffers(), grid, pixels) as live:
        with contextlib.nullcontext() if trains else torch.no_grad():
            output = tower(pixels, grid)
            out = torch.cat([output.pooler_output, *(getattr(output, "deepstack_features", None) or ())])
        if trains:
            out.float().sum().backward()
    gradients = sum(p.grad.nbytes for p in tower.parameters() if p.grad is not None)
    setting = Setting(config, lora_rank=None if trains else 8, train_vision=trains, checkpointing=False)
    found = estimate(setting, Load(1, 1, 0, 1024), ONE)
    cast = pixels.numel() * 2  # the pixels as they come were there before
    estimated = found.vision + found.activations - pixels.nbytes - (0 if trains else cast)
    # Gradients are whole only at the end of the backward, when activations are gone.
    assert 0.8 < estimated / (live.peak - gradients / 2) < 1.3


def test_a_text_backbone_has_no_vision():
    found = estimate(Setting(published_config("Qwen2.5-7B-Instruct"), lora_rank=16), LOAD, ONE)
    assert found.vision == 0
    assert not isinstance(published_config("Qwen2.5-7B-Instruct"), Qwen2_5_VLConfig)


@pytest.mark.parametrize(("hidden", "mlp"), [(160, 428), nightly((320, 428)), nightly((160, 1712))])
@pytest.mark.parametrize("trains", [False, True])
def test_a_real_audio_tower_takes_what_is_estimated(hidden, mlp, trains):
    config = config_of("qwen2_5_omni_thinker", small(64, 64, vision_hidden=hidden, vision_mlp=mlp, depth=6))
    network = BACKBONES["qwen2_5_omni_thinker"].network_class()(config).bfloat16()
    tower, frames = (
        network.model.audio_tower.requires_grad_(trains),
        torch.randn(3200, config.audio_config.num_mel_bins),
    )
    with Live(*tower.parameters(), *tower.buffers(), frames) as live:
        with contextlib.nullcontext() if trains else torch.no_grad():
            out = tower(frames.T, feature_lens=torch.tensor([3200])).pooler_output
        if trains:
            out.float().sum().backward()
    gradients = sum(p.grad.nbytes for p in tower.parameters() if p.grad is not None)
    setting = Setting(config, lora_rank=None if trains else 8, train_vision=trains, checkpointing=False)
    found = estimate(setting, Load(1, 1, 0, 0, mel_frames=3200), ONE)
    assert 0.8 < (found.vision + found.activations) / (live.peak - gradients / 2) < 1.3
