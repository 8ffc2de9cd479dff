"""The rows other trainers read, made from pairs: chat rows of three kinds, and premise/hypothesis/label rows.

The words of a chat row are those of the verifier's own prompt, in one user turn: LLaMA-Factory skips rows in which two
user turns follow one another. `exports` writes whole splits of such rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Literal, get_args

from ...core import Evidence, Image, Pair, Passage, Prompt, Transcript

Format = Literal["llama-factory", "ms-swift", "qwen", "nli"]
FORMATS: tuple[Format, ...] = get_args(Format)
NLI_LABELS = {"supported": "entailment", "refuted": "contradiction", "not_enough": "neutral"}
_CHAT_CONTROL = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|<(?:video|image|audio|bbox|ref-object|cot-process|start-image|end-image)>"
)


def control_token(pair: Pair) -> str | None:
    """The first piece of text that a chat format would take for a command or for a place of media, or None."""
    texts = [pair.claim, pair.context or ""]
    texts += [part.text for part in pair.evidence if isinstance(part, (Transcript, Passage))]
    token = next(filter(None, map(_CHAT_CONTROL.search, texts)), None)
    return token.group() if token else None


def text_columns(pair: Pair, format: Format, prompt: Prompt, has_context: bool) -> dict[str, Any]:
    """The columns of a labelled row apart from those that name its media.

    `has_context`: some row of the file has a context, so that every NLI row needs the column.
    """
    if format == "nli":
        return _nli_row(pair) | ({"context": pair.context or ""} if has_context else {})
    user, answer = prompt.user_text(pair), prompt.answer(pair)
    if format == "qwen":  # its reader takes any turn that is not "human" for the assistant's: no system turn
        human = f"{prompt.system}\n{user}" if prompt.system else user
        return {"conversations": [{"from": "human", "value": human}, {"from": "gpt", "value": answer}]}
    turns = [("system", prompt.system), ("user", user), ("assistant", answer)]
    return {"messages": [{"role": role, "content": text} for role, text in turns if text]}


def media_columns(
    videos: list[str], images: list[str], format: Format, most_videos: int, most_images: int
) -> dict[str, Any]:
    """The columns that name media: the same ones, of the same types, in every row of a file with such a most."""
    columns: dict[str, Any] = {}
    for name, files, most in (("video", videos, most_videos), ("image", images, most_images)):
        if most and format == "qwen":
            columns[name] = files if most > 1 else next(iter(files), None)
        elif most:
            columns[f"{name}s"] = files
    return columns


def not_carried(pair: Pair, format: Format) -> Iterator[str]:
    """What a row of this format cannot say of the pair."""
    if pair.soft_label is not None:
        yield "soft label"
    if pair.weight != 1:
        yield "weight"
    if pair.teacher_margin is not None:
        yield "teacher margin"
    if format != "nli" and pair.label == "not_enough":
        yield "not_enough apart from refuted"


def dataset_info(name: str, file: str, columns: Collection[str]) -> dict[str, Any]:
    """The entry of LLaMA-Factory's `dataset_info.json` that describes an exported file."""
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
    named = {column: column for column in ("messages", "videos", "images") if column in columns}
    entry = {"file_name": file, "formatting": "sharegpt", "columns": named, "tags": {**tags, "system_tag": "system"}}
    return {name: entry}


def _nli_row(pair: Pair) -> dict[str, Any]:
    texts = [part.text if isinstance(part, (Transcript, Passage)) else _tag(part) for part in pair.evidence]
    label = NLI_LABELS[str(pair.label)]
    return {"id": pair.id, "premise": "\n".join(texts), "hypothesis": pair.claim, "label": label}


def _tag(evidence: Evidence) -> str:
    return "<image>" if isinstance(evidence, Image) else "<video>"
