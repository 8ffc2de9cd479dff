"""Claim files and chat rows: every row of every format is a pair or a reason with file and line."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofreel.core.errors import ConfigError, RowError
from proofreel.core.pairs import Image, Pair, Passage, Transcript, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.data_prep.dataset.shards import write_pairs
from proofreel.data_prep.exports.chat import pair_of_chat
from proofreel.data_prep.exports.claim_files import claim_formats, format_of, read_claims
from proofreel.data_prep.exports.rows import media_columns, text_columns

VIDEO = VideoSegment("a.mp4")


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows), encoding="utf-8")
    return path


# ---- plain rows


def test_plain_rows_name_their_evidence_by_columns(tmp_path):
    path = lines(
        tmp_path / "claims.jsonl",
        {"claim": "One.", "video": "a.mp4", "start_s": 1, "end_s": 2.5, "label": "supported", "group": "g"},
        {"claim": "Two.", "video": "a.mp4", "start_s": "0:01", "transcript": "Said.", "label": None, "group": "g"},
        {"claim": "Three.", "text": "Written.", "context": "More.", "id": "mine", "label": False, "group": "h"},
        {"claim": "Four.", "image": "b.png", "label": 1, "group": "h"},
        {"claim": "Four.", "image": "b.png", "label": 1, "group": "h"},
    )
    found = read_claims(path)
    assert found.format == "rows"
    assert found.rejected == ()
    assert [p.evidence for p in found.pairs[:4]] == [
        (VideoSegment("a.mp4", 1, 2.5),),
        (VideoSegment("a.mp4", 1.0, None), Transcript("Said.", 1.0, None)),
        (Passage("Written."),),
        (Image("b.png"),),
    ]
    assert [p.label for p in found.pairs] == ["supported", None, "refuted", "supported", "supported"]
    assert [p.id for p in found.pairs] == [f"claims.jsonl:{n}" if n != 3 else "mine" for n in (1, 2, 3, 4, 5)]
    assert found.pairs[2].context == "More."


def test_bad_rows_are_listed_with_file_line_and_reason_and_the_others_are_read(tmp_path):
    path = lines(
        tmp_path / "claims.jsonl",
        {"claim": "Good.", "video": "a.mp4"},
        '{"claim": "cut',
        "",
        {"claim": "", "video": "a.mp4"},
        {"claim": "Reversed.", "video": "a.mp4", "start_s": 3, "end_s": 2},
        {"claim": "No evidence."},
        {"claim": "Time.", "video": "a.mp4", "start_s": "soon"},
        '{"claim": "Not a number.", "video": "a.mp4", "end_s": NaN}',
        ["a list"],
        {"claim": "Bell \x07.", "video": "a.mp4"},
        {"claim": "Same.", "video": "a.mp4", "id": "x"},
        {"claim": "Other.", "video": "a.mp4", "id": "x"},
        {"claim": 7, "video": "a.mp4"},
        {"claim": "Label.", "video": "a.mp4", "label": "perhaps"},
    )
    found = read_claims(path)
    assert [p.claim for p in found.pairs] == ["Good.", "Same."]
    assert [(r.file, r.line) for r in found.rejected] == [(str(path), n) for n in (2, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14)]
    said = {r.line: r.reason for r in found.rejected}
    for line, words in {2: "not JSON", 4: "claim", 5: "reversed", 6: "no evidence", 7: "seconds", 12: "twice"}.items():
        assert words in said[line]
        assert ", got" in said[line]
    assert str(found.rejected[0]).startswith(f"{path}:2: ")


def test_csv_parquet_and_lists_are_read_alike(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"claim": f"Claim {i}.", "video": "a.mp4", "end_s": 2.0 + i, "unheard": "x"} for i in range(3)]
    header = list(rows[0])
    csv = "\n".join([",".join(header), *(",".join(str(r[k]) for k in header) for r in rows)])
    (tmp_path / "c.csv").write_text(csv, encoding="utf-8-sig")
    (tmp_path / "c.json").write_text(json.dumps(rows), encoding="utf-8")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    for name in ("c.csv", "c.json", "c.parquet"):
        found = read_claims(tmp_path / name)
        assert [(p.claim, p.evidence) for p in found.pairs] == [
            (r["claim"], (VideoSegment("a.mp4", 0.0, r["end_s"]),)) for r in rows
        ]
        assert found.unused == ("unheard",)


def test_files_that_tell_nothing_are_refused(tmp_path):
    with pytest.raises(RowError, match="no such file"):
        read_claims(tmp_path / "none.jsonl")
    with pytest.raises(RowError, match=r"\.txt"):
        read_claims(lines(tmp_path / "c.txt", {"claim": "A."}))
    with pytest.raises(RowError, match="name it"):
        read_claims(lines(tmp_path / "c.jsonl", {"question": "?"}, "[1"))
    with pytest.raises(RowError, match="no evidence"):
        read_claims(lines(tmp_path / "d.jsonl", {"claim": "A.", "movie": "a.mp4"}))
    with pytest.raises(ConfigError, match="format"):
        read_claims(tmp_path / "c.jsonl", "rdf")  # type: ignore[arg-type]
    empty = read_claims(lines(tmp_path / "e.jsonl"))
    assert (empty.pairs, empty.rejected) == ((), ())


# ---- pairs


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_pairs_come_back_as_they_were_written(tmp_path, suffix):
    pairs = [
        Pair("a", "One.", (VideoSegment("a.mp4", 0, 1), Passage("Text.")), label="refuted", group="g", meta={"k": [1]}),
        Pair("b", "Two.", (Transcript("Said."),), split="test", modality="audio"),
    ]
    path = tmp_path / f"pairs{suffix}"
    write_pairs(path, pairs)
    found = read_claims(path)
    assert found.format == "pairs"
    assert list(found.pairs) == pairs


def test_pairs_that_are_none_are_listed(tmp_path):
    good = {"id": "a", "claim": "One.", "evidence": [{"kind": "video", "path": "a.mp4"}]}
    path = lines(
        tmp_path / "pairs.jsonl",
        good,
        good | {"claim": "Again."},
        good | {"id": "b", "evidence": []},
        good | {"id": "c", "evidence": [{"kind": "smell"}]},
        good | {"id": "d", "colour": "red"},
        good | {"id": "e", "split": "exam"},
    )
    found = read_claims(path)
    assert [p.claim for p in found.pairs] == ["One."]
    assert [(r.line, r.id) for r in found.rejected] == [(2, "a"), (3, "b"), (4, "c"), (5, "d"), (6, "e")]


# ---- chat rows

PROMPTS = [
    Prompt(),
    Prompt(claim="{claim}"),  # the shipped kitchen verifier's
    Prompt(
        system="", claim="Is it so: {claim}?", context="({context}) ", transcript="Said: {text}", passage="> {text}"
    ),
]
TEXT = st.text("ab \n:C", min_size=1).map(lambda s: f"w{s}w")  # words that begin and end with something
PIECES = st.one_of(
    st.just(VIDEO),
    st.just(Image("b.png")),
    st.builds(Transcript, TEXT),
    st.builds(lambda t, s: Transcript(t, s / 2, s / 2 + 1.5), TEXT, st.integers(0, 9)),
    st.builds(Passage, TEXT),
)


def chat_row(pair: Pair, layout: Any, prompt: Prompt) -> dict[str, Any]:
    videos = [e.path for e in pair.evidence if isinstance(e, VideoSegment)]
    images = [e.path for e in pair.evidence if isinstance(e, Image)]
    return text_columns(pair, layout, prompt, False) | media_columns(videos, images, layout, len(videos), len(images))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(PIECES, min_size=1, max_size=4),
    st.one_of(st.none(), st.just("Before it.")),
    st.sampled_from(["llama-factory", "ms-swift", "qwen"]),
    st.sampled_from(PROMPTS),
    st.sampled_from(["supported", "refuted"]),
)
def test_what_exports_write_is_read_back_to_a_pair_that_asks_the_same(pieces, context, layout, prompt, label):
    pair = Pair("name", "Object is red ball.", tuple(pieces), label=label, context=context)
    row = chat_row(pair, layout, prompt)
    found = pair_of_chat(row, "name", [prompt])
    assert prompt.user_text(found) == prompt.user_text(pair)  # two texts may be told apart otherwise, never worded so
    assert (found.claim, found.label, found.context) == (pair.claim, label, context)
    media = [e for e in pair.evidence if isinstance(e, (VideoSegment, Image))]
    assert [e for e in found.evidence if isinstance(e, (VideoSegment, Image))] == media
    if (
        all("\n" not in e.text for e in pieces if isinstance(e, (Transcript, Passage)))
        and "{span}" in prompt.transcript
    ):
        assert found.evidence == pair.evidence


def test_rows_of_all_layouts_with_the_words_of_the_verifier(tmp_path):
    pair = Pair("", "Ingredient is carrot.", (VIDEO, Transcript("Now the carrot.", 0.0, 2.0)), label="supported")
    layouts = ("llama-factory", "ms-swift", "qwen")
    path = lines(tmp_path / "chat.jsonl", *(chat_row(pair, layout, w) for layout in layouts for w in PROMPTS[:2]))
    found = read_claims(path, prompts=PROMPTS[1:2])
    assert found.format == "chat"
    assert len(found.pairs) == 6
    assert {(p.claim, p.evidence, p.label, p.group) for p in found.pairs if ":" not in p.claim} == {
        (pair.claim, pair.evidence, "supported", "a.mp4")
    }
    assert read_claims(path).pairs[0].claim == pair.claim


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"videos": []}, "words are not"),
        ({"videos": ["a.mp4", "b.mp4"]}, "words are not"),
        ({"videos": [7]}, "list of files"),
        ({"messages": [{"role": "user", "content": "Is it so?"}]}, "words are not"),
        ({"messages": [{"role": "user", "content": "Hello.\nClaim: A."}]}, "words are not"),
        ({"messages": [{"role": "judge", "content": "x"}]}, "turn must be"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "turn must be"),
        ({"messages": [{"role": "user", "content": "Text: a\nClaim: A."}] * 2}, "one turn of the user"),
        ({"messages": []}, "one turn of the user"),
    ],
)
def test_chats_about_anything_else_are_listed(tmp_path, change, reason):
    good = chat_row(Pair("", "Claim one.", (VIDEO,), label="supported"), "ms-swift", Prompt())
    found = read_claims(lines(tmp_path / "chat.jsonl", good, good | change))
    assert len(found.pairs) == 1
    assert [(r.line, reason in r.reason) for r in found.rejected] == [(2, True)]


def test_an_answer_of_other_words_is_no_label(tmp_path):
    row = chat_row(Pair("", "A.", (VIDEO,), label="refuted"), "ms-swift", Prompt())
    row["messages"][-1]["content"] = "Hard to say."
    assert read_claims(lines(tmp_path / "chat.jsonl", row, row)).pairs[0].label is None
    del row["messages"][-1]
    assert read_claims(lines(tmp_path / "chat.jsonl", row)).pairs[0].label is None


# ---- generations


def test_murgat_generations_become_cited_claims(tmp_path):
    row = {
        "video": "clip",
        "model_generation": "The ball is red (visual, 0:01 - 0:03). It is said aloud (audio, 0:02).",
    }
    path = lines(tmp_path / "gen.jsonl", row)
    assert format_of(path) == "murgat"
    found = read_claims(path)
    assert [(p.claim, p.evidence) for p in found.pairs] == [("The ball is red.", (VideoSegment("clip.mp4", 1.0, 3.0),))]
    assert "without transcripts" in found.rejected[0].reason
    (tmp_path / "said").mkdir()
    (tmp_path / "said" / "clip.srt").write_text("1\n00:00:01,000 --> 00:00:04,000\nRed ball.\n")
    found = read_claims(path, transcripts=tmp_path / "said")
    assert [type(p.evidence[0]) for p in found.pairs] == [VideoSegment, Transcript]
    assert found.rejected == ()


def test_mirage_predictions_become_claims_about_each_cited_video(tmp_path):
    topic = {"sentences": ["A fire burned."], "claims": [["A fire.", "It burned."]], "citations": [["x/v1.mp4", "v2"]]}
    path = tmp_path / "system_relevant_citations.json"
    path.write_text(json.dumps({"Fire": topic}))
    assert format_of(path) == "mirage"
    found = read_claims(path)
    assert [(p.claim, p.evidence) for p in found.pairs] == [
        (claim, (VideoSegment(video),)) for claim in ("A fire.", "It burned.") for video in ("v1.mp4", "v2.mp4")
    ]
    jointly = read_claims(path, jointly=True)
    assert [p.evidence for p in jointly.pairs] == [(VideoSegment("v1.mp4"), VideoSegment("v2.mp4"))] * 2


def test_real_generations_are_read_to_the_last_row(shared_data):
    for path in sorted((shared_data / "mirage" / "model_preds").rglob("*.json"))[:2]:
        found = read_claims(path)
        assert found.format == "mirage"
        assert len(found.pairs) > 10
        assert all(not dataclasses.asdict(p)["label"] for p in found.pairs)


def test_the_command_offers_every_format_of_claims(capsys):
    from proofreel import score

    with pytest.raises(SystemExit):
        score.main(["--help"])
    assert f"{{{','.join(claim_formats())}}}" in capsys.readouterr().out
    assert set(claim_formats()) == {"pairs", "rows", "chat", "murgat", "mirage"}
