"""A verifier in the place of other scorers' judges: the calls of MiRAGE's and MuRGAt's code, and no silent "no".

The prompts here have the tags and marks that those two projects' readers and templates use, in other words. Their
readers are written out below by what they do: MiRAGE looks for "yes", then "no", anywhere in the lower-cased text;
MuRGAt takes a text that is, or ends with, yes or no. Neither found is None.
"""

import json
import logging
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deciding_verifiers import decision, maker
from numbered_clips import encode
from PIL import Image as Picture

from proofreel.core.errors import CalibrationError, ConfigError, ModelInputError, ProofreelError
from proofreel.core.pairs import Image, Passage, Transcript, VideoSegment
from proofreel.models.verifier.compat import Entailment
from proofreel.models.verifier.verifier import Verifier

CLAIMS = ["The ball is red.", "The table is long and grey.", "It moves."]
CONTEXT = "It was seen on a table. It moves."


def mirage_prompt(claim: str, passage: str | None = None) -> str:
    shown = f"Read this: <verification_context> {passage} <verification_context>.\n" if passage else ""
    context = f"It comes from: <claim_context> {CONTEXT} <claim_context>.\n"
    return f"{shown}{context}It says: <claim> {claim} <claim>\n\nIs {claim} so? <response>yes<response> or no."


def mirage_reads(text: str) -> bool | None:
    text = text.lower()
    return True if "yes" in text else False if "no" in text else None


def murgat_message(
    claim: str, *paths: Path, form: str = "Judge the **Atomic Fact**.\n\nAtomic Fact: {}\n\nYES or NO"
) -> Any:
    content = [{"type": "text", "text": form.format(claim)}]
    return [{"role": "user", "content": [*content, *({"type": "video", "media_path": str(p)} for p in paths)]}]


JSON_FORM = "Check the claim.\n\nClaim:\n{}\n\nInstructions:\nReturn JSON."
TEXT_FORM = "Check.\n\nText Evidence:\nThe ball\nis red.\n\nClaim:\n{}\n\nInstructions:\nReturn JSON."


def murgat_reads(text: str) -> bool | None:
    text = text.strip().lower()
    return True if text.endswith("yes") else False if text.endswith("no") else None


