"""The base of NLVR: a language model of Llama's kind within Qwen2.5-VL, which computes what it computed."""

import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from examples.nlvr.base import VISION_TOKENS, write_seeing
from proofreel.core import ConfigError
from proofreel.models.backbones import TinySizes, load_backbone, load_processor

TEXTS = ["There is a tower with four yellow blocks.", "One box has 2 black circles."] * 20


@pytest.fixture(scope="module")
def tokenizer():
    """As SmolLM2's: ChatML's tokens are words of the byte-level BPE itself."""
    bpe = Tokenizer(BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = BpeTrainer(
        vocab_size=400, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), special_tokens=special
    )
    bpe.train_from_iterator(TEXTS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|im_end|>")


def llama(tokenizer, tied=True):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=tied, rope_parameters={"rope_type": "default", "rope_theta": 1e5},
        rms_norm_eps=1e-5, initializer_range=0.3,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def test_text_is_judged_as_the_language_model_alone_does(tokenizer, tmp_path):
    model = llama(tokenizer)
    sizes = TinySizes(vision_hidden=32, vision_depth=1, vision_mlp=32, vision_heads=2)
    base = write_seeing(tmp_path / "base", model, tokenizer, sizes=sizes)
    network, processor = load_backbone(base), load_processor(base)
    ids = processor.tokenizer(TEXTS[0], return_tensors="pt").input_ids
    assert ids.tolist() == [tokenizer(TEXTS[0]).input_ids]
    with torch.inference_mode():
        expected, got = model(ids).logits, network(input_ids=ids).logits
    torch.testing.assert_close(got[..., : expected.shape[-1]], expected, rtol=0, atol=1e-6)
    for token in VISION_TOKENS:
        assert processor.tokenizer(token).input_ids == [processor.tokenizer.convert_tokens_to_ids(token)]


def test_an_output_layer_of_its_own_cannot_be_copied(tokenizer, tmp_path):
    with pytest.raises(ConfigError, match="must be its embeddings"):
        write_seeing(tmp_path / "base", llama(tokenizer, tied=False), tokenizer)
