"""Learning curves: the panels hold what metrics.jsonl holds, and neither a broken line nor a full disk stops a run."""

import json
import math
import os
import subprocess
import sys

import pytest
from conftest import sft_arguments
from PIL import Image as Picture

from proofreel.train.arguments import parse
from proofreel.train.curves import FIGURE, PANELS, draw_curves, points, read_metrics
from proofreel.train.recipe import run


def write(folder, *lines, tail=""):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text + tail, encoding="utf-8")


def training(n=60):
    lines = []
    for step in range(1, n + 1):
        lines.append({"step": step, "loss": math.exp(-step / 30), "learning_rate": 1e-4 * (1 - step / n)})
        if step % 10 == 0:
            lines.append(
                {"step": step, "eval_auc": 1 - 0.5 / step, "eval_ap": 0.9, "eval_f1": 0.8, "eval_ece": 1 / step}
            )
    return lines


def test_points_are_those_logged_without_nulls_or_a_line_cut_off(tmp_path):
    write(
        tmp_path, {"step": 1, "loss": 2.0}, {"step": 2, "eval_auc": None}, {"step": 3, "loss": 1.5}, tail='{"step": 4'
    )
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert points(lines, "loss") == ([1, 3], [2.0, 1.5])
    assert points(lines, "eval_auc") == ([], [])


def test_curves_have_a_panel_for_all_that_was_logged_and_none_for_what_was_not(tmp_path):
    write(tmp_path, *training())
    assert draw_curves(tmp_path, "run", best_step=30) == tmp_path / FIGURE
    whole = Picture.open(tmp_path / FIGURE).size
    write(tmp_path, *[line for line in training() if "loss" in line])
    draw_curves(tmp_path)
    half = Picture.open(tmp_path / FIGURE).size
    assert half[0] == whole[0]
    assert half[1] * 2 == whole[1]  # two panels of four
    assert {f.name for f in tmp_path.iterdir()} == {"metrics.jsonl", FIGURE}


def test_nothing_logged_is_no_figure(tmp_path):
    assert draw_curves(tmp_path) is None
    write(tmp_path, {"step": 1, "train_runtime": 2.0})
    assert draw_curves(tmp_path) is None
    assert not (tmp_path / FIGURE).exists()


def test_a_figure_that_cannot_be_written_is_warned_of(tmp_path):
    write(tmp_path, *training())
    (tmp_path / f".{FIGURE}").symlink_to("/dev/full")
    with pytest.warns(UserWarning, match="cannot be drawn"):
        assert draw_curves(tmp_path) is None


def test_every_metric_of_an_evaluation_that_is_drawn_is_one_that_is_logged(tiny_base, colour_dataset, tmp_path):
    words = sft_arguments(tiny_base, colour_dataset, tmp_path / "run", max_steps=1, eval_strategy="steps", eval_steps=1)
    run(*parse(words))
    assert (tmp_path / "run" / FIGURE).exists()
    logged = {key for line in read_metrics(tmp_path / "run" / "metrics.jsonl") for key in line}
    assert {key for _, keys in PANELS for key in keys} <= logged


NO_NETWORK = """
import socket, sys
def refuse(self, address, *rest):
    if self.family == socket.AF_UNIX or address[0] in ("127.0.0.1", "localhost"):
        return connect(self, address, *rest)
    raise AssertionError(f"network: {address}")
connect = socket.socket.connect
socket.socket.connect = refuse
from proofreel.train import sft
sys.exit(sft.main(sys.argv[1:]))
"""


def test_wandb_offline_keeps_the_run_on_disk_and_asks_no_network(tiny_base, colour_dataset, tmp_path):
    words = sft_arguments(tiny_base, colour_dataset, tmp_path / "run", max_steps=2, report_to="wandb")
    env = os.environ | {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "HOME": str(tmp_path)}
    env.pop("WANDB_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", NO_NETWORK, *words], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (record,) = (tmp_path / "run").glob("wandb/offline-run-*/run-*.wandb")
    assert b"learning_rate" in record.read_bytes()
    assert len(read_metrics(tmp_path / "run" / "metrics.jsonl")) == 3
    assert not (tmp_path / "wandb").exists()
