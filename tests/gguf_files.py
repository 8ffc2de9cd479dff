"""GGUF files of tiny text models, written with the package `gguf`; `gguf` is None where it is not installed."""

import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoModelForCausalLM

from proofreel.models.backbones import load_processor

gguf: Any = importlib.import_module("gguf") if importlib.util.find_spec("gguf") else None


def as_gguf(base: Path, file: Path) -> None:
    """The text model of a folder as a GGUF file of float32, by the layout that llama.cpp's own converter writes."""
    network, tokenizer = AutoModelForCausalLM.from_pretrained(base), load_processor(base).tokenizer
    c, writer = network.config, gguf.GGUFWriter(file, network.config.model_type)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    if c.model_type == "qwen3":
        writer.add_key_length(c.head_dim)
        writer.add_value_length(c.head_dim)
    writer.add_vocab_size(c.vocab_size)
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    ids = tokenizer.get_vocab()
    special = set(tokenizer.all_special_tokens)
    names = sorted(ids, key=lambda name: ids[name])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(names)
    writer.add_token_types([3 if name in special else 1 for name in names])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in model["merges"]])
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_chat_template(tokenizer.chat_template)
    places = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
    places |= {"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"}
    places |= {"mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    places |= {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
    for name, tensor in network.state_dict().items():
        values = tensor.float().numpy()
        for part, heads in (("q_proj", c.num_attention_heads), ("k_proj", c.num_key_value_heads)):
            if c.model_type == "llama" and part in name:  # halves of a head lie side by side there
                pairs = values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2)
                values = np.ascontiguousarray(pairs.reshape(values.shape))
        name = name.removeprefix("model.").replace("layers.", "blk.")
        for ours, theirs in {**places, "embed_tokens": "token_embd", "lm_head": "output"}.items():
            name = name.replace(ours, theirs)
        writer.add_tensor("output_norm.weight" if name == "norm.weight" else name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
