"""A whole verifier as sentence-transformers opens it: `CrossEncoder(directory)` gives margins.

Its chat template is written for pairs: the first of a pair is the claim
(`query`), the second the evidence (`document`). It stands among sentence-transformers' own settings, so that the
family's template stays what other programs read. Control tokens, sounds, and videos of another position rule raise an
error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..inputs import Encoder
from .format import VerifierConfig

_MODULES = "sentence_transformers."
_TEMPLATE = """\
{%- macro safe(text) -%}
{%- for token in CONTROL_TOKENS if token in text -%}
{{- raise_exception('the text holds the control token ' ~ token ~ '; remove it') -}}
{%- endfor -%}{{- text -}}
{%- endmacro -%}
{{- BEFORE_EVIDENCE -}}
{%- for message in messages if message.role == 'document' -%}
{%- for part in ([{'type': 'text', 'text': message.content}] if message.content is string else message.content) -%}
{%- if part.type == 'text' -%}{{- PASSAGE[0] ~ safe(part.text) ~ PASSAGE[1] -}}
{%- elif part.type == 'image' and IMAGE -%}{{- IMAGE -}}
{%- elif part.type == 'video' and VIDEO -%}{{- VIDEO -}}
{%- else -%}{{- raise_exception('evidence of the kind ' ~ part.type ~ ' is not scored here; use proofreel.Verifier') -}}
{%- endif -%}
{%- endfor -%}
{%- endfor -%}
{{- BEFORE_CLAIM -}}
{%- for message in messages if message.role == 'query' -%}
{%- for part in ([{'type': 'text', 'text': message.content}] if message.content is string else message.content) -%}
{%- if part.type == 'text' -%}{{- CLAIM[0] ~ safe(part.text) ~ CLAIM[1] -}}
{%- else -%}{{- raise_exception('a claim is text, and stands first in its pair; exchange the two') -}}
{%- endif -%}
{%- endfor -%}
{%- endfor -%}
{{- BEFORE_ANSWER -}}"""


def write_cross_encoder(folder: Path, config: VerifierConfig, encoder: Encoder) -> bool:
    """Write `modules.json` and what it names; returns whether sentence-transformers can ask this verifier's question.

    It cannot where the weights are an adapter, the head is not of the next token, evidence is judged in windows, the
    question is one turn, or the family writes a time before every frame.

    Args:
        folder: of the verifier, with its processor inside `model/`.
        config: what the folder says of itself.
        encoder: the verifier's.
    """
    sees = encoder.layout.sees
    if (
        config.weights != "full"
        or config.head != "next_token"
        or config.prompt.one_turn
        or config.windowing is not None
    ):
        return False
    if encoder.layout.frame_turn or encoder.layout.hears:
        return False
    modules = [("model", "base.modules.transformer.Transformer"), ("1_LogitScore", "cross_encoder.modules.LogitScore")]
    _write(
        folder / "modules.json",
        [
            {"idx": i, "name": str(i), "path": path, "type": f"{_MODULES}{kind}"}
            for i, (path, kind) in enumerate(modules)
        ],
    )
    words = {"true_token_id": config.supported_id, "false_token_id": config.refuted_id}
    (folder / "1_LogitScore").mkdir(exist_ok=True)
    _write(folder / "1_LogitScore" / "config.json", words | {"module_input_name": "causal_logits"})
    _write(
        folder / "config_sentence_transformers.json",
        {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.linear.Identity", "prompts": {}},
    )
    kinds = ["text", "image", "video"] if sees else ["text"]
    scored = {"method": "forward", "method_output_name": "logits"}
    _write(
        folder / "model" / "sentence_bert_config.json",
        {
            "transformer_task": "any-to-any" if sees else "text-generation",
            "modality_config": {kind: scored for kind in kinds} | {"message": scored | {"format": "structured"}},
            "module_output_name": "causal_logits",
            "processing_kwargs": {
                "chat_template": {"chat_template": pair_template(config, encoder), "restore_suffix": False},
                "text": {"truncation": False},
                **({"image": {"do_resize": False}} if sees else {}),
                **({"video": {"do_resize": False, "do_sample_frames": False}} if sees else {}),
            },
        },
    )
    return True


def pair_template(config: VerifierConfig, encoder: Encoder) -> str:
    """The chat template of pairs: what `encoder` writes for a claim and its evidence, to the byte.

    transformers places text after a video by the rule `hf5`; of a verifier of another rule a video is refused.
    """
    turns, prompt = encoder.chat.turns, config.prompt
    tokenizer: Any = encoder.tokenizer
    names = {
        "CONTROL_TOKENS": sorted(set(tokenizer.all_special_tokens) | set(tokenizer.get_added_vocab())),
        "BEFORE_EVIDENCE": turns.system(prompt.system) + turns.before_user,
        "PASSAGE": (prompt.passage + "\n").split("{text}", 1),
        "BEFORE_CLAIM": turns.after_user + turns.before_user,
        "CLAIM": prompt.claim.split("{claim}", 1),
        "BEFORE_ANSWER": turns.after_user + turns.before_answer + prompt.response_prefix,
        "IMAGE": turns.image,
        "VIDEO": turns.video if config.position_rule == "hf5" else "",
    }
    values = [f"{{%- set {name} = {json.dumps(value)} -%}}\n" for name, value in names.items()]
    return "".join(values) + _TEMPLATE


def _write(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
