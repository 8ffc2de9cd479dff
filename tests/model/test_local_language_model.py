"""A local model answers like an endpoint: the same call, the same answer every time, alone or in a batch."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from proofreel.core.errors import ConfigError, DirectoryError
from proofreel.data_prep.language.answers import Completion, LanguageModelError, ask, map_ordered
from proofreel.models.backbones.qwen25_vl import CHAT_TEMPLATE
from proofreel.models.backbones.tiny import train_tokenizer
from proofreel.models.zero_shot.local import LocalLanguageModel

CONVERSATIONS = [
    [{"role": "user", "content": "Is the pan red?"}],
    [
        {"role": "system", "content": "Answer yes or no."},
        {"role": "user", "content": "Is the red pan on the blue table?"},
    ],
    [{"role": "user", "content": "no"}],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2 of two small layers with random weights, its tokenizer and a chat template."""
    path = tmp_path_factory.mktemp("models") / "tiny-text"
    tokenizer = train_tokenizer(["Is the pan red?", "Is the blue table red?"] * 20, 420)
    tokenizer.chat_template = CHAT_TEMPLATE
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=end,
        initializer_range=0.5,  # far from uniform, so that the greedy choice is clear
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = [end]
    model.generation_config.repetition_penalty = 1.3
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def local(folder: Path, **settings: object) -> LocalLanguageModel:
    return LocalLanguageModel(folder, **{"device": "cpu", "max_new_tokens": 12} | settings)  # type: ignore[arg-type]


def prompt_ids(model: LocalLanguageModel, conversation: list[dict[str, str]]) -> list[int]:
    text = model.tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    return model.tokenizer(text)["input_ids"]


def test_greedy_answers_are_the_likeliest_token_after_token_whatever_the_checkpoint_prefers(folder: Path):
    model = local(folder)
    for conversation in CONVERSATIONS:
        ids = prompt_ids(model, conversation)
        new: list[int] = []
        while len(new) < 12 and not set(new) & set(model._end_ids):
            with torch.inference_mode():
                new.append(int(model.model(torch.tensor([ids + new])).logits[0, -1].argmax()))
        ended = new[-1] in model._end_ids
        text = model.tokenizer.decode(new[: len(new) - ended], skip_special_tokens=True).strip()
        assert model(conversation) == Completion(text, "stop" if ended else "length", len(ids), len(new))


def test_a_batch_and_threads_answer_like_single_questions(folder: Path):
    model = local(folder)
    alone = [model(conversation) for conversation in CONVERSATIONS]
    assert model.complete_batch(CONVERSATIONS) == alone
    assert list(map_ordered(model, CONVERSATIONS, 3)) == alone
    assert model.complete_batch([]) == []


def test_an_answer_ends_at_the_end_token_and_says_so(folder: Path):
    model = local(folder)
    end = torch.tensor(model._end_ids)
    model.model.lm_head.register_forward_hook(lambda module, inputs, logits: logits.index_fill(-1, end, 99.0))
    found = model(CONVERSATIONS[0])
    assert (found.text, found.finish_reason, found.completion_tokens) == ("", "stop", 1)


def test_sampled_answers_depend_on_seed_and_conversation_only(folder: Path):
    model = local(folder, temperature=2.0, seed=1)
    state = torch.get_rng_state()
    first = [model(conversation) for conversation in CONVERSATIONS]
    assert torch.equal(torch.get_rng_state(), state)
    assert model.complete_batch(CONVERSATIONS[::-1])[::-1] == first
    other = local(folder, temperature=2.0, seed=2).complete_batch(CONVERSATIONS)
    assert other != first


def test_first_token_logprobs_are_those_of_the_first_position(folder: Path):
    model = local(folder)
    ids = prompt_ids(model, CONVERSATIONS[1])
    with torch.inference_mode():
        logprobs_V = model.model(torch.tensor([ids])).logits[0, -1].double().log_softmax(-1)
    names = [model.tokenizer.decode([token]) for token in range(len(logprobs_V))]
    found = model.first_token_logprobs(CONVERSATIONS[1], ["yes", "No"])
    for word, value in found.items():
        tokens = [token for token, name in enumerate(names) if name.strip().lower() == word.lower()]
        assert value == pytest.approx(math.log(sum(float(logprobs_V[token].exp()) for token in tokens)), abs=1e-4)


def test_words_of_several_tokens_and_equal_words_are_refused(folder: Path):
    model = local(folder)
    for words in (["supported", "no"], ["yes", "YES "], ["", "no"]):
        with pytest.raises(ConfigError, match="words: "):
            model.first_token_logprobs(CONVERSATIONS[0], words)


def test_a_local_model_takes_the_place_of_an_endpoint(folder: Path):
    asked = []
    assert ask(local(folder), CONVERSATIONS[0], lambda text: asked.append(text) or "taken") == "taken"
    assert len(asked) == 1


def test_a_conversation_that_does_not_fit_is_refused(folder: Path):
    with pytest.raises(LanguageModelError, match="1 to 256 tokens"):
        local(folder)([{"role": "user", "content": "pan " * 400}])
    with pytest.raises(LanguageModelError, match="chat template"):
        local(folder)([{"content": 5}, None])  # type: ignore[list-item]


def test_only_a_whole_local_safetensors_folder_is_loaded(folder: Path, tmp_path: Path):
    with pytest.raises(DirectoryError, match="no such folder"):
        local(Path("Qwen/Qwen2.5-7B-Instruct"))

    pickled = shutil.copytree(folder, tmp_path / "pickled")
    weights = pickled / "model.safetensors"
    torch.save({}, pickled / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises(DirectoryError, match="safetensors"):
        local(pickled)

    untemplated = shutil.copytree(folder, tmp_path / "untemplated")
    (untemplated / "chat_template.jinja").unlink()
    with pytest.raises(DirectoryError, match="chat template"):
        local(untemplated)

    deeper = shutil.copytree(folder, tmp_path / "deeper")
    config = json.loads((deeper / "config.json").read_text())
    config |= {"num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}
    (deeper / "config.json").write_text(json.dumps(config))
    with pytest.raises(DirectoryError, match="missing_keys"):
        local(deeper)


@pytest.mark.parametrize(
    "settings", [{"temperature": -1.0}, {"temperature": math.nan}, {"max_new_tokens": 0}, {"dtype": "int"}]
)
def test_settings_that_make_no_sense_are_refused(folder: Path, settings: dict[str, object]):
    with pytest.raises(ConfigError):
        local(folder, **settings)
