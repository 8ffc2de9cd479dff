"""The project's one language-model client: checked answers, retries, a cache on disk, costs."""
