"""Chat rows back into pairs: the inverse of the rows written for other trainers (rows.py).

Apart from claim_files.py because it is a parser of its own. Three layouts are recognised per row: `messages` of `role`
and `content` (LLaMA-Factory, ms-swift), with lists `videos` and `images`; `conversations` of `from` and `value` (Qwen),
with `video` and `image`, each a file or a list. A row is read only if its words, made again from the pair, are the
same: a claim is never cut in the wrong place.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...core import Evidence, Image, Label, Pair, Passage, Prompt, RowError, Transcript, VideoSegment, media_paths

_ROLES = {"system": "system", "user": "user", "human": "user", "assistant": "assistant", "gpt": "assistant"}
_TAGS = {"<video>": "video", "<image>": "image"}


def is_chat_row(value: Mapping[str, Any]) -> bool:
    """Whether a record has the turns of a chat."""
    return isinstance(value.get("messages"), list) or isinstance(value.get("conversations"), list)


def pair_of_chat(value: Mapping[str, Any], name: str, prompts: Sequence[Prompt]) -> Pair:
    """The pair a chat row asks about.

    Args:
        value: the row.
        name: id of the pair, where the row has none.
        prompts: how evidence and claim may be worded; the first that fits is taken.

    Raises:
        RowError: a row that is no chat of one question, media that its text does not name, or other words.
    """
    turns = _turns(value)
    system, user, answer = (_text_of(turns, role) for role in ("system", "user", "assistant"))
    media = {kind: _files(value, kind) for kind in ("video", "image")}
    for prompt in prompts:
        # Qwen's reader knows no system turn: its words open the user's.
        text = user if system or not prompt.system else user.removeprefix(f"{prompt.system}\n")
        for pair in _parsed(text, prompt, media):
            if prompt.user_text(pair) != text:
                continue
            given = value.get("id")
            return dataclasses.replace(
                pair,
                id=given if isinstance(given, str) and given else name,
                group=_group(pair.evidence),
                label=_label(answer, prompt),
                origin="chat",
            )
    expected = f"{prompts[0].passage!r} ... {prompts[0].claim!r}"
    raise RowError(f"words are not those of a claim about evidence, got {user[:80]!r}; expected e.g. {expected}")


def _turns(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(role, text) of each turn."""
    qwen = "messages" not in value
    role_key, text_key = ("from", "value") if qwen else ("role", "content")
    turns = []
    for turn in value["conversations" if qwen else "messages"]:
        role = turn.get(role_key) if isinstance(turn, dict) else None
        text = turn.get(text_key) if isinstance(turn, dict) else None
        if not isinstance(role, str) or role not in _ROLES or not isinstance(text, str):
            raise RowError(f"turn must be {{{role_key}, {text_key}}} of text, got {turn!r:.80}; repair the row")
        turns.append((_ROLES[role], text))
    return turns


def _text_of(turns: Sequence[tuple[str, str]], role: str) -> str:
    texts = [text for who, text in turns if who == role]
    if len(texts) > 1 or (role == "user" and not texts):
        raise RowError(f"row must hold one turn of the {role}, got {len(texts)}; a claim is one question")
    return texts[0] if texts else ""


def _files(value: Mapping[str, Any], kind: str) -> list[str]:
    given = value.get(f"{kind}s", value.get(kind))
    files = [] if given is None else [given] if isinstance(given, str) else given
    if not isinstance(files, list) or not all(isinstance(file, str) and file for file in files):
        raise RowError(f"{kind}s must be a list of files, got {given!r:.80}; name each as text")
    return files


def _parsed(text: str, prompt: Prompt, media: Mapping[str, list[str]]) -> Iterator[Pair]:
    """Pairs that a user's turn may ask about, in which all media have their place."""
    opening, _, closing = prompt.claim.partition("{claim}")
    for before in ("\n", prompt.context.partition("{context}")[2]):  # a context may end on the claim's own line
        at = text.rfind(before + opening)
        at = 0 if at < 0 else at + len(before)
        if not (text.startswith(opening, at) and text.endswith(closing)):
            continue
        given = {kind: iter(files) for kind, files in media.items()}
        evidence, context = _before_claim(text[:at], prompt, given)
        if evidence and all(next(files, None) is None for files in given.values()):
            yield Pair("", text[at + len(opening) : len(text) - len(closing)], evidence, context=context)


def _before_claim(
    text: str, prompt: Prompt, given: Mapping[str, Iterator[str]]
) -> tuple[tuple[Evidence, ...] | None, str | None]:
    """The evidence a turn opens with and the context that follows it; None where a line belongs to neither."""
    starts = _starts(prompt)
    pieces: list[tuple[str, re.Match[str] | None, list[str]]] = []
    for line in text.splitlines(keepends=True):
        kind, match = _TAGS.get(line.rstrip("\n"), ""), None
        for name, pattern in starts.items() if not kind else ():
            if match := pattern.match(line):
                kind = name
                break
        if kind:
            pieces.append((kind, match, [line[match.end() :] if match else ""]))
        elif pieces and pieces[-1][0] not in _TAGS.values():
            pieces[-1][2].append(line)
        else:
            return None, None
    evidence: list[Evidence] = []
    context = None
    for kind, match, lines in pieces:
        part = "".join(lines)
        if context is not None:
            return None, None
        if kind == "context":
            context = part.removesuffix(prompt.context.partition("{context}")[2])
        elif kind == "passage":
            evidence.append(Passage(part.removesuffix(prompt.passage.partition("{text}")[2] + "\n")))
        elif kind == "transcript":
            assert match is not None
            span = (None, None) if match["start"] is None else (float(match["start"]), float(match["end"]))
            evidence.append(Transcript(part.removesuffix(prompt.transcript.partition("{text}")[2] + "\n"), *span))
        elif (file := next(given[kind], None)) is None:
            return None, None
        else:
            evidence.append(VideoSegment(file) if kind == "video" else Image(file))
    return tuple(evidence), context


def _starts(prompt: Prompt) -> dict[str, re.Pattern[str]]:
    """How a line begins that opens a text; one without any words before its text cannot be distinguished."""
    span = r"(?: \((?P<start>\d+\.\d)-(?P<end>\d+\.\d) s\))?"
    transcript = re.escape(prompt.transcript.partition("{text}")[0]).replace(re.escape("{span}"), span)
    patterns = {"transcript": transcript}
    patterns["passage"] = re.escape(prompt.passage.partition("{text}")[0])
    patterns["context"] = re.escape(prompt.context.partition("{context}")[0])
    if "{span}" not in prompt.transcript:
        patterns["transcript"] += r"(?P<start>(?!))?(?P<end>(?!))?"
    return {kind: re.compile(pattern) for kind, pattern in patterns.items() if pattern}


def _label(answer: str, prompt: Prompt) -> Label | None:
    """The label that the answer's word names; `no` is read as refuted, though it may have stood for not_enough."""
    word = answer.removeprefix(prompt.response_prefix).strip()
    return {prompt.supported_word: "supported", prompt.refuted_word: "refuted"}.get(word)  # type: ignore[return-value]


def _group(evidence: tuple[Evidence, ...]) -> str:
    return next((path for e in evidence for path in media_paths(e)), "")
