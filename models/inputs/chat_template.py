"""What a checkpoint's chat template writes around a conversation, without running a stranger's template here.

A chat template is a program in Jinja. The sandbox keeps it from reading files, not from running for ever or filling
the memory, and no list of allowed constructs was ever complete. So a verifier directory stores the text that the
template wrote when the verifier was made (`ChatTurns`), and nobody runs it again. A known template is recognised by its
SHA-256 and not run either. Any other one, of a base checkpoint or of a directory older than schema 1.3, runs once in a
child process with little memory and time. Docs: docs/loading.md.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...core import DirectoryError

MAX_CHARACTERS = 2**16  # of a template; released ones have under 3,000
_MAX_WRITTEN = 2**22  # characters that one conversation may become
_MEMORY_BYTES = 2**29
_SECONDS = 10.0
_SYSTEM, _FIRST, _SECOND = (
    f"\x00{name}\x00" for name in ("system", "first", "second")
)  # in no prompt: control characters


@dataclass(frozen=True)
class ChatTurns:
    """What stands around the turns of a conversation, and in the place of a video, an image or a sound."""

    before_system: str
    after_system: str
    before_user: str
    after_user: str
    before_answer: str
    video: str = ""
    image: str = ""
    audio: str = ""

    def system(self, text: str) -> str:
        """The system turn."""
        return f"{self.before_system}{text}{self.after_system}"

    def user(self, parts: Sequence[Mapping[str, str]]) -> str:
        """A user turn of parts as `Prompt.parts` gives them."""
        media = {"video": self.video, "image": self.image, "audio": self.audio}
        inner = "".join(part["text"] if part["type"] == "text" else media[part["type"]] for part in parts)
        return f"{self.before_user}{inner}{self.after_user}"


CHATML = ChatTurns(
    "<|im_start|>system\n", "<|im_end|>\n", "<|im_start|>user\n", "<|im_end|>\n", "<|im_start|>assistant\n"
)


QWEN_VL = dataclasses.replace(
    CHATML, video="<|vision_start|><|video_pad|><|vision_end|>", image="<|vision_start|><|image_pad|><|vision_end|>"
)
_PARTS = (("video", "image_processor"), ("image", "image_processor"), ("audio", "feature_extractor"))
KNOWN_TEMPLATES = {
    "a0bc6f6fc7a29a80017a433e8f03a1cc1236e838a944a2d034295a60c4f2fddb": QWEN_VL,  # of Qwen2.5-VL as released
    "cf163192df3dcdd4d4a5a8d942c8a013e298904e4b66a65ef353821fc15d1098": QWEN_VL,  # of the tiny models
    "726cd55c8d92b0dd9c1145ed28cb8fe7dabd8aa76c05fe5cf1d9d07664bab767": CHATML,  # of the tiny text models
}
"""What templates write that need not be run, by the SHA-256 of their text."""


class ChatTemplateError(DirectoryError):
    """A chat template that fails, never ends, or takes too much."""


class ChatRenderer:
    """A child process that renders conversations with one template; it is killed with this object.

    Example:
        >>> with ChatRenderer("{{ messages[0].content }}") as renderer:
        ...     renderer([{"role": "user", "content": "Is it red?"}])
        'Is it red?'
    """

    def __init__(
        self, template: str, names: Mapping[str, Any] | None = None, where: str | Path = "chat template"
    ) -> None:
        """`names` are what the template may use beside the conversation: the tokenizer's special tokens."""
        if len(template) > MAX_CHARACTERS:
            raise ChatTemplateError(
                f"{where}: too long for a chat template, got {len(template)} of {MAX_CHARACTERS} characters; "
                "use the checkpoint's own"
            )
        self._where, self._lock = where, threading.Lock()
        order = {"template": template, "names": dict(names or {})}
        self._order = order | {"memory_bytes": _MEMORY_BYTES, "characters": _MAX_WRITTEN}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> ChatRenderer:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the child."""
        self.close()

    def close(self) -> None:
        """Stop the child; the next conversation starts another."""
        process, self._process = self._process, None
        if process is not None:
            _stop(process)

    def __call__(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True) -> str:
        """The conversation as text.

        Raises:
            ChatTemplateError: the template fails, takes too long or too much memory, or writes too much.
        """
        line = json.dumps({"messages": list(messages), "add_generation_prompt": add_generation_prompt})
        with self._lock:
            process = self._started()
            timer = threading.Timer(_SECONDS, process.kill)
            timer.start()
            try:
                process.stdin.write(line + "\n")  # type: ignore[union-attr]
                process.stdin.flush()  # type: ignore[union-attr]
                reply = process.stdout.readline()  # type: ignore[union-attr]
            except OSError:  # it died
                reply = ""
            finally:
                timer.cancel()
            if not reply:
                self.close()
        answer = json.loads(reply) if reply else {"error": f"no end within {_SECONDS:g} s and {_MEMORY_BYTES} bytes"}
        if "error" in answer:
            raise ChatTemplateError(f"{self._where}: the chat template fails, got {answer['error']}; use another one")
        return answer["text"]

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            child = Path(__file__).with_name("chat_renderer.py")
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(child)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
            )
            weakref.finalize(self, _stop, self._process)
            self._process.stdin.write(json.dumps(self._order) + "\n")  # type: ignore[union-attr]
        return self._process


def _stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # what it never read
            pipe.close()  # type: ignore[union-attr]


def template_of(processor: Any, where: str | Path = "chat template") -> str:
    """The default chat template of a processor or tokenizer; `DirectoryError` if there is none."""
    template = getattr(processor, "chat_template", None)
    if template is None and hasattr(processor, "tokenizer"):
        template = processor.tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    if not isinstance(template, str):
        raise DirectoryError(f"{where}: no chat template, got {template!r}; use a checkpoint that was tuned to chat")
    return template


def chat_turns(processor: Any, where: str | Path = "chat template") -> ChatTurns:
    """What the template of `processor` writes around turns.

    Args:
        processor: of a vision backbone, or what stands in its place for a text backbone (`TextProcessor`).
        where: named in errors.

    Raises:
        DirectoryError: no template, or one that fails, or whose turns depend on one another.
    """
    template = template_of(processor, where)
    turns = KNOWN_TEMPLATES.get(hashlib.sha256(template.encode()).hexdigest())
    if turns is None:
        names = json.dumps(processor.tokenizer.special_tokens_map)
        shown = tuple(kind for kind, part in _PARTS if hasattr(processor, part))
        turns = _rendered_turns(template, names, shown, str(where))
    return turns


@lru_cache(maxsize=64)
def _rendered_turns(template: str, names: str, kinds: tuple[str, ...], where: str) -> ChatTurns:
    with ChatRenderer(template, json.loads(names), where) as render:
        conversation = _conversation(bool(kinds))
        media = [_FIRST, *(part for kind in kinds for part in ({"type": kind}, _FIRST))]
        system = render(conversation(), False)
        first = _after(system, render(conversation([_FIRST]), False), where)
        second = _after(system + first, render(conversation([_FIRST], [f" {_SECOND}\n"])), where)
        shown = _after(system, render(conversation(media), False), where)
    before_system, after_system = _around(system, _SYSTEM, where)
    before_user, after_user = _around(first, _FIRST, where)
    _, after_claim = _around(second, f" {_SECOND}\n", where)
    _, *places = shown.split(_FIRST)
    written = dict(zip(kinds, places, strict=False)) if len(places) == len(kinds) + 1 else {}
    answer = after_claim.removeprefix(after_user)
    turns = ChatTurns(before_system, after_system, before_user, after_user, answer, **written)
    parts = [part if isinstance(part, dict) else {"type": "text", "text": part} for part in media]
    claim = turns.user([{"type": "text", "text": f" {_SECOND}\n"}]) + turns.before_answer
    if (turns.system(_SYSTEM), turns.user(parts), claim) != (system, shown, second):
        raise _dependent(where)
    return turns


def _conversation(sees: bool) -> Any:
    """A function from user turns, each a list of texts and media, to messages after a system turn."""

    def content(parts: Sequence[Any]) -> Any:
        listed = [part if isinstance(part, dict) else {"type": "text", "text": part} for part in parts]
        return listed if sees else "".join(parts)

    def messages(*turns: Sequence[Any]) -> list[dict[str, Any]]:
        users = [{"role": "user", "content": content(parts)} for parts in turns]
        return [{"role": "system", "content": content([_SYSTEM])}, *users]

    return messages


def _after(start: str, whole: str, where: str) -> str:
    if not whole.startswith(start):
        raise _dependent(where)
    return whole[len(start) :]


def _around(text: str, middle: str, where: str) -> tuple[str, str]:
    before, found, after = text.partition(middle)
    if not found or middle in after:
        raise _dependent(where)
    return before, after


def _dependent(where: str) -> ChatTemplateError:
    return ChatTemplateError(
        f"{where}: the chat template changes what it is given, or a later turn changes an earlier one, so that claims "
        "cannot follow one prefix; use the checkpoint's own template"
    )
