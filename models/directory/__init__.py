"""The published format: a verifier's folder written, checked, read and merged."""
