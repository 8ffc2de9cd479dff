"""The claim-only probe: can supported claims be separated from the rest without looking at any evidence?

TF-IDF and logistic regression see the words of the claim alone, in grouped cross-validation. Where they succeed, a
verifier trained on these rows learns to read claims instead of watching videos (Gururangan et al. 2018, "Annotation
Artifacts in Natural Language Inference Data", and Poliak et al. 2018, hypothesis-only baselines, are the same check for
text pairs). The words that give the labels away are listed, so that the negatives can be made better.

All rows together say what a verifier could learn from claims. Each origin of negatives is then compared with its own
counterparts: the claims that its negatives were made from, or, where they were made from none, the supported claims of
the same groups. Against all supported rows the probe would learn which claims were altered, not what was altered.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

from ...core import Label, RowError

WARN_ABOVE = 0.6
MAX_ROWS = 50_000
MAX_FOLDS = 5
FEW_ROWS = 30
TELLING_WORDS = 20
_CHANCE = 0.05  # that any word at all is listed where no word tells
_SUPPORTED_AT_LEAST = 1_000
_STRATIFY_UP_TO = 5_000  # groups; beyond, shuffled folds are balanced anyway and stratifying takes seconds
_COMMON: dict[str, Any] = {"min_df": 2, "dtype": np.float32}
_WORDS: dict[str, Any] = {"analyzer": "word", "ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b", **_COMMON}
_CHARACTERS: dict[str, Any] = {"analyzer": "char_wb", "ngram_range": (3, 4), **_COMMON}


@dataclass(frozen=True)
class Separation:
    """How well claims alone tell `supported` rows from `rows - supported` others; `value` is None for a `reason`."""

    value: float | None
    rows: int
    supported: int
    reason: str | None = None


@dataclass(frozen=True)
class TellingWord:
    """A word or pair of words, its weight (positive: towards supported), and the rows of each label it occurs in."""

    text: str
    weight: float
    supported: int
    rest: int


@dataclass(frozen=True)
class ShortcutReport:
    """The probe's result.

    Attributes:
        overall: out-of-fold AUC over all probed rows.
        roles: the same scores among the rows of each role.
        origins: for each origin that has negatives, a probe of its own: these negatives and their counterparts alone.
        words: those that tell, largest absolute weight first, in the origin with the highest AUC above `WARN_ABOVE`,
            or else in all rows.
        words_of: that part, as the warnings name it; empty where no word tells.
        rows: labelled rows given, before sampling.
        unlabelled: rows without a label, which are not probed.
        folds: of the cross-validation; 0 where there was none.
        seed: of sample and folds.
    """

    overall: Separation
    roles: dict[str, Separation]
    origins: dict[str, Separation]
    words: tuple[TellingWord, ...]
    words_of: str
    rows: int
    unlabelled: int
    folds: int
    seed: int

    @property
    def warnings(self) -> list[str]:
        """One line for every AUC above `WARN_ABOVE`."""
        messages = []
        for name, part in _parts(self):
            if part.value is not None and part.value > WARN_ABOVE:
                few = _few(part)
                messages.append(f"{name}: AUC {part.value:.3f} from the claim alone{f' ({few})' if few else ''}")
        return messages

    def as_dict(self) -> dict[str, Any]:
        """JSON values for a manifest; numbers rounded to four decimals."""
        plain = {**dataclasses.asdict(self), "words": [dataclasses.asdict(word) for word in self.words]}
        return _rounded({**plain, "warnings": self.warnings})


def claim_only_probe(
    claims: Sequence[str],
    labels: Sequence[Label | None],
    groups: Sequence[str],
    roles: Sequence[str],
    origins: Sequence[str],
    sources: Sequence[str | None] | None = None,
    seed: int = 0,
    max_rows: int = MAX_ROWS,
) -> ShortcutReport:
    """Probe parallel columns, one entry a row; the same input gives the same report.

    At most `max_rows` rows are used, drawn by seed with the share of supported rows kept. Features are word 1-2-grams
    and character 3-4-grams inside words that occur in at least two rows; they are weighted once on all probed rows
    (no label takes part), the classifier is fitted per fold. Folds hold whole groups, so a video's own wording does
    not count; a sentence that recurs in other groups does count: it is the shortcut that the probe measures.

    Args:
        claims, labels, groups, roles, origins: of each row.
        sources: the claim that each negative was made from; None for rows that were made from none.
        seed: of sample and folds.
        max_rows: how many rows are probed.

    Raises:
        RowError: columns of different lengths.
    """
    sources = [None] * len(claims) if sources is None else sources
    lengths = [len(column) for column in (claims, labels, groups, roles, origins, sources)]
    if len(set(lengths)) > 1:
        raise RowError(f"claim-only probe: columns must be equally long, got {lengths}; give one entry a row")
    labelled = np.array([number for number, label in enumerate(labels) if label is not None], dtype=np.int64)
    is_supported = np.array([labels[number] == "supported" for number in labelled], dtype=bool)
    rows: list[int] = labelled[_sample(is_supported, max_rows, seed)].tolist()
    encode, words = _encoder([claims[i] for i in rows])
    y = np.array([labels[i] == "supported" for i in rows], dtype=bool)
    whole = _Part([claims[i] for i in rows], y, [groups[i] for i in rows])
    features = encode(whole.claims)
    scores, folds, reason = _out_of_fold(features, whole.y, whole.groups, seed)
    role_of = np.array([roles[i] for i in rows], dtype=object)
    parts = {"all rows": (whole, features, _separation(scores, whole.y, np.ones(len(rows), dtype=bool), reason))}
    for origin, part in _origins(whole, [origins[i] for i in rows], [sources[i] for i in rows], seed):
        own = encode(part.claims)
        outcome = _out_of_fold(own, part.y, part.groups, seed)
        separation = _separation(outcome[0], part.y, np.ones(len(part.y), dtype=bool), outcome[2])
        parts[f"origin {origin}"] = part, own, separation
    warned = {name: part for name, part in parts.items() if name != "all rows" and (part[2].value or 0.0) > WARN_ABOVE}
    name, (part, own, _) = max(
        (warned or {"all rows": parts["all rows"]}).items(), key=lambda item: item[1][2].value or 0.0
    )
    telling = _telling_words(own, part.y, words)
    return ShortcutReport(
        overall=parts["all rows"][2],
        roles={role: _separation(scores, whole.y, role_of == role, reason) for role in sorted(set(role_of))},
        origins={name.removeprefix("origin "): part[2] for name, part in parts.items() if part[0] is not whole},
        words=telling,
        words_of=name if telling else "",
        rows=len(labelled),
        unlabelled=len(claims) - len(labelled),
        folds=folds,
        seed=seed,
    )


def claim_only_scores(
    claims: Sequence[str], labels: Sequence[Label], groups: Sequence[str], seed: int = 0
) -> tuple[np.ndarray | None, str | None]:
    """Each labelled claim's score by the probe of `claim_only_probe`, from a fold without its group.

    Returns:
        Scores, shape (n,), higher for supported, and None; or None and the reason why there are none.
    """
    encode, _ = _encoder(claims)
    y = np.array([label == "supported" for label in labels], dtype=bool)
    scores, _, reason = _out_of_fold(encode(claims), y, groups, seed)
    return scores, reason


def shortcut_table(report: ShortcutReport) -> str:
    """The report as text for a terminal: AUCs, warnings, and the words with the largest weights."""
    used = report.overall.rows
    head = f"claim-only probe: {used} of {report.rows} labelled rows, {report.folds} folds of whole groups"
    lines = [head, f"{'':<32}{'AUC':>7}{'rows':>9}{'supported':>11}"]
    for name, part in _parts(report):
        value = "-" if part.value is None else f"{part.value:.3f}"
        note = part.reason or "; ".join(filter(None, [_mark(part), _few(part)]))
        lines.append(f"{_short(name, 31):<32}{value:>7}{part.rows:>9}{part.supported:>11}  {note}".rstrip())
    if report.warnings:
        told = f"; the words that tell in {report.words_of}:" if report.words else "; no single word tells"
        lines.append(f"warning: labels can be guessed without evidence (AUC above {WARN_ABOVE}){told}")
    if report.warnings and report.words:
        lines.append(f"  {'word':<30}{'weight':>8}{'supported':>11}{'rest':>8}")
        for word in report.words:
            lines.append(f"  {_short(word.text, 29):<30}{word.weight:>+8.2f}{word.supported:>11}{word.rest:>8}")
    return "\n".join(lines)


def _sample(is_supported: np.ndarray, max_rows: int, seed: int) -> np.ndarray:
    """Sorted places of at most `max_rows` rows, each label's share kept."""
    n = len(is_supported)
    if n <= max_rows:
        return np.arange(n)
    rng = np.random.default_rng(seed)
    n_supported = round(max_rows * float(is_supported.mean()))
    drawn = [
        rng.permutation(np.flatnonzero(is_supported == value))[:size]
        for value, size in ((True, n_supported), (False, max_rows - n_supported))
    ]
    return np.sort(np.concatenate(drawn))


