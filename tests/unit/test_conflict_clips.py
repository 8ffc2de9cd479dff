"""OMD-Bench's eight conditions as clips: who looks, listens and reads finds in each what its condition says."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sounded_clips import sine, write_sounded

from proofreel.core import Audio, ConfigError, MediaError, Pair, Passage, VideoSegment
from proofreel.data_prep.exports import Corruptions, write_conflict_clips
from proofreel.data_prep.importers.omdbench import CONDITIONS
from proofreel.data_prep.media import SAMPLE_RATE, FrameSampling, open_video, read_frames, read_sound
from proofreel.eval.conflicts import answers_by_judge, omd_markdown, omd_result
from proofreel.eval.scores import Judgment, Judgments

ANCHORS = {
    "low": (60, 330.0),
    "middle": (130, 740.0),
    "high": (200, 1660.0),
}  # grey of the pictures, hertz of the sound
QUESTION = "Which sound is it?"


@pytest.fixture(scope="module")
def anchors(tmp_path_factory) -> Path:
    """A clip for each of three anchors, grey and ringing, of a second; their answer key names each."""
    folder = tmp_path_factory.mktemp("anchors")
    lines = []
    for name, (grey, hertz) in ANCHORS.items():
        wave = sine(hertz, SAMPLE_RATE, SAMPLE_RATE)
        write_sounded(folder / f"{name}.mkv", wave, SAMPLE_RATE, video=True, grey=grey, seconds=1.0)
        question = {"question": QUESTION, "options": [*ANCHORS, "I cannot answer"], "answer": name}
        question["key"] = {other: other for other in ANCHORS}  # type: ignore[assignment]
        lines.append({"id": name, "video": f"{name}.mkv", "text": f"It is {name}.", "questions": [question]})
    (folder / "anchors.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder / "anchors.jsonl"


@pytest.fixture(scope="module")
def replaced(anchors, tmp_path_factory) -> list[Pair]:
    return write_conflict_clips(anchors, tmp_path_factory.mktemp("clips"))


def nearest(value: float, of: int) -> str:
    """The anchor whose picture (0) or sound (1) this is; nobody's where it is far from all."""
    name = min(ANCHORS, key=lambda each: abs(ANCHORS[each][of] - value))
    return name if abs(ANCHORS[name][of] - value) < (15, 20.0)[of] else ""


def perceived(pair: Pair) -> dict[str, str]:
    """Which anchor each channel shows, from frames, samples and words alone."""
    clip, text = pair.evidence
    assert isinstance(clip, VideoSegment)
    assert isinstance(text, Passage)
    return watched(clip) | {"text": text.text.split()[-1].rstrip(".")}


@cache
def watched(clip: VideoSegment) -> dict[str, str]:
    found = {"video": nearest(float(read_frames(clip, FrameSampling()).pixels_FHWC.mean()), 0), "audio": ""}
    if clip.sound:
        samples_N = read_sound(Audio(clip.path)).samples_N
        spectrum = np.abs(np.fft.rfft(samples_N * np.hanning(len(samples_N))))
        if spectrum.max() > 20 * np.median(spectrum):
            found["audio"] = nearest(float(spectrum.argmax()) * SAMPLE_RATE / len(samples_N), 1)
    return found


def of_each_condition(pairs: list[Pair]) -> list[Pair]:
    return list({(pair.group, pair.meta["condition"]): pair for pair in pairs}.values())


def test_every_condition_shows_sounds_and_says_what_its_row_says(replaced):
    for pair in of_each_condition(replaced):
        assert perceived(pair) == pair.meta["depicted"], pair.id
        changed = {channel for channel, name in pair.meta["depicted"].items() if name != pair.group}
        assert changed == set(CONDITIONS[pair.meta["condition"]])
    clips = {pair.evidence[0] for pair in replaced}
    assert len(clips) <= 9  # each picture with each sound


