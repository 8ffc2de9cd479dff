"""A verifier as a reward: called as TRL, ms-swift, verl and lm-eval call, it says what the verifier says."""

import json
import math
import subprocess
import sys
from typing import Any

import pytest

from proofreel.core.errors import ConfigError, MediaError, ProofreelError
from proofreel.core.pairs import Passage, VideoSegment
from proofreel.models.decision.verdict import Verdict, failed
from proofreel.rewards import ClaimReward, evidence_of

CLIP = {"kind": "video", "path": "a.mp4", "start_s": 0.0, "end_s": 2.0}
LONG = "x" * 3000 + "."


class Scripted:
    """A verifier whose verdict on a claim depends on its words; evidence called `broken` fails."""

    def __init__(self):
        self.calls = []

    def score(self, claims, evidence):
        self.calls.append((list(claims), evidence))
        return [self._verdict(claim, evidence) for claim in claims]

    @staticmethod
    def _verdict(claim, evidence):
        if getattr(evidence[0], "path", "") == "broken.mp4":
            return failed("broken.mp4: not a readable video")
        if "odd" in claim:
            return failed("claim: odd")
        p = 0.9 if "true" in claim else 0.1
        answer = "abstain" if "vague" in claim else "supported" if p > 0.5 else "refuted"
        return Verdict(0.5 if answer == "abstain" else p, math.log(p / (1 - p)), None, answer=answer)


TEXTS = ["This is true.", "This is false.", "This is true. This is false.", "This is vague. This is true.", ""]
VALUES = [0.9, 0.1, 0.5, 0.7, 0.0]


def rows(n):
    return [dict(CLIP) for _ in range(n)]


def test_trl_calls_it_with_prompts_completions_and_columns():
    scorer = Scripted()
    reward = ClaimReward(scorer)
    found = reward(
        prompts=["Describe."] * 5, completions=TEXTS, completion_ids=[[1]] * 5, evidence=rows(5), trainer_state=None
    )
    assert found == pytest.approx(VALUES)
    chats = [[{"role": "assistant", "content": text}] for text in TEXTS]
    assert reward(prompts=[[]] * 5, completions=chats, evidence=rows(5)) == pytest.approx(VALUES)
    assert len(scorer.calls) == 2  # the same evidence is asked about once per batch
    assert scorer.calls[0][1] == (VideoSegment("a.mp4", 0.0, 2.0),)
    assert reward.__name__ == "proofreel"
    assert reward.counts == {"scored": 10, "abstained": 2, "empty": 2}


def test_ms_swift_calls_it_with_completions_alone():
    assert ClaimReward(Scripted())(TEXTS, evidence=rows(5), trainer_state=None) == pytest.approx(VALUES)


def test_ms_swift_makes_registered_classes_without_arguments():
    class Plugin(ClaimReward):
        def __init__(self):
            super().__init__(Scripted(), column="segment")

    orms = {"proofreel": Plugin}
    assert orms["proofreel"]()(TEXTS[:1], segment=[json.dumps(CLIP)]) == pytest.approx(VALUES[:1])


def test_verl_calls_it_one_by_one_and_in_batches():
    reward = ClaimReward(Scripted())
    one = reward.verl(data_source="kitchen", solution_str=TEXTS[3], ground_truth=None, extra_info={"evidence": CLIP})
    assert one == {"score": pytest.approx(0.7), "n_claims": 2, "n_abstained": 1, "n_failed": 0, "n_refused": 0}
    assert reward.verl("kitchen", TEXTS[0], json.dumps([CLIP]), None, extra="x")["score"] == pytest.approx(0.9)
    batch = reward.verl_batch(
        data_sources=["kitchen"] * 5,
        solution_strs=TEXTS,
        ground_truths=[CLIP] * 5,
        extra_infos=[{"num_turns": None}] * 5,
    )
    assert [score["score"] for score in batch] == pytest.approx(VALUES)


def test_lm_eval_gets_metrics_of_one_document():
    found = ClaimReward(Scripted()).lm_eval({"evidence": [CLIP]}, [TEXTS[3]])
    assert found == {"supported": pytest.approx(0.7), "abstained": 0.5, "failed": 0.0}


