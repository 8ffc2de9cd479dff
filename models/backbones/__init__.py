"""The families of networks a verifier may stand on: loading, LoRA, tiny models, and what a foreign folder may hold."""
