"""The card says what the rows say: every count is recomputed here from the rows, and the page is whole and safe."""

import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import PIL.Image
import pytest
import yaml

from proofreel.core.pairs import Image, Pair, Passage, Transcript, VideoSegment, evidence_key
from proofreel.data_prep.dataset.card import write_card
from proofreel.data_prep.dataset.card_statistics import CardStatistics, quantiles
from proofreel.data_prep.dataset.shards import read_split
from proofreel.data_prep.dataset.shortcut import claim_only_probe
from proofreel.data_prep.pipeline.config import BuildConfig, SourceConfig
from proofreel.data_prep.pipeline.pipeline import build

MANIFEST: dict[str, Any] = {
    "schema_version": 2,
    "counts": {"train": {"rows": 3, "groups": 2, "segments": 2}},
    "shards": {"train": [{"file": "train-00000-of-00001.parquet", "rows": 3, "sha256": "0" * 64}]},
    "media": "required",
    "rejected": {"span is reversed or empty": 4},
    "left_out": {"annotated rows not asked for": 12},
    "merged_repeats": 7,
    "leaks": {"media": 3, "claims": 0},
    "sources": [{"format": "facts", "path": "/home/someone/in/a.json", "sha256": "ab" * 32, "rows": 3}],
    "seed": 5,
    "config": {"output": "/home/someone/out/kitchen", "seed": 5, "sources": [{"path": "/home/someone/in/a.json"}]},
    "git_revision": None,
}


def pair(number: int, **changes: Any) -> Pair:
    video = VideoSegment(f"/media/v{number // 3}.mp4", float(number % 3), number % 3 + 2.5)
    label = ("supported", "refuted", "not_enough")[number % 3]
    base = {"label": label, "split": "train", "group": f"g{number // 3}", "role": "Action"}
    origin = "annotated" if label == "supported" else "altered"
    return Pair(
        **{
            "id": f"p{number}",
            "claim": f"Fry {number} eggs.",
            "evidence": (video,),
            **base,
            "origin": origin,
            **changes,
        }
    )


@pytest.fixture(scope="module")
def card(pairs: list[Pair], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The card of these pairs, which no probe has looked at."""
    return write_card(tmp_path_factory.mktemp("card"), MANIFEST, counted(pairs), None)


def counted(pairs: Sequence[Pair]) -> CardStatistics:
    statistics = CardStatistics()
    statistics.add_many(pairs)
    return statistics


def table_after(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading or header cell."""
    lines = text[text.index(heading) :].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| ---"))
    rows = []
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    extra = [
        pair(90, evidence=(VideoSegment("/media/v0.mp4", 1.0), Transcript("he says: fry it", 1.0, 2.0)), split="test"),
        pair(91, evidence=(Image("/media/pan.png"),), split="test", role="", label=None),
        pair(92, evidence=(Passage("An egg is fried."),), split="validation", modality="text"),
    ]
    return [*(pair(n) for n in range(30)), pair(0, id="again", claim="Boil the eggs slowly."), *extra]


def test_every_count_is_that_of_the_rows(pairs):
    statistics = counted(pairs)
    assert statistics.rows == len(pairs)
    for field in ("split", "label", "role", "origin", "modality"):
        table = statistics.table(field)
        by_hand = Counter((str(getattr(p, field)), p.label) for p in pairs)
        assert {(name, label): n for name, labels in table.items() for label, n in labels.items()} == by_hand
    assert statistics.group_rows == Counter(p.group for p in pairs)
    assert Counter(statistics.evidence_rows.values()) == Counter(
        Counter(evidence_key(p.evidence) for p in pairs).values()
    )
    for label, words in statistics.claim_words().items():
        assert words == Counter(len(p.claim.split()) for p in pairs if p.label == label)
    assert statistics.media_files == {f"/media/v{n}.mp4" for n in range(10)} | {"/media/pan.png"}
    assert statistics.evidence_kinds == {"video": 30, "transcript + video": 1, "image": 1, "passage": 1}


def test_durations_are_those_of_distinct_segments_and_open_ends_are_told_apart(pairs):
    statistics = counted(pairs)
    assert statistics.durations_ds == {25: 30}
    assert statistics.total_s == pytest.approx(75.0)
    assert statistics.open_ended == 1


def test_stored_columns_count_like_pairs(pairs):
    stored = CardStatistics()
    for p in pairs:
        stored.add_stored(p.split, p.label, p.role, p.origin, p.modality, p.group, p.claim, evidence_key(p.evidence))
    plain = counted(pairs)
    for name in (
        "strata",
        "words",
        "group_rows",
        "evidence_kinds",
        "durations_ds",
        "total_s",
        "media_files",
        "examples",
    ):
        assert getattr(stored, name) == getattr(plain, name), name


def test_quantiles_are_those_of_the_sorted_values():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 50, 1001).tolist()
    found = quantiles(Counter(values))
    shares = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)
    assert list(found.values()) == np.quantile(values, shares, method="inverted_cdf").tolist()
    assert quantiles({}) == {}
    assert set(quantiles({3: 1}).values()) == {3}


