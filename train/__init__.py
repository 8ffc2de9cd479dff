"""Entry scripts and the trainer: LoRA fine-tuning of a verifier under accelerate and DeepSpeed."""
