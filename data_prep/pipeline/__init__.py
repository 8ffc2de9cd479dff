"""A build, step by step: sources, checks, the staging database, negatives, splits, shards, manifest."""
