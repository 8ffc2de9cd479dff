"""Laws of the kitchen's sounds: claims hold of the samples, sentences alone say nothing, splits share no sound."""

import itertools
import wave
from collections import Counter

import numpy as np
import pytest

from examples.kitchen import speaking
from examples.kitchen.hearing import (
    BEEPS,
    LOUDNESS,
    NUMBERS,
    PITCHES,
    RATE,
    SPEECH,
    VOICES,
    beeps,
    everything,
    held_out,
    render,
    speech,
)
from proofreel.core import Split

SOUNDS = everything(BEEPS)
SIZES: dict[Split, int] = {"train": 60, "validation": 4, "calibration": 4, "test": 60}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hearing")
    return folder, render(BEEPS, folder, SIZES, seed=0)


@pytest.mark.parametrize("facts", SOUNDS[:: len(SOUNDS) // 9], ids=lambda facts: "-".join(facts.values()))
def test_the_samples_are_what_the_facts_say(facts):
    samples, _ = beeps(facts, np.random.default_rng(3))
    loud = np.abs(samples) > 0.4 * np.abs(samples).max()
    heard = np.convolve(loud, np.ones(RATE // 50), "same") > 0
    starts, ends = (np.flatnonzero(np.diff(heard.astype(int), prepend=0, append=0) == sign) for sign in (1, -1))
    assert len(starts) == NUMBERS[facts["Count"]]

    def hertz(piece):
        return np.fft.rfftfreq(len(piece), 1 / RATE)[np.abs(np.fft.rfft(piece)).argmax()]

    of_beeps = [hertz(samples[a:b]) for a, b in zip(starts, ends, strict=True)]
    assert of_beeps[0] == pytest.approx(PITCHES[facts["Pitch"]], rel=0.12)
    direction = {"falling": -1, "level": 0, "rising": 1}[facts["Movement"]]
    assert np.sign(round((of_beeps[-1] / of_beeps[0] - 1) / 0.08)) == direction
    assert np.abs(samples).max() == pytest.approx(LOUDNESS[facts["Volume"]], rel=0.4)


@pytest.mark.parametrize("kind", [BEEPS, SPEECH], ids=["beeps", "speech"])
def test_a_quarter_is_held_out_with_every_value_among_both_parts(kind):
    parts = [[facts for facts in everything(kind) if held_out(kind, facts) == unseen] for unseen in (True, False)]
    assert 0.15 < len(parts[0]) / len(everything(kind)) < 0.35
    for part in parts:
        for role, values in kind.values.items():
            assert {facts[role] for facts in part} == set(values)


def test_every_sound_has_a_true_and_a_false_claim_of_each_role_in_a_file_that_is_there(rendered):
    folder, rows = rendered
    roles = BEEPS.values
    assert len(rows) == 2 * len(roles) * sum(SIZES.values())
    assert len({pair.id for pair in rows}) == len(rows)
    for name, own in itertools.groupby(rows, key=lambda pair: pair.group):
        assert Counter((p.role, p.label) for p in own) == {(r, la): 1 for r in roles for la in ("supported", "refuted")}
        with wave.open(str(folder / name)) as file:
            assert (file.getframerate(), file.getnchannels()) == (RATE, 1)
            assert file.getnframes() > RATE // 2
    of_train = {p.group for p in rows if p.split == "train"}
    assert not of_train & {p.group for p in rows if p.split == "test"}


def test_rendering_again_gives_the_same_bytes(rendered, tmp_path):
    folder, rows = rendered
    again = render(BEEPS, tmp_path, SIZES, seed=0)
    assert again == rows
    first = rows[0].group
    assert (tmp_path / first).read_bytes() == (folder / first).read_bytes()


@pytest.mark.skipif(speaking.library() is None, reason="espeak-ng is not installed")
def test_a_high_voice_is_higher_and_two_sentences_differ():
    facts = {"Ingredient": "onion", "Tool": "knife"}

    def hertz(voice):
        samples, rate = speech({**facts, "Voice": voice}, np.random.default_rng(0))
        middle = samples[len(samples) // 2 - 2048 : len(samples) // 2 + 2048]
        alike = np.correlate(middle, middle, "full")[len(middle) - 1 :]
        lags = np.arange(rate // 350, rate // 60)
        return rate / lags[alike[lags].argmax()]

    assert hertz("high") > 1.1 * hertz("low")
    onion, _ = speaking.speak("onion", 170, VOICES["low"])
    carrot, _ = speaking.speak("carrot", 170, VOICES["low"])
    assert 0.2 < np.abs(onion).max() <= 1
    assert onion.shape != carrot.shape or not np.allclose(onion, carrot)
