"""Transcripts of every kind come out as sorted cues; what cannot be read is an error with file and line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofreel.core.errors import MediaError
from proofreel.core.pairs import Transcript
from proofreel.data_prep.importers.transcripts import Cue, Transcripts, read_cues, read_cues_by_video, transcript_of


def read(tmp_path, text: str | bytes, name: str = "a.srt") -> list[Cue]:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_cues(path)


def test_the_irregular_real_subtitles_are_read(shared_data):
    cues = read_cues(shared_data / "video-clips/subtitles.srt")
    assert cues == [
        Cue(0, 1, "Red!"),
        Cue(2, 3.5, "More Red!"),
        Cue(5, 6, "Green!"),
        Cue(7, 8, "Blue"),
        Cue(9, 10, "More Blue!"),
    ]


def test_the_real_transcripts_are_found_by_video(shared_data):
    transcripts = Transcripts(shared_data / "video-clips/transcripts.json")
    said = [Cue(0, 5, "Hello! Take a look at what am I drawing!")]
    assert transcripts.cues("mllm_demo_4.mp4") == said
    assert transcripts.cues("folder/mllm_demo_4.mp4") == said
    assert transcripts.cues("sam2_04_coffee.mp4") is None


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_a_byte_order_mark_and_missing_numbers_change_nothing(tmp_path, newline):
    text = "\ufeff1\n00:00:01,500 --> 00:00:02,000\nOne\n\n00:03.25 --> 1:00:04\nTwo\nlines\n\n\n"
    assert read(tmp_path, text.replace("\n", newline)) == [Cue(1.5, 2, "One"), Cue(3.25, 3604, "Two lines")]


def test_vtt_headers_notes_styles_settings_and_markup_are_removed(tmp_path):
    text = (
        "WEBVTT - a title\nKind: captions\n\nNOTE by hand\nof me\n\nSTYLE\n::cue { color: red }\n\n"
        "name of cue\n00:01.000 --> 00:02.000 align:start position:0%\n"
        "<v Ann>Hi<00:01.500><c.red> there</c></v> &amp; 3 < 4 &gt; 2\n\n"
        "00:03.000 --> 00:04.000\n{\\an8}<i>Bye</i>&nbsp;now\n\n00:05.000 --> 00:06.000\n<b></b>\n"
    )
    expected = [Cue(1, 2, "Hi there & 3 < 4 > 2"), Cue(3, 4, "Bye now")]
    assert read(tmp_path, text, "a.vtt") == expected
    assert read(tmp_path, text, "b.srt") == expected


def test_rolling_captions_say_each_line_once(tmp_path):
    text = (
        "WEBVTT\n\n00:00.000 --> 00:02.000\nso today\n\n00:02.000 --> 00:02.010\nso today\n\n"
        "00:02.010 --> 00:04.000\nso today\nwe cook\n\n00:04.000 --> 00:06.000\nwe cook\nrice\n\n"
        "00:09.000 --> 00:10.000\nrice\n"
    )
    assert read(tmp_path, text, "a.vtt") == [
        Cue(0, 2.01, "so today"),
        Cue(2.01, 4, "we cook"),
        Cue(4, 6, "rice"),
        Cue(9, 10, "rice"),
    ]


def test_json_lists_whisper_files_and_lines_give_the_same_cues(tmp_path):
    cues = [{"start": 2, "end": 3.5, "text": " b "}, {"start": 0.0, "end": 2.5, "text": "a"}]
    own = [{"start_s": c["start"], "end_s": c["end"], "text": c["text"]} for c in cues]
    expected = [Cue(0, 2.5, "a"), Cue(2, 3.5, "b")]
    assert read(tmp_path, json.dumps(own), "a.json") == expected
    assert read(tmp_path, json.dumps({"text": "a b", "segments": cues, "language": "en"}), "b.json") == expected
    silent = {"start": 4, "end": 4, "text": " "}
    assert read(tmp_path, "\ufeff" + json.dumps([*cues, silent]), "c.json") == expected


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("1\n00:01 -> 00:02\nHi\n", "a.srt", "a.srt:1: text without a time line"),
        ("1\n\n00:01 --> 00:02\nHi\n", "a.srt", "a.srt:1: text without a time line"),
        ("00:01 --> 00:02\nHi\n\nlost words\n", "a.srt", "a.srt:4: text without a time line"),
        ("1\n00:01 --> soon\nHi\n", "a.srt", "a.srt:2: times cannot be read"),
        ("\n\n1\n00:03 --> 00:02\nHi\n", "a.srt", "a.srt:4: span is negative or reversed"),
        ("00:75 --> 00:80\nHi\n", "a.srt", "a.srt:1: minutes or seconds are 60"),
        ("0:60:00 --> 0:61:00\nHi\n", "a.srt", "a.srt:1: minutes or seconds are 60"),
        ("00:01 --> 00:02\nHi\n2\n00:02 --> 00:03\nHo\n", "a.srt", "a.srt:4: a time line in a cue's text"),
        ("00:01 --> 00:02\nHi\n\nfoo\n", "a.vtt", "a.vtt:4: text without"),
        ("hello\n\n00:01 --> 00:02\nHi\n", "a.vtt", "a.vtt:1: the header is missing"),
        ("WEBVTT\n00:01 --> 00:02\nHi\n", "a.vtt", "a.vtt:1: a cue in another block"),
        (b"00:01 --> 00:02\nHi\n\n00:03 --> 00:04\n\xff\n", "a.srt", "a.srt:5: text is not UTF-8, got byte 0xff"),
        ("00:01 --> 00:02\nHi\n".encode("utf-16"), "a.srt", "a.srt:1: text is not UTF-8"),
        ("", "a.json", "transcript is empty"),
        ('[{"start": 1, "end": 2, "text": "x"},\n{"start": 1', "a.json", "a.json:2: the record is not JSON"),
        ('[{"start": NaN, "end": 2, "text": "x"}]', "a.json", "needs start_s and end_s in seconds, got \\[nan, 2\\]"),
        ('[{"start": 1, "end": null, "text": "x"}]', "a.json", "needs start_s and end_s in seconds"),
        ('[{"start": -1, "end": 2, "text": "x"}]', "a.json", "span is negative"),
        ('[{"start": 1, "end": 2}]', "a.json", "needs its text, got None"),
        ('[{"start": 1, "end": 2, "text": "x", "video": 3}]', "a.json", "video must be a file name"),
        ('\n["x"]', "a.json", "a.json:2: a cue must be an object"),
        ('{"text": "x"}', "a.json", "without 'segments'"),
        ('{\n"segments": [{"start": 3, "end": 2, "text": "x"}]}', "a.json", "a.json:2: segments\\[0\\]: span is"),
        ('{"segments": null}', "a.json", "segments must be a list"),
        ("Hi", "a.txt", "unknown kind of transcript"),
    ],
)
def test_a_cue_that_cannot_be_read_is_an_error_with_its_place(tmp_path, text, name, words):
    with pytest.raises(MediaError, match=words):
        read(tmp_path, text, name)


def test_a_folder_is_searched_by_the_name_of_the_video(tmp_path):
    (tmp_path / "a.srt").write_text("00:01 --> 00:02\nHi\n")
    (tmp_path / "b.c.json").write_text('[{"start": 1, "end": 2, "text": "Ho"}]')
    transcripts = Transcripts(tmp_path)
    assert transcripts.cues("x/a.mp4") == [Cue(1, 2, "Hi")]
    assert transcripts.cues("b.c.mp4") == [Cue(1, 2, "Ho")]
    for name in ("d.mp4", "a\0.mp4", "x" * 5000):
        assert transcripts.cues(name) is None


def test_a_source_that_cannot_serve_many_videos_is_refused(tmp_path):
    with pytest.raises(MediaError, match="no such transcripts"):
        Transcripts(tmp_path / "nowhere")
    (tmp_path / "a.srt").write_text("")
    with pytest.raises(MediaError, match="one file for all videos is JSON"):
        Transcripts(tmp_path / "a.srt")
    both = [{"video": v, "start": 0, "end": 1, "text": v} for v in "ab"]
    (tmp_path / "all.json").write_text(json.dumps(both))
    with pytest.raises(MediaError, match="cues of several videos"):
        read_cues(tmp_path / "all.json")
    (tmp_path / "none.json").write_text('[{"start": 0, "end": 1, "text": "x"}]')
    with pytest.raises(MediaError, match="names no video"):
        read_cues_by_video(tmp_path / "none.json")


def test_a_span_gets_the_cues_that_overlap_it_and_touching_is_not_overlapping():
    cues = [Cue(0, 2, "a"), Cue(1, 5, "b"), Cue(5, 6, "c"), Cue(7, 7, "d")]
    assert transcript_of(cues, 2, 5) == Transcript("b", 2, 5)
    assert transcript_of(cues, 1.5, 5.1) == Transcript("a b c", 1.5, 5.1)
    assert transcript_of(cues, 7, 8) == Transcript("d", 7, 8)
    assert transcript_of(cues, 6, 7) is None
    assert transcript_of([], 0, 9) is None


times = st.integers(0, 10_000_000)


@given(st.lists(st.tuples(times, times, st.text("abc xyz", min_size=1)), max_size=8), st.sampled_from([",", "."]))
def test_written_cues_are_read_back_sorted(tmp_path_factory, drawn, point):
    cues = [
        Cue(min(a, b) / 1000, max(a, b) / 1000, f"{n} {' '.join(t.split())}".strip())
        for n, (a, b, t) in enumerate(drawn)
    ]

    def clock(time_s: float) -> str:
        ms = round(time_s * 1000)
        return f"{ms // 3_600_000:02d}:{ms // 60_000 % 60:02d}:{ms // 1000 % 60:02d}{point}{ms % 1000:03d}"

    text = "\n\n".join(f"{n}\n{clock(c.start_s)} --> {clock(c.end_s)}\n{c.text}" for n, c in enumerate(cues))
    path = tmp_path_factory.getbasetemp() / "cues.srt"
    path.write_text(text)
    assert read_cues(path) == sorted(cues, key=lambda c: (c.start_s, c.end_s))
