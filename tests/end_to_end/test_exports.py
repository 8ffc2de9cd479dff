"""Exports say what the pairs say, in the layout the other trainers read; clips hold the frames of their span."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import av
import datasets
import numpy as np
import PIL.Image
import pytest
from nightly import nightly
from numbered_clips import LAYOUTS, encode, encode_layout, hide_first, number_shown, quarter_turned

from proofreel.core.errors import ConfigError, MediaError, RowError
from proofreel.core.pairs import Audio, Evidence, Image, Pair, Passage, Transcript, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.data_prep.convert import main
from proofreel.data_prep.dataset.shards import SCHEMA_VERSION, write_shards
from proofreel.data_prep.exports.cut import cut_segment, cut_segments, frames_in
from proofreel.data_prep.exports.rows import FORMATS, Format, dataset_info
from proofreel.data_prep.exports.write import export_split
from proofreel.data_prep.media.containers import packet_index, probe
from proofreel.data_prep.media.frames import read_with_decord, read_with_pyav

ROOT = Path(__file__).resolve().parents[2]
CHAT: tuple[Format, ...] = ("llama-factory", "ms-swift", "qwen")


def write_clip(path: Path, n_frames: int = 20, size: tuple[int, int] = (48, 64), rate: int = 10) -> Path:
    """A clip whose n-th frame is grey of level 10 n."""
    with av.open(str(path), "w") as file:
        stream: Any = file.add_stream("libx264", rate=rate, options={"crf": "5", "bf": "2"})
        stream.height, stream.width = size
        stream.pix_fmt = "yuv444p" if size[0] % 2 else "yuv420p"
        for number in range(n_frames):
            picture = np.full((*size, 3), 10 * number, np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode(None))
    return path


@pytest.fixture
def video(tmp_path: Path) -> str:
    return str(write_clip(tmp_path / "grey.mp4"))


@pytest.fixture
def image(tmp_path: Path) -> str:
    path = tmp_path / "pan.png"
    PIL.Image.new("RGB", (8, 8), "red").save(path)
    return str(path)


def pair(number: int, evidence: Evidence | tuple[Evidence, ...], **changes: Any) -> Pair:
    label = ("supported", "refuted", "not_enough")[number % 3]
    parts = evidence if isinstance(evidence, tuple) else (evidence,)
    return Pair(
        **{
            "id": f"p{number}",
            "claim": f"Fry {number} eggs.",
            "evidence": parts,
            "label": label,
            "split": "train",
            **changes,
        }
    )


def data_set(folder: Path, pairs: Iterable[Pair]) -> Path:
    folder.mkdir(parents=True)
    shards = write_shards(folder, pairs)
    manifest = {"schema_version": SCHEMA_VERSION, "shards": shards, "media_root": "."}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def shape(value: Any) -> Any:
    """Keys and types of a JSON value; lists by the shapes they hold."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in sorted(value.items())}
    return [shape(item) for item in value] if isinstance(value, list) else type(value).__name__


# ---- prompt


@pytest.mark.parametrize("context", [None, "A paragraph with {claim} in it."])
def test_a_user_turn_says_what_the_prompt_says_with_tags_for_media(context):
    evidence = (
        VideoSegment("a.mp4", 1.0, 2.0),
        Transcript("he says {text}", 1.0, 2.25),
        Transcript("no times"),
        Image("b.png"),
        Passage("A pan."),
    )
    row = pair(0, evidence, context=context, claim="It is {context}.")
    prompt = Prompt()
    parts = prompt.parts(evidence)
    said = [f"<{part['type']}>\n" if part["type"] != "text" else part["text"] for part in parts]
    assert prompt.user_text(row) == "".join(said) + prompt.claim_text(row.claim, row.context)


@pytest.mark.parametrize(
    "change",
    [
        {"claim": "no slot"},
        {"context": ""},
        {"transcript": "x"},
        {"passage": "{texts"},
        {"refuted_word": "yes"},
        {"supported_word": ""},
    ],
)
def test_templates_that_would_drop_something_are_refused(change):
    with pytest.raises(ConfigError):
        Prompt(**change)