@dataclass(frozen=True)
class _Part:
    """Claims that are probed together: which are supported, and the group of each."""

    claims: list[str]
    y: np.ndarray
    groups: list[str]


_Encode = Callable[[Sequence[str]], sp.csr_matrix | None]


def _encoder(claims: Sequence[str]) -> tuple[_Encode, list[str]]:
    """TF-IDF of words, then of character n-grams, weighted on `claims`; the names of the words, the first columns."""
    fitted, words = [], []
    for options in (_WORDS, _CHARACTERS):
        vectorizer = TfidfVectorizer(**options)
        try:
            vectorizer.fit(claims)
        except ValueError:  # nothing occurs twice
            continue
        fitted.append(vectorizer)
        if options is _WORDS:
            words = vectorizer.get_feature_names_out().tolist()

    def encode(texts: Sequence[str]) -> sp.csr_matrix | None:
        return sp.csr_matrix(sp.hstack([vectorizer.transform(texts) for vectorizer in fitted])) if fitted else None

    return encode, words


def _out_of_fold(
    features: sp.csr_matrix | None, y: np.ndarray, groups: Sequence[str], seed: int
) -> tuple[np.ndarray | None, int, str | None]:
    """Each row's score from a model that has seen no row of its group; or None, and the reason."""
    numbers = {group: number for number, group in enumerate(sorted(set(groups)))}
    group_of, n_groups = np.array([numbers[group] for group in groups], dtype=np.int64), len(numbers)
    if reason := _unfit(features, y, n_groups):
        return None, 0, reason
    assert features is not None
    n_folds = min(MAX_FOLDS, n_groups, int(y.sum()), int((~y).sum()))
    splitter = StratifiedGroupKFold if n_groups <= _STRATIFY_UP_TO else GroupKFold
    scores = np.zeros(len(y))
    for train, held_out in splitter(n_folds, shuffle=True, random_state=seed).split(y, y, group_of):
        if len(set(y[train].tolist())) < 2:
            return None, 0, "without one fold only one label is left"
        scores[held_out] = _fit(features[train], y[train]).decision_function(features[held_out])
    return scores, n_folds, None


