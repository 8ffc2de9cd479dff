import itertools
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from proofreel.core.errors import ConfigError
from proofreel.core.pairs import VideoSegment, problems_of
from proofreel.data_prep.importers.base import Row
from proofreel.data_prep.importers.facts import read_facts
from proofreel.data_prep.media.frames import FrameSampling, read_frames

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the examples are not installed

from examples.kitchen import drawing, vocabulary
from examples.kitchen.annotating import annotate
from examples.kitchen.filming import film, plan_clips
from examples.kitchen.make import main
from examples.kitchen.motion import draw_motion, positions
from examples.kitchen.sampling import Scene, choose_facts, draw_scene, generator
from examples.kitchen.shapes import INGREDIENT_COLOUR
from examples.kitchen.streaming import stream
from examples.kitchen.world import CLIPS, Settings, make_world

SMALL = Settings(seed=3, clips=(40, 16, 24, 24), long=(4, 3, 3, 4), pretrain=5)
SPLITS = ("train", "validation", "calibration", "test")
FOUR_FPS = FrameSampling(fps=4.0, min_pixels=84 * 84, max_pixels=84 * 84)  # as drawn
FILES = ("annotations.json", "annotations_long.json")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kitchen")
    assert make_world(out, SMALL)
    return out


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    facts = choose_facts(generator(5, "tests"), vocabulary.all_facts(), 60)
    return [draw_scene(generator(5, "tests", i + 1), f) for i, f in enumerate(facts)]


def rows_of(world: Path, file: str) -> list[dict]:
    return json.loads((world / file).read_text())


# What the pixels show, measured without the random numbers that made them.


def where_the_tool_is(frames_FHWC: np.ndarray, scene: Scene) -> np.ndarray:
    """Masks (F, H, W) of the pixels that differ from the scene without its tool."""
    ground = np.asarray(drawing.draw_ground(scene)) * scene.brightness
    return np.abs(frames_FHWC - np.clip(ground, 0, 255)).max(axis=-1) > 60


def tip_of(mask_HW: np.ndarray) -> tuple[float, float]:
    """Lowest row of the tool, and the middle of its lowest rows: they move as its head does."""
    rows, columns = np.nonzero(mask_HW)
    lowest = np.quantile(rows, 0.99)
    return float(columns[rows > lowest - 12].mean()), float(lowest)


def action_seen(tips_F2: np.ndarray) -> str:
    wide, tall = np.ptp(tips_F2, axis=0)
    if max(wide, tall) < 5:
        return "press"
    if wide < tall / 3:
        return "chop"
    if tall < wide / 3:
        steps = np.diff(tips_F2[:, 0])
        return "spread" if max((steps > -1).mean(), (steps < 1).mean()) == 1 else "slice"
    return "grate" if np.corrcoef(tips_F2.T)[0, 1] < -0.8 else "stir"


def colour_seen(pixels: np.ndarray, palette: dict[str, tuple[int, int, int]], brightness: float) -> str:
    flat = pixels.reshape(-1, 3) / brightness
    near = {name: (np.linalg.norm(flat - np.array(colour), axis=1) < 42).sum() for name, colour in palette.items()}
    return max(near, key=lambda name: near[name])


def test_the_tool_moves_as_the_action_says(scenes: list[Scene]) -> None:
    seen = [action_seen(np.array([tip_of(m) for m in where_the_tool_is(drawing.draw_frames(s), s)])) for s in scenes]
    agree = np.mean([a == s.facts.action for a, s in zip(seen, scenes, strict=True)])
    assert agree >= 0.95, Counter((s.facts.action, a) for a, s in zip(seen, scenes, strict=True))


def test_the_middle_has_the_ingredients_colour_and_the_ground_the_locations(scenes: list[Scene]) -> None:
    for scene in scenes:
        frames = drawing.draw_frames(scene, [0, 4, 8, 12])
        assert colour_seen(frames[:, 20:64, 20:64], INGREDIENT_COLOUR, scene.brightness) == scene.facts.ingredient
        assert colour_seen(frames, drawing.LOCATION_COLOUR, scene.brightness) == scene.facts.location


