"""The one language-model client: an endpoint or a local model, its answers parsed, its completions kept."""

from .answers import (
    AnswerError,
    Complete,
    Completion,
    LanguageModelError,
    Message,
    ask,
    json_parser,
    map_ordered,
    normal_word,
    parse_json,
    without_thoughts,
    word_logprobs,
    yes_or_no,
)
from .client import LanguageModel, LanguageModelConfig
from .rewrite import read_with_statements

__all__ = [
    "AnswerError",
    "Complete",
    "Completion",
    "LanguageModel",
    "LanguageModelConfig",
    "LanguageModelError",
    "Message",
    "ask",
    "json_parser",
    "map_ordered",
    "normal_word",
    "parse_json",
    "read_with_statements",
    "without_thoughts",
    "word_logprobs",
    "yes_or_no",
]