def _origins(
    whole: _Part, origins: Sequence[str], sources: Sequence[str | None], seed: int
) -> Iterator[tuple[str, _Part]]:
    """The negatives of each origin and their counterparts, without the other negatives.

    Counterparts are the claims that these negatives were made from, each once in a group. For negatives that were made
    from none they are the supported rows of the same groups (of all groups where those have none), drawn to as many as
    the negatives, but 1,000 where there are: that leaves an AUC as it is, and the whole no dearer than one more probe.
    One probe for all would hide a leak: swapped negatives give it every supported sentence with the other label, and it
    then marks the words of supported rows down.
    """
    origin_of = np.array(origins, dtype=object)
    supported: list[int] = np.flatnonzero(whole.y).tolist()
    for origin in sorted(set(origin_of[~whole.y])):
        negatives: list[int] = np.flatnonzero((origin_of == origin) & ~whole.y).tolist()
        made = [i for i in negatives if sources[i] is not None]
        rows = [(i, whole.claims[i], whole.groups[i], False) for i in negatives]
        first = {(str(sources[i]), whole.groups[i]): i for i in reversed(made)}
        rows += [(i, claim, group, True) for (claim, group), i in first.items()]
        if len(made) < len(negatives):
            groups = {whole.groups[i] for i in negatives if sources[i] is None}
            same = [i for i in supported if whole.groups[i] in groups] or supported
            most = max(len(negatives) - len(made), _SUPPORTED_AT_LEAST)
            drawn: list[int] = np.random.default_rng(seed).permutation(same)[:most].tolist()
            rows += [(i, whole.claims[i], whole.groups[i], True) for i in drawn]
        rows.sort()
        claims, group_of, y = [row[1] for row in rows], [row[2] for row in rows], [row[3] for row in rows]
        yield origin, _Part(claims, np.array(y), group_of)


