"""What calls give back to look at: verdicts that know their claims, and a verifier in a few facts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, SupportsIndex, TypeVar, overload

from ...core import Pair
from ..decision import Ranked, Verdict
from ..display import facts_html, ranking_html, ranking_text, verdicts_html, verdicts_text

V = TypeVar("V", bound=Verdict)


class Verdicts(list[V]):
    """A list of verdicts, in the order of their pairs, which a notebook shows with claims, evidence and bars."""

    def __init__(self, verdicts: Iterable[V], pairs: Sequence[Pair] = (), media_root: str | Path | None = None) -> None:
        super().__init__(verdicts)
        self._pairs, self._media_root = pairs, media_root
        self._judged = tuple(self)

    def __repr__(self) -> str:
        return verdicts_text(self, self.pairs)

    def _repr_html_(self) -> str | None:
        return html_or_none(lambda: verdicts_html(self, self.pairs, self._media_root))

    @overload
    def __getitem__(self, place: SupportsIndex) -> V: ...
    @overload
    def __getitem__(self, place: slice) -> Verdicts[V]: ...
    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, slice):
            return super().__getitem__(place)
        return Verdicts(super().__getitem__(place), self.pairs[place], self._media_root)

    @property
    def pairs(self) -> Sequence[Pair]:
        """What was judged, in order; nothing where the list was sorted or changed since."""
        same = len(self) == len(self._judged) and all(map(operator.is_, self, self._judged))
        return self._pairs if same else ()


class Ranking(list[Ranked]):
    """Evidences by how probably they support a claim, which a notebook shows with frames and bars."""

    def __init__(self, ranked: Iterable[Ranked], claim: str = "", media_root: str | Path | None = None) -> None:
        super().__init__(ranked)
        self.claim, self._media_root = claim, media_root

    def __repr__(self) -> str:
        return ranking_text(self.claim, self)

    def _repr_html_(self) -> str | None:
        return html_or_none(lambda: ranking_html(self.claim, self, self._media_root))


def html_or_none(render: Callable[[], str]) -> str | None:
    """HTML; None, for which a notebook shows the text, where it cannot be made: to look at a value never fails."""
    try:
        return render()
    except Exception:  # whatever a value holds
        return None


def facts_of(verifier: Any) -> dict[str, str]:
    """What a verifier is, name by name."""
    dtype, kind = str(verifier.model.dtype).removeprefix("torch."), verifier.model.config.model_type
    if not hasattr(verifier.model, "parameters"):
        facts = {"backbone": kind, "runs": f"{dtype} in vLLM"}
    else:
        size = sum(p.numel() for p in verifier.model.parameters())
        facts = {"backbone": f"{kind}, {size / 1e6:,.1f} million parameters", "runs": f"{dtype} on {verifier.device}"}
    facts |= {
        "evidence": " and ".join(verifier.modalities) if verifier.modalities is not None else "not recorded",
    }
    facts["claims"] = claims_fact(verifier)
    decision = verifier.decision
    if decision is None:
        facts["calibration"] = "none"
    else:
        fit, point, band = decision.calibration, decision.point(), decision.abstain
        facts["calibration"] = f"{fit.method}, fitted on {fit.n} claims of {fit.n_groups} groups"
        facts["supported"] = f"from p_supported {point.threshold:.4g} on ({point.name})"
        if band is not None:
            facts["abstains"] = f"between {band.refute_at_or_below:.4g} and {band.support_at_or_above:.4g}"
    if verifier.windowing is not None:
        facts["long videos"] = f"in windows, {verifier.windowing}"
    facts["fingerprint"] = verifier.fingerprint[:12] or "none"
    return facts | {f"note {i}": note for i, note in enumerate(verifier.notes, start=1)}


def claims_fact(verifier: Any) -> str:
    """How claims follow the evidence they share, and what that takes."""
    most = f"at most {verifier.claims_per_row} in a forward"
    if verifier.encoder.layout.branches == "packed":
        return f"packed in one row after their evidence, {most}"
    from ..backbones import kept_numbers  # needs torch, which a report does without

    per_token, states = kept_numbers(verifier.model.config)
    size = next(verifier.model.parameters()).element_size()
    return (
        f"each after a copy of what is kept of its evidence, {size * per_token / 2**10:,.1f} KiB a token and "
        f"{4 * states / 2**20:,.2f} MiB of states in float32, {most}"
    )


def verifier_text(verifier: Any) -> str:
    """A verifier in one line for each fact."""
    lines = [f"  {name}: {value}" for name, value in facts_of(verifier).items()]
    return "\n".join([f"Verifier({str(verifier.directory or '')!r})", *lines])


def verifier_html(verifier: Any) -> str | None:
    """A verifier as a notebook shows it."""
    return html_or_none(lambda: facts_html(f"Verifier {verifier.directory or ''}", facts_of(verifier)))
