"""The same question in the forms of other servers: vLLM's score, rerank (Cohere, Jina, vLLM, TEI), and TEI's predict.

A claim is what they call query or first text; a document is its evidence. A score is the calibrated probability that
the evidence supports the claim; the margin where raw scores are asked for. These forms have no place for one document's
failure: a document that cannot be judged refuses the request, and every such document is named.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from proofreel.core import Evidence, Pair, Passage
from proofreel.models.decision import Verdict

from .chat import read_parts
from .schemas import PIECE, Loose, PredictRequest, RerankRequest, VllmScoreRequest
from .score import Office, check_count, check_text, verdicts_of
from .settings import Faults, RefusedError, brief
from .strict_json import schema_faults

_DOCUMENT = 'a text, {"content": [parts]}, or {"kind": "video", "path": ...}'


async def vllm_score(office: Office, request: VllmScoreRequest) -> dict[str, Any]:
    """Answer vLLM's `POST /score`: a score for each pair, in order."""
    claims, documents = _listed(request.text_1), _listed(request.text_2)
    n_pairs = max(len(claims), len(documents))
    with _faults() as faults:
        if not claims or not documents or {len(claims), len(documents)} - {1, n_pairs}:
            count = f"{len(claims)} and {len(documents)}"
            message = f"text_1: the numbers of claims and documents do not fit, got {count}; send 1:1, 1:N, N:1 or N:N"
            faults.add(RefusedError(400, message), "text_1")
    pairs = await run_in_threadpool(_pairs, office, (claims, documents), ("text_1", "text_2"), n_pairs)
    verdicts = await _verdicts(office, pairs, "text_2")
    scores = [{"index": i, "object": "score", "score": _score(v, request)} for i, v in enumerate(verdicts)]
    return _named(office, "score") | {"object": "list", "created": int(time.time()), "data": scores} | _usage(2)


async def rerank(office: Office, request: RerankRequest) -> dict[str, Any] | list[dict[str, Any]]:
    """Answer `POST /rerank` as TEI does if the request has `texts`, else as Cohere, Jina and vLLM do: best first."""
    key = "documents" if request.texts is None else "texts"
    documents = request.documents if request.texts is None else request.texts
    documents = _contents(documents) if isinstance(documents, dict) else documents
    with _faults() as faults:
        if request.texts is not None and request.documents is not None:
            faults.add(RefusedError(400, "texts: given beside documents, got both; send one of them"), "texts")
        if not isinstance(documents, list) or not documents:
            faults.add(RefusedError(400, f"{key}: must be a list of documents, got {brief(documents)}; add some"), key)
    assert isinstance(documents, list)
    pairs = await run_in_threadpool(_pairs, office, ([request.query], documents), ("query", key), len(documents))
    verdicts = await _verdicts(office, pairs, key)
    order = sorted(range(len(verdicts)), key=lambda i: (-verdicts[i].margin, i))[: request.top_n or None]
    if request.texts is not None:
        texts = [{"text": documents[i]} if request.return_text else {} for i in order]
        return [{"index": i, "score": _score(verdicts[i], request)} | t for i, t in zip(order, texts, strict=True)]
    results = []
    for i in order:
        document = {} if request.return_documents is False else {"document": _echo(documents[i])}
        results.append({"index": i, "relevance_score": _score(verdicts[i], request)} | document)
    return _named(office, "rerank") | {"results": results, "meta": {"api_version": {"version": "2"}}} | _usage(1)


async def predict(office: Office, request: PredictRequest) -> list[Any]:
    """Answer TEI's `POST /predict`: both labels of each pair with their scores, the likelier first."""
    given = request.inputs
    single = isinstance(given, list) and len(given) == 2 and all(isinstance(text, str) for text in given)
    asked = [given] if single else given
    with _faults() as faults:
        wrong = (
            [i for i, pair in enumerate(asked) if not (isinstance(pair, list) and len(pair) == 2)]
            if (isinstance(asked, list) and asked)
            else None
        )
        if wrong is None:
            remedy = "send [claim, text] or a list of such pairs"
            faults.add(RefusedError(400, f"inputs: must be pairs, got {brief(given)}; {remedy}"), "inputs")
        for i in wrong or ():
            where = f"inputs[{i}]"
            faults.add(
                RefusedError(400, f"{where}: must be [claim, text], got {brief(asked[i])}; add the other"), where
            )
    columns = [pair[0] for pair in asked], [pair[1] for pair in asked]
    pairs = await run_in_threadpool(_pairs, office, columns, ("inputs", "inputs"), len(asked))
    answers = []
    for verdict in await _verdicts(office, pairs, "inputs"):
        other = -verdict.margin if request.raw else 1.0 - verdict.p_supported
        labels = [("supported", _score(verdict, request)), ("not_supported", other)]
        answers.append([{"score": s, "label": name} for name, s in sorted(labels, key=lambda label: -label[1])])
    return answers[0] if single else answers


