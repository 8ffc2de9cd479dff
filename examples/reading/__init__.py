"""A real language model reads real articles: a text verifier on SmolLM2-135M against human judgments of claims."""