def test_answers_are_the_label_words(video, tmp_path):
    folder = data_set(tmp_path / "d", [pair(n, VideoSegment(video)) for n in range(3)])
    prompt = Prompt(supported_word="true", refuted_word="false", response_prefix="<response>", system="")
    report = export_split(folder, "train", "ms-swift", tmp_path / "out.jsonl", prompt)
    turns = [row["messages"] for row in rows_of(tmp_path / "out.jsonl")]
    assert [t[-1]["content"] for t in turns] == ["<response>true", "<response>false", "<response>false"]
    assert [t[0]["role"] for t in turns] == ["user"] * 3, "no empty system turn"
    assert report.not_carried == {"not_enough apart from refuted": 1}


# ---- layouts


@pytest.mark.parametrize(
    ("format", "example"),
    [("llama-factory", "llamafactory_mllm_video_demo.json"), ("qwen", "qwen_finetune_video.json")],
)
def test_rows_have_the_layout_of_the_trainers_own_examples(format, example, shared_data, video, tmp_path):
    theirs = json.loads((shared_data / "sft-formats" / example).read_text(encoding="utf-8"))
    folder = data_set(tmp_path / "d", [pair(n, VideoSegment(video)) for n in range(3)])
    export_split(folder, "train", format, tmp_path / "out.jsonl", Prompt(system=""))
    for row in rows_of(tmp_path / "out.jsonl"):
        assert shape(row) == shape(theirs[0])
        text = row["messages"][0]["content"] if format == "llama-factory" else row["conversations"][0]["value"]
        assert text.startswith("<video>")


def test_turns_alternate_and_only_qwen_has_the_system_words_in_the_human_turn(video, tmp_path):
    folder = data_set(tmp_path / "d", [pair(0, VideoSegment(video))])
    for format in CHAT:
        export_split(folder, "train", format, tmp_path / f"{format}.jsonl")
    for format in ("llama-factory", "ms-swift"):
        turns = rows_of(tmp_path / f"{format}.jsonl")[0]["messages"]
        assert [turn["role"] for turn in turns] == ["system", "user", "assistant"]
        assert turns[0]["content"] == Prompt().system
    turns = rows_of(tmp_path / "qwen.jsonl")[0]["conversations"]
    assert [turn["from"] for turn in turns] == ["human", "gpt"]
    assert turns[0]["value"].startswith(Prompt().system + "\n<video>\n")