def test_the_moving_silhouette_is_the_tools(scenes: list[Scene]) -> None:
    templates = {}
    for name, scene in itertools.product(vocabulary.TOOLS, scenes[:40]):
        facts = vocabulary.Facts(scene.facts.action, scene.facts.ingredient, name, scene.facts.location)
        blank = np.zeros((84, 84), bool)
        sprite = drawing.draw_tool(Scene(**{**vars(scene), "facts": facts}))
        x, y = drawing.sprite_corner(positions(scene.motion, np.zeros(1))[0])
        alpha = np.asarray(sprite)[..., 3] > 127
        rows, columns = np.nonzero(alpha)
        inside = (rows + y >= 0) & (rows + y < 84) & (columns + x >= 0) & (columns + x < 84)
        blank[rows[inside] + y, columns[inside] + x] = True
        templates[name, scene] = blank
    for scene in scenes[:40]:
        mask = where_the_tool_is(drawing.draw_frames(scene, [0]), scene)[0]
        overlap = {n: (mask & templates[n, scene]).sum() / (mask | templates[n, scene]).sum() for n in vocabulary.TOOLS}
        assert max(overlap, key=lambda n: overlap[n]) == scene.facts.tool, overlap


def test_one_frame_does_not_tell_the_action_and_eight_do() -> None:
    rng = generator(0, "single frames")
    single, several, actions = [], [], []
    for i in range(3000):
        action = list(vocabulary.ACTIONS)[i % 6]
        path = positions(draw_motion(rng, action, (42.0, 42.0), 2.0), np.arange(8) / 4)
        single.append(path[rng.integers(8)])
        several.append(np.diff(path, axis=0).ravel())
        actions.append(action)
    alone = KNeighborsClassifier(40).fit(single[:2000], actions[:2000]).score(single[2000:], actions[2000:])
    moving = KNeighborsClassifier(5).fit(several[:2000], actions[:2000]).score(several[2000:], actions[2000:])
    assert alone < 0.25 < 0.95 < moving


def test_distractors_are_visible_still_at_the_edge_and_not_used(scenes: list[Scene]) -> None:
    for scene in (s for s in scenes if s.lying):
        with_them, without = (np.asarray(drawing.draw_ground(scene, with_lying=b)).astype(int) for b in (True, False))
        changed = np.abs(with_them - without).max(axis=-1) > 30
        uncovered = (changed & ~where_the_tool_is(drawing.draw_frames(scene), scene)).sum(axis=(1, 2))
        assert np.median(uncovered) >= 50 * len(scene.lying)
        assert not changed[28:56, 28:56].any()
        assert {it.name for it in scene.lying}.isdisjoint({scene.facts.ingredient, scene.facts.tool})


def test_a_frame_is_the_same_whichever_others_are_drawn(scenes: list[Scene]) -> None:
    assert np.array_equal(drawing.draw_frames(scenes[0])[[3, 9]], drawing.draw_frames(scenes[0], [3, 9]))


# Files.


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(world: Path, tmp_path: Path) -> None:
    make_world(tmp_path / "again", SMALL)
    files = sorted(p.relative_to(world) for p in world.rglob("*") if p.is_file())
    assert len(files) > 100
    assert files == sorted(p.relative_to(tmp_path / "again") for p in (tmp_path / "again").rglob("*") if p.is_file())
    assert all((world / f).read_bytes() == (tmp_path / "again" / f).read_bytes() for f in files)
    make_world(tmp_path / "other", Settings(4, (8, 0, 0, 0), (0, 0, 0, 0)))
    assert not np.array_equal(film(plan_clips(3, "train", 8)[0]), film(plan_clips(4, "train", 8)[0]))


