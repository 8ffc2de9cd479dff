"""Laws of the pretrained kitchen base: what it was taught, how its pretraining runs, and what the shipped one sees."""

import json
import math
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from examples.kitchen import lessons as kitchen_lessons
from examples.kitchen import pretrain as kitchen_pretrain
from examples.kitchen.drawing import draw_frames
from examples.kitchen.encoding import write_video
from examples.kitchen.lessons import DESCRIBE, LIST_FACTS, draw_lessons, follow
from examples.kitchen.measure import answer, answer_ids, role_accuracy
from examples.kitchen.motion import draw_motion, positions
from examples.kitchen.sampling import FPS
from examples.kitchen.streaming import stream
from examples.kitchen.teaching import (
    END,
    SAMPLING,
    Teacher,
    drawn_frames,
    lesson_loss,
    lessons_about,
    shoot,
)
from examples.kitchen.tower import teach_tower
from examples.kitchen.vocabulary import ROLES, VALUES, all_facts, caption, concept, conceptual, is_held_out
from proofreel.core.pairs import VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.data_prep.media.frames import read_frames
from proofreel.models.backbones.families import vision_layout
from proofreel.models.backbones.load import load_backbone
from proofreel.models.backbones.tiny import save_tiny_model
from proofreel.models.engine.packing import IGNORED

BASE = Path(__file__).resolve().parents[2] / "checkpoints" / "kitchen-base"


@pytest.fixture(scope="module")
def untaught(tmp_path_factory):
    """A base before its first lesson, and its teacher."""
    directory = tmp_path_factory.mktemp("models") / "untaught"
    return load(save_tiny_model(directory, kitchen_pretrain._texts(), kitchen_pretrain.SIZES))


@pytest.fixture(scope="module")
def shipped():
    return load(BASE)


def load(directory):
    model = load_backbone(directory).eval()
    return model, Teacher(directory, vision_layout(model.config))


@pytest.fixture(scope="module")
def some_lessons():
    rng = np.random.default_rng(0)
    lying = {"Ingredient": ["tomato"], "Tool": ["fork"]}
    return [(facts, it) for facts in all_facts() for it in draw_lessons(rng, facts, lying, rng.uniform(0, 30, (8, 2)))]


def test_no_lesson_asks_for_a_verdict(some_lessons):
    judging = {"yes", "no", "claim", "true", "false", "supported", "judge", "not", "whether", "wrong"}
    words = {word for _, lesson in some_lessons for word in (lesson.question + " " + lesson.answer).lower().split()}
    assert not {word.strip(".:,?") for word in words} & judging
    assert Prompt().system != kitchen_lessons.SYSTEM


def test_answers_name_only_what_is_true(some_lessons):
    spoken = {role: {concept(role, value) for value in values} | set(values) for role, values in VALUES.items()}
    for facts, lesson in some_lessons:
        said = f" {lesson.answer.lower().replace('.', '')} "
        for role in ROLES:
            true = {facts.value(role), concept(role, facts.value(role))}
            assert not [v for v in spoken[role] - true if f" {v} " in said], lesson


def test_a_choice_offers_the_truth_once_among_others(some_lessons):
    choices = [(facts, it) for facts, it in some_lessons if it.question.startswith("Which ")]
    assert choices
    for _, lesson in choices:
        options = lesson.question.rstrip("?").split(": ")[1].replace(" or ", ", ").split(", ")
        told = lesson.answer.rstrip(".").split(" is ")[-1].lower()
        assert len(set(options)) == len(options) > 1
        assert options.count(told) == 1


def test_the_place_of_the_right_choice_tells_nothing(some_lessons):
    pairs = [it for _, it in some_lessons if it.question.startswith("Which ") and "," not in it.question]
    first = sum(it.question.split(": ")[1].startswith(it.answer.rstrip(".").split(" is ")[-1].lower()) for it in pairs)
    assert abs(first / len(pairs) - 0.5) < 4 * math.sqrt(0.25 / len(pairs))


