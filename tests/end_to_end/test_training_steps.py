"""A step's loss is a mean over its claims: batches, accumulation and processes divide the work and change nothing.

Plain SGD at a rate of 1 and no clipping: two adapters are equal if and only if the gradients of every step were.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from conftest import ROOT, sft_arguments
from many_runs import one_run
from nightly import only
from training_runs import adapter, all_groups, clip_of, losses, metrics, own_clips, with_rows

from proofreel.data_prep.dataset.shards import read_split

SGD = {"max_grad_norm": 0, "optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant", "claims_per_row": 4}
ALL = {"focal_gamma": 1.5, "label_smoothing_factor": 0.1, "paired_weight": 0.5}
TWO = {"nli": True, "labels": 2, "head_init": "verdict_words"}
THREE = TWO | {"labels": 3}

CI = ["next token, all of it", "three labels, all of it"]
OBJECTIVES = {
    "next token": {},
    "next token, class weights": {"class_weights": "2.0 0.5"},
    "next token, all of it": ALL | {"balance_classes": True},
    "two labels, focal": TWO | {"focal_gamma": 2.0},
    "two labels, smoothed": TWO | {"label_smoothing_factor": 0.2},
    "three labels": THREE,
    "three labels, pairs": THREE | {"paired_weight": 1.0, "paired_margin": 2.0},
    "three labels, all of it": THREE | ALL | {"class_weights": "2.0 0.5 1.5"},
}


def arguments(base, dataset, out, **changes):
    """What `one_run` takes: sft or nli, and its words."""
    nli = bool(changes.pop("nli", False))
    words = []
    for word in sft_arguments(base, dataset, out, **changes):
        words += word.split() if word[:1].isdigit() else [word]  # a list of numbers
    return {"nli": nli, "words": words}


def varied(pair, i):
    """All kinds of labels, and rows of several weights."""
    if i % 5 == 0:
        return dataclasses.replace(pair, label=None, soft_label=0.3, weight=2.0)
    if pair.label == "refuted" and i % 2:
        return dataclasses.replace(pair, label="not_enough", weight=0.5)
    return pair


@pytest.fixture(scope="module")
def eight(colour_dataset, tmp_path_factory):
    """A data set whose training split is eight packed rows of two or four claims of every kind of label."""
    groups = all_groups(colour_dataset)
    chosen = [dataclasses.replace(p, split="train") for g in [*groups[:4], *groups[-4:]] for p in g]
    rows = [varied(pair, i) for i, pair in enumerate(chosen)]
    return with_rows(colour_dataset, tmp_path_factory.mktemp("eight") / "data", rows)


@pytest.fixture(scope="module")
def seven(colour_dataset, tmp_path_factory):
    """Seven packed rows to train on and three to validate on: nothing divides them evenly."""
    groups = all_groups(colour_dataset)
    folder = tmp_path_factory.mktemp("seven") / "data"
    for split, some in (("train", groups[-7:]), ("validation", groups[4:7])):
        rows = [dataclasses.replace(p, split=split) for g in some for p in g]
        with_rows(colour_dataset, folder, rows, split)
    return folder


def assert_same_steps(one, other):
    assert losses(one) == pytest.approx(losses(other), abs=1e-5)
    assert len(losses(one)) > 0
    mine, theirs = adapter(one), adapter(other)
    for name, value in mine.items():
        assert torch.allclose(value, theirs[name], atol=1e-6), name


@pytest.mark.parametrize("name", only(CI, OBJECTIVES))
def test_batch_eight_once_equals_batch_one_eight_times(tiny_base, eight, tmp_path, name):
    """Rows hold different numbers of claims, so a mean of means would differ."""
    common = SGD | OBJECTIVES[name] | {"max_steps": 2}
    once = arguments(tiny_base, eight, tmp_path / "once", per_device_train_batch_size=8, **common)
    often = arguments(
        tiny_base, eight, tmp_path / "often", per_device_train_batch_size=1, gradient_accumulation_steps=8, **common
    )
    one_run(**once)
    one_run(**often)
    assert_same_steps(tmp_path / "once", tmp_path / "often")


def two_processes(runs, folder):
    """All runs in two processes that share each of them."""
    (folder / "runs.json").write_text(json.dumps(runs))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    launcher += [str(ROOT / "tests" / "many_runs.py"), str(folder / "runs.json")]
    done = subprocess.run(
        launcher, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-20_000:]


@pytest.mark.nightly  # test_distill.py has two processes with accumulation, over losses that hold these
@pytest.mark.parametrize("objectives", [CI, pytest.param(OBJECTIVES, id="every objective")])
def test_two_processes_learn_what_one_does_with_every_objective_and_an_uneven_end(
    tiny_base, eight, seven, colour_dataset, tmp_path, objectives
):
    """Rows of the uneven end are not repeated to even it out, in training or in evaluation."""
    runs, pairs = [], []

    def case(name, dataset, remove=(), one_more=None, two_more=None, **common):
        common = SGD | common
        alone, shared = tmp_path / f"{name}-1", tmp_path / f"{name}-2"
        one_run(**arguments(tiny_base, dataset, alone, **(common | (one_more or {}))))
        two = common | {"ddp_backend": "gloo"} | (two_more or {})
        runs.append(arguments(tiny_base, dataset, shared, **two) | {"remove": list(remove)})
        pairs.append((alone, shared))

    for i, objective in enumerate(OBJECTIVES[name] for name in objectives):
        sizes = {"one_more": {"per_device_train_batch_size": 8}, "two_more": {"per_device_train_batch_size": 4}}
        case(f"even{i}", eight, max_steps=2, **sizes, **objective)
    uneven = {"num_train_epochs": 2, "max_steps": -1, "eval_strategy": "epoch", "per_device_eval_batch_size": 1}
    sizes = {"one_more": {"per_device_train_batch_size": 4}, "two_more": {"per_device_train_batch_size": 2}}
    case("uneven", seven, **uneven, **sizes)
    sizes["two_more"] = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 2}
    case("accumulated", seven, **uneven, **sizes)
    case("tokens", eight, max_steps=1, tokens_per_batch=100_000, per_device_train_batch_size=8, **ALL)

    # Of four clips three are gone: one process has nothing to read, and the step is that of the fourth alone.
    clips = own_clips(colour_dataset, tmp_path / "clips", 4)
    paths = sorted({clip_of(p) for p in read_split(clips, "train")})
    left = [p for p in read_split(clips, "train") if clip_of(p) == paths[0]]
    one_run(**arguments(tiny_base, with_rows(clips, tmp_path / "left", left), tmp_path / "bad-1", max_steps=1, **SGD))
    bad = {"bad_rows": "skip", "per_device_train_batch_size": 2, "max_steps": 1, "ddp_backend": "gloo"}
    runs.append(arguments(tiny_base, clips, tmp_path / "bad-2", **SGD, **bad) | {"remove": paths[1:]})
    pairs.append((tmp_path / "bad-1", tmp_path / "bad-2"))

    two_processes(runs, tmp_path)
    for alone, shared in pairs:
        assert_same_steps(alone, shared)
    for name in ("uneven", "accumulated"):
        one, two = ([m for m in metrics(tmp_path / f"{name}-{n}") if "eval_auc" in m] for n in (1, 2))
        assert len(one) == len(two) == 2
        for mine, theirs in zip(one, two, strict=True):
            for key in ("eval_auc", "eval_ap", "eval_f1", "eval_ece", "eval_loss", "eval_positive_rate"):
                assert mine[key] == pytest.approx(theirs[key], abs=1e-5), key
    listed = [json.loads(line)["ids"] for line in (tmp_path / "bad-2" / "bad_rows.jsonl").read_text().splitlines()]
    gone = {p.id for p in read_split(clips, "train") if clip_of(p) in paths[1:]}
    assert sorted(i for ids in listed for i in ids) == sorted(gone)
    shutil.rmtree(tmp_path / "clips")
