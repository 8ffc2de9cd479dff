"""Distil a small verifier from the margins of a large one, or from one that saw more.

    accelerate launch train/distill.py --config configs/distill_7b_to_3b.yaml --teacher runs/teacher/train.parquet
    accelerate launch train/distill.py --config configs/kitchen_distill.yaml --alpha 0.3 --temperature 2
    accelerate launch train/distill.py --config configs/kitchen_distill.yaml --validate_only true

The teacher is a file of margins over the train split (eval/predict.py, eval/teach.py); it is not loaded here. Rows
learn from their label, from the teacher, or from both; rows without a label from the teacher alone. The student may be
smaller, see fewer frames or fewer pixels, have an NLI head (`head: nli`), or be trained over a quantised base.

Keys are those of train/sft.py (or train/nli.py), and of `DistillArguments` in train/arguments.py. Leaves an
uncalibrated verifier in <output_dir>/draft, as these do.
"""

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Parse and run; the exit status is 1 if configuration or data are at fault."""
    from proofreel.train.launch_words import begin

    if (status := begin(argv, "distill", __doc__)) is not None:
        return status

    from proofreel.train.recipe import run_training

    return run_training(argv, distills=True)


if __name__ == "__main__":
    raise SystemExit(main())
