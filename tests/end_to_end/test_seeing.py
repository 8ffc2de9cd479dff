"""It must truly see: trained on real clips where text alone is at chance, the verifier knows, and falls without frames.

Every claim of this set stands equally often with a segment where it holds and with one where it does not (checked by
hand, tests/data/clips_build.yaml), so no function of the claim alone can rank the rows better than a coin.
"""

from collections import Counter
from pathlib import Path

from conftest import sft_arguments

from proofreel.data_prep import build
from proofreel.data_prep.dataset.shards import read_split
from proofreel.data_prep.negatives.swapped import normal_claim
from proofreel.eval.metrics.ranking import roc_auc
from proofreel.eval.scoring.controls import mismatch_evidence
from proofreel.eval.scoring.score import predict
from proofreel.models.verifier.verifier import Verifier
from proofreel.train import sft


def auc(predictions):
    assert all(p.error is None for p in predictions)
    return float(roc_auc([p.margin for p in predictions], [p.label == "supported" for p in predictions]))


def test_a_trained_verifier_knows_by_looking(shared_data, tmp_path):
    from proofreel.core.prompt import Prompt
    from proofreel.models.backbones.tiny import TinySizes, save_tiny_model

    config = Path(__file__).parents[1] / "data" / "clips_build.yaml"
    assert build.main(["--config", str(config), f"output={tmp_path / 'data'}"]) == 0
    pairs = read_split(tmp_path / "data", "train")
    counts = Counter((normal_claim(p.claim), p.label == "supported") for p in pairs)
    assert all(counts[claim, True] == counts[claim, False] for claim, _ in counts)
    assert len(counts) // 2 >= 60

    texts = [*([Prompt().system] * 20), *(f"Claim: {p.claim}" for p in pairs)]
    sizes = TinySizes(hidden=96, layers=2, mlp=192, vision_hidden=64, vision_depth=2, vision_mlp=128)
    base = save_tiny_model(tmp_path / "base", texts, sizes)
    settings = {
        "use_peft": False,
        "train_vision": True,
        "learning_rate": 1e-3,
        "max_steps": 110,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.05,
        "per_device_train_batch_size": 22,
        "fps": 2,
        "min_frames": 8,
        "max_frames": 8,
        "logging_steps": 20,
        "frame_cache": tmp_path / "frames",
    }
    assert sft.main(sft_arguments(base, tmp_path / "data", tmp_path / "run", **settings)) == 0

    verifier = Verifier.from_pretrained(tmp_path / "run" / "draft", device="cpu")
    seeing = auc(predict(verifier, pairs))
    # Twenty-two segments are few: several rotations of the frames are pooled.
    blind = auc([p for nth in (1, 2, 3, 4) for p in predict(verifier, mismatch_evidence(pairs, nth))])
    print(f"AUC with its own frames {seeing:.3f}, with another segment's {blind:.3f}")
    assert seeing >= 0.95
    assert blind <= 0.65
