"""Public benchmarks: their files, their statements, and each score against a plain restatement of its count."""

import json
import math
import random

import pytest

from proofreel.cli import main
from proofreel.core import Image, Pair, RowError, VideoSegment, problems_of
from proofreel.data_prep.benchmarks import BENCHMARKS, as_statement, benchmark_rows
from proofreel.data_prep.dataset import read_pairs
from proofreel.data_prep.importers import Rejected
from proofreel.eval.benchmarks import PROTOCOLS, Answer, claim_only, read_statements, without_files

PUBLISHED = {  # statements, true ones, media files
    "videohallucer": (2300, 1100, 1322),
    "tempcompass": (2453 + 2 * 1503, 1226 + 1503, 410),
    "vilma": (4 * (624 + 708), 2 * (624 + 708), 1306),
    "hallusionbench": (1129, 484, None),
    "pope": (9000, 4500, 500),
    "vsr": (1562, 796, 939),
    "amber": (14216, 2382 + 1036 + 975 + 396, 1004),
}
DRAWS = 200


def pair(name, true, **meta):
    label = "supported" if true else "refuted"
    meta = {"part": "all", "item": name, "kind": "k", "rule": "caption", **meta}
    return Pair(name, "A claim.", (Image("a.png"),), label, group=meta.get("group", name), meta=meta)


def answered(pairs, seed=0, failing=0.0):
    rng = random.Random(seed)
    answers = []
    for each in pairs:
        margin = math.nan if rng.random() < failing else rng.gauss(0.8 if each.label == "supported" else -0.8, 1.5)
        answers.append(Answer(each, margin, None if math.isnan(margin) else margin >= 0))
    return answers


def values(name, answers):
    return {score: value.value for score, value in PROTOCOLS[name](answers, DRAWS).items()}


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_the_published_annotations_are_read_whole(name, shared_data):
    pairs, damaged = read_statements(BENCHMARKS[name], shared_data / "benchmarks" / name)
    n, n_true, n_files = PUBLISHED[name]
    assert not damaged
    assert len({p.id for p in pairs}) == len(pairs) == n
    assert sum(p.label == "supported" for p in pairs) == n_true
    assert not [problem for p in pairs for problem in problems_of(p)]
    files = {e.path for p in pairs for e in p.evidence if isinstance(e, Image | VideoSegment)}
    assert n_files in (None, len(files))
    questions = {p.meta.get("question") for p in pairs}
    assert name in ("vilma", "vsr") or all(isinstance(q, str) and q for q in questions)


def test_questions_become_statements_by_rule_and_keep_their_words_where_no_rule_fits():
    for question, expected in {
        "Is there a snowboard in the image?": "There is a snowboard in the image.",
        "Are there two dogs in this image?": "There are two dogs in this image.",
        "Is the sky sunny in this image?": "The sky is sunny in this image.",
        "Does the man walk in this image?": "The man does walk in this image.",
        "Is the man dunking?": "The man is dunking.",
        "Does 'a dog runs' happen earlier than 'a cat sleeps'?": "'a dog runs' happens earlier than 'a cat sleeps'.",
        "Based on the video, should we add salt when we make soup?": "Based on the video, we should add salt when we "
        "make soup.",
        "Is the event 'he jumps' longer than 'he eats'?": "The event 'he jumps' is longer than 'he eats'.",
        "Is the ice cream melting?": 'The answer to the question "Is the ice cream melting?" is: yes.',
        "Is the red ring moving?": 'The answer to the question "Is the red ring moving?" is: yes.',
        "Are there any ducks in this figure?": 'The answer to the question "Are there any ducks in this figure?" is: '
        "yes.",
    }.items():
        assert as_statement(question)[0] == expected


def test_videohallucer_is_right_on_a_pair_where_both_questions_are():
    pairs = [
        pair(f"{part}{i}{side}", side == "basic", part=part, item=f"{part}{i}", side=side)
        for part, n in (("temporal", 30), ("semantic_detail", 11), ("interaction", 7))
        for i in range(n)
        for side in ("basic", "hallucination")
    ]
    answers = answered(pairs)
    said = {a.pair.id: (a.margin >= 0) == (a.pair.label == "supported") for a in answers}
    found, means = values("videohallucer", answers), []
    for part, n in (("temporal", 30), ("semantic_detail", 11), ("interaction", 7)):
        basic = [said[f"{part}{i}basic"] for i in range(n)]
        hallucinated = [said[f"{part}{i}hallucination"] for i in range(n)]
        paired = sum(x and y for x, y in zip(basic, hallucinated, strict=True)) / n
        assert found[f"{part} basic"] == pytest.approx(sum(basic) / n)
        assert found[f"{part} hallucinated"] == pytest.approx(sum(hallucinated) / n)
        assert found[f"{part} paired"] == pytest.approx(paired)
        means += [paired] if part != "interaction" else []
    assert found["overall paired"] == pytest.approx(sum(means) / 2)  # of the paper's parts, each counting once


