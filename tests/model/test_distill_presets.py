"""Presets of distillation on the true architecture: the laws of all presets, and a teacher that was asked alike."""

import re

import pytest
import test_presets as laws
import yaml

from proofreel.core.prompt import Prompt
from proofreel.train.arguments import parse, parse_distill

PRESETS = sorted(laws.CONFIGS.glob("distill_*.yaml"))
LAWS = [
    laws.test_adapters_hit_the_language_model_only_and_in_every_layer_what_the_preset_is_for,
    laws.test_only_linears_of_the_language_model_are_quantised,
    laws.test_a_preset_runs_on_the_weights_whose_shape_is_known_and_does_not_adapt_tied_weights,
    laws.test_the_memory_a_preset_states_is_what_is_computed_and_fits_its_card,
    laws.test_the_longest_video_with_one_claim_is_within_max_tokens,
    laws.test_a_preset_keeps_what_a_frozen_tower_makes_or_says_why_not,
    laws.test_checkpointing_is_reentrant_where_weights_are_sharded_and_nothing_sharded_is_quantised,
]
TEACHER = laws.CONFIGS / "qwen25vl_7b_lora.yaml"


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """A preset as its script reads it: what is said of the teacher, and the rest."""
    return laws.reader(parse_distill, tmp_path_factory.mktemp("run"))


@laws.each(PRESETS)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_laws_of_presets_hold_for_those_of_distillation(law, read, path):
    law(lambda path: read(path)[1:], path)


def test_the_presets_of_all_kinds_are_there():
    names = {path.stem for path in PRESETS}
    sizes = {"distill_72b_to_7b", "distill_7b_to_3b", "distill_7b_to_3b_nli_qlora"}
    assert names == sizes | {"distill_quarter_frames", "distill_quarter_pixels"}


@laws.each(PRESETS)
def test_a_preset_opens_with_the_whole_chain_and_distils_from_the_file_that_it_writes(read, path):
    header = laws.header(path)
    scripts = re.findall(r"(\w+/\w+\.py)", header.split("Expected memory")[0])
    assert scripts == ["eval/predict.py", "eval/calibrate.py", "eval/teach.py", "train/distill.py"]
    assert f"--config configs/{path.name}" in header
    folder = re.search(r"T=(\S+);", header)
    assert folder is not None
    assert "--out $T/teacher.parquet" in header
    assert read(path)[0].teacher == f"{folder[1]}/teacher.parquet"


@laws.each(PRESETS)
def test_teacher_and_student_are_asked_the_same_question_and_the_head_is_that_of_the_name(read, path):
    distill, given, *_ = read(path)
    assert (distill.head == "nli") == laws.has_head(path)
    assert not distill.other_prompt
    assert not distill.uncalibrated_teacher
    assert given.prompt().sha256 == Prompt().sha256
    named = re.findall(r"configs/((?:qwen25vl|teacher)_\w+)\.yaml", laws.header(path))
    assert named
    for name in named:
        asked = yaml.safe_load((laws.CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))
        assert not asked.get("prompt")
        assert not {"system_prompt", "claim_template", "response_prefix"} & set(asked)


def test_evidence_budgets_are_a_quarter_of_the_teachers(read, tmp_path):
    teacher = parse(["--config", str(TEACHER), "--use_cpu", "true", "--output_dir", str(tmp_path)])[0].sampling()
    frames = read(laws.CONFIGS / "distill_quarter_frames.yaml")[1].sampling()
    assert (4 * frames.max_frames, 4 * frames.fps) == (teacher.max_frames, teacher.fps)
    assert (frames.min_pixels, frames.max_pixels) == (teacher.min_pixels, teacher.max_pixels)
    pixels = read(laws.CONFIGS / "distill_quarter_pixels.yaml")[1].sampling()
    assert (4 * pixels.max_pixels, 4 * pixels.min_pixels) == (teacher.max_pixels, teacher.min_pixels)
    assert (pixels.max_frames, pixels.fps) == (teacher.max_frames, teacher.fps)
