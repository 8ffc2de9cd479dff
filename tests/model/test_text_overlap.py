"""BERTScore and sentence embeddings by tiny encoders from a folder, held against their definitions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer

from proofreel.core.errors import ConfigError
from proofreel.eval.articles import (
    Response,
    Topic,
    against_references,
    bert_score,
    folder_embeddings,
    rouge,
)

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "pan", "is", "red", "the", "blue", "table", ".", "on"]
PREDICTIONS = ["The pan is red.", "the table", "", "the pan is red on a table"]
REFERENCES = ["The pan is red.", "A blue pan is on the table.", "a pan", "the table is blue"]


def save(folder: Path, **tokenizer) -> Path:
    folder.mkdir()
    torch.manual_seed(0)
    sizes: dict[str, Any] = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    BertModel(BertConfig(vocab_size=len(WORDS), max_position_embeddings=32, **sizes)).save_pretrained(folder)
    BertTokenizer(vocab={word: i for i, word in enumerate(WORDS)}, **tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of two small layers with random weights, and its tokenizer."""
    return save(tmp_path_factory.mktemp("encoders") / "bert", model_max_length=32)


@torch.inference_mode()
def hidden(folder: Path, text: str, layer: int) -> np.ndarray:
    """(tokens, 16), of [CLS] first and [SEP] last."""
    inputs = BertTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    return BertModel.from_pretrained(folder)(**inputs, output_hidden_states=True).hidden_states[layer][0].numpy()


def by_definition(folder: Path, prediction: str, reference: str, layer: int) -> float:
    """Zhang et al. (2019), equations 1 to 3: every word's best cosine; the marks around a text are no words of it."""
    vectors = [hidden(folder, text, layer) for text in (prediction, reference)]
    p, r = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in vectors)
    cosines = p @ r.T
    precision, recall = cosines.max(1)[1:-1].mean(), cosines.max(0)[1:-1].mean()
    return float(2 * precision * recall / (precision + recall))


@pytest.mark.parametrize("layer", [1, 2])
def test_bertscore_is_its_definition_and_nothing_for_an_empty_text(folder, layer):
    pytest.importorskip("bert_score", reason="extra: proofreel[overlap]")
    values = bert_score(PREDICTIONS, REFERENCES, folder, layer, device="cpu")
    assert values[2] == 0.0
    for i in (0, 1, 3):
        assert values[i] == pytest.approx(by_definition(folder, PREDICTIONS[i], REFERENCES[i], layer), abs=1e-5)


def test_what_bertscore_cannot_use_is_named(folder, tmp_path):
    pytest.importorskip("bert_score", reason="extra: proofreel[overlap]")
    with pytest.raises(ConfigError, match="must be a folder"):
        bert_score(["a"], ["a"], tmp_path / "none", 1)
    with pytest.raises(ConfigError, match="link it"):
        bert_score(["a"], ["a"], save(tmp_path / "bert5"), 1)
    with pytest.raises(ConfigError, match="model_max_length"):
        bert_score(["a"], ["a"], save(tmp_path / "endless"), 1, device="cpu")


def test_embeddings_are_pooled_as_the_folder_says_whatever_the_padding(folder, tmp_path):
    texts = ["the pan", "the blue table is red", "a"]
    alone = [hidden(folder, text, 2) for text in texts]
    pools = {"lasttoken": lambda v: v[-1], "mean_tokens": lambda v: v.mean(0), "cls_token": lambda v: v[0]}
    for name, pool in pools.items():
        copy = save(tmp_path / name, model_max_length=32)
        (copy / "1_Pooling").mkdir()
        (copy / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{name}": True}))
        vectors = folder_embeddings(copy, "cpu", batch=2)(texts)
        for vector, each in zip(vectors, alone, strict=True):
            assert vector == pytest.approx(pool(each) / np.linalg.norm(pool(each)), abs=1e-5), name
    last = alone[0][-1] / np.linalg.norm(alone[0][-1])
    assert folder_embeddings(folder, "cpu")(texts)[0] == pytest.approx(last, abs=1e-5)
    copy = tmp_path / "lasttoken"
    (copy / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(ConfigError, match="pooling_mode_max_tokens"):
        folder_embeddings(copy)
    with pytest.raises(ConfigError, match="--embedder"):
        folder_embeddings(tmp_path / "none")


def test_rouge_of_a_worked_example_and_no_score_without_a_reference():
    pytest.importorskip("rouge_score", reason="extra: proofreel[overlap]")
    assert rouge(["the cat sat down"], ["the cat ran"]) == [pytest.approx(2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3))]
    topics = {"t": Topic("t", "the cat ran", (), {}), "u": Topic("u", None, (), {})}
    responses = [Response("t", "s", "the cat ran", ()), Response("u", "s", "x", ())]
    measured = against_references(responses, topics, rouge)
    assert measured["s", "t"].score.value == 1.0
    assert np.isnan(measured["s", "u"].score.low)
