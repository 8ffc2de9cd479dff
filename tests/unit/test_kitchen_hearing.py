"""Laws of the kitchen's sounds: claims hold of the samples, sentences alone say nothing, splits share no sound."""

import itertools
import wave
from collections import Counter

import numpy as np
import pytest

from examples.kitchen.hearing import LOUDNESS, NUMBERS, PITCHES, RATE, VALUES, Facts, held_out, render, sound

EVERYTHING = [Facts(values) for values in itertools.product(*VALUES.values())]
SIZES = {"train": 60, "validation": 4, "calibration": 4, "test": 60}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hearing")
    return folder, render(folder, SIZES, seed=0)


@pytest.mark.parametrize("values", [facts.values for facts in EVERYTHING[:: len(EVERYTHING) // 9]])
def test_the_samples_are_what_the_facts_say(values):
    facts = Facts(values)
    samples = sound(facts, np.random.default_rng(3))
    loud = np.abs(samples) > 0.4 * np.abs(samples).max()
    heard = np.convolve(loud, np.ones(RATE // 50), "same") > 0
    starts, ends = (np.flatnonzero(np.diff(heard.astype(int), prepend=0, append=0) == sign) for sign in (1, -1))
    assert len(starts) == NUMBERS[facts.value("Count")]

    def hertz(piece):
        return np.fft.rfftfreq(len(piece), 1 / RATE)[np.abs(np.fft.rfft(piece)).argmax()]

    of_beeps = [hertz(samples[a:b]) for a, b in zip(starts, ends, strict=True)]
    assert of_beeps[0] == pytest.approx(PITCHES[facts.value("Pitch")], rel=0.12)
    direction = {"falling": -1, "level": 0, "rising": 1}[facts.value("Movement")]
    assert np.sign(round((of_beeps[-1] / of_beeps[0] - 1) / 0.08)) == direction
    assert np.abs(samples).max() == pytest.approx(LOUDNESS[facts.value("Volume")], rel=0.4)


def test_a_quarter_is_held_out_with_every_value_among_both_parts():
    parts = [[facts for facts in EVERYTHING if held_out(facts) == unseen] for unseen in (True, False)]
    assert 0.15 < len(parts[0]) / len(EVERYTHING) < 0.35
    for part in parts:
        for role, values in VALUES.items():
            assert {facts.value(role) for facts in part} == set(values)


def test_every_sound_has_a_true_and_a_false_claim_of_each_role_in_a_file_that_is_there(rendered):
    folder, rows = rendered
    assert len(rows) == 2 * len(VALUES) * sum(SIZES.values())
    assert len({pair.id for pair in rows}) == len(rows)
    for name, own in itertools.groupby(rows, key=lambda pair: pair.group):
        assert Counter((p.role, p.label) for p in own) == {
            (r, la): 1 for r in VALUES for la in ("supported", "refuted")
        }
        with wave.open(str(folder / name)) as file:
            assert (file.getframerate(), file.getnchannels()) == (RATE, 1)
            assert file.getnframes() > RATE // 2
    of_train = {p.group for p in rows if p.split == "train"}
    assert not of_train & {p.group for p in rows if p.split == "test"}


def test_rendering_again_gives_the_same_bytes(rendered, tmp_path):
    folder, rows = rendered
    again = render(tmp_path, SIZES, seed=0)
    assert again == rows
    first = rows[0].group
    assert (tmp_path / first).read_bytes() == (folder / first).read_bytes()
