"""The kitchen's proof of mining: candidates are false by the known facts, the table says what scikit-learn finds."""

import json
from collections import Counter

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from examples.kitchen.annotating import annotate
from examples.kitchen.filming import SPLITS, plan_clips, plan_long
from examples.kitchen.mining import CANDIDATES, pooled, seen
from examples.kitchen.mining_table import HARD, case_of, table
from proofreel.core.pairs import VideoSegment, evidence_key
from proofreel.data_prep.importers.base import Rejected
from proofreel.data_prep.importers.facts import read_facts
from proofreel.data_prep.negatives.swapped import normal_claim
from proofreel.eval.scoring.predictions import Prediction, write_predictions


@pytest.fixture(scope="module")
def dealt(tmp_path_factory):
    """The kitchen's claims of 60 clips and 8 longer videos to a split, as they are built; nothing is filmed."""
    path, rows = tmp_path_factory.mktemp("kitchen") / "annotations.json", []
    for split in SPLITS[:2]:
        for videos, name in ((plan_clips(0, split, 60), "clips"), (plan_long(0, split, 8), "long")):
            rows += annotate(0, videos, f"{name}/{split}")
    path.write_text(json.dumps(rows))
    found = list(read_facts(path))
    assert not any(isinstance(row, Rejected) for row in found)
    return [row.pair for row in found]  # type: ignore[union-attr]


def test_every_candidate_is_false_by_the_known_facts_of_what_it_is_asked_of(dealt):
    true = {}
    for pair in map(seen, dealt):
        if pair.label == "supported":
            true.setdefault(evidence_key(pair.evidence), set()).add(normal_claim(pair.claim))
    assert {len(claims) for claims in true.values()} == {8}  # the facts of every step are all known
    pool = [p for p in pooled(map(seen, dealt)) if p.split == "train"]
    swapped = [p for p in pool if p.origin == "swapped_evidence"]
    assert {p.label for p in swapped} == {"refuted"}
    assert len(swapped) > 4 * (len(pool) - len(swapped))
    for pair in swapped:
        assert normal_claim(pair.claim) not in true[evidence_key(pair.evidence)], pair
    asked = [(normal_claim(p.claim), evidence_key(p.evidence)) for p in pool]
    assert len(set(asked)) == len(asked)
    # Text alone says little: the claims of the candidates are those that are true somewhere.
    assert {normal_claim(p.claim) for p in swapped} <= {claim for claims in true.values() for claim in claims}
    times = {name: Counter(normal_claim(p.claim) for p in pool if p.label == name) for name in ("supported", "refuted")}
    assert all(times["refuted"][claim] <= CANDIDATES * n for claim, n in times["supported"].items())


def test_other_splits_keep_what_was_dealt_and_nothing_is_heard(dealt):
    pool = pooled(map(seen, dealt))
    kept = [p for p in pool if p.split != "train"]
    assert kept == [seen(p) for p in dealt if p.split != "train"]
    assert {p.origin for p in kept} >= {f"negative_{kind}" for kind in HARD}
    assert any(len(p.evidence) == 2 for p in dealt)
    assert all(isinstance(piece, VideoSegment) for p in pool for piece in p.evidence)


def predictions(knowledge: float, seed: int) -> list[Prediction]:
    rng, rows = np.random.default_rng(seed), []
    origins = ["annotated"] * 4 + [f"negative_{kind}" for kind in (*HARD, "other")]
    for n in range(800):
        label = "supported" if n % 8 < 4 else "refuted"
        margin = float(np.float32(knowledge * (label == "supported") + rng.normal()))
        p = float(1 / (1 + np.exp(-margin)))
        rows.append(Prediction(f"p{n}", margin, p, label, "test", f"g{n // 16}", "r", origins[n % 8], "visual", None))
    return rows


def test_the_table_shows_means_over_seeds_and_paired_differences(tmp_path):
    rounds = [[predictions(knowledge, seed) for seed in (1, 2)] for knowledge in (0.5, 1.5)]
    folders = [[tmp_path / f"{n}-{seed}" for seed in (1, 2)] for n in (0, 1)]
    for paths, seeds in zip(folders, rounds, strict=True):
        for path, rows in zip(paths, seeds, strict=True):
            write_predictions(path / "test.parquet", rows[::-1], {})
    for kinds in (None, HARD, ("distractor",)):
        found = case_of(rounds, kinds, 200)
        for seeds, observed in zip(rounds, found.rounds, strict=True):
            for rows, auc in zip(seeds, observed.of_seeds["auc"], strict=True):
                part = [p for p in rows if kinds is None or p.label == "supported" or p.origin[9:] in kinds]
                assert auc == pytest.approx(
                    roc_auc_score([p.label == "supported" for p in part], [p.margin for p in part])
                )
        assert found.tests[0].difference == pytest.approx(
            found.rounds[1].observed["auc"] - found.rounds[0].observed["auc"]
        )
        assert found.tests[0].p_value < 0.05
        assert found.n_negatives == {None: 400, HARD: 300}.get(kinds, 100)
    text = table(folders, 200)
    whole = case_of(rounds, None, 200)
    assert f"| mined (round 1) | {whole.rounds[1].observed['auc']:.3f} (" in text
    assert f"| mined (round 1) | {whole.tests[0].difference:+.3f} (clips +" in text
    assert "2 training seeds, 50 test clips, 200 resamples and permutations of clips and videos" in text
