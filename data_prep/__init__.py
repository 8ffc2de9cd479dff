"""Annotations in, datasets of (claim, evidence, label) out. No torch here."""
