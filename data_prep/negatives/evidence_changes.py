"""Make negatives by altering the evidence of a supported pair.

The kinds: another time of its video, a near miss at the boundary of the true span, a piece left out or exchanged.
Claim, context and role stay, so that text does not tell the rows apart.

Swapping in another group's whole evidence is done by swapped.py. Each kind is one function that proposes altered
evidence in an order drawn by seed and pair id, and its name is the origin of the rows. Where a claim holds is asked of
`Known` (evidence_index.py).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...core import ConfigError, Evidence, Pair, Transcript, evidence_key
from ..dataset import rank
from .evidence_index import MAX_TRIES, VISUAL_KINDS, Known, Proposals, Request, Span, Timed, shape_of, walk
from .swapped import normal_claim


def other_time(request: Request, gap_s: float) -> Proposals:
    """The same video or sound elsewhere: first other annotated segments, then windows of the same length.

    Both keep `gap_s` seconds to every span where the claim is known to hold. Evidence with anything else needs an
    annotated segment of the same kinds: what is said in a drawn window is unknown.
    """
    evidence = request.pair.evidence
    segments = [piece for piece in evidence if isinstance(piece, Timed)]
    if len(segments) == 1:
        taken = request.taken(segments[0].path)
        others = request.known.around(segments[0].path, shape_of(evidence))
        for other in walk(others, request.draw()):
            segment = next(piece for piece in other if isinstance(piece, Timed))
            if _is_clear(request.known.span(segment), taken, gap_s):
                yield other
    if segments and len(segments) == len(evidence):
        yield from _windows(request, segments, gap_s)


def _windows(request: Request, segments: Sequence[Timed], gap_s: float) -> Proposals:
    """Every segment moved to a free window of its own file, all in the order of their times.

    What is seen and heard at one moment moves together.
    """
    taken = {segment.path: request.taken(segment.path) for segment in segments}
    places = {path: number for number, path in enumerate(taken)}
    for attempt in range(MAX_TRIES):
        blocked = {path: list(spans) for path, spans in taken.items()}
        moved: list[Timed] = []
        windows: dict[tuple[str, Span], Span] = {}
        for number, segment in enumerate(segments, start=1 + attempt * len(segments)):
            file_end_s = request.known.ends.get(segment.path, 0.0)
            span = request.known.span(segment)
            window = windows.get((segment.path, span))
            if window is None:
                window = _window(span, blocked[segment.path], file_end_s, gap_s, request.draw(number))
                if window is None:
                    break
                windows[segment.path, span] = window
                blocked[segment.path].append(window)
            moved.append(dataclasses.replace(segment, start_s=window[0], end_s=window[1]))
        if not moved:
            return
        if len(moved) == len(segments):
            moved.sort(key=lambda segment: (places[segment.path], segment.start_s))
            yield tuple(moved)


def _window(span: Span, blocked: Sequence[Span], file_end_s: float, gap_s: float, draw: int) -> Span | None:
    """A window as long as `span` that keeps the gap to all of `blocked`; None where there is none.

    Its start lies on the grid of the annotation, whole seconds or tenths, so that decimals do not give it away.
    """
    start_s, end_s = span
    length_s = end_s - start_s
    if not math.isfinite(length_s):
        return None
    per_s = 1 if float(start_s).is_integer() and float(end_s).is_integer() else 10
    free: list[range] = []  # grid points a window may start at
    free_from_s = 0.0
    for begin_s, stop_s in sorted([*blocked, (file_end_s + gap_s, math.inf)]):
        first = math.ceil(round(free_from_s * per_s, 6))
        last = math.floor(round((begin_s - gap_s - length_s) * per_s, 6))
        free.append(range(first, last + 1))
        free_from_s = max(free_from_s, stop_s + gap_s)
        if free_from_s > file_end_s:
            break
    place = draw % max(1, sum(map(len, free)))
    for run in free:
        if place < len(run):
            return run[place] / per_s, min(round(run[place] / per_s + length_s, 6), file_end_s)
        place -= len(run)
    return None


def shifted_span(request: Request, share: float) -> Proposals:
    """Near misses of a single segment: windows of its length at either side that keep at most a share of it.

    The nearest come first: exactly the share remains, then a half, a third of it. No share: the windows touch.
    """
    evidence, known = request.pair.evidence, request.known
    segment = evidence[0]
    if len(evidence) > 1 or not isinstance(segment, Timed):
        return
    start_s, end_s = known.span(segment)
    length_s = end_s - start_s
    if not math.isfinite(length_s):
        return
    taken = request.taken(segment.path)
    first_side = request.draw() % 2
    for number in range(MAX_TRIES if share else 2):
        remains_s = share * length_s / (1 + number // 2)
        if (number + first_side) % 2:
            window = round(end_s - remains_s, 6) if share else end_s, round(end_s - remains_s + length_s, 6)
        else:
            window = round(start_s + remains_s - length_s, 6), round(start_s + remains_s, 6) if share else start_s
        inside = window[0] >= 0 and window[1] <= known.ends.get(segment.path, 0.0)
        if inside and _misses(window, taken, share):
            yield (dataclasses.replace(segment, start_s=window[0], end_s=window[1]),)


def _is_clear(window: Span, spans: Sequence[Span], gap_s: float) -> bool:
    return all(window[1] + gap_s <= begin_s or end_s + gap_s <= window[0] for begin_s, end_s in spans)


def _misses(window: Span, spans: Sequence[Span], share: float) -> bool:
    """Whether at most `share` of each span lies in the window."""
    for begin_s, end_s in spans:
        allowed_s = share * (end_s - begin_s) + 1e-6 if share and end_s < math.inf else 0.0
        if min(window[1], end_s) - max(window[0], begin_s) > allowed_s:
            return False
    return True


NegativeLabel = Literal["refuted", "not_enough"]
ORIGINS = ("other_time", "shifted_span", "dropped_citation", "swapped_citation", "swapped_visual", "swapped_text")


@dataclass(frozen=True)
class AlteredEvidenceConfig:
    """How many negatives of each kind are made for every supported pair; 0 for none.

    Attributes:
        other_time, shifted_span, dropped_citation: number per pair; the name is the origin of the rows.
        swapped_citation, swapped_visual, swapped_text: number per pair; the name is the origin of the rows.
        gap_s: seconds between the window of `other_time` and every span where the claim is known to hold.
        max_overlap: the share of the true span that may remain in `shifted_span`; 0: the windows touch.
        persistent_roles: roles whose facts outlast their span: `other_time` and `shifted_span` are not made of them.
        labels: origin -> label. Default: `refuted` where nothing of the true evidence remains (`other_time`,
            `shifted_span` without overlap), else `not_enough`, because the claim may still hold.

    Raises:
        ConfigError: a negative number, a share outside [0, 1), or a label for an unknown kind.
    """

    other_time: int = 0
    shifted_span: int = 0
    dropped_citation: int = 0
    swapped_citation: int = 0
    swapped_visual: int = 0
    swapped_text: int = 0
    gap_s: float = 0.0
    max_overlap: float = 0.0
    persistent_roles: tuple[str, ...] = ("Location", "Object", "Ingredient", "Material", "Tool")
    labels: dict[str, NegativeLabel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for origin in ORIGINS:
            if getattr(self, origin) < 0:
                raise ConfigError(f"{origin}: must not be negative, got {getattr(self, origin)}; use 0 for none")
        if not (math.isfinite(self.gap_s) and self.gap_s >= 0):
            raise ConfigError(f"gap_s: must be a number of seconds >= 0, got {self.gap_s}; use 0 for none")
        if not 0 <= self.max_overlap < 1:
            raise ConfigError(f"max_overlap: must be a share in [0, 1), got {self.max_overlap}; 0 for no overlap")
        if unknown := sorted(set(self.labels) - set(ORIGINS)):
            raise ConfigError(f"labels: no such kind of negative, got {unknown[0]!r}; use one of {list(ORIGINS)}")

    def label_of(self, origin: str) -> NegativeLabel:
        """The label of the rows of one kind."""
        whole = origin == "other_time" or (origin == "shifted_span" and not self.max_overlap)
        return self.labels.get(origin, "refuted" if whole else "not_enough")


def altered_evidence(
    pair: Pair, config: AlteredEvidenceConfig, known: Known, seed: int = 0
) -> tuple[list[Pair], Counter[str]]:
    """The negatives made of one supported pair, and how many asked for could not be made, by kind.

    Depends on the pair, the seed and what is known alone, never on the order of pairs. A pair that is not supported,
    and a generic claim, give nothing. The rows keep claim, context, role, modality, weight, split and group of the
    pair: most of their evidence is still of its group, and what is not is of the same split if `known` is of one split.

    The evidence of the rows of one pair differs, and no pair of `known` asks this claim of it. Two pairs with the same
    claim may still give the same evidence, under different ids.
    """
    made: list[Pair] = []
    missing: Counter[str] = Counter()
    claim = normal_claim(pair.claim)
    if pair.label != "supported" or claim in known.generic:
        return made, missing
    seen = {pair.evidence}
    for origin in ORIGINS:
        if not (count := getattr(config, origin)):
            continue
        proposed = _proposals(origin, Request(pair, claim, known, seed, origin), config)
        fresh = (evidence for evidence in proposed if evidence not in seen and not known.is_judged(claim, evidence))
        for evidence in itertools.islice(fresh, count):
            seen.add(evidence)
            made.append(_altered(pair, evidence, origin, config.label_of(origin)))
            count -= 1
        if count:
            missing[origin] = count
    return made, missing


def _proposals(origin: str, request: Request, config: AlteredEvidenceConfig) -> Proposals:
    if origin in ("other_time", "shifted_span") and request.pair.role in config.persistent_roles:
        return iter(())
    match origin:
        case "other_time":
            return other_time(request, config.gap_s)
        case "shifted_span":
            return shifted_span(request, config.max_overlap)
        case "dropped_citation":
            return _dropped_citation(request)
        case "swapped_citation":
            return _swapped_citation(request)
        case _:
            return _swapped_modality(request, visual=origin == "swapped_visual")


def _altered(pair: Pair, evidence: tuple[Evidence, ...], origin: str, label: NegativeLabel) -> Pair:
    return dataclasses.replace(
        pair,
        id=f"{pair.id}/{origin}/{rank(0, evidence_key(evidence))[:8]}",
        evidence=evidence,
        label=label,
        soft_label=None,
        origin=origin,
        teacher_margin=None,
        meta={"claim_of": pair.id},
    )


def _dropped_citation(request: Request) -> Proposals:
    """One of several pieces left out: one that may carry the claim."""
    evidence = request.pair.evidence
    if len(evidence) < 2:
        return
    for at in walk(request.bearers(), request.draw()):
        rest = (*evidence[:at], *evidence[at + 1 :])
        if not request.known.holds(request.claim, rest):
            yield rest


def _swapped_citation(request: Request) -> Proposals:
    """One of several pieces, one that may carry the claim, replaced by a piece of its kind from another group."""
    if len(request.pair.evidence) > 1:
        yield from _exchanged(request, [(at,) for at in request.bearers()])


def _swapped_modality(request: Request, visual: bool) -> Proposals:
    """All that is seen, or all that is said or written, from another group; the rest stays.

    Only for a modality that may carry the claim: with another transcript, what was seen is still true.
    """
    kinds = shape_of(request.pair.evidence)
    chosen = tuple(at for at, kind in enumerate(kinds) if (kind in VISUAL_KINDS) == visual)
    if 0 < len(chosen) < len(kinds) and set(chosen) & set(request.bearers()):
        yield from _exchanged(request, [chosen])


def _exchanged(request: Request, choices: Sequence[tuple[int, ...]]) -> Proposals:
    """The pieces at one of `choices` replaced by others of their kinds, from a group where the claim is not known."""
    evidence, known, start = request.pair.evidence, request.known, request.draw()
    for number in range(len(choices) * MAX_TRIES):
        places = choices[(start + number) % len(choices)]
        stock = known.material(shape_of([evidence[at] for at in places]))
        if number // len(choices) >= len(stock):
            continue
        pieces, groups = stock[(start + number // len(choices)) % len(stock)]
        if request.pair.group in groups or any(known.is_true_in(request.claim, group) for group in groups):
            continue
        changed = list(evidence)
        for at, piece in zip(places, pieces, strict=True):
            changed[at] = _at_time_of(changed[at], piece)
        if not known.holds(request.claim, changed):
            yield tuple(changed)


def _at_time_of(old: Evidence, new: Evidence) -> Evidence:
    """A swapped transcript takes over the times of the one it replaces: they would give it away."""
    if isinstance(old, Transcript) and isinstance(new, Transcript):
        return Transcript(new.text, old.start_s, old.end_s)
    return new
