"""Controls: the same claims with other evidence, or less of it, so that a report says what chance is.

A control keeps ids, claims and labels. One of sound is of the pairs that hear, and of no other: what a verifier makes
of the rest says nothing about sound.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from ...core import Audio, Evidence, Pair, Passage, RowError
from ...models.inputs import heard, silent


def hide_evidence(pairs: Sequence[Pair]) -> list[Pair]:
    """The claim-only control: every claim is judged against the same empty-handed sentence; labels are kept.

    A verifier trained and tested this way tells how much the claims alone give away.
    """
    return [dataclasses.replace(pair, evidence=(Passage("No evidence is given."),)) for pair in pairs]


def mismatch_evidence(pairs: Sequence[Pair], nth: int = 1) -> list[Pair]:
    """The control in which every claim is judged against another group's evidence; its label is kept.

    Evidences are rotated by the `nth` step, counted from half way round, that gives no row evidence of its own group:
    neighbours in a file often differ by design, so a rotation by one would not be another clip drawn at random. A
    verifier that looks must fall to chance on these rows; one that scores well has read the answer off the claim.
    """
    others = _rotated([(pair.evidence, pair.group) for pair in pairs], nth, "mismatched evidence")
    return [dataclasses.replace(pair, evidence=other) for pair, other in zip(pairs, others, strict=True)]


def _rotated(owned: Sequence[tuple[tuple[Evidence, ...], str]], nth: int, control: str) -> list[tuple[Evidence, ...]]:
    """For each (evidence, its group) the evidence of another group."""
    groups: dict[tuple[Evidence, ...], str] = {}
    for evidence, group in owned:
        groups.setdefault(evidence, group)
    keys, left = list(groups), nth
    for extra in range(len(keys)):
        step = len(keys) // 2 + extra
        other = {key: keys[(i + step) % len(keys)] for i, key in enumerate(keys)}
        left -= all(groups[key] != groups[other[key]] for key in keys)
        if not left:
            return [other[evidence] for evidence, _ in owned]
    raise RowError(
        f"{control}: fewer than {nth} rotations of {len(keys)} evidences give every row another group; "
        "use a split with more groups"
    )


def remove_sound(pairs: Sequence[Pair]) -> list[Pair]:
    """The control in which nothing is heard: a video loses its sound, and a sound alone becomes a sentence.

    A claim about what is heard must fall to chance.

    Raises:
        RowError: no pair hears.
    """
    return [
        dataclasses.replace(pair, evidence=_unheard(pair.evidence) or (Passage("No sound is given."),))
        for pair in _hearing(pairs, "no-sound")
    ]


def mismatch_sound(pairs: Sequence[Pair]) -> list[Pair]:
    """The control in which every sound is another group's, and everything else stays.

    A video with its sound becomes the video without it, followed by the sound of another video's span.

    Raises:
        RowError: no pair hears, or no rotation gives each of them the sound of another group.
    """
    hearing = _hearing(pairs, "mismatched-sound")
    others = _rotated([(heard(pair.evidence), pair.group) for pair in hearing], 1, "mismatched sound")
    return [
        dataclasses.replace(pair, evidence=(*_unheard(pair.evidence), *sounds))
        for pair, sounds in zip(hearing, others, strict=True)
    ]


def _hearing(pairs: Sequence[Pair], control: str) -> list[Pair]:
    hearing = [pair for pair in pairs if heard(pair.evidence)]
    if not hearing:
        raise RowError(f"{control}: no row hears anything, got {len(pairs)} rows without sound; leave the control out")
    return hearing


def _unheard(evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """What is left of an evidence without its sounds."""
    return tuple(silent(piece) for piece in evidence if not isinstance(piece, Audio))


CONTROLS: Mapping[str, Callable[[Sequence[Pair]], list[Pair]]] = {
    "mismatched-evidence": mismatch_evidence,
    "mismatched-sound": mismatch_sound,
    "no-sound": remove_sound,
}
"""Those that one verifier is asked beside the pairs as they are."""
