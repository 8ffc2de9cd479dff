"""Import MiRAGE's text judgments: is a claim of one text supported by the other text?

Files: `metric_prediction_<system>_annotator_<n>_DONE.json` (a predicted claim against the reference article) and
`metric_reference_...` (a reference claim against the prediction), alexmartin1722/mirage,
data/wikivideo/human_judgments/metric_preference. A file holds the text its claims come from; the text they are judged
against is in its sibling of the other kind.

Three annotators judged the same claims: `read` gives every single judgment, and `merge_annotators` makes rows of them,
all, by majority, or with the share as a soft label.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ...core import ConfigError, Label, Pair, Passage
from .base import Importer, Merge, Record, Rejected, Row, kind_of, read_json_members, reject
from .mirage import contexts_of, digest_of, group_of, kept_out, structure_problems

_FILE = re.compile(r"metric_(?P<kind>prediction|reference)_(?P<system>.+)_annotator_(?P<annotator>\d+)(_DONE)?")
_OTHER = {"prediction": "reference", "reference": "prediction"}
_TEXT_KEYS = {"prediction": ("prediction",), "reference": ("reference", "article")}
_LABELS: dict[bool | None, Label | None] = {True: "supported", False: "not_enough", None: None}


@dataclass(frozen=True)
class MirageJudgmentsOptions:
    """Where other texts are, as paths relative to the annotation file.

    Attributes:
        reference: an object of topics with `reference` or `article`; empty: the sibling `metric_reference_...` file.
        prediction: an object of topics with `prediction`; empty: the sibling `metric_prediction_...` file.
        sentences: the normalised JSON of mirage.py, whose sentences become the context of reference claims; empty:
            these have none. A predicted claim's context is the sentence it is filed under.
        annotators: how the judgments of several annotators become rows, over all files of a source; see
            `merge_annotators`.
    """

    reference: str = ""
    prediction: str = ""
    sentences: str = ""
    annotators: Literal["all", "majority", "soft"] = "soft"


def read(path: Path, options: MirageJudgmentsOptions) -> Iterator[Row | Rejected]:
    """Every single judgment of one annotator's file; a claim left unjudged (null) is a row with label None."""
    named = _FILE.fullmatch(path.stem)
    if named is None:
        message = f"file name says no kind, system and annotator, got {path.name!r}; name it as in docs/formats.md"
        yield Rejected(str(path), None, None, kind_of(message), message)
        return
    kind, other = named["kind"], _OTHER[named["kind"]]
    chosen: str = getattr(options, other) or path.name.replace(f"metric_{kind}_", f"metric_{other}_", 1)
    topics, problems = _topics(path, chosen, other)
    texts = {topic: text for topic, value in topics.items() if (text := _text(value, other)) is not None}
    contexts: dict[str, dict[str, list[str]]] = {}
    if kind == "reference" and options.sentences:
        topics, more = _topics(path, options.sentences, "sentences")
        contexts = {topic: contexts_of(value) for topic, value in topics.items() if not structure_problems(value)}
        problems += more
    yield from problems
    for record in read_json_members(path) if not problems else ():
        if isinstance(record, Rejected):
            yield record
        else:
            yield from _topic_rows(record, named.groupdict(), texts, contexts.get(record.value[0], {}))


def _topics(annotations: Path, file: str, option: str) -> tuple[dict[str, Any], list[Rejected]]:
    """The topics of another file, and why it cannot be used."""
    path = annotations.parent / file
    if not path.is_file():
        message = f"file with the other text is missing, got {str(path)!r}; put it there or set the option `{option}`"
        return {}, [Rejected(str(annotations), None, None, kind_of(message), message)]
    members = list(read_json_members(path))
    return (
        {item.value[0]: item.value[1] for item in members if isinstance(item, Record)},
        [item for item in members if isinstance(item, Rejected)],
    )


def _text(value: Any, kind: str) -> str | None:
    texts = [value.get(key) for key in _TEXT_KEYS[kind]] if isinstance(value, dict) else []
    return next((text for text in texts if isinstance(text, str)), None)


