"""Importers carry the modality `audio` as evidence that is heard where a build asks for it, and change nothing else."""

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from proofreel.core.errors import ConfigError
from proofreel.core.pairs import Audio, Pair, Transcript, VideoSegment
from proofreel.data_prep.importers import IMPORTERS
from proofreel.data_prep.importers.base import Rejected, Row
from proofreel.data_prep.negatives.evidence_changes import AlteredEvidenceConfig, altered_evidence
from proofreel.data_prep.negatives.evidence_index import Known

CITED = {
    "video": "talk.mp4",
    "facts": [
        ["A dog barks.", ["(audio, 0:07)"], True],
        ["He nods while he says yes.", ["(visual, 0:02-0:04)", "(audio, 0:02-0:04)"], False],
        ["A sign reads stop.", ["(ocr, 0:09)"], True],
    ],
}


def read(format: str, path: Path, **options: Any) -> list[Row | Rejected]:
    importer = IMPORTERS[format]
    return list(importer.read(path, importer.parse_options(options, "test")))


def pairs_of(items: list[Row | Rejected]) -> list[Pair]:
    return [item.pair for item in items if isinstance(item, Row)]


def heard(pair: Pair) -> Pair:
    segments = tuple(dataclasses.replace(piece, sound=True) for piece in pair.evidence)  # type: ignore[arg-type]
    return dataclasses.replace(pair, evidence=segments)


def test_an_audio_citation_is_heard_in_its_span_without_a_transcript(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(CITED))
    barks, nods, sign = pairs_of(read("murgat", path, audio="sound", point_s=2.0))
    assert (barks.evidence, barks.modality, barks.label) == ((Audio("talk.mp4", 7.0, 9.0),), "audio", "supported")
    assert nods.evidence == (VideoSegment("talk.mp4", 2.0, 4.0), Audio("talk.mp4", 2.0, 4.0))
    assert (nods.modality, sign.modality) == ("mixed", "ocr")
    assert not any(isinstance(piece, (Audio, Transcript)) for piece in sign.evidence)
    items = read("murgat", path)
    assert [item.pair.claim for item in items if isinstance(item, Row)] == ["A sign reads stop."]
    assert "set the option transcripts, or have it heard (audio: sound)" in str(items[0])
    with pytest.raises(ConfigError, match=r"transcripts: are not read where sound is heard"):
        read("murgat", path, audio="sound", transcripts="said")


@pytest.mark.parametrize("format", ["mirage", "grounding", "mirage_predictions"])
def test_the_videos_of_mirage_are_heard_all_of_them_or_none(shared_data, format):
    names = {
        "mirage": "human_eval_subset.json",
        "grounding": "grounding_judgments",
        "mirage_predictions": "model_preds",
    }
    path = shared_data / "mirage" / names[format]
    path = path if path.is_file() else sorted(path.iterdir())[0]
    seen, with_sound = (pairs_of(read(format, path, **options)) for options in ({}, {"sound": True}))
    assert with_sound == [heard(pair) for pair in seen]
    by_modality = Counter(pair.modality for pair in with_sound if pair.label == "supported")
    assert format == "mirage_predictions" or by_modality["audio"] > 0


def test_the_raw_form_is_heard_too(tmp_path):
    path = tmp_path / "raw.json"
    ticks = {"audio_lists": [[True]], "video_lists": [[False]], "ocr_lists": [[False]], "neither_lists": [[False]]}
    path.write_text(json.dumps({"T": {"videos": {"v": {}}, "claims": [["S.", ["a"]]], **ticks}}))
    seen, with_sound = (pairs_of(read("mirage_raw", path, **options)) for options in ({}, {"sound": True}))
    assert with_sound == [heard(pair) for pair in seen]
    assert with_sound[0].modality == "audio"


def test_a_table_names_sounds_and_may_have_its_videos_heard(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("claim,sound_file,clip,from,to\nIt barks.,dog.wav,,1,2.5\nHe nods.,,nod.mp4,0:03,\n")
    columns = {"label": "", "audio": "sound_file", "video": "clip", "start": "from", "end": "to"}
    barks, nods = pairs_of(read("table", path, **columns, sound=True))
    assert (barks.evidence, barks.modality, barks.group) == ((Audio("dog.wav", 1.0, 2.5),), "audio", "dog.wav")
    assert (nods.evidence, nods.modality) == ((VideoSegment("nod.mp4", 3.0, sound=True),), "mixed")
    _, seen = pairs_of(read("table", path, **columns))
    assert (seen.evidence, seen.modality) == ((VideoSegment("nod.mp4", 3.0),), "visual")


def test_what_is_heard_moves_in_time_and_together_with_what_is_seen_then():
    heard_there = Pair("a", "It rings.", (Audio("v.mp4", 10.0, 12.0),), "supported", group="v", modality="audio")
    both = Pair("b", "It rings.", (VideoSegment("v.mp4", 4.0, 6.0), Audio("v.mp4", 4.0, 6.0)), "supported", group="v")
    config = AlteredEvidenceConfig(other_time=3, shifted_span=2)
    known = Known.of([heard_there, both], {"v.mp4": 60.0})
    taken = ((4.0, 6.0), (10.0, 12.0))
    for pair, kinds in ((heard_there, [Audio]), (both, [VideoSegment, Audio])):
        made, missing = altered_evidence(pair, config, known)
        assert sum(row.origin == "other_time" for row in made) == 3
        assert set(missing) <= {"shifted_span"}
        for row in made:
            assert [type(piece) for piece in row.evidence] == kinds
            ((first_s, last_s),) = {known.span(piece) for piece in row.evidence}  # type: ignore[arg-type]
            assert all(last_s <= start_s or end_s <= first_s for start_s, end_s in taken)


def test_a_claim_that_is_heard_loses_what_is_heard_and_a_sounded_video_gets_a_sounded_one():
    def pair(g: int) -> Pair:
        name = f"v{g}.mp4"
        evidence = (VideoSegment(name, 0.0, 2.0), VideoSegment(name, 2.0, 4.0, sound=True), Audio(name, 5.0, 6.0))
        return Pair(f"p{g}", f"Claim {g}.", evidence, "supported", group=f"g{g}", modality="audio", split="train")

    first, *others = (pair(g) for g in range(4))
    config = AlteredEvidenceConfig(dropped_citation=5, swapped_citation=5)
    made, _ = altered_evidence(first, config, Known.of([first, *others]))
    assert {row.origin for row in made} == {"dropped_citation", "swapped_citation"}
    for row in made:
        assert row.evidence[0] == first.evidence[0]  # which cannot carry the claim
        if row.origin == "swapped_citation":
            assert [(type(piece), getattr(piece, "sound", None)) for piece in row.evidence] == [
                (type(piece), getattr(piece, "sound", None)) for piece in first.evidence
            ]
