"""A run on a backbone whose claims cannot share a row: planned and trained one claim a row, by its path alone."""

from typing import Any

from conftest import sft_arguments

from proofreel.core.pairs import Passage
from proofreel.models.verifier.verifier import Verifier
from proofreel.train.arguments import parse
from proofreel.train.recipe import run


def test_a_hybrid_trains_one_claim_a_row_says_so_and_scores(tiny_of, colour_dataset, tmp_path, capsys):
    options = {"max_steps": 2, "claims_per_row": 16, "per_device_train_batch_size": 4}
    draft: Any = run(*parse(sft_arguments(tiny_of("qwen3_5"), colour_dataset, tmp_path / "run", **options)))
    said = capsys.readouterr().err
    assert "packed rows of at most 1," in said
    assert "rows          one claim each: layers of Qwen3.5 carry a state through a row" in said
    verifier = Verifier.from_pretrained(draft, device="cpu", untrained_evidence=True)
    verdicts = verifier.score(["Colour is red.", "No."], Passage("It is red."))
    assert all(verdict.error is None for verdict in verdicts)