def _topic_rows(
    record: Record, named: dict[str, Any], texts: dict[str, str], contexts: dict[str, list[str]]
) -> Iterator[Row | Rejected]:
    topic, value = record.value
    kind, other = named["kind"], _OTHER[named["kind"]]
    judged = _judged_claims(value, kind)
    if isinstance(judged, str):
        yield reject(record, judged, id=topic)
        return
    if topic not in texts:
        message = f"topic has no text to be judged against, got no {other} of {topic!r}; set the option `{other}`"
        yield kept_out(record, topic, message, len(judged))
        return
    seen: set[tuple[str, str]] = set()
    for sentence, item in judged:
        if problem := _item_problem(item):
            yield kept_out(record, topic, problem, 1)
            continue
        claim = item["claim"]
        if (sentence, claim) in seen:
            message = f"claim is judged twice in one sentence, got {claim!r}; keep one"
            yield kept_out(record, topic, message, 1)
            continue
        seen.add((sentence, claim))
        context = sentence or next(iter(contexts.get(claim, [])), None)
        name = f"{named['system']}/{topic}/{kind}/{digest_of(sentence, claim)}/annotator_{named['annotator']}"
        pair = Pair(
            id=name,
            claim=claim,
            evidence=(Passage(texts[topic]),),
            # Annotators were asked whether the text supports the claim, not whether it contradicts it.
            label=_LABELS[item["judgment"]],
            context=context,
            group=group_of(topic),
            role=f"{kind}_claim",
            modality="text",
            meta={"system": named["system"], "annotator": int(named["annotator"])},
        )
        yield Row(pair, record.file, record.line, topic)


def _judged_claims(value: Any, kind: str) -> list[tuple[str, Any]] | str:
    """(sentence, item) of a topic in file order, the sentence empty for reference claims; or what is wrong."""
    if not isinstance(value, dict) or _text(value, kind) is None:
        return f"topic must hold its {kind} as text, got {reprlib.repr(value)}; see docs/formats.md"
    claims = value.get("claims")
    if kind == "reference":
        if not isinstance(claims, list):
            return f"claims must be a list, got {reprlib.repr(claims)}; write [{{'claim', 'judgment'}}, ...]"
        return [("", item) for item in claims]
    if not isinstance(claims, dict) or not all(isinstance(items, list) for items in claims.values()):
        return f"claims must map sentences to lists, got {reprlib.repr(claims)}; write {{sentence: [...]}}"
    return [(sentence, item) for sentence, items in claims.items() for item in items]


def _item_problem(item: Any) -> str | None:
    if not isinstance(item, dict) or not isinstance(item.get("claim"), str) or "judgment" not in item:
        return f"item needs a claim and a judgment, got {reprlib.repr(item)}; write {{'claim': ..., 'judgment': ...}}"
    if item["judgment"] is not None and not isinstance(item["judgment"], bool):
        return f"judgment must be true, false or null, got {item['judgment']!r}; judge it again"
    return None


Mode = Literal["all", "majority", "soft"]
MODES: tuple[Mode, ...] = get_args(Mode)
COPY_MIN_CLAIMS = 100


def merge_annotators(rows: Iterable[Row], mode: Mode = "soft") -> tuple[list[Row], list[Rejected]]:
    """One row per claim, or per claim and annotator, out of single judgments.

    Args:
        rows: of `read`, over all files.
        mode: `all` keeps every annotator's row. `majority` gives one row per claim with the label most annotators
            gave; an even split is kept out. `soft` does the same and sets `soft_label` to the share of annotators who
            found support; an even split has no label there, only its `soft_label`. Claims that were not judged are left
            out.

    Returns:
        The rows in order of first appearance, and what was kept out, none of it blocking. `meta["votes"]` counts. A
        file that repeats another annotator's judgments of at least `COPY_MIN_CLAIMS` claims one by one is no second
        opinion: it is listed, and has no vote. In `all` its rows stay, marked by `meta["copy_of"]`.

    Raises:
        ConfigError: an unknown mode.
    """
    if mode not in MODES:
        raise ConfigError(f"mode: is unknown, got {mode!r}; use one of {list(MODES)}")
    return MERGE.all_of(list(rows), MirageJudgmentsOptions(annotators=mode))