def test_examples_show_a_few_rows_of_each_label_and_origin(pairs):
    shown = counted(pairs).examples
    assert set(shown) == {(p.label, p.origin) for p in pairs}
    assert all(1 <= len(examples) <= 2 for examples in shown.values())


def test_the_card_holds_the_counts_and_its_pictures_are_small_and_white(card):
    text = card.read_text(encoding="utf-8")
    assert card.name == "README.md"
    split_rows = {row[0]: row[1:] for row in table_after(text, "| split |")}
    assert list(split_rows) == ["train", "validation", "test"]
    assert split_rows["train"] == ["31", "11", "10", "10", "0", "2", "2"]
    roles = {row[0]: row[1] for row in table_after(text, "| role |")}
    assert roles == {"Action": "33", "(none)": "1"}
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert sorted(pictures) == ["card/claim_words.png", "card/durations.png", "card/group_rows.png", "card/labels.png"]
    for name in pictures:
        assert (card.parent / name).stat().st_size < 40_000
        with PIL.Image.open(card.parent / name) as image:
            pixels = np.asarray(image.convert("RGBA"))
            assert image.width <= 800
        assert (pixels[0, 0] == 255).all(), "white and opaque ground"
        assert pixels.std() > 5


def test_the_front_matter_is_yaml_that_names_every_shard(card):
    text = card.read_text(encoding="utf-8")
    matter = yaml.safe_load(text.split("---\n")[1])
    assert matter["pretty_name"] == "kitchen"
    assert matter["size_categories"] == ["n<1K"]
    assert matter["configs"][0]["data_files"] == [{"split": "train", "path": ["train-00000-of-00001.parquet"]}]
    assert matter["license"] == "unknown"


def test_what_was_left_out_and_how_it_was_made_is_said_without_private_folders(card):
    text = card.read_text(encoding="utf-8")
    assert "| rejected | span is reversed or empty | 4 |" in text
    assert "| left out | annotated rows not asked for | 12 |" in text
    assert "| merged | repeats of a judged pair | 7 |" in text
    assert "| leaks | media | 3 |" in text
    assert "leaks | claims" not in text
    assert "| a.json | facts | 3 | `abababababababab` | to be stated |" in text
    assert "someone" not in text
    assert "/media" not in text


def test_a_leaking_probe_is_shown_with_its_warning_and_words(tmp_path):
    rows = [pair(n, claim="Fry it." if n % 3 == 0 else "Never fry it.", group=f"g{n % 20}") for n in range(120)]
    columns = [[getattr(p, name) for p in rows] for name in ("claim", "label", "group", "role", "origin")]
    probe = claim_only_probe(*columns, seed=0).as_dict()
    text = write_card(tmp_path, MANIFEST, counted(rows), probe).read_text(encoding="utf-8")
    assert "**Warning: labels can be guessed without evidence.**" in text
    assert ["all rows", "**1.000**", "120", "40", ""] in table_after(text, "## Can labels")
    assert any(row[0] == "never" for row in table_after(text, "The words that tell most"))


