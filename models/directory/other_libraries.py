"""What a whole verifier's folder holds for other programs: sentence-transformers, vLLM's `/score`, llama.cpp.

`CrossEncoder(directory)` gives margins. The chat template for it is written for pairs: the first of a pair is the claim
(`query`), the second the evidence (`document`). It stands among sentence-transformers' own settings and in a file for
vLLM, so that the family's template stays what other programs read. Control tokens, sounds, and videos of another
position rule raise an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...core import Passage
from ..backbones import read_config
from ..inputs import Encoder, Media
from .format import VerifierConfig

PAIR_TEMPLATE, GGUF_NOTE = "pair_template.jinja", "GGUF.md"
GGUF_FAMILIES = ("qwen2_5_vl", "qwen2", "llama", "qwen3")
"""Model types that were converted and whose margins llama.cpp gave: docs/interchange.md."""

EXAMPLE = (Passage("A ball rolls to the left."), "The ball moves.")
"""Evidence and claim by which a GGUF file can be checked."""

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

_BIAS = 50  # the same for both words: it cancels in their difference, and no other word comes before them
_CONVERT = "    python convert_hf_to_gguf.py model --outtype f32"
_NOTE = """\
# This verifier as GGUF, in llama.cpp

{convert}    llama-server -m verifier.gguf {options}--cache-type-k f32 --cache-type-v f32 --flash-attn off

Send this to `/completion`; evidence and claim stand in `prompt`, and nothing else of it may change:

```json
{body}
```

Here the evidence is "{passage}" and the claim "{claim}". In the answer, `top_probs` of `completion_probabilities[0]`
holds the two words: margin = ln(prob of id {supported}) - ln(prob of id {refuted}). A word that is missing, or a
probability of 0, is a failure and no verdict. `calibration.json` makes a probability of the margin:
`proofreel.models.decision.read_decision(directory).calibration.predict(margin)`.

**Check the file first.** To this question the verifier itself says {margin:.4f}, in {n_tokens} tokens
(`tokens_evaluated`). One token more: the server puts a start token before the prompt; leave the one in the prompt out.
Of those that were tried, Qwen2.5-VL was up to 0.03 apart and the other families 1e-5, or 0.001 without the last three
options, which keep everything in float32. A quantised file is another function: fit calibration and thresholds again on
its own margins.

Refuse texts that hold one of the model's control tokens before they are sent. Videos cannot be sent: llama.cpp makes
single pictures of them.
"""


def write_cross_encoder(folder: Path, config: VerifierConfig, encoder: Encoder) -> bool:
    """Write `modules.json` and what it names; returns whether sentence-transformers can ask this verifier's question.

    It cannot where the weights are an adapter, the head is not of the next token, evidence is judged in windows, the
    question is one turn, or the family writes a time before every frame.

    Args:
        folder: of the verifier, with its processor inside `model/`.
        config: what the folder says of itself.
        encoder: the verifier's.
    """
    if not _asks_for_a_word(config, encoder):
        return False
    sees, template = encoder.layout.sees, pair_template(config, encoder)
    (folder / "model" / PAIR_TEMPLATE).write_text(template, encoding="utf-8")
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
                "chat_template": {"chat_template": template, "restore_suffix": False},
                "text": {"truncation": False},
                **({"image": {"do_resize": False}} if sees else {}),
                **({"video": {"do_resize": False, "do_sample_frames": False}} if sees else {}),
            },
        },
    )
    return True


def write_gguf_note(folder: Path, config: VerifierConfig, encoder: Encoder, ask: Callable[[], float]) -> bool:
    """Write how llama.cpp is asked this verifier's question; returns whether it can be.

    It cannot where sentence-transformers cannot, the family was not tried, or the verifier was trained on videos and
    sounds alone; nor where it takes too few tokens for `EXAMPLE`, by which the file is checked.

    Args:
        folder: of the verifier.
        config: what the folder says of itself.
        encoder: the verifier's.
        ask: gives the verifier's margin of `EXAMPLE`.
    """
    kinds = set(config.modalities or ("passage",))
    family = read_config(folder / "model").model_type
    if not _asks_for_a_word(config, encoder) or family not in GGUF_FAMILIES or kinds <= {"video", "audio"}:
        return False
    passage, claim = EXAMPLE
    n_tokens = len(encoder.evidence((passage,), Media()).ids_P) + len(encoder.claim_ids(claim))
    if n_tokens > encoder.max_tokens:
        return False
    prompt = encoder.chat.prefix((passage,)) + encoder.chat.claim(claim, None)
    sees = encoder.layout.sees
    files = ["--outfile verifier.gguf"] + ["--mmproj --outfile mmproj.gguf"] * sees
    text = _NOTE.format(
        convert="".join(f"{_CONVERT} {file}\n" for file in files),
        options="--mmproj mmproj.gguf " * sees,
        body=json.dumps({"prompt": prompt} | word_settings(config), ensure_ascii=False),
        passage=passage.text,
        claim=claim,
        supported=config.supported_id,
        refuted=config.refuted_id,
        margin=ask(),
        n_tokens=n_tokens,
    )
    (folder / GGUF_NOTE).write_text(text, encoding="utf-8")
    return True


def word_settings(config: VerifierConfig) -> dict[str, Any]:
    """By which llama.cpp's server says the probabilities of the two words, and no default of its own changes them."""
    bias = [[word, _BIAS] for word in (config.supported_id, config.refuted_id)]
    asked: dict[str, Any] = {"n_predict": 1, "n_probs": 2, "post_sampling_probs": True, "logit_bias": bias}
    return asked | {"samplers": ["temperature"], "temperature": 1}


def _asks_for_a_word(config: VerifierConfig, encoder: Encoder) -> bool:
    """Whether a whole language model answers this verifier's question, in two turns, by its next token."""
    whole = config.weights == "full" and config.head == "next_token" and config.windowing is None
    return whole and not config.prompt.one_turn and not encoder.layout.frame_turn and not encoder.layout.hears


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
