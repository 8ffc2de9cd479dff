"""One evidence, K claims, one pass: packing, the kept prefix, vision features, batches, and the heads that end it."""