@pytest.mark.parametrize(
    ("action", "ways"),
    [
        ("chop", {"up", "down", "rest"}),
        ("slice", {"left", "right", "rest"}),
        ("grate", {"up right", "down left", "rest"}),
        ("press", {"rest"}),
    ],
)
def test_the_way_of_the_tool_is_told_as_it_goes(action, ways):
    for seed in range(20):
        motion = draw_motion(np.random.default_rng(seed), action, (42.0, 42.0), 2.0)
        told = follow(positions(motion, np.arange(8) / 4)).split(", ")
        assert len(told) == 7
        assert set(told) <= ways


def test_captions_are_read_back():
    true = [caption(f) for f in all_facts()]
    assert role_accuracy(true, true) == dict.fromkeys(ROLES, 1.0)
    assert role_accuracy(true[1:] + true[:1], true)["Location"] == 0.0  # the fastest to change
    assert role_accuracy(["chop chop"] * len(true), true) == dict.fromkeys(ROLES, 0.0)


def test_clips_to_learn_from_are_never_held_out_and_always_the_same():
    clips = [shoot(0, i) for i in range(60)]
    assert not [c for c in clips if is_held_out(c.facts)]
    assert np.array_equal(clips[7].frames_FHWC, shoot(0, 7).frames_FHWC)
    assert not np.array_equal(clips[7].frames_FHWC, shoot(1, 7).frames_FHWC)


@pytest.mark.parametrize("index", range(4))
def test_drawn_frames_are_those_read_from_a_file(tmp_path, index):
    clip = shoot(3, index)
    write_video(tmp_path / "clip.mp4", draw_frames(clip.scene), FPS)
    read = read_frames(VideoSegment("clip.mp4"), SAMPLING, tmp_path)
    assert np.array_equal(read.times_s, clip.times_s)
    assert np.abs(read.pixels_FHWC.astype(float) - clip.frames_FHWC).mean() < 8  # chroma at half size, noise smoothed


def test_targets_are_the_answers(untaught):
    _, teacher = untaught
    clips = [shoot(0, i) for i in range(3)]
    lessons = [lessons_about(c, np.random.default_rng(i))[: 2 + i] for i, c in enumerate(clips)]
    batch = teacher.batch(clips, lessons)
    for i, asked in enumerate(lessons):
        taught_T = batch["targets"][i] != IGNORED
        assert teacher.encoder.tokenizer.decode(batch["targets"][i][taught_T]) == "".join(
            it.answer + END for it in asked
        )
        following = taught_T[:-1].nonzero()[:, 0]
        inside = following[taught_T[following + 1]]  # all but an answer's last token: there nothing follows
        assert torch.equal(batch["input_ids"][i][inside + 1], batch["targets"][i][inside])


def test_packed_lessons_teach_what_separate_ones_do(untaught):
    base, teacher = untaught
    clip = shoot(0, 0)
    lessons = lessons_about(clip, np.random.default_rng(0))
    layout = vision_layout(base.config)
    with torch.no_grad():
        packed = lesson_loss(base, teacher.batch([clip], [lessons]), layout)
        alone = [lesson_loss(base, teacher.batch([clip], [[it]]), layout) for it in lessons]
    tokens = torch.tensor([float(len(teacher.answer_ids(it.answer))) for it in lessons])
    assert float(packed) == pytest.approx(float((torch.stack(alone) * tokens).sum() / tokens.sum()), abs=1e-5)


def test_cached_words_are_those_of_whole_forwards(untaught):
    base, teacher = untaught
    clip = drawn_frames(shoot(0, 1))
    said = answer_ids(base, teacher, [clip], LIST_FACTS)[0]
    prefix, asked = teacher.prefix(clip), teacher.question_ids(LIST_FACTS)
    ids = torch.cat([prefix.ids_P, asked, said])
    turn = (torch.arange(len(asked) + len(said)) + prefix.next_position).expand(3, -1)
    positions = torch.cat([prefix.positions_3P, turn], 1)[:, None]
    with torch.no_grad():
        logits_TV = base(input_ids=ids[None], position_ids=positions, use_cache=False, **prefix.vision).logits[0]
    start = len(prefix.ids_P) + len(asked) - 1
    assert torch.equal(logits_TV[start : start + len(said)].argmax(-1), said)


