"""Worlds and walk-throughs that ship with the repository and are not installed; run from the repository root."""
