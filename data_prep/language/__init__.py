"""The one language-model client: an endpoint or a local model, its answers parsed, its completions kept."""
