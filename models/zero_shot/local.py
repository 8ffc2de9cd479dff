"""A causal language model from a local folder, behind the same call as the endpoint's client (`LanguageModel`).

    model = LocalLanguageModel("models/Qwen2.5-7B-Instruct", device="cuda", dtype="bfloat16")
    altered_by_model(pairs, model, ...)

For data building without an endpoint: it writes altered claims and answers prompts, and judges no evidence. Nothing is
downloaded, pickled weights are not read, and no code of the checkpoint is run.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from ...core import ConfigError, DirectoryError
from ...data_prep.language import Completion, LanguageModelError, Message, normal_word
from ..inputs import ChatRenderer, ChatTemplateError, template_of


class LocalLanguageModel:
    """Callable as `complete(messages) -> Completion`; one call at a time, whatever the number of threads."""

    def __init__(
        self,
        path: str | Path,
        *,
        device: str | torch.device | None = None,
        dtype: str = "float32",
        max_new_tokens: int = 1024,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        """Load model and tokenizer.

        Args:
            path: a folder with config, safetensors weights, tokenizer and chat template.
            device: default: a GPU if there is one.
            dtype: of the weights, a torch name.
            max_new_tokens: longest answer.
            temperature: 0 for greedy decoding; above, answers are sampled from the whole vocabulary.
            seed: of sampling. An answer depends on the seed and the conversation, never on what was asked before.

        Raises:
            DirectoryError: no such folder, no safetensors, weights that do not fit, or no chat template.
            ConfigError: a temperature or length that makes no sense.
        """
        if not (0 <= temperature < math.inf) or max_new_tokens < 1:
            raise ConfigError(
                f"local language model: temperature must be >= 0 and max_new_tokens >= 1, "
                f"got {temperature} and {max_new_tokens}; fix the settings"
            )
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.seed, self.temperature = seed, temperature
        self.tokenizer, self.model = _load(Path(path), dtype)
        self._render = ChatRenderer(template_of(self.tokenizer, path), self.tokenizer.special_tokens_map, path)
        self.model.to(self.device).eval()
        self._end_ids = _end_ids(self.model.generation_config, self.tokenizer)
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
        # The checkpoint's own settings (penalties, top-p) would change greedy answers: none of them is kept.
        self.model.generation_config = GenerationConfig(
            max_new_tokens=max_new_tokens,
            eos_token_id=self._end_ids,
            pad_token_id=self.tokenizer.pad_token_id,
            **sampling,
        )
        self._lock = threading.Lock()
        self._ids_of_word: dict[str, list[int]] | None = None

    def __call__(self, messages: Sequence[Message]) -> Completion:
        """The answer to one conversation; LanguageModelError if the chat template refuses it or it is too long."""
        return self.complete_batch([messages])[0]

    def complete_batch(self, conversations: Sequence[Sequence[Message]]) -> list[Completion]:
        """The answers to several conversations, in order: greedy ones in one padded batch, sampled ones one by one."""
        prompts = [self._prompt(messages) for messages in conversations]
        batches = [[prompt] for prompt in prompts] if self.temperature else [prompts] if prompts else []
        return [completion for batch in batches for completion in self._generate(batch)]

    @torch.inference_mode()
    def first_token_logprobs(self, messages: Sequence[Message], words: Sequence[str]) -> dict[str, float]:
        """Natural-log probability that the answer opens with each of `words`, of the untempered distribution.

        All tokens that are equal to a word but for case and white space around count for it.

        Raises:
            ConfigError: a word that is no single token, or two words that are the same but for case and space.
            LanguageModelError: the chat template refuses the conversation, or it is too long.
        """
        ids = self._ids_of(words)
        inputs = self._padded([self._prompt(messages)])
        with self._lock:
            logits_V = self.model(**inputs, logits_to_keep=1, use_cache=False).logits[0, -1]
        logprobs_V = logits_V.float().log_softmax(-1).cpu()
        return {word: float(logprobs_V[ids[word]].logsumexp(0)) for word in words}

    def _generate(self, prompts: list[list[int]]) -> list[Completion]:
        inputs = self._padded(prompts)
        with self._lock, torch.inference_mode(), torch.random.fork_rng(self._cuda_devices()):
            digest = hashlib.sha256(json.dumps([self.seed, prompts]).encode()).digest()
            torch.manual_seed(int.from_bytes(digest[:7], "big"))
            output_BT = self.model.generate(**inputs)
        new_BT = output_BT[:, inputs["input_ids"].shape[1] :].tolist()
        return [self._completion(prompt, new_T) for prompt, new_T in zip(prompts, new_BT, strict=True)]

    def _completion(self, prompt: list[int], new_T: list[int]) -> Completion:
        end = next((i for i, token in enumerate(new_T) if token in self._end_ids), None)
        kept = new_T if end is None else new_T[:end]
        text = self.tokenizer.decode(kept, skip_special_tokens=True).strip()
        counted = len(kept) + (end is not None)
        return Completion(text, "length" if end is None else "stop", len(prompt), counted)

    def _prompt(self, messages: Sequence[Message]) -> list[int]:
        """Token ids up to where the answer begins."""
        try:
            text = self._render(messages)
        except ChatTemplateError as error:
            raise LanguageModelError(f"{error}; or change the roles of the conversation") from error
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        longest = getattr(self.model.config, "max_position_embeddings", None)
        if not ids or (longest is not None and len(ids) >= longest):
            raise LanguageModelError(f"prompt: must have 1 to {longest} tokens, got {len(ids)}; ask about less")
        return ids

    def _padded(self, prompts: list[list[int]]) -> dict[str, torch.Tensor]:
        """Prompts of unequal length as one batch, padded on the left so that all end where answers begin."""
        width, pad = max(map(len, prompts)), self.tokenizer.pad_token_id
        ids_BT = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts], device=self.device)
        lengths_B = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        mask_BT = torch.arange(width, device=self.device) >= width - lengths_B[:, None]
        return {"input_ids": ids_BT, "attention_mask": mask_BT.long()}

    def _ids_of(self, words: Sequence[str]) -> dict[str, list[int]]:
        if len({normal_word(word) for word in words}) < len(words):
            raise ConfigError(f"words: must differ in more than case and space, got {list(words)}; choose other words")
        if self._ids_of_word is None:
            ids_of_word: dict[str, list[int]] = {}
            for token in range(min(len(self.tokenizer), self.model.get_output_embeddings().weight.shape[0])):
                ids_of_word.setdefault(normal_word(self.tokenizer.decode([token])), []).append(token)
            self._ids_of_word = ids_of_word
        for word in words:
            if not normal_word(word) or normal_word(word) not in self._ids_of_word:
                raise ConfigError(f"words: every word must be one token, got {word!r}; choose another word")
        return {word: self._ids_of_word[normal_word(word)] for word in words}

    def _cuda_devices(self) -> list[torch.device]:
        return [self.device] if self.device.type == "cuda" else []


def _load(path: Path, dtype: str) -> tuple[Any, Any]:
    """Tokenizer and model of a local folder."""
    if not path.is_dir():
        raise DirectoryError(f"language model: no such folder, got {path}; give the local path of a checkpoint")
    torch_dtype = getattr(torch, dtype, None)
    if not (isinstance(torch_dtype, torch.dtype) and torch_dtype.is_floating_point):
        raise ConfigError(f"dtype: not a floating-point dtype of torch, got {dtype!r}; use float32 or bfloat16")
    offline: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **offline)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch_dtype, use_safetensors=True, output_loading_info=True, **offline
        )
    except (OSError, ValueError) as error:
        raise DirectoryError(f"{path}: no causal language model in safetensors, got {error}; convert it") from error
    model, info = loaded
    wrong = {k: sorted(info[k])[:5] for k in ("missing_keys", "unexpected_keys", "mismatched_keys") if info.get(k)}
    if wrong:
        raise DirectoryError(f"{path}: weights do not fit the model, got {wrong}; use an unmodified checkpoint")
    template_of(tokenizer, path)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer, model


def _end_ids(settings: Any, tokenizer: Any) -> list[int]:
    """The tokens that end an answer, by the checkpoint's generation settings and its tokenizer."""
    listed = settings.eos_token_id
    ids = listed if isinstance(listed, list) else [listed]
    return sorted({token for token in (*ids, tokenizer.eos_token_id) if token is not None})