def test_a_card_without_a_probe_says_so(card):
    assert "Not checked" in card.read_text(encoding="utf-8")


def test_claims_cannot_break_the_page(tmp_path):
    hostile = "a | b <script>x</script>\n\n# heading [x](http://y) $z$ `c`"
    rows = [pair(0, claim=hostile, origin="a|b", role="<b>")]
    text = write_card(tmp_path, MANIFEST, counted(rows), None).read_text(encoding="utf-8")
    assert "<script>" not in text.replace("\\<", "")
    assert "\n# heading" not in text
    assert not re.search(r"(?<!\\)\]\(http", text)
    for line in text.splitlines():
        if line.startswith("| supported"):
            assert len(re.split(r"(?<!\\)\|", line)) == 7


def test_the_same_rows_give_the_same_bytes(card, pairs, tmp_path):
    write_card(tmp_path, MANIFEST, counted(pairs), None)
    files = [file for file in card.parent.rglob("*") if file.is_file()]
    assert len(files) == 5
    for file in files:
        assert file.read_bytes() == (tmp_path / file.relative_to(card.parent)).read_bytes()


def test_many_roles_are_cut_with_a_note(tmp_path):
    rows = [pair(n, role=f"role {n}") for n in range(100)]
    text = write_card(tmp_path, MANIFEST, counted(rows), None).read_text(encoding="utf-8")
    assert "and 60 more." in text


@pytest.mark.parametrize("manifest", [{}, {"shards": {}, "config": {}}])
def test_no_rows_and_an_empty_manifest_still_give_a_card(manifest, tmp_path):
    text = write_card(tmp_path, manifest, CardStatistics(), None).read_text(encoding="utf-8")
    assert "0 claims" in text
    assert not (tmp_path / "card").exists()


def test_a_real_build_gets_a_card_that_agrees_with_its_manifest(shared_data, tmp_path):
    source = SourceConfig("facts", str(shared_data / "video-clips/annotations.json"))
    manifest = build(BuildConfig(str(tmp_path / "clips"), (source,), media="absent"))
    statistics = CardStatistics()
    for split in manifest["shards"]:
        statistics.add_many(read_split(tmp_path / "clips", split))
    text = write_card(tmp_path / "clips", manifest, statistics, None).read_text(encoding="utf-8")
    assert statistics.rows == manifest["counts"]["all"]["rows"]
    assert len(statistics.evidence_rows) == manifest["counts"]["all"]["segments"]
    for row in table_after(text, "| split |"):
        counts = manifest["counts"][row[0]]
        labels = [counts["label"]["supported"], counts["label"]["refuted"]]
        assert row[1:] == [str(value) for value in (counts["rows"], *labels, counts["groups"], counts["segments"])]
    loaded = datasets.load_dataset(str(tmp_path / "clips"), cache_dir=str(tmp_path / "cache"))
    assert {name: len(rows) for name, rows in loaded.items()} == {
        split: counts["rows"] for split, counts in manifest["counts"].items() if split != "all"
    }
    assert "Annotations only" in text
    assert json.loads((tmp_path / "clips/manifest.json").read_text()) == manifest
    assert str(Path(tmp_path)) not in text


def test_a_row_costs_microseconds():
    rows = [
        pair(n, evidence=(VideoSegment(f"v{n // 100}.mp4", n // 10 % 10, n // 10 % 10 + 1.0),)) for n in range(20_000)
    ]
    statistics = CardStatistics()
    before = time.process_time()
    statistics.add_many(rows)
    assert (time.process_time() - before) / len(rows) < 20e-6, "3 microseconds on an idle machine"