def mixed(video: str, image: str) -> list[Pair]:
    whole = VideoSegment(video)
    return [
        pair(0, Passage("Eggs are fried.")),
        pair(1, Passage("Eggs are boiled.")),
        pair(2, (whole, Transcript("fry, fry", 0.0, 1.0))),
        pair(3, Image(image)),
        pair(4, (whole, Image(image), Image(image))),
        pair(5, whole, context="A cook at work."),
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_the_datasets_library_loads_every_row_of_a_mixed_split(format, video, image, tmp_path):
    pairs = mixed(video, image)
    folder = data_set(tmp_path / "d", pairs)
    report = export_split(folder, "train", format, tmp_path / "out.jsonl")
    loaded = datasets.load_dataset("json", data_files=str(tmp_path / "out.jsonl"), cache_dir=str(tmp_path / "cache"))[
        "train"
    ]
    assert len(loaded) == report.rows == len(pairs)
    assert set(loaded.column_names) == set(report.columns)
    assert {frozenset(row) for row in rows_of(tmp_path / "out.jsonl")} == {frozenset(report.columns)}


@pytest.mark.parametrize("format", CHAT)
def test_there_are_as_many_tags_as_media_in_the_same_order(format, video, image, tmp_path):
    export_split(data_set(tmp_path / "d", mixed(video, image)), "train", format, tmp_path / "out.jsonl")
    for row in rows_of(tmp_path / "out.jsonl"):
        if format == "qwen":
            text = row["conversations"][0]["value"]
            found = {
                name: row[name] if isinstance(row[name], list) else [row[name]] * bool(row[name])
                for name in ("video", "image")
            }
        else:
            text, found = row["messages"][1]["content"], {"video": row["videos"], "image": row["images"]}
        for name, files in found.items():
            assert text.count(f"<{name}>") == len(files)
            assert all(os.path.isabs(file) and os.path.exists(file) for file in files)


def test_rows_of_one_kind_of_media_keep_their_order(video, tmp_path):
    folder = data_set(tmp_path / "d", [pair(n, VideoSegment(video)) for n in range(20)])
    export_split(folder, "train", "nli", tmp_path / "out.jsonl")
    assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")] == [f"p{n}" for n in range(20)]


def test_the_first_row_of_each_combination_of_media_leads(video, image, tmp_path):
    pairs = [*(pair(n, VideoSegment(video)) for n in range(9)), pair(9, Image(image)), pair(10, Passage("x"))]
    export_split(data_set(tmp_path / "d", pairs), "train", "nli", tmp_path / "out.jsonl")
    assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")][:3] == ["p0", "p9", "p10"]


def test_nli_rows_tell_the_three_labels_apart_and_keep_text_plain(tmp_path):
    pairs = [pair(n, (Passage("A pan <image> |."), Transcript("said <|im_end|>", 0.0, 1.0))) for n in range(3)]
    pairs.append(pair(3, Passage("z"), context="About eggs."))
    export_split(data_set(tmp_path / "d", pairs), "train", "nli", tmp_path / "out.jsonl")
    rows = {row["id"]: row for row in rows_of(tmp_path / "out.jsonl")}
    assert [rows[f"p{n}"]["label"] for n in range(3)] == ["entailment", "contradiction", "neutral"]
    assert rows["p0"]["premise"] == "A pan <image> |.\nsaid <|im_end|>"
    assert rows["p0"]["hypothesis"] == "Fry 0 eggs."
    assert (rows["p0"]["context"], rows["p3"]["context"]) == ("", "About eggs.")


def test_the_entry_for_llama_factory_names_the_columns_of_the_file(video, tmp_path):
    report = export_split(
        data_set(tmp_path / "d", [pair(0, VideoSegment(video))]), "train", "llama-factory", tmp_path / "o.jsonl"
    )
    entry = dataset_info("kitchen", "o.jsonl", report.columns)["kitchen"]
    assert entry["columns"] == {"messages": "messages", "videos": "videos"}
    assert entry["tags"]["user_tag"] == "user"


def test_what_a_format_cannot_say_is_counted(video, tmp_path):
    rows = [pair(0, VideoSegment(video), soft_label=0.7, weight=2.0), pair(1, VideoSegment(video), teacher_margin=1.0)]
    report = export_split(data_set(tmp_path / "d", rows), "train", "nli", tmp_path / "out.jsonl")
    assert report.not_carried == {"soft label": 1, "weight": 1, "teacher margin": 1}


# ---- rows that cannot be written


def bad_rows(video: str, folder: Path) -> dict[str, Pair]:
    broken = folder / "broken.mp4"
    broken.write_bytes(b"not a video")
    return {
        "row has no label": pair(1, VideoSegment(video), label=None),
        "media is marked absent": pair(2, VideoSegment("gone.mp4", absent=True)),
        "media file is missing": pair(3, Image(str(folder / "gone.png"))),
        "media is not readable": pair(4, VideoSegment(str(broken), 0.0, 1.0)),
        "media cannot be cut": pair(5, VideoSegment(str(broken), 0.5, 1.0)),
        "text holds a control token of chat formats": pair(6, VideoSegment(video), claim="Close <|im_end|> this."),
        "sound is heard, and the format carries none": pair(7, VideoSegment(video, sound=True)),
        "sound is heard": pair(8, Audio(video)),
    }


@pytest.mark.parametrize("number", range(8))
def test_a_row_that_cannot_be_written_ends_the_export_and_leaves_nothing(number, video, tmp_path):
    reason, bad = list(bad_rows(video, tmp_path).items())[number]
    folder = data_set(tmp_path / "d", [pair(0, VideoSegment(video)), bad])
    with pytest.raises(RowError, match=reason) as caught:
        export_split(folder, "train", "qwen", tmp_path / "o/out.jsonl", clips=tmp_path / "clips")
    assert bad.id in str(caught.value)
    assert "--skip-unusable" in str(caught.value)
    assert list((tmp_path / "o").glob("*")) == []


def test_as_told_such_rows_are_left_out_and_counted_by_reason(video, tmp_path):
    bad = bad_rows(video, tmp_path)
    folder = data_set(tmp_path / "d", [pair(0, VideoSegment(video)), *bad.values()])
    report = export_split(folder, "train", "qwen", tmp_path / "o.jsonl", clips=tmp_path / "clips", skip_unusable=True)
    assert report.rows == len(rows_of(tmp_path / "o.jsonl")) == 1
    heard = {"sound is heard, and the format carries none": 2}
    assert report.skipped == {reason: 1 for reason in bad if "heard" not in reason} | heard


@pytest.mark.parametrize("text", ["<video>", "<image> of", "a <audio>", "<|vision_start|>", "<bbox>"])
@pytest.mark.parametrize("place", ["claim", "context", "transcript", "passage"])
def test_text_that_a_trainer_would_take_for_media_is_refused_wherever_it_stands(text, place, tmp_path):
    words = f"see {text} here"
    part = {"transcript": Transcript(words), "passage": Passage(words)}.get(place, Passage("plain"))
    row = pair(0, part, **({place: words} if place in ("claim", "context") else {}))
    folder = data_set(tmp_path / "d", [row])
    with pytest.raises(RowError, match="control token"):
        export_split(folder, "train", "llama-factory", tmp_path / "o.jsonl")


def test_a_part_of_a_video_is_refused_without_a_folder_for_clips(video, tmp_path):
    folder = data_set(tmp_path / "d", [pair(0, VideoSegment(video, 0.5, 1.0))])
    with pytest.raises(RowError, match="--clips DIR"):
        export_split(folder, "train", "llama-factory", tmp_path / "o.jsonl")


@pytest.mark.parametrize(("start_s", "end_s"), [(0.0, None), (0.0, 2.0), (0.0, 1.95)])
def test_a_segment_that_is_all_of_its_file_names_the_file(start_s, end_s, video, tmp_path):
    folder = data_set(tmp_path / "d", [pair(0, VideoSegment(video, start_s, end_s))])
    report = export_split(folder, "train", "llama-factory", tmp_path / "o.jsonl", clips=tmp_path / "clips")
    assert rows_of(tmp_path / "o.jsonl")[0]["videos"] == [video]
    assert report.clips == 0
    assert not (tmp_path / "clips").exists()


@pytest.mark.parametrize("change", [{"out": "o.json"}, {"format": "alpaca"}])
def test_a_wrong_name_or_format_is_refused(change, video, tmp_path):
    arguments: Any = {"out": "o.jsonl", "format": "qwen", **change}
    with pytest.raises(ConfigError):
        export_split(
            data_set(tmp_path / "d", [pair(0, VideoSegment(video))]),
            "train",
            arguments["format"],
            tmp_path / arguments["out"],
        )


# ---- clips


def test_each_distinct_segment_becomes_one_clip_that_all_its_rows_name(video, tmp_path):
    spans = [(0.5, 1.0), (0.5, 1.0), (1.0, None)]
    folder = data_set(tmp_path / "d", [pair(n, VideoSegment(video, *span)) for n, span in enumerate(spans)])
    report = export_split(folder, "train", "qwen", tmp_path / "o.jsonl", clips=tmp_path / "clips")
    named = [row["video"] for row in rows_of(tmp_path / "o.jsonl")]
    assert report.clips == len(set(named)) == 2
    assert {Path(name) for name in named} == set((tmp_path / "clips").iterdir())


@pytest.mark.parametrize(
    ("start_s", "end_s", "levels"), [(0.5, 1.0, range(5, 10)), (0.45, 0.75, range(5, 8)), (1.6, None, range(16, 20))]
)
def test_a_clip_holds_the_frames_that_appear_in_its_span_and_no_other(start_s, end_s, levels, video, tmp_path):
    clip = cut_segment(VideoSegment(video, start_s, end_s), tmp_path)
    index = packet_index(clip)
    frames = read_with_pyav(str(clip), index, range(len(index.pts)))
    assert np.abs(frames.mean(axis=(1, 2, 3)) - 10 * np.array(levels)).max() < 3
    assert index.times_s == pytest.approx(np.arange(len(levels)) / 10)


def test_a_span_without_a_new_frame_shows_the_one_on_the_screen_twice(video, tmp_path):
    clip = cut_segment(VideoSegment(video, 0.52, 0.58), tmp_path)
    index = packet_index(clip)
    frames = read_with_pyav(str(clip), index, range(len(index.pts)))
    assert len(frames) == 2, "Qwen's reader needs two"
    assert np.abs(frames.mean(axis=(1, 2, 3)) - 50).max() < 3
    assert probe(clip).duration_s == pytest.approx(0.06, abs=0.01)


def numbers_in(clip: Path) -> list[int]:
    index = packet_index(clip)
    return [number_shown(frame) for frame in read_with_pyav(str(clip), index, range(len(index.pts)))]


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_frames_of_its_span(name, tmp_path):
    source = encode_layout(tmp_path, name)
    index = packet_index(source)
    first, last = frames_in(index, 2.1, 3.3, str(source))
    assert numbers_in(cut_segment(VideoSegment(str(source), 2.1, 3.3), tmp_path)) == list(range(first, last))
    assert (first, last) == (53, 83), "frames appear every 40 ms"


def test_frames_an_edit_list_hides_stay_hidden(tmp_path):
    source = hide_first(encode(tmp_path / "whole.mp4", options={"g": "25", "bf": "0"}), tmp_path / "cut.mp4", 30)
    numbers = numbers_in(cut_segment(VideoSegment(str(source), 0.0, 0.4), tmp_path))
    assert numbers == list(range(30, 40))


def test_uneven_times_and_a_late_start_are_kept(tmp_path):
    source = encode(tmp_path / "uneven.mp4", n_frames=10, tick=lambda n: 50 + n * n)
    clip = cut_segment(VideoSegment(str(source), 0.1, 1.0), tmp_path)
    assert numbers_in(clip) == [2, 3, 4]
    assert packet_index(clip).times_s == pytest.approx((np.arange(2, 5) ** 2 - 4) / 25, abs=1e-3)


def test_a_turned_video_becomes_an_upright_clip(tmp_path):
    source = quarter_turned(encode(tmp_path / "phone.mp4", n_frames=50))
    clip = cut_segment(VideoSegment(str(source), 0.4, 1.2), tmp_path)
    wanted = read_with_pyav(str(source), packet_index(source), [10, 20])
    found = read_with_pyav(str(clip), packet_index(clip), [0, 10])
    assert found.shape == wanted.shape == (2, 160, 96, 3)
    assert np.abs(found.astype(int) - wanted).mean() < 4


def test_odd_sizes_are_kept(tmp_path):
    source = write_clip(tmp_path / "odd.mp4", size=(33, 47))
    info = probe(cut_segment(VideoSegment(str(source), 0.5, 1.0), tmp_path))
    assert (info.height, info.width) == (33, 47)


def test_a_clips_name_depends_on_content_and_span_alone(video, tmp_path):
    copy = tmp_path / "copy of it.mp4"
    copy.write_bytes(Path(video).read_bytes())
    first = cut_segment(VideoSegment(video, 0.5, 1.0), tmp_path)
    assert cut_segment(VideoSegment(str(copy), 0.5, 1.0), tmp_path) == first
    assert cut_segment(VideoSegment(video, 0.5, 1.1), tmp_path) != first


def test_cutting_again_leaves_clips_alone_and_cutting_elsewhere_gives_the_same_bytes(video, tmp_path):
    segment = VideoSegment(video, 0.5, 1.0)
    first = cut_segment(segment, tmp_path)
    stamp = first.stat().st_mtime_ns
    assert cut_segment(segment, tmp_path).stat().st_mtime_ns == stamp
    (tmp_path / "other").mkdir()
    assert cut_segment(segment, tmp_path / "other").read_bytes() == first.read_bytes()


def test_processes_cut_what_one_process_cuts(video, tmp_path):
    segments = [VideoSegment(video, start / 10, start / 10 + 0.3) for start in range(4)]
    segments.append(VideoSegment(str(tmp_path / "gone.mp4")))
    one, failed = cut_segments(segments, tmp_path / "one", workers=1)
    two, failed_two = cut_segments([*segments, segments[0]], tmp_path / "two", workers=2)
    assert {s: p.read_bytes() for s, p in one.items()} == {s: p.read_bytes() for s, p in two.items()}
    assert list(failed) == list(failed_two) == segments[4:]


def test_a_span_beyond_the_file_is_refused(video, tmp_path):
    with pytest.raises(MediaError, match="past the end"):
        cut_segment(VideoSegment(video, 1.0, 9.0), tmp_path)
    assert list(tmp_path.glob("*.tmp")) == []


def test_a_damaged_video_gives_an_error_and_no_clip(shared_data, tmp_path):
    with pytest.raises(MediaError, match="cannot be decoded"):
        cut_segment(VideoSegment(str(shared_data / "video-clips/corrupted.mp4"), 1.0, 4.0), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", [nightly("smpte-2997.mp4"), "mllm_demo_2.avi", "flipping_a_pancake.mkv", "v_rBMQFpHspmo.mp4"]
)
def test_real_clips_show_the_span_at_its_times_for_both_readers(name, shared_data, tmp_path):
    source, (start_s, end_s) = str(shared_data / "video-clips" / name), (3.21, 4.9)
    clip = str(cut_segment(VideoSegment(source, start_s, end_s), tmp_path))
    theirs, ours = packet_index(source), packet_index(clip)
    first, last = frames_in(theirs, start_s, end_s, source)
    assert len(ours.pts) == last - first
    assert ours.times_s == pytest.approx(theirs.times_s[first:last] - theirs.times_s[first], abs=2e-3)
    assert probe(clip).duration_s == pytest.approx(end_s - start_s, abs=1 / probe(source).fps)
    some = [0, (last - first) // 2, last - first - 1]
    wanted = read_with_pyav(source, theirs, [first + n for n in some]).astype(float)
    found = read_with_pyav(clip, ours, some)
    assert (10 * np.log10(255**2 / ((wanted - found) ** 2).mean(axis=(1, 2, 3))) > 36).all(), "PSNR in dB"
    decord = read_with_decord(clip, ours, some)
    assert decord is None or (decord == found).all()


# ---- the command


def test_the_command_writes_says_what_it_did_and_ends_with_0(video, tmp_path, capsys):
    folder = data_set(
        tmp_path / "d", [pair(0, VideoSegment(video, 0.0, 0.5)), pair(1, VideoSegment(video), label=None)]
    )
    out = tmp_path / "o/train.jsonl"
    command = [str(folder), "--split", "train", "--format", "llama-factory", "--out", str(out), "--workers", "1"]
    assert main([*command, "--clips", str(tmp_path / "clips")]) == 1
    assert "row has no label" in capsys.readouterr().err
    assert main([*command, "--clips", str(tmp_path / "clips"), "--skip-unusable", "--supported-word", "true"]) == 0
    said = capsys.readouterr().out
    assert "wrote 1 rows" in said
    assert "1 x row has no label" in said
    assert '"formatting": "sharegpt"' in said
    assert rows_of(out)[0]["messages"][-1]["content"] == "true"


@pytest.mark.parametrize("arguments", [["nowhere", "--split", "train"], ["d", "--split", "test"]])
def test_a_missing_data_set_or_split_ends_with_1(arguments, video, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data_set(tmp_path / "d", [pair(0, VideoSegment(video))])
    assert main([*arguments, "--format", "nli", "--out", "o.jsonl"]) == 1
    assert capsys.readouterr().err.startswith("error: ")