def test_decoded_files_show_what_was_drawn(world: Path) -> None:
    for video in plan_clips(SMALL.seed, "test", SMALL.clips[3]):
        read = read_frames(VideoSegment(video.path, 0.0, 2.0), FOUR_FPS, world)
        drawn = film(video)[(read.times_s * 8).round().astype(int)]
        scene = video.steps[0].scene
        assert read.pixels_FHWC.shape == (8, 84, 84, 3)
        assert np.abs(read.pixels_FHWC.astype(int) - drawn).mean() < 8
        middle = read.pixels_FHWC[:, 20:64, 20:64]
        assert colour_seen(middle, INGREDIENT_COLOUR, scene.brightness) == scene.facts.ingredient
        assert colour_seen(read.pixels_FHWC, drawing.LOCATION_COLOUR, scene.brightness) == scene.facts.location


def test_every_annotated_span_can_be_read_and_every_claim_is_a_valid_pair(world: Path) -> None:
    for file in FILES:
        for row in rows_of(world, file):
            frames = read_frames(VideoSegment(row["video"], row["start_s"], row["end_s"]), FOUR_FPS, world)
            assert row["start_s"] <= frames.times_s.min() < frames.times_s.max() < row["end_s"]
        pairs = [row.pair for row in read_facts(world / file) if isinstance(row, Row)]
        assert len(pairs) == 16 * len(rows_of(world, file))
        assert [problem for pair in pairs for problem in problems_of(pair)] == []


# Annotations.


def facts_of(row: dict) -> vocabulary.Facts:
    verbs = {movement.gerund: verb for verb, movement in vocabulary.ACTIONS.items()}
    action, *others = row["conceptual"].values()
    return vocabulary.Facts(verbs[action], *others)


def claims_of(row: dict, prefix: str = "") -> list[tuple[str, str]]:
    values = {role: v["text"] if prefix else v for role, v in row[f"{prefix}conceptual"].items()}
    return [*values.items(), *((fact["role"], fact["text"]) for fact in row[f"{prefix}contextual"])]


@pytest.mark.parametrize("file", FILES)
def test_no_combination_of_calibration_or_test_is_ever_trained_on_and_every_value_is(world: Path, file: str) -> None:
    seen = {s: {facts_of(r) for r in rows_of(world, file) if r["split"] == s} for s in SPLITS}
    assert all(seen.values())
    assert not (seen["train"] | seen["validation"]) & (seen["calibration"] | seen["test"])
    assert not any(vocabulary.is_held_out(f) for f in seen["train"] | seen["validation"])
    for role, values in vocabulary.VALUES.items():
        held_out = {f.value(role) for f in vocabulary.pool(True)}
        assert held_out == {f.value(role) for f in vocabulary.pool(False)} == set(values)


def test_pretraining_never_meets_a_held_out_combination(world: Path) -> None:
    assert not any(vocabulary.is_held_out(it.facts) for it in itertools.islice(stream(1), 200))
    held_out = {vocabulary.caption(f) for f in vocabulary.pool(True)}
    rows = rows_of(world, "pretrain.json")
    assert len(rows) == SMALL.pretrain
    assert held_out.isdisjoint(row["caption"] for row in rows)
    assert all("conceptual" not in row for row in rows)


def test_stream_repeats_itself_and_ends_at_the_clip(scenes: list[Scene]) -> None:
    first, again = next(stream(7)), next(stream(7))
    assert np.array_equal(first.frames_FHWC, again.frames_FHWC)
    assert first.frames_FHWC.shape == (8, 84, 84, 3)
    assert 0 <= first.times_s[0] < 0.25
    assert np.allclose(np.diff(first.times_s), 0.25)


@pytest.mark.parametrize("file", FILES)
def test_every_claim_is_as_often_refuted_as_supported(world: Path, file: str) -> None:
    for split in SPLITS:
        rows = [row for row in rows_of(world, file) if row["split"] == split]
        supported = Counter(claim for row in rows for claim in claims_of(row))
        assert supported == Counter(claim for row in rows for claim in claims_of(row, "negative_"))


