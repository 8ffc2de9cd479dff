"""A text checkpoint's tokenizer in the place of a processor: the same calls, and nothing that takes pixels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.errors import DirectoryError


class TextProcessor:
    """What `Encoder` and `save_draft` need of a processor, for a checkpoint that has only a tokenizer.

    Attributes:
        tokenizer: the checkpoint's.
    """

    def __init__(self, tokenizer: Any, where: str | Path = "tokenizer") -> None:
        """`where` is named in errors.

        Raises:
            DirectoryError: the tokenizer has no chat template.
        """
        if not tokenizer.chat_template:
            raise DirectoryError(
                f"{where}: the tokenizer has no chat template, got None; use a checkpoint that was tuned to chat"
            )
        self.tokenizer = tokenizer

    def apply_chat_template(self, messages: Sequence[dict[str, Any]], **options: Any) -> Any:
        """Render messages whose content may be a list of parts, as processors of vision backbones take it.

        Templates of text checkpoints join strings, and fail on a list or leave it out, so the parts are joined here.
        """
        return self.tokenizer.apply_chat_template([_joined(m) for m in messages], **options)

    def save_pretrained(self, directory: str | Path) -> Any:
        """Write the tokenizer's files with its chat template."""
        return self.tokenizer.save_pretrained(directory)


def _joined(message: dict[str, Any]) -> dict[str, Any]:
    content = message["content"]
    if isinstance(content, str):
        return message
    if seen := [part["type"] for part in content if part["type"] != "text"]:
        raise DirectoryError(f"chat template: a text backbone has no place for it, got a part of type {seen[0]!r}")
    return {**message, "content": "".join(part["text"] for part in content)}
