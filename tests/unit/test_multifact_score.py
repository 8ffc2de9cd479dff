"""MultiFactScore: the paper's worked example by hand, scikit-learn, bounds by trying every outcome, and its steps."""

import itertools
import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score

from examples.kitchen.captions import captions_of
from proofreel.core import ConfigError, Pair, Passage, RowError, VideoSegment
from proofreel.data_prep.language import Completion
from proofreel.eval.facts import (
    LAYERS,
    Caption,
    Clip,
    Fact,
    FactOptions,
    FactVerdict,
    by_language_model,
    conceptual_facts,
    contextual_facts,
    extraction_scores,
    failures,
    grounding_caveat,
    multifact_page,
    multifact_scores,
    objects_of,
    read_captions,
    read_clips,
    relation_of,
    role_accuracy,
    tables_of,
    with_facts,
)
from proofreel.eval.scores import JudgePairs, Judgment, Judgments, Score, page_html

SOUP = {
    "id": "soup",
    "video": "soup.mp4",
    "caption": "Stir the soup with a spoon in the pot.",
    "caption_implicit": "Stir it.",
    "conceptual": {"Action": "stirring", "Ingredient": "soup", "Tool": "spoon", "Location": "pot"},
    "contextual": ["stir soup", "stir with spoon", "stir in pot"],
    "negative_conceptual": {"Tool": "hammer", "Ingredient": "spoon"},
    "distractors": ["ladle"],
}
SAID = {
    "id": "soup",
    "caption": "Stir the soup and the salt with a ladle.",
    "conceptual": {"Action": "stirring", "Ingredient": ["soup", "salt"], "Tool": "ladle"},
    "contextual": ["stir soup", "stir salt", "stir with ladle"],
}
GOLD_CAPTION = "Stir the soup with a spoon in the pot."


def judge(yes: Collection[str], unknown: Collection[str] = ()) -> JudgePairs:
    """Claims that are so; of the unknown ones nothing is known."""

    def answer(pairs: Sequence[Pair]) -> Judgments:
        answers = {p.id: Judgment(p.claim in yes, float(p.claim in yes)) for p in pairs}
        answers |= {p.id: Judgment(None, error="broken") for p in pairs if p.claim in unknown}
        return Judgments(answers, len({(p.claim, p.evidence) for p in pairs}), len({p.evidence for p in pairs}))

    return answer