@pytest.fixture(scope="module")
def media(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("media")
    encode(folder / "clip.mp4", fps=10)
    encode(folder / "other.mp4", fps=20)
    Picture.fromarray(np.full((60, 90, 3), 90, np.uint8)).save(folder / "frame.jpg")
    return folder


@pytest.fixture(scope="module")
def make(tiny_base, small_sampling, media) -> Any:
    return maker(tiny_base, small_sampling, media)


@pytest.fixture(scope="module")
def verifier(make) -> Verifier:
    return make(decision=decision())


def between(values: Any) -> float:
    """A threshold that some of the values reach and some do not."""
    low, high = sorted(values)[-2:]
    assert high - low > 1e-4  # so that the route to a margin does not matter
    return (low + high) / 2


# Bool and probability.


def test_bool_and_probability_are_the_verifiers_own(verifier):
    p = [v.p_supported for v in verifier.score(CLAIMS, Passage("The ball is red."))]
    judge = verifier.as_entailment(between(p))
    assert judge.probabilities(CLAIMS, "The ball is red.") == pytest.approx(p, abs=1e-3)
    answers = [judge(claim, Passage("The ball is red.")) for claim in CLAIMS]
    assert answers == [x >= judge.threshold for x in p]
    assert sorted(answers) == [False, False, True]
    assert all(type(a) is bool for a in answers)
    assert judge.entails(CLAIMS[0], "The ball is red.") is answers[0]
    assert judge.probability(CLAIMS[0], "The ball is red.") == pytest.approx(p[0], abs=1e-3)
    assert judge.probabilities([], "The ball is red.").shape == (0,)


def test_the_threshold_is_the_shipped_one_a_named_one_or_a_number(verifier, make):
    assert verifier.as_entailment().threshold == 0.5
    assert verifier.as_entailment("strict").threshold == 0.9
    assert verifier.as_entailment(0.25).threshold == 0.25
    assert make().as_entailment(0.25).threshold == 0.25
    with pytest.raises(CalibrationError, match="balanced"):
        verifier.as_entailment("loose")
    for wrong in (lambda: make().as_entailment(), lambda: verifier.as_entailment(1.5)):
        with pytest.raises(ConfigError, match="threshold"):
            wrong()
    for options in ({"on_error": "no"}, {"combine": "all"}):
        with pytest.raises(ConfigError):
            verifier.as_entailment(**options)


def test_sources_are_judged_together_or_each_by_itself(verifier, media):
    sources = ["The ball is red.", media / "clip.mp4", Image(str(media / "frame.jpg"))]
    evidence = (Passage(sources[0]), VideoSegment(str(sources[1])), sources[2])
    together = [v.p_supported for v in verifier.score(CLAIMS, evidence)]
    each = [[v.p_supported for v in verifier.score(CLAIMS, e)] for e in evidence]
    assert verifier.as_entailment().probabilities(CLAIMS, sources) == pytest.approx(together, abs=1e-3)
    found = verifier.as_entailment(combine="any").probabilities(CLAIMS, sources)
    assert found == pytest.approx(np.max(each, axis=0), abs=1e-3)


def test_a_failure_is_raised_or_told_and_never_a_silent_no(verifier, caplog):
    with pytest.raises(ProofreelError, match=r"gone\.mp4"):
        verifier.as_entailment().entails("The ball is red.", Path("gone.mp4"))
    judge = verifier.as_entailment(on_error="unsupported")
    with caplog.at_level(logging.WARNING):
        assert judge.entails("The ball is red.", Path("gone.mp4")) is False
    assert "gone.mp4" in caplog.text
    assert math.isnan(judge.probability("The ball is red.", Path("gone.mp4")))
    assert len(judge.failures) == 2


def test_of_several_sources_a_yes_stands_and_a_no_does_not_if_one_of_them_failed(verifier):
    sources = ["The ball is red.", Path("gone.mp4")]
    p = verifier.as_entailment().probability(CLAIMS[0], sources[0])
    for threshold, expected in ((p / 2, True), ((1 + p) / 2, None)):
        judge = verifier.as_entailment(threshold, combine="any")
        if expected:
            assert judge.entails(CLAIMS[0], sources)
            assert judge.failures == []
        else:
            with pytest.raises(ProofreelError, match=r"gone\.mp4"):
                judge.entails(CLAIMS[0], sources)


# MiRAGE: scorer.score(prompts=..., context_path=..., system_prompt=...) -> texts.


def test_mirage_scores_claims_about_a_video_in_one_pass(verifier, media):
    p = [v.p_supported for v in verifier.score(CLAIMS, VideoSegment(str(media / "clip.mp4")))]
    judge = verifier.as_entailment(between(p))
    prompts = [mirage_prompt(claim) for claim in CLAIMS]
    found = judge.score(prompts=prompts, context_path=str(media / "clip.mp4"), system_prompt="You judge.")
    assert [mirage_reads(text) for text in found] == [x >= judge.threshold for x in p]
    assert judge.score(prompts=[], context_path=str(media / "clip.mp4"), system_prompt="You judge.") == []


def test_mirage_scores_claims_about_passages(verifier):
    passages = ["The ball is red.", "The ball is red.", "A grey table\nstands there."]
    p = [verifier.score([c], Passage(x))[0].p_supported for c, x in zip(CLAIMS, passages, strict=True)]
    judge = verifier.as_entailment(between(p))
    prompts = [mirage_prompt(c, x) for c, x in zip(CLAIMS, passages, strict=True)]
    found = judge.score(prompts=prompts, system_prompt="You judge.")
    assert [mirage_reads(text) for text in found] == [x >= judge.threshold for x in p]


def test_mirage_reads_a_failure_as_neither_yes_nor_no(verifier):
    judge = verifier.as_entailment(on_error="unsupported")
    found = judge.score([mirage_prompt(c) for c in CLAIMS], context_path="gone.mp4")
    assert [mirage_reads(text) for text in found] == [None] * 3
    assert len(judge.failures) == 3
    with pytest.raises(ProofreelError, match=r"gone\.mp4"):
        verifier.as_entailment().score([mirage_prompt(CLAIMS[0])], context_path="gone.mp4")


def test_the_context_of_a_claim_is_shown_only_to_a_verifier_that_wants_it(verifier):
    asked: list[Any] = []

    class Listening:
        decision, media_root = verifier.decision, verifier.media_root

        def score(self, claims: Any, evidence: Any, contexts: Any) -> Any:
            asked.append(contexts)
            return verifier.score(claims, evidence, contexts)

    for with_context in (False, True):
        judge = Entailment(Listening(), with_context=with_context)  # type: ignore[arg-type]
        judge.probabilities(CLAIMS[:1], "The ball is red.", [CONTEXT])
    assert asked == [[None], [CONTEXT]]


def test_a_prompt_without_the_tags_is_refused_whatever_the_policy(verifier):
    judge = verifier.as_entailment(on_error="unsupported")
    with pytest.raises(ModelInputError, match="<claim>"):
        judge.score(["Is the ball red?"], context_path="clip.mp4")
    with pytest.raises(ModelInputError, match="<verification_context>"):
        judge.score([mirage_prompt(CLAIMS[0])])


# MuRGAt: model.generate_response(messages) -> text.


def test_murgat_asks_about_clips_and_frames_alone_and_jointly(verifier, media):
    cuts = {
        "clip": [media / "clip.mp4"],
        "frame": [media / "frame.jpg"],
        "both": [media / "clip.mp4", media / "frame.jpg"],
    }
    pieces = {"clip": VideoSegment(str(cuts["clip"][0])), "frame": Image(str(cuts["frame"][0]))}
    evidence = {**pieces, "both": (pieces["clip"], pieces["frame"])}
    p = {name: verifier.score(CLAIMS[:1], e)[0].p_supported for name, e in evidence.items()}
    judge = verifier.as_entailment(between(p.values()))
    for name, paths in cuts.items():
        found = judge.generate_response(murgat_message(f"- {CLAIMS[0]}", *paths))
        assert murgat_reads(found) == (p[name] >= judge.threshold)
        message = murgat_message(CLAIMS[0], *paths)
        for part in message[0]["content"][1:]:
            part["video"] = part.pop("media_path")  # as its programs, not its metric, name a file
        assert judge.generate_response(message, num_samples=2) == [found] * 2


def test_murgat_gets_json_where_its_prompt_wants_it(verifier, media):
    clip = media / "clip.mp4"
    p = verifier.score(CLAIMS[:1], VideoSegment(str(clip)))[0].p_supported
    told = verifier.score(CLAIMS[:1], Passage("The ball\nis red."))[0].p_supported
    for threshold in (0.0, 1.0):
        judge = verifier.as_entailment(threshold)
        seen = json.loads(judge.generate_response(murgat_message(CLAIMS[0], clip, form=JSON_FORM)))
        read = json.loads(judge.generate_response(murgat_message(CLAIMS[0], form=TEXT_FORM)))
        assert seen["answer"] == read["answer"] == ("NO" if threshold else "YES")
        for expected, found in ((p, seen), (told, read)):
            assert float(re.findall(r"[0-9.]+", found["reasoning"])[0].rstrip(".")) == pytest.approx(expected, abs=1e-3)


def test_murgat_reads_a_failure_as_neither_yes_nor_no(verifier, media):
    judge = verifier.as_entailment(on_error="unsupported")
    for paths in ([media / "gone.mp4"], [], [media / "speech.mp3"]):
        assert murgat_reads(judge.generate_response(murgat_message(CLAIMS[0], *paths))) is None
        with pytest.raises(ProofreelError):
            verifier.as_entailment().generate_response(murgat_message(CLAIMS[0], *paths))
    assert len(judge.failures) == 3
    found = json.loads(judge.generate_response(murgat_message(CLAIMS[0], media / "gone.mp4", form=JSON_FORM)))
    assert found["answer"] not in ("YES", "NO")
    assert "gone.mp4" in found["reasoning"]
    with pytest.raises(ModelInputError, match="MuRGAt"):
        judge.generate_response(murgat_message(CLAIMS[0], form="Split {} into facts."))


def test_sound_is_heard_through_a_transcript(verifier, media):
    heard: list[Path] = []

    def transcribe(path: Path) -> str:
        heard.append(path)
        return "The ball is red."

    p = verifier.score(CLAIMS[:1], Transcript("The ball is red."))[0].p_supported
    for threshold in (p - 1e-3, p + 1e-3):
        judge = verifier.as_entailment(threshold, transcribe=transcribe)
        found = judge.generate_response(murgat_message(CLAIMS[0], media / "speech.mp3"))
        assert murgat_reads(found) == (p >= threshold)
    assert heard == [media / "speech.mp3"] * 2
