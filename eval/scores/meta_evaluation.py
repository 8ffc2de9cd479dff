"""How well a score computed with a verifier agrees with the score computed from people's labels.

People and a verifier judge the same claims of several systems on several topics. Each gives every system a score on
every topic: the share of its claims that are supported (MiRAGE's InfoP, MuRGAt's and DualFact's precision over claims).
Agreement is Kendall's tau-b between the two orders of systems, the mean over topics, as in MiRAGE's table 9; a topic
whose tau is not defined, because one side ties all systems, counts as 0 there and is counted here.

`accuracy_curve` answers how accurate a verifier must be: people's labels are flipped at random, and the score is
computed from what is left.

Shape suffixes: _N claims, _T topics, _S systems, _D draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core import RowError
from ...data_prep.importers import Record, Rejected, missing_columns, tables
from ..metrics import Floats, balanced_accuracy, confusion
from ..uncertainty import Interval, interval_of

N_DRAWS = 2000
COLUMNS = ("id", "topic", "system", "human")
_LABELS = {"true": True, "1": True, "yes": True, "supported": True}
_LABELS |= {"false": False, "0": False, "no": False, "not_supported": False, "refuted": False}


@dataclass(frozen=True)
class JudgedClaim:
    """A claim that a system makes about a topic; `human` is people's label. Several systems may make one claim."""

    id: str
    topic: str
    system: str
    human: bool


@dataclass(frozen=True)
class Agreement:
    """Agreement of one verifier's score with people's.

    Attributes:
        tau: mean over topics of Kendall's tau-b; NaN where a failed verdict can change it.
        low, high: with all failed verdicts as no and as yes, the smaller and the larger.
        interval: 95 % over resampled topics; of failed verdicts as no.
        n_undefined: topics without a tau, counted as 0.
        pooled_tau: tau of the systems' mean scores over all topics.
        balanced_accuracy: of the verdicts, against people's labels; failed ones are left out of it, and counted.
        n_claims, n_failed, n_topics, n_systems: what it rests on.
    """

    tau: float
    low: float
    high: float
    interval: Interval
    n_undefined: int
    pooled_tau: float
    balanced_accuracy: float
    n_claims: int
    n_failed: int
    n_topics: int
    n_systems: int


@dataclass(frozen=True)
class CurvePoint:
    """Agreement of a verifier that errs at random, equally often on supported claims and on others.

    `low` and `high` hold 95 % of the draws of its errors.
    """

    accuracy: float
    tau: float
    low: float
    high: float


def read_judged_claims(path: str | Path) -> list[JudgedClaim]:
    """Claims from a table with the columns `id`, `topic`, `system` and `human`.

    Raises:
        RowError: no table, columns missing, a label that is none, or a claim of a system twice; all bad rows, by
            file and line.
    """
    claims: dict[tuple[str, str], JudgedClaim] = {}
    problems: list[str] = []
    for table in tables(Path(path)):
        if isinstance(table, Rejected):
            raise RowError(table.reason)
        missing, known = missing_columns(table, COLUMNS)
        if missing:
            raise RowError(f"{table.file}: columns are missing, got {sorted(known)} without {missing}; add them")
        for record in table.records(set(COLUMNS)):
            if isinstance(record, Rejected):
                problems.append(record.reason)
                continue
            where, claim = f"{record.file}:{record.line}", _claim(record)
            if isinstance(claim, str):
                problems.append(f"{where}: {claim}")
            elif (claim.system, claim.id) in claims:
                problems.append(f"{where}: stands twice, got {claim.id!r} of {claim.system!r}; keep one row of it")
            else:
                claims[claim.system, claim.id] = claim
    if problems:
        raise RowError("\n  ".join([f"{len(problems)} rows cannot be read:", *problems[:20]]))
    return list(claims.values())


def _claim(record: Record) -> JudgedClaim | str:
    id, topic, system = (str(record.value.get(name) or "") for name in COLUMNS[:3])
    human = _LABELS.get(str(record.value.get("human")).strip().lower())
    if not (id and topic and system):
        return f"id, topic and system must not be empty, got {id!r}, {topic!r}, {system!r}; fill them in"
    if human is None:
        return f"human must be true or false, got {record.value.get('human')!r}; correct it"
    return JudgedClaim(id, topic, system, human)


