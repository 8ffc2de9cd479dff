"""What notebooks show (claims escaped, bars, a few small frames), and a verifier as an object: device, copies, hub."""

import base64
import dataclasses
import io
import pickle
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from deciding_verifiers import decision, maker
from numbered_clips import encode
from PIL import Image as Picture

from proofreel.core.errors import ConfigError, DirectoryError
from proofreel.core.pairs import Image, Pair, Passage, Transcript, VideoSegment
from proofreel.models.decision import JudgedWindow, Verdict, failed
from proofreel.models.directory.format import fingerprint
from proofreel.models.display import localization_html
from proofreel.models.verifier.attribution import Sources
from proofreel.models.verifier.localization import Localization, SupportedInterval
from proofreel.models.verifier.verdicts import Verdicts
from proofreel.models.verifier.verifier import Verifier

VIDEO, TEXT = VideoSegment("clip.mp4", 0.0, 2.0), Passage("It is <b>red</b> & round.")
HOSTILE = "Colour is <script>alert('x')</script> & \"red\"."


class Page(HTMLParser):
    """Tags, texts and pictures of a piece of HTML; every tag is closed in its turn."""

    def __init__(self, html: str | None) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.words, self.pictures = "", []
        self.feed(html or "")
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag == "img":
            self.pictures.append(dict(attrs)["src"])

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        self.words += data + "\n"

    def picture(self, i: int) -> Any:
        return Picture.open(io.BytesIO(base64.b64decode(self.pictures[i].removeprefix("data:image/jpeg;base64,"))))