def _join(
    same: Sequence[Row], options: MirageJudgmentsOptions, copies: Mapping[str, object]
) -> Iterator[Row | Rejected]:
    if options.annotators == "all":
        yield from (_single(row, copies) for row in same)
    else:
        voting = [row for row in same if row.file not in copies] or same
        yield _vote(_item_of(same[0]), voting, options.annotators)


def _item_of(row: Row) -> str:
    """What was judged, without who judged it."""
    return row.pair.id.rpartition("/annotator_")[0]


def _survey(rows: Iterable[Row], options: MirageJudgmentsOptions) -> tuple[dict[str, object], list[Rejected]]:
    """Files that hold the same judgments as another one, claim by claim: {the file: the annotator it copies}.

    Annotators of the released files disagree on 4 to 36 % of claims: a hundred equal judgments are not a coincidence.
    A file is known by the sum of the hashes of its judgments, which does not depend on their order.
    """
    first: dict[str, Row] = {}
    n_rows: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for row in rows:
        first.setdefault(row.file, row)
        n_rows[row.file] += 1
        judgment = f"{_item_of(row)}\0{row.pair.label}".encode("utf-8", "surrogatepass")
        sums[row.file] += int.from_bytes(hashlib.blake2b(judgment, digest_size=16).digest())
    copies: dict[str, object] = {}
    listed: list[Rejected] = []
    originals: dict[tuple[int, int], str] = {}
    for file, total in sums.items():
        original = originals.setdefault((n_rows[file], total), file)
        if original != file and n_rows[file] >= COPY_MIN_CLAIMS:
            copies[file] = first[original].pair.meta["annotator"]
            listed.append(_copy_listed(first[file], n_rows[file], original))
    return copies, listed


def _copy_listed(first: Row, n_rows: int, original: str) -> Rejected:
    message = f"judgments copy another annotator's, got all {n_rows} equal to {original}; they have no vote"
    return Rejected(first.file, None, None, kind_of(message), message, pairs=0, blocking=False)


def _single(row: Row, copies: Mapping[str, object]) -> Row | Rejected:
    if row.pair.label is None:
        return _kept_out([row], f"claim was left unjudged, got null for {row.pair.claim!r}; judge it")
    if row.file not in copies:
        return row
    meta = {**row.pair.meta, "copy_of": copies[row.file]}
    return dataclasses.replace(row, pair=dataclasses.replace(row.pair, meta=meta))


def _vote(name: str, same: Sequence[Row], mode: Mode) -> Row | Rejected:
    votes = Counter(row.pair.label for row in same)
    supported, against = votes["supported"], votes["not_enough"]
    if supported + against == 0:
        return _kept_out(same, f"claim was left unjudged, got null for {same[0].pair.claim!r}; judge it")
    if supported == against and mode == "majority":
        labels = ", ".join(f"{row.pair.label} at {row.file}:{row.line}" for row in same)
        return _kept_out(same, f"annotators are evenly split, got {labels}; adjudicate it: this pair is kept out")
    label: Label | None = None if supported == against else "supported" if supported > against else "not_enough"
    meta = {key: value for key, value in same[0].pair.meta.items() if key != "annotator"}
    pair = dataclasses.replace(
        same[0].pair,
        id=name,
        label=label,
        soft_label=supported / (supported + against) if mode == "soft" else None,
        meta={**meta, "votes": {"supported": supported, "not_enough": against, "unjudged": votes[None]}},
    )
    return dataclasses.replace(same[0], pair=pair)


def _kept_out(same: Sequence[Row], message: str) -> Rejected:
    first = same[0]
    return Rejected(first.file, first.line, first.pair.id, kind_of(message), message, pairs=1, blocking=False)


MERGE = Merge(_item_of, _join, _survey)
IMPORTER = Importer(
    name="mirage_judgments",
    description="Claims that three annotators judged against a text.",
    read=read,
    options=MirageJudgmentsOptions,
    merge=MERGE,
)