@pytest.mark.parametrize(("pictures", "sound"), [("black", "removed"), ("blurred", "noise")])
def test_a_channel_that_is_lost_shows_nothing_and_two_others_still_answer(anchors, tmp_path, pictures, sound):
    pairs = write_conflict_clips(anchors, tmp_path, how=Corruptions(pictures, sound))  # type: ignore[arg-type]
    assert len(list(tmp_path.glob("*.mkv"))) == 4 * len(ANCHORS)
    for pair in of_each_condition(pairs):
        corrupted = CONDITIONS[pair.meta["condition"]]
        found = perceived(pair)
        assert found["audio"] == ("" if "audio" in corrupted else pair.group)
        if pictures == "black":
            assert found["video"] == ("" if "video" in corrupted else pair.group)
        assert "expected_abstention" not in pair.meta  # people were asked about replaced channels
        assert pair.meta["how"] == {"pictures": pictures, "sound": sound}
    rows = {(p.group, p.meta["condition"], p.meta["option"]): p for p in pairs}
    for name in ANCHORS:
        assert rows[name, "C110", name].label == "supported"  # the text is left alone, and is true
        assert rows[name, "C111", name].label == "refuted"  # another anchor's text is all there is
        other = rows[name, "C111", name].meta["depicted"]["text"]
        assert rows[name, "C111", other].label == "supported"


def test_clips_have_the_times_and_the_length_of_the_pictures_and_are_made_once(anchors, tmp_path):
    how = Corruptions("another", "noise")
    first = write_conflict_clips(anchors, tmp_path, how=how)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.mkv")}
    before = {path: path.read_bytes() for path in files}
    assert write_conflict_clips(anchors, tmp_path, how=how) == first
    assert {path: path.stat().st_mtime_ns for path in files} == files
    again = write_conflict_clips(anchors, tmp_path / "again", how=how)
    assert {Path(pair.evidence[0].path).name for pair in again} == {path.name for path in files}  # type: ignore[union-attr]
    assert all((tmp_path / "again" / path.name).read_bytes() == data for path, data in before.items())
    for path in files:
        with open_video(path) as (container, source):
            assert len([*container.decode(source)]) == 10
        assert len(read_sound(Audio(str(path))).samples_N) == SAMPLE_RATE


def judge_by(channels: tuple[str, ...]) -> Any:
    """Answers with what most of these channels show; supports nothing where they disagree."""

    def judge(pairs):
        of = {}
        for pair in pairs:
            found = perceived(pair)
            votes = [found[channel] for channel in channels]
            most = max(votes, key=votes.count)
            clear = len(votes) == 1 or votes.count(most) > 1
            p = 0.9 if clear and pair.meta["option"] == most else 0.1
            of[pair.id] = Judgment(p >= 0.5, p)
        return Judgments(of, len(of), len(of))

    return judge


def test_the_score_over_real_clips_tells_who_listens_from_who_looks(replaced):
    answers = {
        "all": answers_by_judge(judge_by(("video", "audio", "text")), replaced),
        "ears": answers_by_judge(judge_by(("audio",)), replaced),
    }
    result = omd_result(answers, n_draws=20)
    tables = {name: model.tables["real"] for name, model in result.models.items()}
    assert tables["all"].accuracy.value == 1.0
    ears = tables["ears"].by_condition
    for condition, corrupted in CONDITIONS.items():
        if "audio" not in corrupted and len(corrupted) < 2:
            assert ears[condition].value == 1.0
    assert ears["C010"].value == 0.0
    assert {name: score.value for name, score in tables["ears"].reliance.items()} == {"video": 0, "audio": 1, "text": 0}
    assert "Shapley" in omd_markdown(result)


def test_what_cannot_be_used_is_named(anchors, tmp_path):
    with pytest.raises(ConfigError, match=r"sound: no such corruption, got 'hum'; use one of"):
        Corruptions(sound="hum")  # type: ignore[arg-type]
    mute = [json.loads(line) for line in anchors.read_text().splitlines()]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(anchor | {"audio": "A bell."}) for anchor in mute))
    with pytest.raises(MediaError, match=r"a\.jsonl:1: low: audio is in words, got 'A bell.'; name an audio_file"):
        write_conflict_clips(path, tmp_path / "clips", anchors.parent)
