"""What a data set is on disk: shards, manifest, splits, the claim-only probe and the card."""