def test_what_the_verifier_abstains_from_is_neutral_or_left_out():
    vague = ["It is vague.", "It is vague. This is true."]
    assert ClaimReward(Scripted(), neutral=0.3)(vague, evidence=rows(2)) == pytest.approx([0.3, 0.6])
    left_out = ClaimReward(Scripted(), neutral=None)
    assert left_out(vague, evidence=rows(2)) == [None, pytest.approx(0.9)]
    with pytest.raises(ConfigError):
        left_out.verl("kitchen", vague[0], CLIP)


def test_evidence_that_cannot_be_judged_is_neutral_and_counted_or_raised(caplog):
    broken = CLIP | {"path": "broken.mp4"}
    reward = ClaimReward(Scripted())
    assert reward(["This is true.", "This is true."], evidence=[broken, CLIP]) == pytest.approx([0.5, 0.9])
    assert reward.counts == {"failed": 1, "scored": 1}
    assert "broken.mp4: not a readable video" in caplog.text
    with pytest.raises(MediaError, match=r"broken\.mp4"):
        ClaimReward(Scripted(), on_error="raise")(["This is true."], evidence=[broken])


def test_an_unreadable_sentence_is_worth_no_more_than_silence():
    reward = ClaimReward(Scripted(), neutral=0.5)
    texts = [LONG, "An odd one.", f"{LONG} This is true."]
    assert reward(texts, evidence=rows(3)) == pytest.approx([0.0, 0.0, 0.45])
    assert reward.counts == {"refused": 3, "scored": 1}


class RefusedError(ProofreelError):
    def __init__(self, status):
        super().__init__("evidence[0].path: no such file")
        self.status = status


def test_a_server_that_refuses_evidence_is_a_failure_and_one_that_is_lost_is_an_error():
    class Refusing:
        def __init__(self, status):
            self.status = status

        def score(self, claims, evidence):
            raise RefusedError(self.status)

    assert ClaimReward(Refusing(422))(["This is true."], evidence=rows(1)) == [0.5]
    for status in (401, 429, 500):
        with pytest.raises(RefusedError):
            ClaimReward(Refusing(status))(["This is true."], evidence=rows(1))


def test_many_claims_about_one_evidence_are_asked_in_parts_and_keep_their_order():
    scorer = Scripted()
    texts = [f"Number {i} is {'true' if i % 3 else 'false'}." for i in range(300)]
    found = ClaimReward(scorer)(texts, evidence=rows(300))
    assert found == pytest.approx([0.9 if i % 3 else 0.1 for i in range(300)])
    assert max(len(claims) for claims, _ in scorer.calls) <= 256


def test_the_worst_claim_counts_where_that_is_asked_for():
    assert ClaimReward(Scripted(), aggregate="min")(TEXTS[2:3], evidence=rows(1)) == pytest.approx([0.1])


@pytest.mark.parametrize(
    "given",
    [CLIP, [CLIP], json.dumps(CLIP), VideoSegment("a.mp4", 0.0, 2.0), (VideoSegment("a.mp4", 0.0, 2.0),),
     CLIP | {"text": None}],
)  # fmt: skip
def test_evidence_is_read_from_any_column_that_can_hold_it(given):
    assert evidence_of(given, "evidence[0]") == (VideoSegment("a.mp4", 0.0, 2.0),)
    assert evidence_of([{"kind": "passage", "text": "x", "path": None}], "e") == (Passage("x"),)


def test_what_is_missing_is_said():
    with pytest.raises(ConfigError, match="column"):
        ClaimReward(Scripted())(TEXTS, solution=[""] * 5)
    with pytest.raises(ConfigError, match="not JSON"):
        ClaimReward(Scripted())(["x"], evidence=["clip.mp4"])
    with pytest.raises(ConfigError):
        ClaimReward(Scripted())(["x"], evidence=rows(2))
    wrong_ones: list[dict[str, Any]] = [{"aggregate": "median"}, {"on_error": "ignore"}]
    for wrong in wrong_ones:
        with pytest.raises(ConfigError):
            ClaimReward(Scripted(), **wrong)


def test_no_framework_is_needed_to_import_it():
    code = "import sys, proofreel.rewards; sys.exit(sum(n in sys.modules for n in ('torch', 'trl', 'httpx')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