@pytest.mark.parametrize("file", FILES)
def test_negatives_are_false_and_their_kinds_true(world: Path, file: str) -> None:
    rows = rows_of(world, file)
    by_caption = {vocabulary.caption(f): f for f in vocabulary.all_facts()}
    kinds = Counter()
    for i, row in enumerate(rows):
        true = set(claims_of(row))
        beside = [r for r in (rows[i - 1], rows[(i + 1) % len(rows)]) if r["group"] == row["group"] and r is not row]
        negatives = [*row["negative_conceptual"].values(), *row["negative_contextual"]]
        kinds_in_order = [fact["kind"] for fact in negatives]
        said = [c["said"] for c in row["meta"]["narration_conflict"]]
        assert by_caption[row["caption"]] == facts_of(row)
        for (role, claim), kind in zip(claims_of(row, "negative_"), kinds_in_order, strict=True):
            assert (role, claim) not in true
            kinds[kind] += 1
            if kind == "distractor":
                assert any(claim.endswith(name) or f"{name} " in claim for name in row["distractors"])
            if kind == "neighbour":
                assert any((role, claim) in claims_of(other) for other in beside)
            if kind == "narrated":
                assert any(word in claim or word.startswith(claim.split()[0][:4]) for word in said)
    hard = {"annotations.json": {"near_miss", "distractor"}, "annotations_long.json": {"neighbour", "distractor"}}
    assert hard[file] < set(kinds)
    assert kinds["other"] < 0.65 * kinds.total()


def test_the_default_test_split_is_large_enough_to_judge_chance() -> None:
    rows = annotate(0, plan_clips(0, "test", CLIPS[3]), "clips/test")
    assert len({row["group"] for row in rows}) >= 200
    assert sum(len(claims_of(row)) + len(claims_of(row, "negative_")) for row in rows) >= 2_000


def test_captions_name_every_role_and_implicit_ones_leave_some_out(world: Path) -> None:
    for file in FILES:
        for row in rows_of(world, file):
            facts = facts_of(row)
            for role in vocabulary.ROLES:
                value = facts.value(role)
                assert value in row["caption"]
                assert (value in row["caption_implicit"]) is (role not in row["meta"]["implicit"])


def test_narrations_tell_the_step_but_where_a_conflict_is_recorded(world: Path) -> None:
    rows = rows_of(world, "annotations_long.json")
    conflicts = 0
    for video, steps in itertools.groupby(rows, key=lambda row: row["video"]):
        steps = list(steps)
        assert 3 <= len(steps) <= 5
        assert all(a["end_s"] < b["start_s"] for a, b in itertools.pairwise(steps))
        cues = json.loads((world / video).with_suffix(".json").read_text())
        assert [cue["text"] for cue in cues] == [row["transcript"] for row in steps]
        srt = (world / video).with_suffix(".srt").read_text()
        assert srt.count(" --> ") == len(steps)
        assert all(cue["text"] in srt for cue in cues)
        for row in steps:
            verbatim = row["transcript"].split(" ", 1)[1]
            for conflict in row["meta"]["narration_conflict"]:
                conflicts += 1
                assert conflict["shown"] == row["conceptual"][conflict["role"]] != conflict["said"]
                assert verbatim != row["caption"]
            if not row["meta"]["narration_conflict"]:
                assert set(verbatim.split()) - {"it"} <= set(row["caption"].split())
    assert 0 < conflicts < len(rows) / 2


# Requests that are refused.


def test_the_same_request_is_not_made_twice_and_another_is_refused(world: Path) -> None:
    assert not make_world(world, SMALL)
    with pytest.raises(ConfigError, match=r"made otherwise, got .*seed.*; name another folder"):
        make_world(world, Settings(seed=9))


def test_a_split_too_small_to_balance_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--out", str(tmp_path / "k"), "--clips", "1", "0", "0", "0", "--long", "0", "0", "0", "0"]
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert "clips/train: too few steps" in capsys.readouterr().err
    assert not (tmp_path / "k").exists()
    with pytest.raises(ConfigError, match="cannot be negative"):
        make_world(tmp_path / "k", Settings(clips=(-1, 0, 0, 0)))
