"""A head is one class and one line of HEADS: training, scoring, directories, docs and model card then know it."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from random_drafts import random_draft

from proofreel.core import DirectoryError, Passage
from proofreel.eval.publishing.model_card import head_line, tags_of
from proofreel.models.directory import read_directory
from proofreel.models.engine import HEADS, NextToken, head_name, head_table, make_head
from proofreel.models.inputs import LabelWords
from proofreel.models.verifier import Verifier
from proofreel.train.arguments import parse_distill

CLAIMS, EVIDENCE = ["The ball is red.", "A cook."], Passage("The ball is red.")


@dataclass(frozen=True)
class Softened(NextToken):
    """The next token at twice the temperature."""

    description = "the next token, its logits halved"
    tags = ("softened",)

    @classmethod
    def make(cls, words, labels):
        return cls(words, labels)

    def classes(self, logits_NR):
        return super().classes(logits_NR) / 2

    def plan_line(self, decode):
        return f"softened {super().plan_line(decode)}"

    def card_line(self, words):
        return f"Its verdict is read from the halved logits of {words[0]!r} and {words[1]!r}."


@pytest.fixture
def added(monkeypatch):
    monkeypatch.setitem(HEADS, "softened", Softened)


@pytest.fixture
def draft(added, tiny_base, tmp_path, small_sampling):
    return random_draft(tiny_base, tmp_path / "draft", small_sampling, config={"head": "softened"})


def test_training_takes_its_name(added, tmp_path):
    words = ["--teacher", "t.parquet", "--dataset_dir", "d", "--model_name_or_path", "m", "--output_dir", str(tmp_path)]
    assert parse_distill([*words, "--head", "softened"])[0].head == "softened"


def test_a_directory_records_it_and_scores_with_it(draft, tiny_base, tmp_path, small_sampling):
    plain = random_draft(tiny_base, tmp_path / "plain", small_sampling)
    assert read_directory(draft).head == "softened"
    softened, other = (Verifier.from_pretrained(folder) for folder in (draft, plain))
    assert type(softened.head) is Softened
    margins, theirs = ([v.margin for v in x.score(CLAIMS, EVIDENCE)] for x in (softened, other))
    assert margins == pytest.approx([m / 2 for m in theirs], abs=1e-5)


def test_a_directory_with_a_head_that_is_not_listed_is_refused(draft, monkeypatch):
    monkeypatch.delitem(HEADS, "softened")
    with pytest.raises(DirectoryError, match=r"head must be one of .*softened"):
        read_directory(draft)


def test_the_docs_and_the_model_card_name_it(added, draft):
    assert "| `softened` | the next token, its logits halved | supported, refuted |" in head_table()
    config = read_directory(draft)
    assert "softened" in tags_of(config)
    head = make_head(config.head, LabelWords(config.supported_id, config.refuted_id), config.labels)
    assert head_name(head) == "softened"
    assert "halved logits of" in head_line(config)


def test_the_table_of_the_docs_is_that_of_the_dict():
    assert head_table() in (Path(__file__).resolve().parents[2] / "docs" / "engine.md").read_text(encoding="utf-8")
