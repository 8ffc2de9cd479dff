"""What every other part stands on: errors, pairs and evidence, config, prompt, citations, spans, storage."""
