"""A format is added by one file and one line: the config's check, the build, the docs and the errors follow from it."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from proofreel.core import ConfigError, Pair, VideoSegment, load_config
from proofreel.data_prep.dataset import read_split
from proofreel.data_prep.exports.claim_files import claim_formats, format_of, read_claims
from proofreel.data_prep.importers import IMPORTERS, Rejected, Row, formats_table, read_json_records, reject
from proofreel.data_prep.importers.base import ClaimFormat, Importer
from proofreel.data_prep.pipeline import BuildConfig, build

ROOT = Path(__file__).resolve().parents[2]


# What the one new file holds.


@dataclass(frozen=True)
class CaptionOptions:
    """How captions are read: `seconds` is the length of a clip."""

    seconds: float = 5.0


def read_captions(path: Path, options: CaptionOptions) -> Iterator[Row | Rejected]:
    for record in read_json_records(path):
        if isinstance(record, Rejected) or not isinstance(record.value.get("caption"), str):
            yield record if isinstance(record, Rejected) else reject(record, "caption is missing, got none; write it")
            continue
        clip, caption = record.value["clip"], record.value["caption"]
        evidence = (VideoSegment(f"{clip}.mp4", 0.0, options.seconds),)
        pair = Pair(f"{clip}/{record.line}", caption, evidence, label="supported", group=clip)
        yield Row(pair, record.file, record.line, clip)


CAPTIONS = Importer(
    name="captions",
    description="Captions of clips, made up for this test.",
    read=read_captions,
    options=CaptionOptions,
    claims=ClaimFormat("captions", lambda value, is_member: "caption" in value),
)


@pytest.fixture
def added(monkeypatch):
    monkeypatch.setitem(IMPORTERS, "captions", CAPTIONS)  # the one line


@pytest.fixture
def annotations(tmp_path):
    path = tmp_path / "captions.jsonl"
    path.write_text("".join(f'{{"clip": "c{n}", "caption": "Person {n} waves."}}\n' for n in range(12)))
    return path


def settings(path: Path, options: str = "{}") -> BuildConfig:
    config = path.with_name("build.yaml")
    config.write_text(
        f"output: {path.with_name('out')}\nmedia: absent\nshortcut_probe: false\ncard: false\n"
        f"negatives: {{swapped_per_claim: 0}}\nsources:\n  - {{format: captions, path: {path}, options: {options}}}\n"
    )
    return load_config(BuildConfig, config)


def test_the_new_format_is_built_with_its_options(added, annotations):
    config = settings(annotations, "{seconds: 7.5}")
    manifest = build(config)
    assert manifest["counts"]["all"]["rows"] == 12
    assert manifest["sources"][0]["format"] == "captions"
    pairs = [pair for split in manifest["shards"] for pair in read_split(config.output, split)]
    assert {pair.claim for pair in pairs} == {f"Person {n} waves." for n in range(12)}
    assert {pair.evidence[0].end_s for pair in pairs} == {7.5}  # type: ignore[union-attr]


def test_its_options_are_checked(added, annotations):
    with pytest.raises(ConfigError, match=r"sources\[0\].options.*second.*did you mean seconds"):
        build(settings(annotations, "{second: 7.5}"))
    with pytest.raises(ConfigError, match="seconds must be float"):
        build(settings(annotations, "{seconds: long}"))


def test_without_the_line_the_error_names_the_known_formats(annotations):
    with pytest.raises(ConfigError, match=r"sources\[0\].format.*'facts'.*got 'captions'") as error:
        build(settings(annotations))
    assert all(repr(name) in str(error.value) for name in IMPORTERS)


def test_with_it_errors_and_docs_name_the_new_format(added, annotations):
    config = settings(annotations)
    wrong = dataclasses.replace(config, sources=(dataclasses.replace(config.sources[0], format="caption"),))
    with pytest.raises(ConfigError, match=r"'captions'\], got 'caption'"):
        build(wrong)
    assert "| `captions` | Captions of clips, made up for this test. | `seconds` |" in formats_table().splitlines()


def test_its_files_can_be_scored(added, annotations):
    assert "captions" in claim_formats()
    assert format_of(annotations) == "captions"
    claims = read_claims(annotations)
    assert (len(claims.pairs), claims.rejected) == (12, ())


def test_every_importer_is_listed_under_its_name_and_says_what_it_reads():
    assert {name: importer.name for name, importer in IMPORTERS.items()} == {name: name for name in IMPORTERS}
    assert all(importer.description.endswith(".") for importer in IMPORTERS.values())


def test_the_docs_hold_the_table_of_formats():
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    assert formats_table() in text, f"docs/formats.md: put this table there\n{formats_table()}"


def test_the_docs_describe_every_format_of_claims():
    text = (ROOT / "docs" / "score.md").read_text(encoding="utf-8")
    assert [name for name in claim_formats() if f"| `{name}` |" not in text] == []