def test_tempcompass_averages_over_questions_and_the_better_caption_wins():
    pairs = [pair(f"y{i}", i % 2, part="yes_no", kind=("speed", "order")[i % 3 == 0]) for i in range(40)]
    pairs += [
        pair(f"c{i}{o}", o == 0, part="caption_matching", item=f"c{i}", kind="action")
        for i in range(20)
        for o in (0, 1)
    ]
    answers = answered(pairs, 1)
    by = {a.pair.id: a for a in answers}
    found = values("tempcompass", answers)
    right = [(by[f"y{i}"].margin >= 0) == bool(i % 2) for i in range(40)]
    assert found["yes_no average"] == pytest.approx(sum(right) / 40)
    assert found["yes_no order"] == pytest.approx(sum(right[::3]) / 14)
    better = [by[f"c{i}0"].margin > by[f"c{i}1"].margin for i in range(20)]
    assert found["caption_matching action"] == found["caption_matching average"] == pytest.approx(sum(better) / 20)


def test_vilma_counts_valid_examples_and_both_tests_together():
    pairs = [
        pair(f"{i}{test}{side}", side == 0, part="relations", item=str(i), kind=test, valid=i % 3 > 0)
        for i in range(30)
        for test in ("main", "proficiency")
        for side in (0, 1, 2)
    ]
    answers = answered(pairs, 2)
    m = {a.pair.id: a.margin for a in answers}
    wins = {
        test: [m[f"{i}{test}0"] > max(m[f"{i}{test}1"], m[f"{i}{test}2"]) for i in range(30)]
        for test in ("main", "proficiency")
    }
    found = values("vilma", answers)
    valid = [i for i in range(30) if i % 3]
    assert found["relations T"] == pytest.approx(sum(wins["main"][i] for i in valid) / 20)
    assert found["relations P"] == pytest.approx(sum(wins["proficiency"][i] for i in valid) / 20)
    together = [wins["main"][i] and wins["proficiency"][i] for i in range(30)]
    assert found["relations P+T"] == pytest.approx(sum(together[i] for i in valid) / 20)
    assert found["relations P+T all examples"] == pytest.approx(sum(together) / 30)


def test_hallusionbench_counts_pairs_figures_and_questions():
    pairs = [
        pair(f"{c}{s}{f}{q}", (s + f + q) % 2, item=f"{c}{s}/{q}", kind=c, easy=f == 0, group=f"{c}{s}",
             figure=None if (c, f) == ("VS", 0) else f"{c}{s}/{f}")
        for c in ("VD", "VS") for s in range(6) for f in range(3) for q in range(2)
    ]  # fmt: skip
    answers = answered(pairs, 3)
    right = {a.pair.id: a.right for a in answers}
    found = values("hallusionbench", answers)
    of = [(c, s) for c in ("VD", "VS") for s in range(6)]
    assert found["aAcc"] == pytest.approx(sum(right.values()) / 72)
    q_acc = [all(right[f"{c}{s}{f}{q}"] for f in range(3)) for c, s in of for q in range(2)]
    assert found["qAcc"] == pytest.approx(sum(q_acc) / 24)
    f_acc = [all(right[f"{c}{s}{f}{q}"] for q in range(2)) for c, s in of for f in range(3) if (c, f) != ("VS", 0)]
    assert found["fAcc"] == pytest.approx(sum(f_acc) / 30)
    assert found["hard aAcc VD"] == pytest.approx(
        sum(all(right[f"VD{s}{f}{q}"] for f in (1, 2)) for s in range(6) for q in range(2)) / 12
    )


@pytest.mark.parametrize(("name", "positive"), [("pope", "supported"), ("amber", "refuted")])
def test_precision_and_recall_are_of_yes_in_pope_and_of_no_in_amber(name, positive):
    answers = answered([pair(f"p{i}", i % 3 == 0, part="random", kind="state") for i in range(60)], 4)
    truth = [a.pair.label == positive for a in answers]
    said = [(a.margin >= 0) == (positive == "supported") for a in answers]
    tp = sum(t and s for t, s in zip(truth, said, strict=True))
    precision, recall = tp / sum(said), tp / sum(truth)
    found = values(name, answers)
    part = "random" if name == "pope" else "state"
    assert found[f"{part} precision"] == pytest.approx(precision)
    assert found[f"{part} recall"] == pytest.approx(recall)
    assert found[f"{part} F1"] == pytest.approx(2 * precision * recall / (precision + recall))
    assert found[f"{part} accuracy"] == pytest.approx(sum(t == s for t, s in zip(truth, said, strict=True)) / 60)
    if name == "pope":
        assert found["random yes ratio"] == pytest.approx(sum(said) / 60)


def test_vsr_is_plain_accuracy():
    answers = answered([pair(f"v{i}", i % 2, part="test") for i in range(30)], 5)
    assert values("vsr", answers)["test accuracy"] == pytest.approx(sum(bool(a.right) for a in answers) / 30)