def _pairs(office: Office, columns: Sequence[list[Any]], names: tuple[str, str], n_pairs: int) -> list[Pair]:
    """Claims and documents, both read once, as `n_pairs` pairs. `RefusedError` with all their faults."""
    with _faults() as faults:
        if n_pairs > office.limits.max_claims:
            count = f"{n_pairs} of at most {office.limits.max_claims}"
            message = f"{names[1]}: too many for one request, got {count}; send several requests"
            raise RefusedError(413, message)
        read = []
        for column, name, reader in zip(columns, names, (_claim, _document), strict=True):
            values = []
            for i, given in enumerate(column):
                where = name if name == "query" else f"{name}[{i}]"
                with faults.at(where):
                    values.append(reader(office, given, where, faults))
            read.append(values)
    claims, documents = (values * n_pairs if len(values) == 1 else values for values in read)
    return [Pair(str(i), c, e) for i, (c, e) in enumerate(zip(claims, documents, strict=True))]


def _claim(office: Office, given: Any, where: str, faults: Faults) -> str:
    parts = given.get("content") if isinstance(given, dict) else given
    if isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], dict):
        parts = parts[0].get("text")
    if not isinstance(parts, str):
        raise RefusedError(400, f"{where}: a claim must be text, got {brief(given)}; write one sentence")
    check_text(parts, where)
    return parts


def _document(office: Office, given: Any, where: str, faults: Faults) -> tuple[Evidence, ...]:
    if isinstance(given, str):
        given = {"kind": "passage", "text": given}
    if not isinstance(given, dict):
        raise RefusedError(400, f"{where}: no document, got {brief(given)}; send {_DOCUMENT}")
    if "kind" in given:
        try:
            piece = PIECE.validate_python(given).model_dump()
        except ValidationError as error:
            raise schema_faults(error.errors(include_url=False), given, ()).refusal() from None
        return office.find_evidence([piece], where, faults)
    content = given.get("content", given.get("text"))
    if isinstance(content, str):
        return (Passage(content),)
    parts = content if isinstance(content, list) else [given]
    check_count(len(parts), office.limits.max_evidence)
    return read_parts(office.root, parts, where, faults)


async def _verdicts(office: Office, pairs: list[Pair], name: str) -> list[Verdict]:
    """Verdicts in order; `RefusedError` that names every pair that has none."""
    verdicts = await verdicts_of(office, pairs, office.judge())
    with _faults() as faults:
        for i, verdict in enumerate(verdicts):
            if verdict.error is not None:
                where = f"{name}[{i}]"
                faults.add(RefusedError(422, f"{where}: {office.root.hide(verdict.error)}"), where)
    return verdicts


@contextmanager
def _faults() -> Iterator[Faults]:
    """Faults that refuse the request when the block ends."""
    faults = Faults()
    yield faults
    faults.check()


def _score(verdict: Verdict, request: Loose) -> float:
    return verdict.margin if request.raw else verdict.p_supported


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [given]


def _contents(given: dict[str, Any]) -> list[Any]:
    """Older vLLM's documents, `{content: [parts]}`: each part is a document of its own."""
    parts = given.get("content")
    return [{"content": [part]} for part in parts] if isinstance(parts, list) else [given]


def _echo(document: Any) -> dict[str, Any]:
    if isinstance(document, str):
        return {"text": document}
    return document if "content" not in document else {"text": None, "multi_modal": document["content"]}


def _named(office: Office, kind: str) -> dict[str, Any]:
    return {"id": f"{kind}-{uuid.uuid4().hex}", "model": office.verifier.fingerprint}


def _usage(n_keys: int) -> dict[str, Any]:
    """Tokens, which clients of these forms read and nobody counts here: evidence is shared between claims."""
    return {"usage": dict.fromkeys(("total_tokens", "prompt_tokens")[:n_keys], 0)}