@pytest.fixture(scope="module")
def media(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("media")
    encode(folder / "clip.mp4", fps=10)
    Picture.fromarray(np.full((600, 900, 3), 200, np.uint8)).save(folder / "picture.png")
    return folder


@pytest.fixture(scope="module")
def verifier(tiny_base, small_sampling, media) -> Verifier:
    return maker(tiny_base, small_sampling, media)(decision=decision(), fingerprint="f" * 64)


def test_verdicts_are_a_list_that_shows_claims_bars_and_the_evidence_they_share_once(verifier):
    verdicts = verifier.score([HOSTILE, "Colour is blue."], (VIDEO, TEXT))
    page = Page(verdicts._repr_html_())
    assert set(page.tags) <= {"div", "img", "b", "span", "table", "tr", "td"}  # nothing of a claim became a tag
    for words in (HOSTILE, "Colour is blue.", TEXT.text, "clip.mp4, 0 s to 2 s", f"{verdicts[0].p_supported:.3f}"):
        assert page.words.count(words) >= 1
    assert page.words.count("clip.mp4") == 1
    assert len(page.pictures) == 4
    assert page.picture(0).height <= 84
    assert sum(map(len, page.pictures)) < 100_000
    assert verdicts[0].answer in page.words
    assert repr(verdicts).startswith("2 verdicts\n")
    assert "Colour is blue." in repr(verdicts)
    assert list(verdicts) == verdicts
    assert isinstance(verdicts, list)


def test_failures_say_why_and_a_changed_list_shows_no_wrong_claims(verifier):
    verdicts = verifier.score_pairs([("A.", "gone text"), ("B.", Path("gone.mp4"))])
    page = Page(verdicts._repr_html_())
    assert "failed" in page.words
    assert "gone.mp4" in page.words
    assert "no such file" in repr(verdicts) or "gone.mp4" in repr(verdicts)
    assert "B." in Page(verdicts[1:]._repr_html_()).words
    assert pickle.loads(pickle.dumps(verdicts)).pairs == verdicts.pairs != ()
    assert "A." not in Page(verdicts[1:]._repr_html_()).words
    verdicts.reverse()
    page = Page(verdicts._repr_html_())
    assert page.words.count("failed") == 1
    assert "A." not in page.words


def test_many_verdicts_show_the_first_and_few_frames(media):
    v = Verdict(0.7, 1.0, None)
    pairs = [Pair(claim=f"c{i}", evidence=(VideoSegment("clip.mp4", i / 100, 2.0),)) for i in range(60)]
    page = Page(Verdicts([v] * 60, pairs, media)._repr_html_())
    assert len(page.pictures) == 6 * 4
    assert "and 10 more" in page.words
    assert "uncalibrated" in page.words


def test_a_ranking_shows_its_claim_once_and_every_evidence_with_its_bar(verifier):
    ranking = verifier.rank(HOSTILE, [VIDEO, TEXT, Path("gone.mp4")])
    page = Page(ranking._repr_html_())
    assert page.words.count(HOSTILE) == 1
    assert [f"evidence {i}" in page.words for i in range(3)] == [True] * 3
    assert len(page.pictures) == 4
    assert repr(ranking).splitlines()[0] == repr(HOSTILE)
    assert "failed" in repr(ranking).splitlines()[3]


def test_a_note_of_every_verdict_is_shown_once():
    verdicts = [Verdict(0.7, 1.0, None, note="less memory")] * 3
    assert Page(Verdicts(verdicts)._repr_html_()).words.count("less memory") == 1


@pytest.mark.parametrize("evidence", [VIDEO, Image("picture.png"), TEXT, Transcript("Red <i>ball</i>.", 1.0, 2.0)])
def test_evidence_shows_itself_from_where_it_lies(evidence, media, monkeypatch):
    monkeypatch.chdir(media)
    page = Page(evidence._repr_html_())
    assert not {"i", "b"} & set(page.tags)
    assert len(page.pictures) == {VideoSegment: 4, Image: 1}.get(type(evidence), 0)
    assert getattr(evidence, "text", "") in page.words


@pytest.mark.parametrize("path", ["gone.mp4", ".", "\0", "broken.mp4", "<b>.mp4", 3])
def test_to_show_evidence_that_cannot_be_read_never_fails(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    page = Page(VideoSegment(path)._repr_html_())
    assert page.pictures == []
    assert "b" not in page.tags


def test_an_attribution_shows_every_citation_with_its_verdict_or_problem(verifier):
    result = verifier.attribute("Colour is red.", "(visual, 0:00-0:01; visual, 9:00-9:01; smell)", Sources("clip.mp4"))
    page = Page(result._repr_html_())
    assert page.words.count("citation") >= 3
    assert result.citations[1].problem.message in page.words
    assert len(page.pictures) == 4
    assert f"{result.recall.p_supported:.3f}" in repr(result)


def test_a_localization_shows_a_line_of_time_and_frames_of_the_surest_interval(media):
    windows = tuple(
        JudgedWindow(VideoSegment("clip.mp4", s, s + 1.0), Verdict(p, 0.0, None)) for s, p in ((0.0, 0.2), (1.0, 0.9))
    )
    result = Localization(
        "It <b>rolls</b>.", (SupportedInterval(1.0, 2.0, 0.9, 1),), windows, Verdict(0.9, 2.0, None), media
    )
    page = Page(result._repr_html_())
    assert "left:50.00%;width:50.00%" in (result._repr_html_() or "")
    assert "It <b>rolls</b>." in page.words
    assert "1 to 2 s: 0.900" in page.words
    assert len(page.pictures) == 4
    assert repr(result) == "Localization('It <b>rolls</b>.': 1 to 2 s: 0.900; 2 windows)"
    nowhere = dataclasses.replace(result, intervals=(), verdict=failed("out of <memory>"))
    assert "out of <memory>" in Page(localization_html(nowhere)).words


def test_a_verifier_says_what_it_is(verifier):
    assert verifier.decision is not None
    for words in ("cpu", "float32", "ffffffffffff", verifier.decision.point().name):
        assert words in repr(verifier)
        assert words in Page(verifier._repr_html_()).words
    assert verifier.device == torch.device("cpu")


# The object.


def test_a_verifier_moves_and_answers_the_same(verifier):
    before = verifier.score(["Colour is red."], TEXT)[0].margin
    assert verifier.to("cpu") is verifier
    assert len(verifier.prefixes) == 0
    assert verifier.score(["Colour is red."], TEXT)[0].margin == pytest.approx(before, abs=1e-4)
    with pytest.raises(ConfigError, match="dtype"):
        verifier.to(torch.float16)
    with pytest.raises(ConfigError, match="stays on cpu"):
        verifier.to("no such device")
    assert verifier.device == torch.device("cpu")


def test_what_is_saved_is_what_was_loaded_byte_for_byte(published, tmp_path):
    verifier = Verifier.from_pretrained(published, device="cpu")
    copy = verifier.with_prior(0.2).save_pretrained(tmp_path / "copy")
    files = {p.relative_to(copy): p.read_bytes() for p in copy.rglob("*") if p.is_file()}
    assert files == {p.relative_to(published): p.read_bytes() for p in Path(published).rglob("*") if p.is_file()}
    assert fingerprint(copy) == verifier.fingerprint
    with pytest.raises(DirectoryError, match="already exists"):
        verifier.save_pretrained(copy)


def test_a_verifier_made_of_parts_has_nothing_to_save(verifier, tmp_path):
    with pytest.raises(DirectoryError, match="export"):
        verifier.save_pretrained(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_the_hub_gets_the_loaded_directory(published):
    calls: dict[str, Any] = {}

    class Hub:
        def create_repo(self, repo_id: str, **options: Any) -> None:
            calls["create"] = (repo_id, options["private"])

        def upload_folder(self, **options: Any) -> str:
            calls["folder"] = Path(options["folder_path"])
            return "hub://" + options["repo_id"]

    verifier = Verifier.from_pretrained(published, device="cpu")
    assert verifier.push_to_hub("me/verifier", api=Hub()) == "hub://me/verifier"
    assert calls == {"create": ("me/verifier", None), "folder": Path(published)}


def test_an_activation_is_applied_to_margins_as_a_cross_encoder_does(verifier):
    pairs = [("Colour is red.", TEXT), ("Colour is blue.", TEXT), ("C.", Path("gone.mp4"))]
    margins = verifier.predict(pairs, activation_fn=torch.nn.Identity(), convert_to_tensor=True)
    assert isinstance(margins, torch.Tensor)
    assert margins[:2].tolist() == pytest.approx([v.margin for v in verifier.score_pairs(pairs[:2])], abs=1e-3)
    assert bool(margins[2].isnan())
    halves = verifier.predict(pairs, activation_fn=torch.nn.Sigmoid())
    assert halves[:2] == pytest.approx(1 / (1 + np.exp(-margins[:2].numpy())), abs=1e-3)
    assert np.ndim(verifier.predict(pairs[0], activation_fn=torch.nn.Identity())) == 0
