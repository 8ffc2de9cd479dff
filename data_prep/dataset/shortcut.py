"""The claim-only probe: can supported claims be separated from the rest without looking at any evidence?

TF-IDF and logistic regression see the words of the claim alone, in grouped cross-validation. Where they succeed, a
verifier trained on these rows learns to read claims instead of watching videos (Gururangan et al. 2018, "Annotation
Artifacts in Natural Language Inference Data", and Poliak et al. 2018, hypothesis-only baselines, are the same check for
text pairs). The words that give the labels away are listed, so that the negatives can be made better.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
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
        origins: for each origin that has negatives, a probe of its own: supported rows against these negatives alone.
        words: the most telling ones, largest absolute weight first.
        rows: labelled rows given, before sampling.
        unlabelled: rows without a label, which are not probed.
        folds: of the cross-validation; 0 where there was none.
        seed: of sample and folds.
    """

    overall: Separation
    roles: dict[str, Separation]
    origins: dict[str, Separation]
    words: tuple[TellingWord, ...]
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
    seed: int = 0,
    max_rows: int = MAX_ROWS,
) -> ShortcutReport:
    """Probe parallel columns, one entry a row; the same input gives the same report.

    At most `max_rows` rows are used, drawn by seed with the share of supported rows kept. Features are word 1-2-grams
    and character 3-4-grams inside words that occur in at least two rows; they are weighted once on all probed rows
    (no label takes part), the classifier is fitted per fold. Folds hold whole groups, so a video's own wording does
    not count; a sentence that recurs in other groups does count: it is the shortcut that the probe measures.

    Raises:
        RowError: columns of different lengths.
    """
    lengths = [len(column) for column in (claims, labels, groups, roles, origins)]
    if len(set(lengths)) > 1:
        raise RowError(f"claim-only probe: columns must be equally long, got {lengths}; give one entry a row")
    labelled = np.array([number for number, label in enumerate(labels) if label is not None], dtype=np.int64)
    is_supported = np.array([labels[number] == "supported" for number in labelled], dtype=bool)
    kept = _sample(is_supported, max_rows, seed)
    rows: list[int] = labelled[kept].tolist()
    y = is_supported[kept]
    features, words = _features([claims[i] for i in rows])
    group_of = [groups[i] for i in rows]
    scores, folds, reason = _out_of_fold(features, y, group_of, seed)
    role_of = np.array([roles[i] for i in rows], dtype=object)
    return ShortcutReport(
        overall=_separation(scores, y, np.ones(len(y), dtype=bool), reason),
        roles={role: _separation(scores, y, role_of == role, reason) for role in sorted(set(role_of))},
        origins=_origins(features, y, group_of, [origins[i] for i in rows], seed),
        words=_telling_words(features, y, words),
        rows=len(labelled),
        unlabelled=len(claims) - len(labelled),
        folds=folds,
        seed=seed,
    )


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
        lines.append(f"warning: labels can be guessed without evidence (AUC above {WARN_ABOVE}); the words that tell:")
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


def _features(claims: Sequence[str]) -> tuple[sp.csr_matrix | None, list[str]]:
    """TF-IDF of words, then of character n-grams, and the names of the former, which are the first columns."""
    blocks, words = [], []
    for options in (_WORDS, _CHARACTERS):
        vectorizer = TfidfVectorizer(**options)
        try:
            blocks.append(vectorizer.fit_transform(claims))
        except ValueError:  # nothing occurs twice
            continue
        if options is _WORDS:
            words = vectorizer.get_feature_names_out().tolist()
    return (sp.csr_matrix(sp.hstack(blocks)), words) if blocks else (None, words)


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
    features: sp.csr_matrix | None, y: np.ndarray, groups: Sequence[str], origins: Sequence[str], seed: int
) -> dict[str, Separation]:
    """Each origin of negatives against supported rows, probed without the other negatives.

    One probe for all would hide a leak: swapped negatives give it every supported sentence with the other label, and
    it then marks the words of supported rows down. Supported rows are drawn to as many as the negatives (but 1,000
    where there are), which leaves an AUC as it is and the whole no dearer than one more probe.
    """
    origin_of, separations = np.array(origins, dtype=object), {}
    for origin in sorted(set(origin_of[~y])):
        negatives = np.flatnonzero((origin_of == origin) & ~y)
        drawn = np.random.default_rng(seed).permutation(np.flatnonzero(y))[: max(len(negatives), _SUPPORTED_AT_LEAST)]
        part: list[int] = np.sort(np.concatenate([negatives, drawn])).tolist()
        own = None if features is None else features[part]
        scores, _, reason = _out_of_fold(own, y[part], [groups[i] for i in part], seed)
        separations[origin] = _separation(scores, y[part], np.ones(len(part), dtype=bool), reason)
    return separations


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
    if features is None or not words or len(set(y.tolist())) < 2:
        return ()
    weights = _fit(features, y).coef_[0][: len(words)]
    order = np.argsort(-np.abs(weights), kind="stable")[:TELLING_WORDS]
    occurs = sp.csc_matrix(features[:, : len(words)])
    telling = []
    for column in order:
        rows = occurs.indices[occurs.indptr[column] : occurs.indptr[column + 1]]
        supported = int(y[rows].sum())
        telling.append(TellingWord(words[column], float(weights[column]), supported, len(rows) - supported))
    return tuple(telling)


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
