"""Fine-tune a next-token verifier.

    accelerate launch train/sft.py --config configs/kitchen_sft.yaml
    accelerate launch train/sft.py --config configs/kitchen_sft.yaml --learning_rate 1e-4 --output_dir runs/other
    accelerate launch train/sft.py --config configs/kitchen_sft.yaml --validate_only true

Keys are those of transformers' TrainingArguments, TRL's ModelConfig, and train/arguments.py. Leaves an uncalibrated
verifier in <output_dir>/draft, which eval/predict.py reads and eval/export.py publishes.
"""

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Parse and run; the exit status is 1 if configuration or data are at fault."""
    from proofreel.train.launch_words import begin

    if (status := begin(argv, "sft", __doc__)) is not None:
        return status

    from proofreel.train.recipe import run_training

    return run_training(argv)


if __name__ == "__main__":
    raise SystemExit(main())
