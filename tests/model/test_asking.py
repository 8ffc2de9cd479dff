"""Asking a verifier: all kinds of evidence, three answers, priors, operating points, ranking, CrossEncoder calls."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from deciding_verifiers import CALIBRATION, decision, maker
from numbered_clips import encode
from PIL import Image as Picture

from proofreel.core.errors import CalibrationError, ModelInputError
from proofreel.core.pairs import Image, Pair, Passage, Transcript, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.models.backbones.tiny import TinySizes, save_tiny_text_model
from proofreel.models.decision.calibration import Correction, GroupCorrections
from proofreel.models.verifier.verifier import Verifier

CLAIMS = ["Object is red ball.", "Action is moving left.", "No.", "Object is a long grey table."]
TEXT, TALK = Passage("The ball is red."), Transcript("She takes the red ball.", 0.0, 4.5)
VIDEO, IMAGE = VideoSegment("clip.mp4", 0.0, 2.0), Image("picture.png")


@pytest.fixture(scope="module")
def media(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("media")
    encode(folder / "clip.mp4", fps=10)
    pixels = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    Picture.fromarray(pixels).save(folder / "picture.png")
    return folder


@pytest.fixture(scope="module")
def make(tiny_base, small_sampling, media) -> Any:
    return maker(tiny_base, small_sampling, media)


@pytest.fixture(scope="module")
def make_text(tmp_path_factory, small_sampling, media) -> Any:
    sizes = TinySizes(hidden=64, layers=2, mlp=128, vocab=420, initializer_range=0.1)
    base = save_tiny_text_model(tmp_path_factory.mktemp("text") / "base", [Prompt().system, *CLAIMS] * 20, sizes)
    return maker(base, small_sampling, media)


@pytest.fixture(scope="module")
def asked(make) -> Verifier:
    return make(decision=decision(), fingerprint="f")


# Evidence.


EVIDENCES: dict[str, Any] = {
    "text": TEXT,
    "image": IMAGE,
    "transcript": TALK,
    "video": VIDEO,
    "video and transcript": (VIDEO, TALK),
    "all four": (IMAGE, VIDEO, TALK, TEXT),
}


def test_every_kind_of_evidence_and_their_mixtures_are_judged_and_tell_from_one_another(make):
    found = {name: make().score(CLAIMS, evidence) for name, evidence in EVIDENCES.items()}
    assert all(v.error is None and math.isfinite(v.margin) for verdicts in found.values() for v in verdicts)
    first = {name: verdicts[0].margin for name, verdicts in found.items()}
    assert len(set(first.values())) == len(EVIDENCES)
    pairs = [Pair(n, CLAIMS[0], e if isinstance(e, tuple) else (e,)) for n, e in EVIDENCES.items()]
    mixed = make().score_pairs(pairs)
    for v, expected in zip(mixed, first.values(), strict=True):
        assert abs(v.margin - expected) <= 1e-4 + 1e-5 * abs(expected)


def test_a_text_backbone_judges_texts_and_says_before_decoding_that_it_cannot_see(make_text):
    verifier, gone = make_text(), VideoSegment("gone.mp4", 0.0, 1.0)
    for evidence in (TEXT, TALK, (TALK, TEXT)):
        assert all(v.error is None for v in verifier.score(CLAIMS, evidence))
        assert verifier.supports(evidence)
    for evidence in (VIDEO, IMAGE, gone, (TALK, gone)):
        assert not verifier.supports(evidence)
        found = verifier.score(CLAIMS[:1], evidence)
        assert "text backbone" in (found[0].error or "")  # and not: no such file


def test_evidence_of_a_kind_it_was_not_trained_on_is_refused_unless_allowed(make):
    verifier = make(modalities=("video", "transcript"))
    assert [verifier.supports(e) for e in (VIDEO, TALK, (VIDEO, TALK), TEXT, IMAGE, (VIDEO, TEXT))] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    pairs = [Pair(str(i), CLAIMS[i], e) for i, e in enumerate([(VIDEO,), (TEXT,), (VIDEO, IMAGE), (TALK,)])]
    found = verifier.score_pairs(pairs)
    assert [v.error is None for v in found] == [True, False, False, True]
    assert math.isnan(found[1].margin)
    for word in ("video and transcript only", "got passage", "untrained_evidence=True"):
        assert word in (found[1].error or "")
    allowed = make(modalities=("video", "transcript"), untrained_evidence=True)
    assert all(v.error is None for v in allowed.score_pairs(pairs))
    assert allowed.supports(TEXT)
    assert make(modalities=None).supports(IMAGE)


# What a caller holds (more in tests/unit/test_questions.py).


def test_a_string_that_names_a_file_is_judged_as_that_file(asked, media, monkeypatch):
    monkeypatch.chdir(media)
    for name, evidence in (("clip.mp4", VideoSegment("clip.mp4")), ("picture.png", IMAGE)):
        expected = asked.score(CLAIMS, evidence)
        words = asked.score(CLAIMS, Passage(name))
        for held in (name, Path(name), media / name, {"path": name}):
            for v, as_file, as_words in zip(asked.score(CLAIMS, held), expected, words, strict=True):
                assert v.margin == pytest.approx(as_file.margin, abs=1e-3)
                assert abs(v.margin - as_words.margin) > 1e-2
        predicted = asked.predict([(claim, name) for claim in CLAIMS])
        assert predicted == pytest.approx([v.p_supported for v in expected], abs=1e-3)
        assert asked.rank(CLAIMS[0], [name])[0].verdict.margin == pytest.approx(expected[0].margin, abs=1e-3)
    for call in (asked.score, asked.rank):
        with pytest.raises(ModelInputError, match=r"gone\.mp4.*Passage"):
            call(CLAIMS[0], "gone.mp4")


def test_one_sentence_a_table_and_pairs_without_ids_are_judged_alike(asked):
    expected = asked.score(CLAIMS, VIDEO)
    assert asked.score(CLAIMS[0], VIDEO)[0].margin == pytest.approx(expected[0].margin, abs=1e-3)
    rows = [{"claim": claim, "video": "clip.mp4", "start_s": 0, "end_s": 2} for claim in CLAIMS]
    for held in (
        rows,
        {name: [row[name] for row in rows] for name in rows[0]},
        [Pair(claim=c, evidence=(VIDEO,)) for c in CLAIMS],
    ):
        assert [v.margin for v in asked.score_pairs(held)] == pytest.approx([v.margin for v in expected], abs=1e-3)
    assert np.ndim(asked.predict(rows[0])) == 0
    failed = asked.score_pairs([*rows[:1], {"claim": None, "video": "clip.mp4"}, {"claim": "No.", "video": None}])
    assert [v.error is None for v in failed] == [True, False, False]


# What a verdict says.


@pytest.mark.parametrize(
    ("margin", "label", "answer"),
    [(0.13, "not_supported", "abstain"), (0.134, "supported", "abstain"), (0.3, "supported", "supported")],
)
def test_three_answers_follow_the_band_and_two_labels_the_point(asked, margin, label, answer):
    v = asked.verdict(margin)
    assert v.p_supported == pytest.approx(1 / (1 + math.exp(4 - 30 * margin)))
    assert (v.label, v.answer) == (label, answer)
    assert asked.verdict(-1.0).answer == "refuted"


def test_without_a_band_or_a_decision_there_is_no_third_answer(make):
    assert make(decision=dataclasses.replace(decision(), abstain=None)).verdict(0.3).answer is None
    draft = make().verdict(0.3)
    assert (draft.label, draft.answer) == (None, None)


def test_a_failure_has_neither_label_nor_answer(asked):
    v = asked.score([""], TEXT)[0]
    assert (v.label, v.answer, v.note) == (None, None, None)
    assert math.isnan(v.p_supported)
    assert asked.verdict(math.nan).answer is None


def test_an_operating_point_is_asked_for_by_name(asked):
    usual, strict = asked.score(CLAIMS, TEXT), asked.score(CLAIMS, TEXT, operating_point="strict")
    for a, b in zip(usual, strict, strict=True):
        assert a.p_supported == pytest.approx(b.p_supported, abs=1e-3)
        assert a.label == ("supported" if a.p_supported >= 0.5 else "not_supported")
        assert b.label == ("supported" if b.p_supported >= 0.9 else "not_supported")
    with pytest.raises(CalibrationError, match="balanced"):
        asked.score(CLAIMS, TEXT, operating_point="loose")


def test_a_draft_has_no_operating_point_and_no_prior(make):
    for options in ({"operating_point": "strict"}, {"prior": 0.1}):
        with pytest.raises(CalibrationError, match="uncalibrated"):
            make().score(CLAIMS, TEXT, **options)


def test_a_prior_shifts_log_odds_by_elkans_term_and_nothing_else(asked):
    plain, shifted = asked.score(CLAIMS, TEXT), asked.score(CLAIMS, TEXT, prior=0.1)
    other = asked.with_prior(0.1)
    for a, b, c in zip(plain, shifted, other.score(CLAIMS, TEXT), strict=True):
        assert abs(a.margin - b.margin) <= 1e-4
        odds = math.exp(30 * b.margin - 4) * (0.1 / 0.9) / (0.5 / 0.5)
        assert b.p_supported == pytest.approx(odds / (1 + odds), rel=1e-9)
        assert c.p_supported == pytest.approx(b.p_supported, abs=1e-3)


def test_with_prior_shares_weights_and_prefixes_leaves_the_first_alone_and_is_noted(asked):
    other = asked.with_prior(0.1)
    assert other.model is asked.model
    assert other.prefixes is asked.prefixes
    assert other.scorer.lock is asked.scorer.lock
    assert asked.notes == ()
    assert other.notes[0] == "p_supported is stated for a positive rate of 0.1; fitted at 0.5"
    assert "calibrate again" in other.notes[1]  # these thresholds were stored without the counts to choose again on
    assert len(other.with_prior(0.2).notes) == 2
    assert other.with_prior(None).notes == ()
    assert other.with_prior(None).decision == asked.decision
    for prior in (0.0, 1.0, math.nan):
        with pytest.raises(CalibrationError, match="prior"):
            asked.with_prior(prior)


def test_corrections_by_group_reach_rows_that_name_their_group_only(make):
    groups = GroupCorrections("modality", {"audio": Correction(1.0, 5.0, 50, 0.5, 1.0)})
    verifier = make(decision=decision(dataclasses.replace(CALIBRATION, by_group=groups)))
    pairs = [Pair(m, CLAIMS[0], (TEXT,), modality=m) for m in ("visual", "audio")]  # type: ignore[arg-type]
    visual, audio = verifier.score_pairs(pairs)
    expected = verifier.decision.calibration.predict(np.array([visual.margin, audio.margin]), ["visual", "audio"])
    assert (visual.p_supported, audio.p_supported) == pytest.approx(expected, rel=1e-12)
    assert audio.p_supported > visual.p_supported + 0.01
    assert verifier.score(CLAIMS[:1], TEXT)[0].p_supported == pytest.approx(visual.p_supported, abs=1e-3)


def test_a_bar_is_shown_when_asked_for_and_only_then(asked, capfd):
    pairs = [Pair(str(i), c, (TEXT,)) for i, c in enumerate(CLAIMS)]
    asked.score_pairs(pairs)
    assert capfd.readouterr().err == ""
    asked.score_pairs(pairs, progress=True)
    assert "4/4" in capfd.readouterr().err


# Ranking, and a CrossEncoder's calls.


def test_rank_orders_by_support_and_puts_failures_last_with_their_reasons(asked):
    evidences = [TEXT, VideoSegment("gone.mp4", 0, 1), VIDEO, (TALK, TEXT), IMAGE]
    found = asked.rank(CLAIMS[0], evidences)
    assert sorted(r.index for r in found) == [0, 1, 2, 3, 4]
    assert all(r.evidence == evidences[r.index] for r in found)
    p = [r.verdict.p_supported for r in found[:-1]]
    assert p == sorted(p, reverse=True)
    assert found[-1].index == 1
    assert "gone.mp4" in (found[-1].verdict.error or "")
    assert asked.rank(CLAIMS[0], evidences, top_k=2)[1].index == found[1].index
    assert asked.rank(CLAIMS[0], []) == []


def test_margins_break_ties_of_a_calibration_with_steps(make):
    flat = dataclasses.replace(CALIBRATION, intercept=1000.0)  # p is 1 for every margin
    found = make(decision=decision(flat)).rank(CLAIMS[0], [TEXT, TALK, VIDEO, IMAGE])
    assert len({r.verdict.p_supported for r in found}) == 1
    assert [r.verdict.margin for r in found] == sorted((r.verdict.margin for r in found), reverse=True)


def test_predict_gives_one_probability_per_pair_in_order_and_nan_for_failures(asked, media, caplog):
    pairs = [
        (CLAIMS[0], "The ball is red."),
        [CLAIMS[1], VIDEO],
        (CLAIMS[2], Path("gone.mp4")),
        (CLAIMS[3], [media / "picture.png", "The ball is red."]),
    ]
    found = asked.predict(pairs)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float64
    assert np.isnan(found).tolist() == [False, False, True, False]
    picture = Image(str(media / "picture.png"))
    for p, claim, evidence in zip(found[[0, 1, 3]], [0, 1, 3], [TEXT, VIDEO, (picture, TEXT)], strict=True):
        assert p == pytest.approx(asked.score([CLAIMS[claim]], evidence)[0].p_supported, abs=1e-3)
    assert "gone.mp4" in caplog.text
    assert "1 of 4" in caplog.text


def test_predict_takes_what_a_cross_encoder_takes(asked):
    encoder, pairs = asked.as_cross_encoder(), [(c, "The ball is red.") for c in CLAIMS]
    array = encoder.predict(pairs, batch_size=2, show_progress_bar=False)
    tensor = encoder.predict(pairs, convert_to_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.tolist() == pytest.approx(array.tolist(), abs=1e-3)
    assert encoder.predict(pairs, convert_to_numpy=False) == pytest.approx(array.tolist(), abs=1e-3)
    assert encoder.predict(pairs[0]) == pytest.approx(array[0], abs=1e-3)
    assert np.ndim(encoder.predict(pairs[0])) == 0
    assert encoder.predict([]).shape == (0,)


@pytest.mark.parametrize("pairs", [[("a", "b", "c")], ["ab"], [(VIDEO, "The ball is red.")], [("a", 3)], [("a", [])]])
def test_predict_refuses_what_is_no_pair(asked, pairs):
    with pytest.raises(ModelInputError):
        asked.predict(pairs)


def test_rank_of_a_cross_encoder_has_its_keys(asked):
    documents = ["The ball is red.", Path("gone.mp4"), "The ball moves."]
    found = asked.as_cross_encoder().rank(CLAIMS[0], documents, return_documents=True)
    assert [set(row) for row in found] == [{"corpus_id", "score", "text"}] * 2 + [
        {"corpus_id", "score", "text", "error"}
    ]
    assert found[0]["score"] >= found[1]["score"]
    assert math.isnan(found[2]["score"])
    assert all(row["text"] == documents[row["corpus_id"]] for row in found)
    assert len(asked.as_cross_encoder().rank(CLAIMS[0], documents, top_k=1)) == 1


# The command.


def test_ask_takes_texts_images_and_transcripts_and_says_what_is_out_of_the_ordinary(
    published, media, tmp_path, capsys
):
    from proofreel.cli import main

    (tmp_path / "said.srt").write_text("1\n00:00:00,000 --> 00:00:02,000\nThe ball is red.\n", encoding="utf-8")
    words = ["ask", str(published), "Colour is red.", "Colour is blue."]
    evidence = ["--image", str(media / "picture.png"), "--transcript", str(tmp_path / "said.srt"), "--text", "Red."]
    assert main([*words, *evidence, "--untrained-evidence", "--prior", "0.2"]) == 0
    told = capsys.readouterr()
    assert [line.split("  ")[-1] for line in told.out.strip().splitlines()] == ["Colour is red.", "Colour is blue."]
    assert "positive rate of 0.2" in told.err
    assert main([*words, *evidence]) == 1  # trained on video only
    assert "untrained_evidence=True" in capsys.readouterr().out
    words = ["ask", str(published), "Colour is red.", "--untrained-evidence", "--evidence"]
    assert main([*words, str(media / "picture.png"), "--evidence", "Red."]) == 0
    held = capsys.readouterr().out
    assert main([*words[:-1], "--image", str(media / "picture.png"), "--text", "Red."]) == 0
    assert capsys.readouterr().out == held
    assert main([*words, str(media / "gone.png")]) == 1
    assert "gone.png" in capsys.readouterr().err
    words = ["ask", str(published), "Colour is red.", "Colour is blue."]
    for wrong, message in (([], "none is given"), ([*evidence, "--prior", "2"], "prior"), (["--text", " "], "empty")):
        assert main([*words, *wrong, "--untrained-evidence"]) == 1
        told = capsys.readouterr()
        assert message in told.err + told.out
