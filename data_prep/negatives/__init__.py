"""False pairs: swapped evidence, altered claims, altered evidence, proposals of a language model, hard negatives."""

from .claim_changes import altered_claims, is_sentence, violations
from .even_swaps import EvenSwaps
from .evidence_changes import ORIGINS, AlteredEvidenceConfig, altered_evidence
from .evidence_index import Known
from .grammar import Grammar
from .hard_mining import Mined, MiningConfig, Review, mine
from .model_proposals import altered_by_model
from .origin_names import ORIGIN_NAMES, name_origin
from .phrases import phrase_of, segment_facts, words_of
from .scores import Score, named_evidence, read_scores
from .sentences import Sentences
from .swapped import (
    SWAPPED,
    ClaimRow,
    Segments,
    SwappedLabel,
    balanced_pairs,
    normal_claim,
    segment_rank,
    swap_targets,
    swapped_negatives,
    swapped_suffix,
)
from .vocabulary import SHIPPED, Vocabulary, WordGroups, read_word_groups
from .wordnet import WordNet

__all__ = [
    "ORIGINS",
    "ORIGIN_NAMES",
    "SHIPPED",
    "SWAPPED",
    "AlteredEvidenceConfig",
    "ClaimRow",
    "EvenSwaps",
    "Grammar",
    "Known",
    "Mined",
    "MiningConfig",
    "Review",
    "Score",
    "Segments",
    "Sentences",
    "SwappedLabel",
    "Vocabulary",
    "WordGroups",
    "WordNet",
    "altered_by_model",
    "altered_claims",
    "altered_evidence",
    "balanced_pairs",
    "is_sentence",
    "mine",
    "name_origin",
    "named_evidence",
    "normal_claim",
    "phrase_of",
    "read_scores",
    "read_word_groups",
    "segment_facts",
    "segment_rank",
    "swap_targets",
    "swapped_negatives",
    "swapped_suffix",
    "violations",
    "words_of",
]
