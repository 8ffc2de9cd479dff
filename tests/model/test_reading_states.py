"""The real-words example on a tiny base: states once, a head, and a verifier that judges with it."""

import json

import numpy as np
import pytest
import torch

from examples.reading.base import keep_first_layers
from examples.reading.heads import Choice
from examples.reading.publishing import fold_source, save_draft
from examples.reading.real import Rows, Sight
from examples.reading.states import Reader
from proofreel.core.errors import ConfigError
from proofreel.core.pairs import Pair, Passage
from proofreel.data_prep.dataset.shards import MANIFEST, write_shards
from proofreel.models.backbones.tiny import TinySizes, save_tiny_text_model
from proofreel.models.inputs.encoder import Media
from proofreel.models.verifier import Verifier

DOCUMENTS = ("The boat is red and the sea is calm.", "Rain fell on the town. Nobody was hurt.")
CLAIMS = ("The boat is red.", "The sea is rough.", "Somebody was hurt.", "It rained.", "The town is small.")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return save_tiny_text_model(
        tmp_path_factory.mktemp("base") / "base", [*DOCUMENTS, *CLAIMS] * 50, TinySizes(layers=4)
    )


@pytest.fixture(scope="module")
def pairs():
    return [
        Pair(id=f"{d}-{i}", claim=claim, evidence=(Passage(document),), group=str(d), modality="text",
             label="supported" if i % 2 else "refuted", split="train")
        for i, claim in enumerate(CLAIMS)
        for d, document in enumerate(DOCUMENTS)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def reader(base, tmp_path_factory):
    return Reader(base, tmp_path_factory.mktemp("states"))


def as_data_set(folder, pairs):
    folder.mkdir()
    (folder / MANIFEST).write_text(json.dumps({"schema_version": 2, "shards": write_shards(folder, pairs)}))


def test_states_are_those_of_one_claim_at_a_time(reader, pairs):
    states = reader.states(pairs)
    for i, pair in enumerate(pairs):
        prefix = reader.encoder.evidence(pair.evidence, Media()).ids_P
        ids = torch.cat([prefix, reader.encoder.claim_ids(pair.claim, None)])[None]
        with torch.inference_mode():
            hidden = reader.model(input_ids=ids, output_hidden_states=True).hidden_states
        # The last of transformers' states has passed the last norm: states before it are compared.
        for layer in range(3):
            assert np.allclose(states[i, layer], hidden[layer + 1][0, -1].numpy(), atol=2e-3), (i, layer)


def test_states_are_computed_once_and_a_hidden_document_changes_them(reader, pairs, monkeypatch):
    before = reader.states(pairs)
    unseen = reader.states(pairs, shown=False)
    assert not np.allclose(before, unseen)
    # Without its document a claim has one state, whichever document it had.
    assert np.allclose(unseen[0], unseen[1], atol=1e-2)
    monkeypatch.setattr(Reader, "_computed", None)
    assert np.array_equal(reader.states(pairs), before)


def test_a_verifier_of_the_first_layers_judges_as_the_head_on_the_states(reader, pairs, tmp_path):
    data = tmp_path / "data"
    as_data_set(data, pairs)
    see, rows = Sight.of(reader), Rows(pairs, reader.states(pairs))
    weights = np.random.default_rng(0).normal(size=see.norm_H.shape)
    draft = save_draft(reader, Choice(2, 0.1, {}), weights, data, tmp_path / "draft")
    verifier = Verifier.from_pretrained(draft)
    expected = see(rows, 2) @ weights
    for d, document in enumerate(DOCUMENTS):
        mine = [i for i, pair in enumerate(pairs) if pair.group == str(d)]
        verdicts = verifier.score([pairs[i].claim for i in mine], evidence=Passage(document))
        assert np.allclose([v.margin for v in verdicts], expected[mine], atol=0.05)  # states are kept in 16 bits


def test_zero_shot_margins_are_those_of_the_verdict_words(reader, pairs):
    see, rows = Sight.of(reader), Rows(pairs, reader.states(pairs))
    margins = see(rows, see.depths[-1]) @ see.verdict_H
    prefix = reader.encoder.evidence(pairs[0].evidence, Media()).ids_P
    ids = torch.cat([prefix, reader.encoder.claim_ids(pairs[0].claim, None)])[None]
    with torch.inference_mode():
        logits = reader.model(input_ids=ids).logits[0, -1]
    assert margins[0] == pytest.approx(
        float(logits[reader.words.supported_id] - logits[reader.words.refuted_id]), abs=0.02
    )


@pytest.mark.parametrize("layers", [0, 5])
def test_layers_that_are_not_there_cannot_be_kept(reader, layers):
    with pytest.raises(ConfigError, match="1 to 4"):
        keep_first_layers(reader.model, layers)


def test_the_heads_of_folds_are_told_apart(tmp_path, pairs):
    as_data_set(tmp_path / "data", pairs)
    found = fold_source({"a": np.ones(3), "b": np.zeros(3)}, tmp_path / "data")["cross_fitted"]
    assert found["folds"]["a"] != found["folds"]["b"]
