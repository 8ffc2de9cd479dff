"""A chat template is a stranger's program: known ones are not run, others in a child that is bounded."""

import hashlib
import sys

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from proofreel.core import DirectoryError, Passage, Prompt, VideoSegment, text_part
from proofreel.models.backbones import load_processor
from proofreel.models.backbones.qwen25 import TEXT_CHAT_TEMPLATE
from proofreel.models.backbones.qwen25_vl import CHAT_TEMPLATE
from proofreel.models.inputs import chat_template
from proofreel.models.inputs.chat_template import (
    CHATML,
    KNOWN_TEMPLATES,
    MAX_CHARACTERS,
    QWEN_VL,
    ChatRenderer,
    ChatTemplateError,
    chat_turns,
)
from proofreel.models.inputs.chat_text import ChatText

RELEASED = (
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}"
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n{% else %}"
    "{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "{% set image_count.value = image_count.value + 1 %}"
    "{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}"
    "{% set video_count.value = video_count.value + 1 %}"
    "{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{%- for m in messages %}{{- '<|h|>' + m['role'] + '<|/h|>' }}{%- for c in m['content'] %}"
    "{%- if c.type == 'video' %}<v>{%- elif c.type == 'image' %}<i>{%- else %}{{- c.text }}{%- endif %}{%- endfor %}"
    "{{- '<|eot|>' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|h|>assistant<|/h|>' }}{%- endif %}"
)


class Tokens:
    """The part of a tokenizer that is looked at."""

    all_special_tokens: tuple[str, ...] = ()
    special_tokens_map = {"bos_token": "<|bos|>"}  # noqa: RUF012

    def get_added_vocab(self):
        return {}


class Stub:
    """A processor that has a template, and takes pictures."""

    tokenizer, image_processor = Tokens(), None

    def __init__(self, template):
        self.chat_template = template


@pytest.mark.parametrize(
    ("template", "turns"), [(RELEASED, QWEN_VL), (CHAT_TEMPLATE, QWEN_VL), (TEXT_CHAT_TEMPLATE, CHATML)]
)
def test_a_known_template_is_not_run_and_is_what_running_it_gives(template, turns, monkeypatch):
    assert KNOWN_TEMPLATES[hashlib.sha256(template.encode()).hexdigest()] == turns
    stub = Stub(template)
    if turns == CHATML:
        monkeypatch.delattr(Stub, "image_processor")
    with monkeypatch.context() as patch:
        patch.setattr(chat_template, "KNOWN_TEMPLATES", {})
        assert chat_turns(stub) == turns
    monkeypatch.setattr(chat_template.subprocess, "Popen", None)
    assert chat_turns(stub) == turns


@pytest.mark.parametrize("template", [RELEASED, LLAMA])
def test_the_turns_of_any_template_are_the_text_transformers_renders(template, monkeypatch):
    monkeypatch.setattr(chat_template, "KNOWN_TEMPLATES", {})
    prompt, evidence = Prompt(), (Passage("  It ends. "), VideoSegment("a.mp4", 0, 1), Passage("{{ 7 * 7 }}"))
    turns = [[text_part(prompt.system)], prompt.parts(evidence), [text_part("Claim: X. ")]]
    messages = [{"role": r, "content": c} for r, c in zip(("system", "user", "user"), turns, strict=True)]
    whole = render_jinja_template([messages], chat_template=template, add_generation_prompt=True, bos_token="<|bos|>")
    chat = ChatText(prompt, Stub(template))
    assert chat.prefix(evidence) + chat.claim("X. ") == whole[0][0]


def test_what_a_directory_records_is_used_and_its_template_is_not_looked_at(tiny_base, monkeypatch):
    processor = load_processor(tiny_base)
    processor.chat_template = "{{ raise_exception('never run') }}"
    assert ChatText(Prompt(), processor, QWEN_VL).claim("X.").startswith("<|im_start|>user\nClaim: X.<|im_end|>")
    with pytest.raises(ChatTemplateError, match="never run"):
        ChatText(Prompt(), processor)


@pytest.mark.skipif(sys.platform != "linux", reason="address space is bounded on Linux")
@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ messages|tojson(indent=999999999) }}", "memory|no end"),
        ("{{ 'a' * 10000000000 }}", "memory|no end"),
        ("{{ 'x' | center(1000000000) }}", "memory|no end"),
        ("{{ 'a' * 10000000 }}", "10000000 characters"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "no end"),
        ("{{ 7 ** 99999999 }}", "no end"),
        ("{{ range(999999999) | list }}", "range|memory"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{{ messages.__class__.__mro__ }}", "unsafe|Security"),
        ("{{ cycler.__init__.__globals__.os.popen('id') }}", "unsafe|Security|undefined"),
        ("{% include '/etc/passwd' %}", "loader"),
        ("{% for", "Syntax"),
        ("{{ messages[7].content.text }}", "undefined|Undefined"),
        ("x" * (MAX_CHARACTERS + 1), "too long"),
    ],
)
def test_a_template_that_takes_all_or_never_ends_is_an_error_and_harms_nobody(template, reason, monkeypatch):
    monkeypatch.setattr(chat_template, "_SECONDS", 1.0)
    with pytest.raises(DirectoryError, match=reason):
        chat_turns(Stub(template))


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.content[0].text | trim }}\n{% endfor %}",
        "{{ messages | length }}{% for m in messages %}{{ m.content[0].text }}{% endfor %}",
        "fixed",
    ],
)
def test_a_template_whose_turns_depend_on_one_another_is_refused(template):
    with pytest.raises(ChatTemplateError, match="cannot follow one prefix"):
        chat_turns(Stub(template))


def test_one_child_renders_many_conversations_and_another_follows_one_that_was_stopped(monkeypatch):
    loop = "{% if messages[0].content == 'loop' %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
    with ChatRenderer(loop + "{% endfor %}{% endif %}{{ messages[0].content }}") as render:
        assert [render([{"content": text}]) for text in ("a", "b\n", "é")] == ["a", "b\n", "é"]
        monkeypatch.setattr(chat_template, "_SECONDS", 0.5)
        with pytest.raises(ChatTemplateError, match="no end"):
            render([{"content": "loop"}])
        monkeypatch.undo()
        assert render([{"content": "again"}]) == "again"
