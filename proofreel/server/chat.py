"""An OpenAI-compatible question: a chat with evidence and a claim, answered by one label word and its log-probability.

The log-probabilities are those of the restricted softmax over the two label words, which is what a margin is: log
P(yes) = -log(1 + exp(-margin)), log P(no) = -log(1 + exp(margin)). They are not calibrated; `proofreel` in the answer
holds the calibrated probability and the label. A failed claim is an error, never a word.

Apart from the routes because it is another interface, with schemas and refusals of its own.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool

from proofreel.core import Evidence, Image, Passage, VideoSegment

from .media_root import MediaRoot
from .schemas import ChatRequest
from .score import Office, as_answer
from .settings import Faults, RefusedError, brief


async def complete(office: Office, request: ChatRequest) -> dict[str, Any]:
    """Answer `POST /v1/chat/completions`.

    The last text of the last user message is the claim; texts before it in that message are passages, its video_url and
    image_url parts are evidence. Other messages are not looked at: the prompt is the verifier's own.
    """
    if request.stream:
        raise RefusedError(400, "stream: a verdict is one word, got stream=true; ask without streaming")
    claim, evidence = await run_in_threadpool(read_messages, office, request)
    (verdict,) = await office.ask([claim], evidence)
    if verdict.error:
        raise RefusedError(422, verdict.error)
    point = office.judge().point
    more: dict[str, Any] = as_answer(verdict, office.root).model_dump()
    more |= {"threshold": point and point.threshold, "fingerprint": office.verifier.fingerprint}
    prompt = office.verifier.encoder.prompt
    words = word_logprobs(verdict.margin, prompt.supported_word, prompt.refuted_word)
    content = words[0] | {"top_logprobs": words[: request.top_logprobs or 0]}
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": office.verifier.fingerprint,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": words[0]["token"]},
                "logprobs": {"content": [content]} if request.logprobs else None,
                "finish_reason": "stop",
            }
        ],
        "proofreel": more,
    }


def word_logprobs(margin: float, supported: str, refuted: str) -> list[dict[str, Any]]:
    """Both label words with their log-probabilities, the likelier first; `supported` on a tie."""
    words = [(supported, -np.logaddexp(0.0, -margin)), (refuted, -np.logaddexp(0.0, margin))]
    words.sort(key=lambda pair: -pair[1])
    return [{"token": word, "logprob": float(p), "bytes": list(word.encode())} for word, p in words]


def read_messages(office: Office, request: ChatRequest) -> tuple[str, tuple[Evidence, ...]]:
    """The claim and the evidence of a chat."""
    users = [m for m in request.messages if m.role == "user"]
    if not users or not users[-1].content:
        raise RefusedError(400, "messages: no question, got no user message with content; send evidence and a claim")
    content = users[-1].content
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if len(parts) > office.limits.max_evidence + 1:
        count = f"{len(parts)} parts, at most {office.limits.max_evidence} and a claim"
        raise RefusedError(413, f"messages: too much evidence, got {count}; send less")
    texts = [i for i, part in enumerate(parts) if part.get("type") == "text"]
    if not texts:
        raise RefusedError(400, "messages: no claim, got no text part in the last user message; write the claim there")
    faults = Faults()
    evidence = read_parts(
        office.root, [p for i, p in enumerate(parts) if i != texts[-1]], "messages[-1].content", faults
    )
    faults.check()
    if not evidence:
        raise RefusedError(400, "messages: no evidence, got a claim alone; add a video_url, image_url or text part")
    return _text(parts[texts[-1]], "claim"), evidence


def read_parts(root: MediaRoot, parts: Sequence[Any], where: str, faults: Faults) -> tuple[Evidence, ...]:
    """The evidence that the content parts of a message are, without those at fault."""
    pieces: list[Evidence] = []
    for i, part in enumerate(parts):
        with faults.at(f"{where}[{i}]"):
            pieces.append(_piece(root, part, f"{where}[{i}]"))
    return tuple(pieces)


def _piece(root: MediaRoot, part: Any, where: str) -> Evidence:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        return Passage(_text(part, where))
    if kind not in ("video_url", "image_url"):
        raise RefusedError(400, f"{where}: unknown type, got {brief(kind)}; use text, video_url or image_url")
    given = part.get(kind)
    url = given.get("url") if isinstance(given, dict) else given
    if not isinstance(url, str):
        raise RefusedError(400, f"{where}: no url, got {brief(given)}; write {{{kind}: {{url: PATH}}}}")
    path, start_s, end_s = root.find_url(url)
    return VideoSegment(path, start_s, end_s) if kind == "video_url" else Image(path)


def _text(part: dict[str, Any], where: str) -> str:
    if not isinstance(part.get("text"), str):
        raise RefusedError(400, f"{where}: text must be a string, got {brief(part.get('text'))}; write it as text")
    return part["text"]