def test_a_failed_answer_is_neither_right_nor_wrong_but_bounds_the_score():
    pairs = [pair(f"p{i}", i % 2, part="random", group=f"g{i // 4}") for i in range(40)]
    answers = answered(pairs, 6, failing=0.2)
    n_failed = sum(a.yes is None for a in answers)
    assert 0 < n_failed < 40
    right, wrong = (
        PROTOCOLS["pope"]([a if a.yes is not None else Answer(a.pair, 1.0, (a.pair.label == "supported") == good)
                           for a in answers], DRAWS)
        for good in (True, False)
    )  # fmt: skip
    for name, score in PROTOCOLS["pope"](answers, DRAWS).items():
        assert math.isnan(score.value), name
        assert score.n_failed == n_failed
        if name != "random yes ratio":
            assert score.low == pytest.approx(wrong[name].value)
            assert score.high == pytest.approx(right[name].value)
        assert score.interval is not None
        assert score.interval.low <= score.low <= score.high <= score.interval.high


def test_a_damaged_record_is_refused_by_file_and_line_and_counted_where_it_is_let_through(tmp_path):
    lines = [
        {"question_id": i, "image": f"{i}.jpg", "text": "Is there a cup in the image?", "label": "yes"} for i in (1, 2)
    ]
    lines[1]["label"] = "perhaps"
    (tmp_path / "coco_pope_random.json").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    with pytest.raises(RowError, match=r"coco_pope_random\.json:2: pope: answer must be yes or no, got 'perhaps'"):
        read_statements(BENCHMARKS["pope"], tmp_path, ["random"])
    pairs, damaged = read_statements(BENCHMARKS["pope"], tmp_path, ["random"], skip_damaged=True)
    assert (len(pairs), [d.line for d in damaged]) == (1, [2])
    with pytest.raises(RowError, match=r"annotation files are missing.*coco_pope_popular\.json.*--parts"):
        list(benchmark_rows(BENCHMARKS["pope"], tmp_path))
    with pytest.raises(RowError, match="no such part, got \\['hard'\\]"):
        list(benchmark_rows(BENCHMARKS["pope"], tmp_path, ["hard"]))


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_a_record_of_another_shape_is_rejected_not_skipped(name, tmp_path):
    benchmark = BENCHMARKS[name]
    part = next(iter(benchmark.files))
    for file in benchmark.files[part]:
        text = '{"a": {"b": 1}}' if name in ("tempcompass", "vilma") else '[{"id": 1, "basic": 3}]'
        (tmp_path / file).write_text(text[1:-1] if name == "pope" else text, encoding="utf-8")
    items = list(benchmark_rows(benchmark, tmp_path, [part]))
    assert items
    assert all(isinstance(item, Rejected) and item.line == 1 for item in items)


def test_half_a_pair_is_no_pair_where_media_is_missing():
    pairs = [pair("a", True, item="x"), pair("b", False, item="y")]
    other = Pair("c", "Two.", (Image("b.png"),), "refuted", group="g", meta={"item": "x"})
    assert [p.id for p in without_files([*pairs, other], ["b.png"])] == ["b"]


def test_the_text_probe_finds_what_words_give_away_and_nothing_else():
    told = [pair(f"t{i}", i % 2, group=f"g{i}") for i in range(80)]
    told = [Pair(p.id, f"There is a {'dog' if i % 2 else 'cat'} here {i % 5}.", p.evidence, p.label, group=p.group,
                 meta=p.meta) for i, p in enumerate(told)]  # fmt: skip
    (leak,) = claim_only(told)
    assert leak.auc > 0.95
    same = [Pair(p.id, "There is a dog.", p.evidence, p.label, group=p.group, meta=p.meta) for p in told]
    (nothing,) = claim_only(same)
    assert nothing.low <= 0.5 <= nothing.high


def test_a_judge_without_media_is_refused_and_says_what_the_folder_holds(tmp_path, capsys):
    line = {"question_id": 1, "image": "a.jpg", "text": "Is there a cup in the image?", "label": "yes"}
    (tmp_path / "coco_pope_random.json").write_text(json.dumps(line), encoding="utf-8")
    words = ["bench", "pope", "--annotations", str(tmp_path), "--parts", "random", "--out", str(tmp_path / "out")]
    assert main([*words, "--verifier", "somewhere"]) == 1
    assert "pope needs COCO_val2014_*.jpg" in capsys.readouterr().err
    (tmp_path / "media").mkdir()
    assert main([*words, "--verifier", "somewhere", "--media", str(tmp_path / "media")]) == 1
    assert "files are missing, got 1 of 1, the first a.jpg" in capsys.readouterr().err
    assert main(words) == 0
    result = json.loads((tmp_path / "out" / "pope" / "result.json").read_text(encoding="utf-8"))
    assert result["counts"]["statements"] == 1
    assert result["claim_only"][0]["reason"]
    (statement,) = read_pairs(tmp_path / "out" / "pope" / "statements.jsonl")
    assert (statement.claim, statement.label) == ("There is a cup in the image.", "supported")
    assert statement.meta["question"] == line["text"]