def _unfit(features: sp.csr_matrix | None, y: np.ndarray, n_groups: int) -> str | None:
    if not len(y):
        return "no labelled rows"
    if len(set(y.tolist())) < 2:
        return f"all rows are {'supported' if y[0] else 'not supported'}"
    if n_groups < 2:
        return "only one group"
    if min(y.sum(), (~y).sum()) < 2:
        return "one label has a single row"
    return "no word or part of a word occurs twice" if features is None else None


def _fit(features: Any, y: np.ndarray) -> LogisticRegression:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 200 steps rank well enough
        return LogisticRegression(class_weight="balanced", max_iter=200).fit(features, y)


def _separation(scores: np.ndarray | None, y: np.ndarray, part: np.ndarray, reason: str | None) -> Separation:
    rows, supported = int(part.sum()), int(y[part].sum())
    if scores is None or supported in (0, rows):
        missing = "no supported rows" if supported == 0 else "no negatives"
        return Separation(None, rows, supported, reason if scores is None else missing)
    return Separation(float(roc_auc_score(y[part], scores[part])), rows, supported)


def _telling_words(features: sp.csr_matrix | None, y: np.ndarray, words: list[str]) -> tuple[TellingWord, ...]:
    """Words that occur in more rows of one label than chance would let them, and that the classifier uses so.

    A word of every row has a weight, too, for its TF-IDF depends on the other words of the row; but it tells nothing.
    """
    if features is None or not words or len(set(y.tolist())) < 2:
        return ()
    weights = _fit(features, y).coef_[0][: len(words)]
    supported = features[y].getnnz(axis=0)[: len(words)]
    rest = features[~y].getnnz(axis=0)[: len(words)]
    share = (supported + rest) / len(y)
    spread = np.sqrt(np.maximum(share * (1 - share) * (1 / y.sum() + 1 / (~y).sum()), 1e-12))
    z = (supported / y.sum() - rest / (~y).sum()) / spread
    tells = (np.abs(z) > norm.isf(_CHANCE / 2 / len(words))) & (z * weights > 0)
    order = sorted(np.flatnonzero(tells), key=lambda column: -abs(weights[column]))[:TELLING_WORDS]
    return tuple(TellingWord(words[i], float(weights[i]), int(supported[i]), int(rest[i])) for i in order)


def _parts(report: ShortcutReport) -> Iterator[tuple[str, Separation]]:
    yield "all rows", report.overall
    yield from ((f"role {role or '(none)'}", part) for role, part in report.roles.items())
    yield from ((f"origin {origin}", part) for origin, part in report.origins.items())


def _mark(part: Separation) -> str:
    if part.value is None or 1 - WARN_ABOVE <= part.value <= WARN_ABOVE:
        return ""
    return f"<- above {WARN_ABOVE}" if part.value > WARN_ABOVE else "(no leak: claims recur with the other label)"


def _few(part: Separation) -> str:
    smaller = min(part.supported, part.rows - part.supported)
    return f"{smaller} rows of one label: uncertain" if smaller < FEW_ROWS else ""


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, (list, tuple)) else value
