"""A verifier as a reward: how far the sentences of a text hold by its evidence, for TRL, verl, ms-swift, lm-eval.

    reward = ClaimReward(Verifier.from_pretrained("checkpoints/kitchen-verifier"))    # or a Client of `proofreel serve`
    GRPOTrainer(..., reward_funcs=reward)                    # the data set has a column `evidence`

The value of a sentence is its calibrated probability; where the verifier abstains, the neutral value: neither praise
nor blame for what it cannot tell. Evidence that cannot be judged is no verdict either: neutral, logged and counted, or
raised. A sentence that cannot be judged though its evidence can (too long, control characters) has the value of saying
nothing, or a policy would learn to write it. No framework is imported; docs/rewards.md shows each.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from proofreel.core import (
    ConfigError,
    Evidence,
    MediaError,
    Pair,
    ProofreelError,
    cited_sentences,
    evidence_from_dict,
    evidence_key,
    problems_of,
)

_log = logging.getLogger(__name__)
_CLAIMS_AT_ONCE = 128  # a server takes 256 by default
_UNREADABLE = (404, 413, 422)  # what a server says of evidence


class Scorer(Protocol):
    """A `Verifier`, or a `Client` of one."""

    def score(self, claims: Sequence[str], evidence: Any) -> list[Any]: ...


@dataclass(frozen=True)
class Reward:
    """The reward of one text.

    Attributes:
        value: None if nothing of the text could be told and the neutral value is None.
        n_claims: its sentences.
        n_abstained: sentences for which the verifier abstains.
        n_failed: sentences whose evidence could not be judged.
        n_refused: sentences that could not be judged though their evidence could.
    """

    value: float | None
    n_claims: int
    n_abstained: int = 0
    n_failed: int = 0
    n_refused: int = 0


@dataclass(frozen=True)
class _Failed:
    """What stands for the verdict on evidence that a server refused."""

    error: str


class ClaimReward:
    """Rewards of texts by their evidence. TRL and ms-swift call it itself; verl and lm-eval call methods of it.

    Attributes:
        counts: sentences so far that were `scored`, `abstained` from, `failed` or `refused`, and texts without any
            (`empty`).
    """

    def __init__(
        self,
        scorer: Scorer,
        *,
        column: str = "evidence",
        claims_of: Callable[[str], Sequence[str]] = cited_sentences,
        aggregate: Literal["mean", "min"] = "mean",
        neutral: float | None = 0.5,
        empty: float = 0.0,
        on_error: Literal["neutral", "raise"] = "neutral",
    ) -> None:
        """Make a reward.

        Args:
            scorer: a `Verifier` in this process, or a `Client` of a server, which any number of processes share.
            column: of the data set, with each row's evidence: an evidence or its dict, a list of them, or JSON text.
            claims_of: the claims of a text; its sentences.
            aggregate: `mean` over the claims, or `min`: as good as its worst claim.
            neutral: value of a claim that the verifier abstains from, or whose evidence it cannot judge. None leaves
                such claims out, and a text without any other gets None, which TRL leaves out of its group.
            empty: value of a text that claims nothing, and of a claim that is itself unreadable; low, or silence would
                be the best answer.
            on_error: `raise` ends the run at the first evidence that cannot be judged.

        Raises:
            ConfigError: another aggregate or `on_error`.
        """
        for name, value, known in (
            ("aggregate", aggregate, ("mean", "min")),
            ("on_error", on_error, ("neutral", "raise")),
        ):
            if value not in known:
                raise ConfigError(f"ClaimReward: {name} is unknown, got {value!r}; use one of {list(known)}")
        self.scorer, self.column, self.claims_of = scorer, column, claims_of
        self.aggregate, self.neutral, self.empty, self.on_error = aggregate, neutral, empty, on_error
        self.counts: Counter[str] = Counter()
        self.__name__ = "proofreel"  # the frameworks log rewards by the function's name

    def __call__(self, prompts: Any = None, completions: Any = None, **columns: Any) -> list[float | None]:
        """TRL's reward function and ms-swift's: a value per completion, which is a text or a list of messages."""
        if completions is None:  # ms-swift gives completions as its one positional argument
            prompts, completions = None, prompts
        if self.column not in columns:
            raise ConfigError(
                f"ClaimReward: no evidence, got columns {sorted(columns)}; name the data set's column of it: column=..."
            )
        texts = [text_of(completion) for completion in completions]
        return [reward.value for reward in self.rewards(texts, columns[self.column])]

    def rewards(self, texts: Sequence[str], evidence: Sequence[Any]) -> list[Reward]:
        """The reward of each text by its own evidence; texts about the same evidence are judged in one call."""
        if len(texts) != len(evidence):
            raise ConfigError(f"ClaimReward: {len(texts)} texts, got {len(evidence)} evidences; give one for each")
        claims = [list(self.claims_of(text)) for text in texts]
        pieces = [evidence_of(given, f"{self.column}[{i}]") for i, given in enumerate(evidence)]
        together: dict[str, list[int]] = {}
        for i, some in enumerate(pieces):
            together.setdefault(evidence_key(some), []).append(i)
        rewards: dict[int, Reward] = {}
        for places in together.values():
            asked = [claim for i in places for claim in claims[i]]
            outcomes = iter(self._outcomes(asked, pieces[places[0]]))
            for i in places:
                rewards[i] = self._reward([next(outcomes) for _ in claims[i]])
        return [rewards[i] for i in range(len(texts))]

    def verl(
        self, data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None, **_: Any
    ) -> dict[str, float]:
        """verl's `compute_score`, one response at a time: the evidence is `extra_info[column]`, else `ground_truth`."""
        return self.verl_batch([data_source], [solution_str], [ground_truth], [extra_info])[0]

    def verl_batch(
        self,
        data_sources: Any,
        solution_strs: Sequence[str],
        ground_truths: Sequence[Any],
        extra_infos: Any = None,
        **_: Any,
    ) -> list[dict[str, float]]:
        """verl's `compute_score` of its batch reward manager; verl logs the other keys beside the score."""
        extras = [None] * len(solution_strs) if extra_infos is None else extra_infos
        given = [
            extra[self.column] if isinstance(extra, Mapping) and self.column in extra else truth
            for extra, truth in zip(extras, ground_truths, strict=True)
        ]
        return [
            {
                "score": self._number(reward),
                "n_claims": reward.n_claims,
                "n_abstained": reward.n_abstained,
                "n_failed": reward.n_failed,
                "n_refused": reward.n_refused,
            }
            for reward in self.rewards(list(solution_strs), given)
        ]

    def lm_eval(self, doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
        """`process_results` of lm-evaluation-harness and lmms-eval: metrics of one document's generated text."""
        reward = self.rewards([results[0]], [doc[self.column]])[0]
        n_claims = max(reward.n_claims, 1)
        return {
            "supported": self._number(reward),
            "abstained": reward.n_abstained / n_claims,
            "failed": reward.n_failed / n_claims,
        }

    def _outcomes(self, claims: Sequence[str], evidence: tuple[Evidence, ...]) -> list[tuple[str, float | None]]:
        """(scored, abstained, failed or refused; its value) of each claim about one evidence."""
        readable = [claim for claim in claims if not problems_of(Pair("0", claim, evidence), evidence_checked=True)]
        verdicts = dict(zip(readable, self._verdicts(readable, evidence), strict=True))
        judged = any(verdict.error is None for verdict in verdicts.values())
        outcomes: list[tuple[str, float | None]] = []
        for claim in claims:
            verdict = verdicts.get(claim)
            if verdict is None or (verdict.error is not None and judged):
                outcomes.append(("refused", self.empty))
            elif verdict.error is not None:
                outcomes.append(("failed", self.neutral))
                if self.on_error == "raise":
                    raise MediaError(f"ClaimReward: a claim cannot be judged, got {verdict.error}; mend its evidence")
                _log.warning("no verdict, the claim counts as neutral: %s", verdict.error)
            else:
                abstains = verdict.answer == "abstain"
                value = self.neutral if abstains else verdict.p_supported
                outcomes.append(("abstained" if abstains else "scored", value))
        return outcomes

    def _verdicts(self, claims: Sequence[str], evidence: tuple[Evidence, ...]) -> list[Any]:
        """Verdicts in order. A server refuses a request for its evidence; a verifier here fails its claims."""
        verdicts: list[Any] = []
        for start in range(0, len(claims), _CLAIMS_AT_ONCE):
            some = claims[start : start + _CLAIMS_AT_ONCE]
            try:
                verdicts += self.scorer.score(some, evidence)
            except ProofreelError as error:
                if getattr(error, "status", None) not in _UNREADABLE:
                    raise
                verdicts += [_Failed(str(error))] * len(some)
        return verdicts

    def _reward(self, outcomes: Sequence[tuple[str, float | None]]) -> Reward:
        counts = Counter([outcome for outcome, _ in outcomes] or ["empty"])
        self.counts += counts
        values = [value for _, value in outcomes if value is not None] if outcomes else [self.empty]
        value = None if not values else min(values) if self.aggregate == "min" else sum(values) / len(values)
        return Reward(value, len(outcomes), counts["abstained"], counts["failed"], counts["refused"])

    def _number(self, reward: Reward) -> float:
        if reward.value is None:
            raise ConfigError(
                "ClaimReward: nothing could be told, got neutral=None; give a number, only TRL takes None"
            )
        return reward.value


def text_of(completion: Any) -> str:
    """The text of a completion: as it is, or the content of its last message."""
    if isinstance(completion, str):
        return completion
    content = completion[-1]["content"]
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def evidence_of(given: Any, where: str) -> tuple[Evidence, ...]:
    """The evidence in a data set's column: an evidence or its dict, several of them, or JSON text of these.

    Raises:
        RowError: an unknown kind, or wrong keys.
    """
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise ConfigError(f"{where}: not JSON, got {given[:60]!r}; write a piece of evidence as JSON") from None
    pieces = given if isinstance(given, (list, tuple)) else [given]
    # Arrow gives every struct all keys: those that a piece does not have are None
    return tuple(
        evidence_from_dict({k: v for k, v in piece.items() if v is not None}, where)
        if isinstance(piece, Mapping)
        else piece
        for piece in pieces
    )
