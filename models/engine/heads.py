"""Heads: how the logits at a verdict position become classes, and their margin.

Every head puts supported first, and its margin is the log-odds of supported against the rest, in float32: of training,
of scoring and of the stored golden inputs alike. To add a head, write one class here and one line of `HEADS`.

Shape suffixes: _N verdict positions, _R rows of the output layer that a head reads, _C classes of a head, _H hidden.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ...core import ConfigError, Label, ModelInputError
from ..inputs import LabelWords

if TYPE_CHECKING:
    import torch

TWO_LABELS: tuple[Label, ...] = ("supported", "refuted")
THREE_LABELS: tuple[Label, ...] = ("supported", "refuted", "not_enough")

# How far refuted starts beyond the word "no", and not_enough short of it, in units of (no - yes).
LABEL_SPLIT = 0.01


class Head(ABC):
    """How logits at a verdict position are read.

    Attributes:
        description: what the verdict is read from, for the docs.
        label_sets: the labels that it may have, in the order of its classes.
        has_layer: whether a linear layer `score` stands in place of the output layer. It has a row for each label, is
            trained whole, and is stored with the adapter or the model. Without one, logits are the vocabulary's.
        tags: of the model card.
        labels: those of this head, one of `label_sets`.
    """

    description: ClassVar[str]
    label_sets: ClassVar[tuple[tuple[Label, ...], ...]]
    has_layer: ClassVar[bool]
    tags: ClassVar[tuple[str, ...]] = ()
    labels: tuple[Label, ...]

    @classmethod
    @abstractmethod
    def make(cls, words: LabelWords, labels: tuple[Label, ...]) -> Head:
        """The head of a verifier with these verdict words and labels."""

    @property
    def rows(self) -> tuple[int, ...] | None:
        """Rows of the output layer that it reads, the R of `classes`; None: all of them."""
        return None

    @abstractmethod
    def classes(self, logits_NR: torch.Tensor) -> torch.Tensor:
        """(N, C) float32 logits of the labels, in their order, from those of `rows`, in theirs."""

    def start(self, yes_H: torch.Tensor, no_H: torch.Tensor) -> torch.Tensor:
        """(C, H) weights that a new `score` layer starts from, given the verdict words' rows of the output layer."""
        raise ConfigError(f"head: has no layer to start, got {type(self).__name__}; load the backbone without a head")

    @abstractmethod
    def plan_line(self, decode: Callable[[int], str]) -> str:
        """The head in the plan of a training run; `decode` gives the text of a token."""

    @abstractmethod
    def card_line(self, words: Sequence[str]) -> str:
        """The sentence of the model card; `words` are the two verdict words."""


@dataclass(frozen=True)
class NextToken(Head):
    """The verdict is the next token: of the vocabulary's logits, those of the two verdict words count."""

    description = "the next token: the logits of the two verdict words"
    label_sets = (TWO_LABELS,)
    has_layer = False

    words: LabelWords
    labels: tuple[Label, ...] = TWO_LABELS

    @classmethod
    def make(cls, words: LabelWords, labels: tuple[Label, ...]) -> NextToken:
        """As `Head.make`."""
        return cls(words, labels)

    @property
    def rows(self) -> tuple[int, ...]:
        """The verdict words."""
        return self.words.supported_id, self.words.refuted_id

    def classes(self, logits_NR: torch.Tensor) -> torch.Tensor:
        """(N, 2) float32: logits of supported and refuted."""
        return logits_NR.float()

    def plan_line(self, decode: Callable[[int], str]) -> str:
        """Names both words and their ids."""
        yes, no = (f"{decode(i)!r} (id {i})" for i in (self.words.supported_id, self.words.refuted_id))
        return f"next token, {yes} or {no}"

    def card_line(self, words: Sequence[str]) -> str:
        """Names both words."""
        return f"Its verdict is the next token, read from the logits of {words[0]!r} and {words[1]!r}."


@dataclass(frozen=True)
class NLIHead(Head):
    """The verdict is a label of the model's `score` layer, whose rows stand in the order of `labels`."""

    description = "a linear layer `score` in place of the output layer, one row for each label"
    label_sets = (TWO_LABELS, THREE_LABELS)
    has_layer = True
    tags = ("nli",)

    labels: tuple[Label, ...] = TWO_LABELS

    def __post_init__(self) -> None:
        """Refuse labels in an order that the margin would misread."""
        if self.labels not in self.label_sets:
            raise ModelInputError(
                f"head: labels must be {TWO_LABELS} or {THREE_LABELS}, got {self.labels}; use one in this order"
            )

    @classmethod
    def make(cls, words: LabelWords, labels: tuple[Label, ...]) -> NLIHead:
        """As `Head.make`; the words matter only to where its layer starts."""
        return cls(labels)

    def classes(self, logits_NR: torch.Tensor) -> torch.Tensor:
        """(N, labels) float32, as the layer gives them."""
        if logits_NR.shape[1] != len(self.labels):
            raise ModelInputError(
                f"head: {len(self.labels)} labels, got {logits_NR.shape[1]} logits; load the backbone with this head"
            )
        return logits_NR.float()

    def start(self, yes_H: torch.Tensor, no_H: torch.Tensor) -> torch.Tensor:
        """(labels, H): with two labels the verdict words' own rows, so that margins begin as the next token's.

        With three, refuted starts a little beyond "no" and not_enough a little short of it (`LABEL_SPLIT`), and margins
        begin log 2 lower.
        """
        import torch  # here: reading a verifier directory's configuration names the heads, and needs no torch

        if self.labels == TWO_LABELS:
            return torch.stack([yes_H, no_H])
        beyond_H = LABEL_SPLIT * (no_H - yes_H)
        return torch.stack([yes_H, no_H + beyond_H, no_H - beyond_H])

    def plan_line(self, decode: Callable[[int], str]) -> str:
        """Names the labels."""
        return f"NLI head of {len(self.labels)} labels ({', '.join(self.labels)})"

    def card_line(self, words: Sequence[str]) -> str:
        """Names the labels."""
        return f"Its verdict is read from a head with the labels {', '.join(self.labels)}."


# By the name that configurations and verifier directories have for it.
HEADS: dict[str, type[Head]] = {
    "next_token": NextToken,
    "nli": NLIHead,
}


def make_head(name: str, words: LabelWords, labels: tuple[Label, ...]) -> Head:
    """The head of that name.

    Raises:
        ConfigError: no such head, or labels that it does not have.
    """
    if name not in HEADS:
        raise ConfigError(f"head: must be one of {tuple(HEADS)}, got {name!r}; pick one")
    if labels not in HEADS[name].label_sets:
        raise ConfigError(f"labels: not of a {name} head, got {labels}; use one of {HEADS[name].label_sets}")
    return HEADS[name].make(words, labels)


def head_name(head: Head) -> str:
    """The name of a head in `HEADS`."""
    return next(name for name, kind in HEADS.items() if type(head) is kind)


def head_table() -> str:
    """The Markdown table of docs/engine.md: a row per head."""
    lines = ["| `head` | verdict read from | labels |", "|---|---|---|"]
    for name, head in HEADS.items():
        labels = "; or ".join(", ".join(labels) for labels in head.label_sets)
        lines.append(f"| `{name}` | {head.description} | {labels} |")
    return "\n".join(lines)


def margin(logits: torch.Tensor) -> torch.Tensor:
    """(..., C) logits, supported first, to (...) margins: logit supported minus the log-sum-exp of the others."""
    return logits[..., 0] - logits[..., 1:].logsumexp(-1)
