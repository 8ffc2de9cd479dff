"""Several verifiers as one: plan, directory and the object that asks them."""