def test_the_tower_learns_and_nothing_else_does(untaught):
    base, teacher = untaught
    before = {name: weight.clone() for name, weight in base.state_dict().items()}
    right = teach_tower(base, teacher, lambda index: shoot(5, index), n_clips=4, steps=12, seed=0)
    changed = {name for name, weight in base.state_dict().items() if not torch.equal(weight, before[name])}
    base.load_state_dict(before)
    assert changed
    assert all(name.startswith("model.visual") for name in changed)
    assert right > 0.4  # four clips, met over and over


@pytest.fixture
def short_pretraining(monkeypatch):
    for name, value in {"CLIPS_A_STEP": 2, "MEASURED": 2, "MEASURE_EVERY": 1}.items():
        monkeypatch.setattr(kitchen_pretrain, name, value)


def test_pretraining_repeats_itself_and_goes_on_where_it_stopped(tmp_path, monkeypatch, short_pretraining):
    _, whole = kitchen_pretrain.pretrain(tmp_path / "whole", 2, tower_steps=1)
    assert len(whole) == 2
    assert np.isfinite(whole).all()

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kitchen_pretrain, "held_out_accuracy", stop)
        with pytest.raises(KeyboardInterrupt):
            kitchen_pretrain.pretrain(tmp_path / "halves", 2, tower_steps=1)
    _, halves = kitchen_pretrain.pretrain(tmp_path / "halves", 2, tower_steps=1)
    assert halves == whole


def test_the_shipped_base_is_small_bfloat16_and_complete():
    files = [f for f in BASE.rglob("*") if f.is_file()]
    assert sum(f.stat().st_size for f in files) < 8e6
    assert {f.suffix for f in files} <= {".safetensors", ".json", ".jinja", ".txt", ".md"}
    with safe_open(BASE / "model.safetensors", "pt") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"BF16"}  # noqa: SIM118
    assert json.loads((BASE / "config.json").read_text())["architectures"] == ["Qwen2_5_VLForConditionalGeneration"]


def test_each_word_of_the_kitchen_is_one_token(untaught):
    _, teacher = untaught
    tokenizer = teacher.encoder.tokenizer
    words = {w for values in VALUES.values() for value in values for w in value.split()} - set(VALUES["Action"])
    words |= {w for f in all_facts() for w in conceptual(f)["Action"].split()}
    assert [w for w in sorted(words) if len(tokenizer.tokenize(f" {w}")) != 1] == []


def test_unseen_combinations_are_captioned(shipped):
    base, teacher = shipped
    clips = list(islice(stream(11, fps=SAMPLING.fps, held_out=True), 96))
    told = answer(base, teacher, [drawn_frames(c) for c in clips], DESCRIBE)
    found = role_accuracy(told, [c.caption for c in clips])
    assert min(found.values()) >= 0.95, found


def test_unseen_combinations_are_captioned_from_files(shipped, tmp_path):
    base, teacher = shipped
    clips = list(islice(stream(12, held_out=True), 48))
    for i, clip in enumerate(clips):
        write_video(tmp_path / f"{i}.mp4", draw_frames(clip.scene), FPS)
    read = [read_frames(VideoSegment(f"{i}.mp4"), SAMPLING, tmp_path) for i in range(len(clips))]
    found = role_accuracy(answer(base, teacher, read), [c.caption for c in clips])
    assert min(found.values()) >= 0.95, found


def test_blank_clips_are_not_captioned_rightly(shipped):
    base, teacher = shipped
    clips = list(islice(stream(13, fps=SAMPLING.fps, held_out=True), 48))
    blank = [type(f)(np.full_like(f.pixels_FHWC, 128), f.times_s, f.reader) for f in map(drawn_frames, clips)]
    found = role_accuracy(answer(base, teacher, blank), [c.caption for c in clips])
    assert max(found.values()) < 0.5, found