def agreement(
    claims: Sequence[JudgedClaim], verdicts: Sequence[bool | None], *, n_draws: int = N_DRAWS, seed: int = 0
) -> Agreement:
    """Compare the score by verdicts, None where one failed, with the score by people's labels.

    Raises:
        RowError: no claims, other numbers of the two, or fewer than two systems.
    """
    table = _Table.of(claims)
    if len(verdicts) != len(claims):
        raise RowError(f"agreement: one verdict per claim, got {len(verdicts)} for {len(claims)}; align the two")
    failed_N = np.array([v is None for v in verdicts], dtype=bool)
    as_no_N = np.array([bool(v) for v in verdicts], dtype=bool)
    as_no_T, n_undefined = table.taus(as_no_N)
    as_yes_T = table.taus(as_no_N | failed_N)[0]
    low, high = sorted((float(as_no_T.mean()), float(as_yes_T.mean())))
    taken = np.random.default_rng(seed).integers(len(as_no_T), size=(n_draws, len(as_no_T)))
    interval = interval_of(as_no_T[taken].mean(1), float(as_no_T.mean()), n_groups=len(as_no_T))
    read = ~failed_N
    return Agreement(
        tau=low if low == high else math.nan,
        low=low,
        high=high,
        interval=interval,
        n_undefined=n_undefined,
        pooled_tau=table.pooled_tau(as_no_N),
        balanced_accuracy=balanced_accuracy(confusion(as_no_N[read], table.human_N[read])),
        n_claims=len(claims),
        n_failed=int(failed_N.sum()),
        n_topics=len(as_no_T),
        n_systems=table.n_systems,
    )


def accuracy_curve(
    claims: Sequence[JudgedClaim], accuracies: Sequence[float], *, n_draws: int = 200, seed: int = 0
) -> list[CurvePoint]:
    """Agreement of verifiers of given accuracies: each label is flipped with chance 1 - accuracy, `n_draws` times."""
    table, rng, points = _Table.of(claims), np.random.default_rng(seed), []
    for accuracy in accuracies:
        if not 0 <= accuracy <= 1:
            raise RowError(f"accuracy: must be within [0, 1], got {accuracy}; give a share")
        drawn_D = [
            float(table.taus(table.human_N ^ (rng.random(len(claims)) >= accuracy))[0].mean()) for _ in range(n_draws)
        ]
        points.append(CurvePoint(accuracy, float(np.mean(drawn_D)), *map(float, np.quantile(drawn_D, [0.025, 0.975]))))
    return points


@dataclass(frozen=True)
class _Table:
    """Claims by their topic and system, as numbers."""

    human_N: NDArray[np.bool_]
    cell_N: NDArray[np.int64]  # topic x systems + system
    n_topics: int
    n_systems: int

    @classmethod
    def of(cls, claims: Sequence[JudgedClaim]) -> _Table:
        topics, topic_N = np.unique([c.topic for c in claims], return_inverse=True)
        systems, system_N = np.unique([c.system for c in claims], return_inverse=True)
        if len(systems) < 2:
            raise RowError(f"agreement: needs two systems or more to rank, got {len(systems)}; give more systems")
        human_N = np.array([c.human for c in claims], dtype=bool)
        return cls(human_N, topic_N * len(systems) + system_N, len(topics), len(systems))

    def scores(self, supported_N: NDArray[np.bool_]) -> Floats:
        """(T, S) shares of supported claims; NaN where a system has none on a topic."""
        n = self.n_topics * self.n_systems
        counts = np.bincount(self.cell_N, minlength=n)
        with np.errstate(invalid="ignore"):
            shares = np.bincount(self.cell_N, supported_N.astype(float), n) / counts
        return shares.reshape(self.n_topics, self.n_systems)

    def taus(self, supported_N: NDArray[np.bool_]) -> tuple[Floats, int]:
        """(T,) taus between scores by these verdicts and by people, undefined ones as 0; how many were."""
        taus_T = _taus(self.scores(supported_N), self.scores(self.human_N))
        return np.nan_to_num(taus_T, nan=0.0), int(np.isnan(taus_T).sum())

    def pooled_tau(self, supported_N: NDArray[np.bool_]) -> float:
        """Tau of the systems' means over topics."""
        one_S, other_S = (np.nanmean(self.scores(each), 0) for each in (supported_N, self.human_N))
        return float(_taus(one_S[None], other_S[None])[0])


