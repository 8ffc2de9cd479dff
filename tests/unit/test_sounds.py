"""Sound of media files: one channel, 16,000 samples a second, where the presentation times say."""

import re

import av
import numpy as np
import pytest
from sounded_clips import CODECS, sine, write_sounded

from proofreel.core import Audio, MediaError
from proofreel.data_prep.media import SAMPLE_RATE, SoundInfo, count_samples, notes_on_sound, probe_sound, read_sound


def pitch(samples_N: np.ndarray) -> float:
    return float(np.argmax(np.abs(np.fft.rfft(samples_N * np.hanning(len(samples_N)))))) * SAMPLE_RATE / len(samples_N)


def loud(samples_N: np.ndarray) -> float:
    return float(np.sqrt(np.mean(samples_N**2)))


@pytest.mark.parametrize("suffix", [name for name, codec in CODECS.items() if codec in av.codecs_available])
def test_a_span_has_the_pitch_that_sounds_there_and_as_many_samples_as_were_counted(tmp_path, suffix):
    rate, channels = 48_000 if suffix == "ogg" else 44_100, 1 if suffix in ("flac", "mkv", "aac") else 2
    wave = np.concatenate([sine(440, rate, rate), sine(1000, 2 * rate, rate)])
    path = str(write_sounded(tmp_path / f"a.{suffix}", wave, rate, channels))
    for start_s, end_s, hz in ((0.1, 0.9, 440), (1.2, 1.7, 1000), (2.0, 2.8, 1000)):
        piece = Audio(path, start_s, end_s)
        samples = read_sound(piece).samples_N
        assert len(samples) == count_samples(piece) == round((end_s - start_s) * SAMPLE_RATE)
        assert pitch(samples) == pytest.approx(hz, abs=3)
        assert loud(samples) == pytest.approx(0.5 / 2**0.5, rel=0.08)  # LAME makes it 5 % softer
    whole = read_sound(Audio(path)).samples_N
    assert len(whole) == count_samples(Audio(path)) == pytest.approx(3 * SAMPLE_RATE, abs=0.1 * SAMPLE_RATE)


def test_samples_of_16000_a_second_come_out_as_they_are(tmp_path):
    wave = sine(300, 32_000, 16_000)
    path = str(write_sounded(tmp_path / "a.wav", wave, 16_000))
    samples = read_sound(Audio(path, 0.5, 1.25)).samples_N
    np.testing.assert_array_equal(samples, ((wave * 32767).astype(np.int16) / np.float32(32768))[8_000:20_000])


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_a_gap_is_silence_and_what_follows_it_keeps_its_time(tmp_path, suffix):
    path = str(write_sounded(tmp_path / f"a.{suffix}", sine(440, 64_000, 32_000), 32_000, gap_s=1.0))
    half_s = 64_000 // 2 // 1024 * 1024 / 32_000
    assert loud(read_sound(Audio(path, 0.2, half_s - 0.1)).samples_N) > 0.3
    assert loud(read_sound(Audio(path, half_s + 0.15, half_s + 0.85)).samples_N) < 0.01
    assert loud(read_sound(Audio(path, half_s + 1.1, half_s + 1.9)).samples_N) > 0.3


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_sound_that_starts_after_the_pictures_is_heard_when_it_is(tmp_path, suffix):
    path = str(write_sounded(tmp_path / f"a.{suffix}", sine(440, 64_000, 32_000), 32_000, late_s=1.0, video=True))
    assert loud(read_sound(Audio(path, 0.0, 0.85)).samples_N) < 0.01
    assert loud(read_sound(Audio(path, 1.15, 2.9)).samples_N) > 0.3


def test_a_late_span_is_what_the_whole_file_has_there(tmp_path):
    times_s = np.arange(32_000 * 6) / 32_000
    rising = 0.5 * np.sin(2 * np.pi * (200 + 150 * times_s) * times_s)
    path = str(write_sounded(tmp_path / "a.mp4", rising, 32_000))
    whole, part = (read_sound(Audio(path, s)).samples_N for s in (0.0, 4.5))
    assert np.abs(whole[72_000 : 72_000 + len(part) - 800] - part[:-800]).max() < 1e-3


def test_faults_name_the_file_and_a_remedy(tmp_path):
    good = write_sounded(tmp_path / "a.wav", sine(440, 32_000, 16_000), 16_000)
    silent = tmp_path / "silent.mp4"
    with av.open(str(silent), "w") as out:
        stream = out.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        out.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")))
        out.mux(stream.encode(None))
    cut = tmp_path / "cut.wav"
    cut.write_bytes(good.read_bytes()[:20_000])
    text = tmp_path / "text.wav"
    text.write_text("no sound")
    for path, span, message in (
        (silent, (), r"silent.mp4: has no sound.*; fetch"),
        (text, (), r"text.wav: not a readable sound.*; fetch"),
        (tmp_path / "gone.wav", (), r"gone.wav: no such file.*; check"),
        (good, (2.5,), r"a.wav: start_s is past the end.*; fix"),
        (good, (1.0, 0.5), r"a.wav: span is reversed"),
    ):
        with pytest.raises(MediaError, match=message):
            read_sound(Audio(str(path), *span))
    with pytest.raises(MediaError, match=r"cut\.wav: (its sound ends early|start_s is past)"):
        read_sound(Audio(str(cut), 1.0))


def test_a_probe_hears_a_sound_through_and_keeps_its_silences(tmp_path):
    wave = np.concatenate([sine(440, 16_000, 16_000), np.zeros(16_000), sine(440, 8_000, 16_000)])
    path = str(write_sounded(tmp_path / "a.wav", wave, 16_000, channels=2))
    info = probe_sound(path)
    assert info == SoundInfo(path, 2.5, "pcm_s16le", 16_000, 2, "wav", info.peak, ((1.0, 2.0),))
    assert info.peak == pytest.approx(0.5, abs=0.01)
    assert not info.is_silent
    for piece, words in (
        (Audio(path, 1.2, 1.8), [r"its sound is silent, got no sample above 0.001 .* from 1.20 to 1.80 s; check"]),
        (Audio(path, 0.5, 1.8), []),
        (Audio(path, 0.5, 3.0), [r"its sound ends before the span does, got 2.50 s of 3.00 s; end the span there"]),
        (Audio(path), []),
    ):
        notes = notes_on_sound(piece, info)
        assert len(notes) == len(words)
        assert all(re.search(pattern, note) for pattern, note in zip(words, notes, strict=True))
        assert read_sound(piece).note == ("; ".join(notes) or None)


@pytest.mark.parametrize("level", [0.0, 0.0005])
def test_silence_and_near_silence_are_noted_and_are_no_error(tmp_path, level):
    path = str(write_sounded(tmp_path / "a.mp4", level * 2 * sine(440, 32_000, 32_000), 32_000, video=True))
    assert probe_sound(path).is_silent
    assert "its sound is silent" in (read_sound(Audio(path, 0.2, 0.8)).note or "")


def test_a_broken_packet_is_named_with_its_time(tmp_path):
    path = write_sounded(tmp_path / "a.m4a", sine(440, 96_000, 32_000), 32_000)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 600] = bytes(600)
    path.write_bytes(data)
    for read in (read_sound, lambda piece: probe_sound(piece.path)):
        with pytest.raises(MediaError, match=r"a\.m4a: its sound is damaged, got .* after 1\.\d+ s; fetch it again"):
            read(Audio(str(path)))
