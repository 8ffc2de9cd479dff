"""False pairs: swapped evidence, altered claims, altered evidence, proposals of a language model, hard negatives."""
