"""Fine-tune a verifier with an NLI head: two labels (supported, refuted) or three (and not_enough).

    accelerate launch train/nli.py --config configs/kitchen_nli.yaml
    accelerate launch train/nli.py --config configs/kitchen_nli.yaml --learning_rate 1e-4 --output_dir runs/other
    accelerate launch train/nli.py --config configs/kitchen_nli.yaml --validate_only true

The head is a linear layer on the last position of the prompt. It starts from the output layer's rows of the two verdict
words, so that it begins as the next-token verifier does, or at random (MiRAGE, appendix H).

Keys are those of transformers' TrainingArguments, TRL's ModelConfig, and train/arguments.py. Leaves an uncalibrated
verifier in <output_dir>/draft, which eval/predict.py reads and eval/export.py publishes.
"""

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Parse and run; the exit status is 1 if configuration or data are at fault."""
    from proofreel.train.launch_words import begin

    if (status := begin(argv, "nli", __doc__)) is not None:
        return status

    from proofreel.train.recipe import run_training

    return run_training(argv, head="nli")


if __name__ == "__main__":
    raise SystemExit(main())
