"""A verifier made public: export, model card, stored evaluation, hub."""
