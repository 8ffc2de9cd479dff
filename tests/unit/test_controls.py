"""Controls of sound: what is heard is taken away or is another group's, and nothing else changes."""

import pytest

from proofreel.core.errors import RowError
from proofreel.core.pairs import Audio, Pair, Passage, VideoSegment
from proofreel.eval.scoring import CONTROLS, mismatch_sound, remove_sound
from proofreel.eval.scoring.score import on_notes
from proofreel.models.decision import Verdict
from proofreel.models.inputs import heard


def pairs() -> list[Pair]:
    evidence = {
        "said": lambda g: (Audio(f"{g}.wav", 1.0, 2.0),),
        "seen": lambda g: (VideoSegment(f"{g}.mp4", 0.0, 3.0), Passage(g)),
        "both": lambda g: (VideoSegment(f"{g}.mp4", 0.0, 3.0, sound=True), Passage(g)),
    }
    return [
        Pair(f"{g}/{name}", f"{g} {name}.", of(g), label="supported", group=g)
        for g in ("a", "b", "c")
        for name, of in evidence.items()
    ]


@pytest.mark.parametrize("name", ["no-sound", "mismatched-sound"])
def test_rows_that_hear_keep_all_but_their_sound(name):
    changed = CONTROLS[name](pairs())
    before = [pair for pair in pairs() if heard(pair.evidence)]
    assert [(p.id, p.claim, p.label, p.group) for p in changed] == [(p.id, p.claim, p.label, p.group) for p in before]
    for now, then in zip(changed, before, strict=True):
        sounds = heard(now.evidence)
        assert not set(sounds) & set(heard(then.evidence))
        assert bool(sounds) == (name == "mismatched-sound")
        assert not any(sound.path.startswith(now.group) for sound in sounds)
        if now.id.endswith("both"):
            assert now.evidence[:2] == (VideoSegment(f"{now.group}.mp4", 0.0, 3.0), Passage(now.group))


def test_a_sound_alone_leaves_a_sentence_and_exchanged_ones_keep_their_spans():
    assert remove_sound(pairs())[0].evidence == (Passage("No sound is given."),)
    spans = {sound for pair in mismatch_sound(pairs()) for sound in heard(pair.evidence)}
    assert spans == {sound for pair in pairs() for sound in heard(pair.evidence)}


def test_rows_without_sound_or_of_one_group_are_refused():
    with pytest.raises(RowError, match="no-sound: no row hears anything, got 1 rows"):
        remove_sound(pairs()[1:2])
    with pytest.raises(RowError, match=r"mismatched sound.*more groups"):
        mismatch_sound(pairs()[:3])


def test_notes_of_media_are_said_once_for_all_their_claims_and_memory_only_where_it_changed_the_evidence():
    silent, halved = "a.wav: its sound is silent", "memory ran out: scored in smaller batches"
    verdicts = [Verdict(0.5, 0.0, None, note=note) for note in (silent, None, silent, halved)]
    assert list(on_notes(verdicts, shrink_frames=False)) == [f"note, for 2 claims: {silent}"]
    assert "memory ran out for 1 claims" in next(on_notes(verdicts, shrink_frames=True))
    many = [Verdict(0.5, 0.0, None, note=f"{i}.wav: its sound is silent") for i in range(13)]
    assert list(on_notes(many, shrink_frames=False))[-1] == "and 3 other notes"
