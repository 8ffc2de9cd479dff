"""Several annotators, one claim: nobody's judgment is lost, and nobody votes twice."""

from collections import Counter
from pathlib import Path

import pytest

from proofreel.core.errors import ConfigError
from proofreel.core.pairs import Label, Pair, Passage, problems_of
from proofreel.data_prep.importers.base import Row
from proofreel.data_prep.importers.mirage_judgments import (
    COPY_MIN_CLAIMS,
    MODES,
    MirageJudgmentsOptions,
    merge_annotators,
    read,
)

YES: Label = "supported"
NO: Label = "not_enough"


def judgments(*labels: Label | None, claim: str = "c") -> list[Row]:
    """One judgment per annotator, each in a file of its own."""
    return [
        Row(
            Pair(
                f"sys/t/prediction/{claim}/annotator_{number}",
                claim,
                (Passage("R."),),
                label,
                meta={"system": "sys", "annotator": number},
            ),
            f"annotator_{number}.json",
            number,
            "t",
        )
        for number, label in enumerate(labels, start=1)
    ]


def real_rows(folder: Path, pattern: str = "metric_*.json") -> list[Row]:
    files = sorted((folder / "mirage" / "metric_preference").glob(pattern))
    return [row for path in files for row in read(path, MirageJudgmentsOptions()) if isinstance(row, Row)]


def test_all_real_judgments_are_accounted_for_in_every_mode(shared_data):
    rows = real_rows(shared_data)
    assert (len(rows), sum(row.pair.label is None for row in rows)) == (5736, 47)
    copied = "judgments copy another annotator's"
    expected = {
        "all": (5689, {copied: 2, "claim was left unjudged": 47}),
        "majority": (1821, {copied: 2, "annotators are evenly split": 91}),
        "soft": (1912, {copied: 2}),
    }
    for mode in MODES:
        merged, out = merge_annotators(rows, mode)
        assert (len(merged), dict(Counter(item.kind for item in out))) == expected[mode]
        assert len({row.pair.id for row in merged}) == len(merged)
        assert not [problem for row in merged for problem in problems_of(row.pair)]
        assert not any(item.blocking for item in out)


def test_the_third_annotator_of_one_real_system_is_the_first_again(shared_data):
    for kind in ("prediction", "reference"):
        merged, out = merge_annotators(real_rows(shared_data, f"metric_{kind}_qwen3_llm_*"), "soft")
        assert [Path(item.file).name for item in out] == [f"metric_{kind}_qwen3_llm_annotator_3_DONE.json"]
        assert max(sum(row.pair.meta["votes"].values()) for row in merged) == 2
        every, _ = merge_annotators(real_rows(shared_data, f"metric_{kind}_qwen3_llm_*"), "all")
        assert {row.pair.meta.get("copy_of") for row in every if row.pair.meta["annotator"] == 3} == {1}


@pytest.mark.parametrize(
    ("labels", "majority", "soft", "share"),
    [
        ((YES, YES, YES), YES, YES, 1.0),
        ((YES, NO, YES), YES, YES, 2 / 3),
        ((NO, NO, YES), NO, NO, 1 / 3),
        ((NO, None, NO), NO, NO, 0.0),
        ((None, None, YES), YES, YES, 1.0),
        ((YES, None, NO), None, None, 0.5),
    ],
)
def test_votes_make_a_label_and_a_share(labels, majority, soft, share):
    rows = judgments(*labels)
    (row,), _ = merge_annotators(rows, "soft")
    assert (row.pair.label, row.pair.soft_label) == (soft, share)
    assert row.pair.meta["votes"] == {
        "supported": labels.count(YES),
        "not_enough": labels.count(NO),
        "unjudged": labels.count(None),
    }
    assert (row.pair.id, "annotator" in row.pair.meta) == ("sys/t/prediction/c", False)
    merged, out = merge_annotators(rows, "majority")
    assert [(row.pair.label, row.pair.soft_label) for row in merged] == ([] if majority is None else [(majority, None)])
    assert [item.kind for item in out] == (["annotators are evenly split"] if majority is None else [])


def test_an_even_split_names_the_places():
    _, (split,) = merge_annotators(judgments(YES, NO), "majority")
    assert "supported at annotator_1.json:1, not_enough at annotator_2.json:2" in split.reason
    assert (split.pairs, split.blocking) == (1, False)


@pytest.mark.parametrize("mode", ["majority", "soft"])
def test_what_nobody_judged_is_kept_out_and_listed_once(mode):
    merged, (out,) = merge_annotators(judgments(None, None, None), mode)
    assert merged == []
    assert (out.kind, out.pairs, out.blocking) == ("claim was left unjudged", 1, False)


def test_all_keeps_every_judgment_as_it_is():
    rows = judgments(YES, NO, None)
    merged, out = merge_annotators(rows, "all")
    assert merged == rows[:2]
    assert [item.id for item in out] == ["sys/t/prediction/c/annotator_3"]


def many(n: int, last: Label) -> list[Row]:
    """n claims; annotator 2 says what annotator 1 says, but for the last claim."""
    rows = [judgments(YES if k % 3 else NO, YES if k % 3 else NO, NO, claim=f"c{k}") for k in range(n - 1)]
    return [row for same in [*rows, judgments(YES, last, NO, claim="last")] for row in same]


def test_a_copy_has_no_vote_and_one_difference_makes_an_opinion():
    merged, out = merge_annotators(many(COPY_MIN_CLAIMS, YES), "soft")
    assert [(item.file, item.pairs) for item in out] == [("annotator_2.json", 0)]
    assert {sum(row.pair.meta["votes"].values()) for row in merged} == {2}
    for rows in (many(COPY_MIN_CLAIMS, NO), many(COPY_MIN_CLAIMS - 1, YES)):
        merged, out = merge_annotators(rows, "soft")
        assert out == []
        assert {sum(row.pair.meta["votes"].values()) for row in merged} == {3}


def test_no_judgments_make_no_rows_and_unknown_modes_are_refused():
    assert merge_annotators([]) == ([], [])
    with pytest.raises(ConfigError, match="mode: is unknown, got 'mean'"):
        merge_annotators([], "mean")  # type: ignore[arg-type]
