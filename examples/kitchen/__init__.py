"""The synthetic kitchen: rendered cooking clips whose true facts are known. `docs/kitchen.md` describes it."""