def files(tmp_path: Path, gold: list[dict[str, Any]], said: list[dict[str, Any]]) -> tuple[list[Clip], list[Caption]]:
    for name, rows in (("gold", gold), ("said", said)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    clips = read_clips(tmp_path / "gold.jsonl")
    return clips, read_captions(tmp_path / "said.jsonl", clips)


def values(scores: Any) -> dict[str, float]:
    return {name: score.value for name, score in scores.items()}


def test_the_facts_of_table_13_are_read_as_it_prints_them(tmp_path):
    (clip,), _ = files(tmp_path, [SOUP], [SAID])
    assert clip.caption == GOLD_CAPTION
    assert [fact.claim for fact in clip.gold] == [
        "Action is stirring.",
        "Ingredient is soup.",
        "Tool is spoon.",
        "Location is pot.",
        "Stir soup.",
        "Stir with spoon.",
        "Stir in pot.",
    ]
    assert [fact.role for fact in clip.gold[4:]] == ["act/ing", "act/with", "act/in"]
    assert read_clips(tmp_path / "gold.jsonl", implicit=True)[0].caption == "Stir it."


def test_every_score_of_table_13s_example_is_the_one_worked_out_by_hand(tmp_path):
    clips, said = files(tmp_path, [SOUP], [SAID])
    so = {"Action is stirring.", "Ingredient is soup.", "Stir soup."}
    gold_in_said = so  # neither the spoon nor the pot is in the generated caption
    result = multifact_scores(
        clips,
        {"a": said},
        visual=judge({*so, "Ingredient is salt.", "Stir salt.", "Tool is spoon.", "Tool is hammer."}),
        textual=judge(gold_in_said),
        grounding=lambda fact, evidence: {"ladle": True, "salt": 0.4}.get(fact.entities[-1], False),
        n_draws=10,
    )
    scores = values(result.systems["a"].scores)
    # Predicted, by the video: stirring, soup, salt are so; the ladle is not. Of 4 facts 3; by role 1, 1, 0.
    assert scores["visual/conceptual/multifact"] == scores["visual/conceptual/pooled"] == pytest.approx(3 / 4)
    assert scores["visual/conceptual/mean_of_clips"] == pytest.approx(2 / 3)
    assert scores["visual/conceptual/mean_of_roles"] == pytest.approx(2 / 3)
    by_role = {"Action": 1.0, "Ingredient": 1.0, "Tool": 0.0}
    assert {role: scores[f"visual/conceptual/role/{role}"] for role in by_role} == by_role
    assert scores["visual/contextual/multifact"] == pytest.approx(2 / 3)
    # Gold, by the generated caption: 2 of 4, and 1 of 3. Predicted, by the gold caption: 2 of 4, and 1 of 3.
    assert scores["textual_gold/conceptual/multifact"] == pytest.approx(2 / 4)
    assert scores["textual_gold/conceptual/role/Tool"] == 0.0
    assert scores["textual_gold/contextual/multifact"] == pytest.approx(1 / 3)
    assert scores["textual_predicted/conceptual/multifact"] == pytest.approx(2 / 4)
    assert scores["textual_predicted/conceptual/role/Ingredient"] == pytest.approx(1 / 2)
    # Errors by the gold caption: salt (not to be seen) and ladle (to be seen) refuted; spoon and pot omitted.
    errors = {mode: {} for mode in ("caption_only", "caption_grounded", "video_grounded")}
    for name, value in scores.items():
        if name.startswith("errors/"):
            _, mode, layer, *rest = name.split("/")
            if layer == "conceptual":
                errors[mode]["/".join(rest)] = value
    assert errors["caption_only"]["all/omission"] == errors["caption_only"]["all/hallucination"] == 0.5
    assert [errors["caption_grounded"][f"all/{k}"] for k in ("omission", "hallucination", "saliency")] == [
        0.5,
        0.25,
        0.25,
    ]
    assert errors["caption_grounded"]["Tool/saliency"] == errors["caption_grounded"]["Tool/omission"] == 0.5
    assert errors["caption_grounded"]["Location/omission"] == 1.0
    assert errors["video_grounded"]["all/saliency"] == 1.0  # the ladle alone is refuted by the video
    assert result.systems["a"].captions[0].omitted == ("spoon", "pot")
    # The judge on gold facts: of stirring, soup, spoon, pot three are said to be so; hammer wrongly as well, spoon as
    # an ingredient rightly not. The gold caption's judge says of stirring and soup alone that they are so.
    judges = values(result.judges)
    assert judges["visual/conceptual/pooled"] == pytest.approx(4 / 6)
    assert judges["visual/conceptual/role/Tool/accuracy"] == pytest.approx(1 / 2)
    assert judges["visual/conceptual/precision"] == pytest.approx(3 / 4)
    assert judges["visual/conceptual/recall"] == pytest.approx(3 / 4)
    assert judges["textual/conceptual/f1"] == pytest.approx(2 * 2 / (2 + 0 + 4))
    # Objects: soup and spoon are there; the hammer is not, and the spoon that negatives name is there after all.
    assert [(fact.text, is_there) for fact, is_there in objects_of(clips[0], ("Ingredient", "Tool"))] == [
        ("soup", True),
        ("spoon", True),
        ("hammer", False),
    ]
    assert values(result.objects) == {"recall": 0.0, "specificity": 1.0, "accuracy": pytest.approx(1 / 3)}


ROLES = ("Action", "Ingredient", "Tool")


def random_data(seed: int, n_clips: int = 12) -> tuple[list[Clip], dict[str, list[Caption]]]:
    """Clips of four videos, with gold facts, negatives, and the captions of two systems."""
    rng = np.random.default_rng(seed)

    def facts(sign: str, n: np.int64) -> tuple[Fact, ...]:
        return tuple(Fact("conceptual", str(rng.choice(ROLES)), f"{sign}{rng.integers(5)}{i}") for i in range(int(n)))

    clips, systems = [], {"a": [], "b": []}
    for number in range(n_clips):
        gold, negative = facts("g", rng.integers(1, 5)), facts("n", rng.integers(1, 4))
        evidence = (VideoSegment(f"{number % 4}.mp4", float(number)),)
        clips.append(Clip(str(number), f"{number % 4}", evidence, f"Caption {number}.", gold, negative))
        for made in systems.values():
            said = (*facts("p", rng.integers(0, 3)), *gold[: rng.integers(0, 3)])
            made.append(Caption(str(number), f"Said {rng.integers(9)}.", {"conceptual": said}))
    return clips, systems


def random_judge(seed: int, failing: float = 0.0) -> JudgePairs:
    rng = np.random.default_rng(seed)
    told: dict[Any, bool | None] = {}

    def answer(pairs: Sequence[Pair]) -> Judgments:
        answers = {}
        for p in pairs:
            key = p.claim, p.evidence
            if key not in told:
                told[key] = None if rng.random() < failing else bool(rng.random() < 0.5)
            said = told[key]
            answers[p.id] = Judgment(said, math.nan if said is None else float(said))
        return Judgments(answers, len(told), 1)

    return answer


@pytest.mark.parametrize("seed", range(3))
def test_averages_are_the_formulas_and_the_judges_numbers_scikit_learns(seed):
    clips, systems = random_data(seed)
    result = multifact_scores(clips, systems, random_judge(seed), random_judge(seed + 9), n_draws=5)
    for name, system in result.systems.items():
        rows = [
            FactVerdict(one.clip.id, each.fact.role, each.visual.supported, True)
            for one in result.judged.systems[name]
            for each in one.facts
            if each.visual is not None
        ]
        plain, scores = role_accuracy(rows), values(system.scores)
        assert scores["visual/conceptual/pooled"] == pytest.approx(plain.pooled)
        assert scores["visual/conceptual/mean_of_roles"] == pytest.approx(plain.mean_of_roles)
        assert scores["visual/conceptual/mean_of_clips"] == pytest.approx(plain.mean_of_videos)
        captions = [[r.predicted for r in rows if r.video == clip.id] for clip in clips]
        of_captions = [said.count(True) / len(said) for said in captions if said]
        assert scores["visual/conceptual/multifact"] == pytest.approx(np.mean(of_captions))
        assert system.n_undefined["visual/conceptual"] == sum(not c for c in captions)
    judges = values(result.judges)
    for judge_name in ("visual", "textual"):
        true = [each.expected for each in result.judged.gold]
        said = [getattr(each, judge_name).supported for each in result.judged.gold]
        role = np.array([each.fact.role for each in result.judged.gold])
        prefix = f"{judge_name}/conceptual/"
        assert judges[f"{prefix}pooled"] == pytest.approx(accuracy_score(true, said))
        assert judges[f"{prefix}precision"] == pytest.approx(precision_score(true, said))
        assert judges[f"{prefix}recall"] == pytest.approx(recall_score(true, said))
        assert judges[f"{prefix}f1"] == pytest.approx(f1_score(true, said))
        for one in np.unique(role):
            of = role == one
            some = np.array(true)[of], np.array(said)[of]
            assert judges[f"{prefix}role/{one}/accuracy"] == pytest.approx(accuracy_score(*some))
            assert judges[f"{prefix}role/{one}/f1"] == pytest.approx(f1_score(*some))


def test_bounds_are_the_least_and_most_that_failed_judgments_can_give():
    gold = (Fact("conceptual", "Tool", "spoon"), Fact("conceptual", "Action", "stirring"))
    clips = [
        Clip("1", "v", (VideoSegment("v.mp4"),), "One.", gold, (Fact("conceptual", "Tool", "hammer"),)),
        Clip("2", "w", (VideoSegment("w.mp4"),), "Two.", gold),
    ]
    tools = {name: Fact("conceptual", "Tool", name) for name in ("ladle", "spoon", "cup", "fork")}
    said = [
        Caption("1", "A.", {"conceptual": (tools["ladle"], tools["spoon"], tools["cup"])}),
        Caption("2", "B.", {"conceptual": (Fact("conceptual", "Action", "cutting"), tools["fork"])}),
    ]
    unknown = ("Tool is ladle.", "Tool is hammer.")
    seen = ("ladle", "spoon", "cup")

    def score(yes: set[str], open_: set[str], grounded: Mapping[str, bool | None]) -> dict[str, Score]:
        def grounding(fact: Fact, evidence: Any) -> bool | None:
            return grounded.get(fact.text, True)

        result = multifact_scores(
            clips, {"a": said}, judge({"Action is stirring."} | yes, open_), judge(yes, open_), grounding, n_draws=2
        )
        return dict(result.systems["a"].scores) | {f"judge {k}": v for k, v in result.judges.items()}

    bounded = score(set(), set(unknown), dict.fromkeys(seen))
    possible: dict[str, list[float]] = {name: [] for name in bounded}
    for answers in itertools.product((False, True), repeat=len(unknown) + len(seen)):
        yes = {claim for claim, so in zip(unknown, answers, strict=False) if so}
        grounded: dict[str, bool | None] = dict(zip(seen, answers[len(unknown) :], strict=True))
        for name, known in score(yes, set(), grounded).items():
            assert known.n_failed == 0
            if not math.isnan(known.value):
                possible[name].append(known.value)
    assert sum(each.n_failed > 0 for each in bounded.values()) > 20
    for name, each in bounded.items():
        if possible[name]:
            assert each.low == pytest.approx(min(possible[name])), name
            assert each.high == pytest.approx(max(possible[name])), name
        else:
            assert math.isnan(each.low), name


def test_what_failed_is_counted_and_leaves_every_score_open():
    clips, systems = random_data(4)
    result = multifact_scores(clips, systems, random_judge(1, failing=1.0), n_draws=5)
    for name in ("multifact", "mean_of_clips", "mean_of_roles", "pooled"):
        score = result.systems["a"].scores[f"visual/conceptual/{name}"]
        assert math.isnan(score.value)
        assert (score.low, score.high) == (0.0, 1.0)
        assert score.n == score.n_failed > 0
    assert sum(1 for _ in failures(result)) > score.n
    assert "0.0 to 100.0?" in tables_of(result)


def test_a_caption_that_is_missing_or_not_extracted_is_bounded_and_an_empty_one_has_no_facts(tmp_path):
    gold = [SOUP | {"id": name, "video": f"{name}.mp4"} for name in ("a", "b", "c", "d")]
    said = [SAID | {"id": "a"}, {"id": "b", "caption": "", "conceptual": {}, "contextual": []}]
    clips, captions = files(tmp_path, gold, [*said, {"id": "d", "error": "no memory"}])
    yes = {fact.claim for fact in (*clips[0].gold, *captions[0].facts["conceptual"])}
    result = multifact_scores(clips, {"s": captions}, judge(yes), judge(yes), n_draws=5)
    scores = result.systems["s"].scores
    visual = scores["visual/conceptual/multifact"]  # 1 of the first; nothing of the second; the others are open
    assert (visual.low, visual.high) == (pytest.approx(1 / 3), 1.0)
    assert math.isnan(visual.value)
    assert result.systems["s"].n_undefined["visual/conceptual"] == 1
    said_so = scores["textual_gold/conceptual/multifact"]  # an empty caption says none of the gold facts
    assert (said_so.low, said_so.high) == (pytest.approx(1 / 4), pytest.approx(3 / 4))
    assert scores["errors/caption_only/conceptual/Location/omission"].low > 0
    reasons = list(failures(result))
    assert any("no memory" in reason for reason in reasons)
    assert any("has no caption of it" in reason for reason in reasons)


def test_two_systems_are_paired_over_videos():
    clips, systems = random_data(5)
    judges = random_judge(1), random_judge(2)
    result = multifact_scores(clips, {"a": systems["a"], "same": systems["a"], "b": systems["b"]}, *judges, n_draws=200)
    for name, score in result.differences["same"].items():
        if not math.isnan(score.value):
            assert score.interval is not None
            assert score.value == score.interval.low == score.interval.high == 0.0, name
    name = "visual/conceptual/multifact"
    apart = result.systems["b"].scores[name].value - result.systems["a"].scores[name].value
    difference = result.differences["b"][name]
    assert difference.value == pytest.approx(apart)
    assert difference.interval is not None
    assert difference.interval.n_groups == 4


def test_the_default_grounding_asks_the_verifier_in_the_same_call_and_any_other_only_of_refuted_facts(tmp_path):
    clips, said = files(tmp_path, [SOUP], [SAID])
    calls: list[list[Pair]] = []

    def visual(pairs: Sequence[Pair]) -> Judgments:
        calls.append(list(pairs))
        return judge({"Ladle is visible.", "Ingredient is soup."})(pairs)

    result = multifact_scores(clips, {"a": said}, visual, n_draws=5)
    assert len(calls) == 1
    facts = result.judged.systems["a"][0].facts
    grounded = {each.fact.claim: each.grounded and each.grounded.supported for each in facts}
    assert grounded["Tool is ladle."] is grounded["Stir with ladle."] is True
    assert grounded["Ingredient is salt."] is False
    assert grounded["Ingredient is soup."] is None
    asked: list[str] = []

    def grounding(fact: Fact, evidence: Any) -> bool:
        asked.append(fact.claim)
        assert evidence == clips[0].evidence
        raise RuntimeError("out of memory")

    result = multifact_scores(clips, {"a": said}, visual, grounding=grounding, n_draws=5)
    assert "Ingredient is soup." not in asked[: len(said[0].facts["conceptual"]) - 1]
    assert not any("visible" in pair.claim for pair in calls[1])
    saliency = result.systems["a"].scores["errors/video_grounded/conceptual/all/saliency"]
    assert (saliency.low, saliency.high) == (0.0, 1.0)
    assert any("out of memory" in reason for reason in failures(result))


def test_the_page_names_kinds_of_errors_and_omissions_and_says_when_grounding_is_blind(tmp_path):
    clips, said = files(tmp_path, [SOUP], [SAID])
    there = {"Soup is visible.", "Spoon is visible.", "Ladle is visible."}
    sighted = multifact_scores(clips, {"a": said}, judge(there), judge({"Stir soup."}), n_draws=5)
    blind = multifact_scores(clips, {"a": said}, judge(set()), n_draws=5)
    assert grounding_caveat(sighted) is None
    assert "recall 0.00" in str(grounding_caveat(blind))
    assert str(grounding_caveat(blind)) in page_html(multifact_page(blind))
    text = page_html(multifact_page(sighted))
    for part in ("Tool: saliency error", "Ingredient: hallucination", "It does not name: spoon, pot.", GOLD_CAPTION):
        assert part in text


@pytest.mark.parametrize("told", [None, math.nan, 1.5])
def test_a_grounding_that_is_no_probability_is_a_failure(tmp_path, told):
    clips, said = files(tmp_path, [SOUP], [SAID])
    result = multifact_scores(clips, {"a": said}, judge(set()), grounding=lambda *_: told, n_draws=5)
    assert math.isnan(result.systems["a"].scores["errors/video_grounded/conceptual/all/saliency"].value)
    assert math.isnan(result.objects["recall"].value)


def test_peoples_labels_judge_where_there_is_no_verifier_and_are_compared_with_one_where_there_is(tmp_path):
    rows = []
    for number, (visual, grounded) in enumerate([(True, None), (False, True), (False, False), (True, None)]):
        spoon = {"text": "spoon", "visual": visual, "textual": visual, "grounded": grounded}
        tools = {"Tool": [spoon, {"text": "pan", "visual": True}]}
        rows.append({"id": str(number), "caption": "Stir.", "conceptual": tools})
    clips, said = files(tmp_path, [SOUP | {"id": str(n), "video": f"{n}.mp4"} for n in range(4)], rows)
    options = FactOptions(layers=("conceptual",))
    by_people = multifact_scores(clips, {"a": said}, options=options, n_draws=5)
    scores = by_people.systems["a"].scores
    assert scores["visual/conceptual/multifact"].value == pytest.approx((1 + 0.5 + 0.5 + 1) / 4)
    assert scores["errors/video_grounded/conceptual/all/saliency"].value == 0.5
    assert scores["textual_predicted/conceptual/pooled"].n_failed == 4  # pan has no textual label
    assert not any(name.startswith("textual_gold") for name in scores)
    assert by_people.judges == by_people.objects == {}
    by_judge = multifact_scores(clips, {"a": said}, random_judge(3), grounding="labels", options=options, n_draws=5)
    assert by_judge.objects == {}
    assert by_judge.systems["a"].agreement["visual/conceptual"].n == 4


def test_without_judge_and_label_nothing_is_scored(tmp_path):
    clips, said = files(tmp_path, [SOUP], [SAID])
    with pytest.raises(RowError, match="give a verifier"):
        multifact_scores(clips, {"a": said})


def answering(*texts: str) -> Any:
    """A language model that gives these answers, the last one for good; and what it was asked."""
    asked: list[str] = []

    def complete(messages: Any) -> Completion:
        asked.append(messages[0]["content"])
        return Completion(texts[min(len(asked), len(texts)) - 1])

    complete.asked = asked  # type: ignore[attr-defined]
    return complete


def test_facts_are_extracted_by_roles_and_relations():
    conceptual = conceptual_facts(
        answering('```json\n{"action": "stirring", "Ingredient": ["soup", "the soup", "salt"]}\n```'), GOLD_CAPTION
    )
    assert [(fact.role, fact.text) for fact in conceptual] == [
        ("Action", "stirring"),
        ("Ingredient", "the soup"),
        ("Ingredient", "salt"),
    ]
    contextual = contextual_facts(answering('["stir soup", "stir with spoon", "stir in pot"]'), GOLD_CAPTION, "act/obj")
    assert [fact.role for fact in contextual] == ["act/obj", "act/with", "act/in"]
    assert contextual_facts(answering("[]"), "Nothing happens.") == ()


@pytest.mark.parametrize(
    "answer", ["soup and spoon", '{"Colour": ["red"]}', '{"Tool": [1]}', '["Tool"]', '{"Tool": [""]}']
)
def test_an_answer_that_is_no_fact_is_an_error_that_quotes_it_and_never_an_empty_set(answer):
    (caption,) = with_facts([Caption("1", "Stir.")], answering(answer), ["conceptual"])
    assert "conceptual" not in caption.facts
    assert "no usable answer" in caption.errors["conceptual"]
    clip = Clip("1", "v", (VideoSegment("v.mp4"),), "Stir.", (Fact("conceptual", "Tool", "spoon"),))
    options = FactOptions(layers=("conceptual",), conditions=("visual",))
    score = multifact_scores([clip], {"a": [caption]}, judge(set()), options=options).systems["a"].scores
    assert (score["visual/conceptual/multifact"].low, score["visual/conceptual/multifact"].high) == (0.0, 1.0)
    assert math.isnan(score["visual/conceptual/multifact"].value)


def test_facts_that_are_given_are_not_extracted_and_an_empty_caption_is_not_put_to_the_model():
    model = answering('["stir soup"]')
    given = Caption("1", "Stir.", {"conceptual": (Fact("conceptual", "Tool", "spoon"),)})
    first, second = with_facts([given, Caption("2", " ")], model)
    assert first.facts["conceptual"] == given.facts["conceptual"]
    assert second.facts == {"conceptual": (), "contextual": ()}
    assert len(model.asked) == 1
    assert "Stir." in model.asked[0]


@pytest.mark.parametrize(("text", "said"), [("YES.", True), ("[no]", False), ("Perhaps", None)])
def test_the_language_model_judges_by_captions_and_an_unclear_answer_is_no_verdict(text, said):
    pair = Pair("1", "Tool is spoon.", (Passage(GOLD_CAPTION),))
    model = answering(text)
    judgments = by_language_model(model)([pair, Pair("2", pair.claim, pair.evidence)])
    assert {each.supported for each in judgments.of.values()} == {said}
    assert (judgments.n_questions, judgments.n_passes) == (1, 0)
    assert GOLD_CAPTION in model.asked[0]
    assert said is not None or "Perhaps" in str(judgments.of["1"].error)


def test_extraction_is_scored_as_scikit_learn_scores_slots():
    rng = np.random.default_rng(0)
    clips, extracted = [], []
    for number in range(30):
        drawn = [Fact("conceptual", str(rng.choice(ROLES)), f"x{rng.integers(4)}") for _ in range(6)]
        gold, ours = tuple(dict.fromkeys(drawn[:3])), tuple(dict.fromkeys(drawn[3:]))
        clips.append(Clip(str(number), "v", (VideoSegment("v.mp4"),), "C.", gold))
        extracted.append(Caption(str(number), "C.", {"conceptual": ours}))
    scores = extraction_scores(extracted, clips)
    for role in ROLES:
        slots = list(itertools.product(range(30), (f"x{i}" for i in range(4))))
        has = [
            [Fact("conceptual", role, value) in facts[number] for number, value in slots]
            for facts in ([clip.gold for clip in clips], [caption.facts["conceptual"] for caption in extracted])
        ]
        assert scores[role].f1 == pytest.approx(f1_score(*has))
        assert scores[role].precision == pytest.approx(precision_score(*has))
        assert scores[role].recall == pytest.approx(recall_score(*has))


@pytest.mark.parametrize(
    ("phrase", "relation"),
    [
        ("chop onion", "act/ing"),
        ("chop with knife", "act/with"),
        ("pour into bowl", "act/in"),
        ("add to bowl", "act/to"),
        ("chop onion with knife", "contextual"),
        ("chop", "contextual"),
    ],
)
def test_relations_are_named_as_in_tables_5_to_8(phrase, relation):
    assert relation_of(phrase) == relation


@pytest.mark.parametrize(
    ("gold", "said", "message"),
    [
        (SOUP | {"conceptual": {"Tool": 3}}, SAID, "gold.jsonl:1: .*a text or an object"),
        (SOUP | {"tool": "x"}, SAID, "gold.jsonl:1: unknown key, got tool"),
        (SOUP | {"start_s": 3, "end_s": 2}, SAID, "gold.jsonl:1: soup: span is reversed"),
        (SOUP | {"conceptual": {" ": "spoon"}}, SAID, "gold.jsonl:1: .*empty role"),
        (SOUP, SAID | {"id": "stew"}, "said.jsonl:1: id names no clip .*'stew'; use ids such as 'soup'"),
        (SOUP, {"id": "soup"}, "said.jsonl:1: soup: caption is missing"),
        (SOUP, SAID | {"contextual": [{"text": "stir", "visual": "yes"}]}, "said.jsonl:1: a fact has the wrong visual"),
        (SOUP, SAID | {"contextual": "stir"}, "said.jsonl:1: contextual must be a list"),
    ],
)
def test_a_wrong_line_is_named_with_its_remedy(tmp_path, gold, said, message):
    with pytest.raises((RowError, ConfigError), match=message):
        files(tmp_path, [gold], [said])


def test_real_annotations_are_read_as_gold_and_their_negatives_are_refuted(shared_data):
    clips = read_clips(shared_data / "video-clips" / "annotations.json", relation_of_object="act/obj")
    assert len(clips) == 22
    said = [
        Caption(clip.id, clip.caption, {layer: tuple(f for f in clip.gold if f.layer == layer) for layer in LAYERS})
        for clip in clips
    ]
    for clip in clips:
        yes = {fact.claim for fact in clip.gold}
        assert not yes & {fact.claim for fact in clip.negative}
    per_clip = {clip.evidence: {fact.claim for fact in clip.gold} for clip in clips}

    def truth(pairs: Sequence[Pair]) -> Judgments:
        return Judgments({p.id: Judgment(p.claim in per_clip[p.evidence]) for p in pairs}, len(pairs), len(clips))

    result = multifact_scores(clips, {"perfect": said}, truth, n_draws=5)
    assert all(s.value == 1.0 for name, s in result.systems["perfect"].scores.items() if name.startswith("visual/"))
    assert all(s.value == 1.0 for s in result.judges.values() if not math.isnan(s.value))


def test_the_kitchens_invented_captions_carry_the_truth_about_their_facts():
    roles = {"Action": "chopping", "Ingredient": "onion", "Tool": "knife", "Location": "pan"}
    lying = {"Ingredient": ["tomato"], "Tool": ["spoon"]}
    clip = {"id": "c", "conceptual": roles, "distractors": ["tomato", "spoon"], "meta": {"lying": lying}}
    rows = list(captions_of([clip] * 200, (0.1, 0.2, 0.2), seed=0))
    for row in rows:
        for role, fact in row["conceptual"].items():
            visible = [roles[role], *lying.get(role, [])]
            assert (fact["visual"], fact["grounded"]) == (fact["text"] == roles[role], fact["text"] in visible)
        for phrase in row["contextual"]:
            assert relation_of(phrase["text"]) == phrase["role"]
    assert {fact["text"] for row in rows for fact in row["conceptual"].values()} > {"tomato", "spoon", *roles.values()}
    assert any("Tool" not in row["conceptual"] for row in rows)