def _taus(one_TS: Floats, other_TS: Floats) -> Floats:
    """(T,) Kendall's tau-b of each topic's systems that both sides score; NaN where a side ties all of them.

    scipy.stats.kendalltau gives the same, a topic a call, which for a curve's thousands of draws takes seconds.
    """
    first, second = np.triu_indices(one_TS.shape[1], 1)
    one_TP, other_TP = (np.sign(side[:, first] - side[:, second]) for side in (one_TS, other_TS))
    known_TP = ~np.isnan(one_TP) & ~np.isnan(other_TP)
    one_TP, other_TP = np.where(known_TP, one_TP, 0.0), np.where(known_TP, other_TP, 0.0)
    with np.errstate(invalid="ignore"):
        taus_T = (one_TP * other_TP).sum(1) / np.sqrt((one_TP**2).sum(1)) / np.sqrt((other_TP**2).sum(1))
    return np.clip(taus_T, -1.0, 1.0)


def agreement_markdown(
    results: Mapping[str, Agreement], curve: Sequence[CurvePoint], costs: Mapping[str, float], unit: str = "s"
) -> str:
    """The table of verifiers, and what accuracy gives what agreement."""
    some = next(iter(results.values()))
    lines = [
        f"{some.n_claims} claims of {some.n_systems} systems on {some.n_topics} topics; tau-b of systems within a "
        "topic, mean over topics (95 % over topics); a topic without a tau counts as 0.",
        "",
        f"| verifier | balanced accuracy | tau | tau over all topics | no tau | failed | {unit} per claim |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, r in results.items():
        tau = f"{r.tau:.3f}" if r.low == r.high else f"{r.low:.3f} to {r.high:.3f} (failed: no, yes)"
        tau += f" ({r.interval.low:.3f}–{r.interval.high:.3f})"
        cost = f"{costs[name]:g}" if name in costs else "–"
        numbers = [f"{r.balanced_accuracy:.3f}", tau, f"{r.pooled_tau:.3f}", str(r.n_undefined), str(r.n_failed), cost]
        lines.append(f"| {name} | {' | '.join(numbers)} |")
    lines += ["", "| a verifier that errs at random and is right this often | tau | 95 % of such verifiers |"]
    lines += ["| ---: | ---: | --- |"]
    lines += [f"| {p.accuracy:.2f} | {p.tau:.3f} | {p.low:.3f} to {p.high:.3f} |" for p in curve]
    return "\n".join(lines) + "\n"


def draw_agreement(path: str | Path, results: Mapping[str, Agreement], curve: Sequence[CurvePoint]) -> None:
    """Agreement over accuracy: the curve of random errors with its band, each verifier a point."""
    from matplotlib.figure import Figure  # only a figure needs it

    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    ax: Any = figure.subplots()
    x = [p.accuracy for p in curve]
    ax.fill_between(x, [p.low for p in curve], [p.high for p in curve], color="#0072b2", alpha=0.2, lw=0)
    ax.plot(x, [p.tau for p in curve], color="#0072b2", label="errs at random (95 % of draws)")
    for (name, r), marker in zip(results.items(), "os^Dv<>ph*" * len(results), strict=False):
        error = [[max(0.0, r.low - r.interval.low)], [max(0.0, r.interval.high - r.low)]]
        at = ax.errorbar([r.balanced_accuracy], [r.low], yerr=error, fmt=marker, capsize=3, label=name)
        at[0].set_markersize(7)
    ax.set_xlabel("balanced accuracy against people's labels")
    ax.set_ylabel("Kendall's tau of systems, mean over topics")
    ax.grid(alpha=0.3)
    ax.legend(fontsize="small", frameon=False)
    figure.savefig(path, dpi=150)
