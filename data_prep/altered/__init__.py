"""Negatives by alteration: claims with one slot replaced, evidence changed; the rules and vocabularies behind them."""
