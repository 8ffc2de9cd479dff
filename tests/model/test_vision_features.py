"""The vision feature cache: kept features are fresh ones, what they depend on names them, nothing runs twice."""

import json
import multiprocessing
import os
import pickle
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nightly import FAMILIES, first_of
from numbered_clips import encode
from PIL import Image as PILImage
from torch.utils.data import DataLoader

from proofreel.core import storage
from proofreel.core.errors import ConfigError, MediaError, ModelInputError
from proofreel.core.pairs import Image, Passage, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.core.storage import DamagedEntryError, EntryStore
from proofreel.data_prep.media.frame_cache import FrameCache
from proofreel.data_prep.media.frames import FrameSampling
from proofreel.models.backbones.families import vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.backbones.lora import attach_lora
from proofreel.models.engine import vision_features
from proofreel.models.engine.forward import margins
from proofreel.models.engine.heads import NextToken
from proofreel.models.engine.packing import collate, pack
from proofreel.models.engine.vision_features import VisionFeatures, run_tower, tower_sha256
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.models.inputs.encoder import Encoder, read_media
from proofreel.models.inputs.features import PATCH_TIMES, PieceFeatures, pack_features, unpack_features

FIRST, SECOND = VideoSegment("clip.mp4", 0.0, 1.5), VideoSegment("other.mp4", 1.0, 4.0)
PICTURE = Image("picture.png")
MIXED = (Passage("It moves."), SECOND, PICTURE, FIRST)
CLAIMS = ["Object is red ball.", "Action is moving left.", "No."]


@pytest.fixture(scope="module", params=first_of(FAMILIES))
def tiny_base(request, tiny_of):
    return tiny_of(request.param)


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("media")
    encode(folder / "clip.mp4")
    encode(folder / "other.mp4", fps=20)
    noise = np.random.default_rng(0).integers(0, 256, (90, 130, 3), dtype=np.uint8)
    PILImage.fromarray(noise).save(folder / "picture.png")
    return folder


@pytest.fixture
def model(tiny_base: Path) -> Any:
    return load_backbone(tiny_base).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def encoder(tiny_base: Path, small_sampling: FrameSampling) -> Encoder:
    return Encoder(load_processor(tiny_base), vision_layout(load_backbone(tiny_base).config), Prompt(), small_sampling)


@pytest.fixture
def cache(tmp_path: Path, model: Any, encoder: Encoder, media: Path) -> VisionFeatures:
    return VisionFeatures(tmp_path / "cache", model, encoder, media_root=media, dtype="float32")


@pytest.fixture
def runs(model: Any) -> list[int]:
    """Videos and images the tower saw, run by run."""
    seen: list[int] = []
    model.model.visual.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(len(kwargs["grid_thw"])), with_kwargs=True
    )
    return seen


def entries(cache: VisionFeatures) -> list[Path]:
    return sorted((cache.directory / "entries").rglob("??/*"))


def margins_of(model: Any, encoder: Encoder, evidence: Any, media: Any) -> torch.Tensor:
    encoded = encoder.evidence(evidence, media)
    batch = collate([pack(encoded, [encoder.claim_ids(c) for c in CLAIMS])], encoder.pad_id)
    readout = NextToken(LabelWords.of(Prompt(), encoder.tokenizer))
    with torch.no_grad():
        return margins(model, batch, readout, encoder.layout)[0]


def fresh_margins(model: Any, encoder: Encoder, evidence: Any, media: Path) -> torch.Tensor:
    return margins_of(model, encoder, evidence, read_media(evidence, encoder.sampling, media))


@pytest.mark.parametrize("evidence", [(FIRST,), (PICTURE,), (Passage("Text alone."),)])
def test_features_kept_in_float32_give_the_margins_of_fresh_ones_bit_for_bit(cache, model, encoder, media, evidence):
    fresh = fresh_margins(model, encoder, evidence, media)
    for seen in (cache.obtain(evidence, model), cache.obtain(evidence, model), cache.read(evidence)):
        assert torch.equal(margins_of(model, encoder, evidence, seen), fresh)


def test_two_videos_and_an_image_in_one_prompt_keep_their_order(cache, model, encoder, media):
    cache.ensure([(FIRST,), MIXED[1:]], model)
    fresh = fresh_margins(model, encoder, MIXED, media)
    assert torch.allclose(margins_of(model, encoder, MIXED, cache.read(MIXED)), fresh, atol=1e-4, rtol=1e-5)
    swapped = (MIXED[0], FIRST, PICTURE, SECOND)
    found = margins_of(model, encoder, swapped, cache.read(swapped))
    assert torch.allclose(found, fresh_margins(model, encoder, swapped, media), atol=1e-4, rtol=1e-5)
    assert (found - fresh).abs().max() > 1e-3  # the order matters, or equality would prove nothing
    kept, encoded = cache.read(MIXED), encoder.evidence(MIXED, read_media(MIXED, encoder.sampling, media))
    for name in encoded.vision.keys() - {"pixel_values", "pixel_values_videos"}:
        assert torch.equal(kept.vision()[name], encoded.vision[name])
        assert kept.vision()[name].dtype == encoded.vision[name].dtype
    assert [v.n_frames for v in kept.videos] == [6, 4]
    assert kept.images[0].n_frames == 1


def test_features_kept_in_bfloat16_are_the_rounded_ones_and_margins_move_little(tmp_path, model, encoder, media):
    cache = VisionFeatures(tmp_path, model, encoder, media_root=media)
    pixels = encoder.pixels(read_media((FIRST,), encoder.sampling, media))
    seen = cache.obtain((FIRST,), model).videos[0]
    assert seen.features_TH.dtype == torch.bfloat16
    assert torch.equal(seen.features_TH, run_tower(model, pixels)[0].to(torch.bfloat16))
    moved = margins_of(model, encoder, MIXED, cache.obtain(MIXED, model)) - fresh_margins(model, encoder, MIXED, media)
    assert 0 < moved.abs().max() < 5e-3


def test_a_second_epoch_and_the_next_run_neither_decode_nor_look(tmp_path, model, encoder, media, runs):
    frames = FrameCache(tmp_path / "frames", timeout_s=None)
    kept = [MIXED, (FIRST,), (SECOND, PICTURE)]

    def epoch() -> VisionFeatures:
        cache = VisionFeatures(tmp_path / "features", model, encoder, media_root=media, frame_cache=frames)
        cache.ensure(kept, model)
        for evidence in kept:
            margins_of(model, encoder, evidence, cache.read(evidence))
        return cache

    assert epoch().computed == 3
    assert runs == [2, 1]
    assert frames.decoded == 3
    again = epoch()
    assert again.computed == 0
    assert runs == [2, 1]
    assert frames.decoded + frames.hits == 3


def merger_bias(model):
    """Name of the last bias of the merger, within the tower."""
    return [n for n, _ in model.model.visual.named_parameters() if n.startswith("merger.") and n.endswith("bias")][-1]


def test_what_features_depend_on_names_them_and_the_path_does_not(tmp_path, cache, model, encoder, tiny_base, media):
    cache.obtain((FIRST,), model)
    other_sampling = Encoder(encoder.processor, encoder.layout, Prompt(), FrameSampling(4, 4, 8, 56 * 56, 84 * 84))
    moved, changed = tmp_path / "moved", tmp_path / "changed"
    shutil.copytree(media, moved)
    shutil.copytree(media, changed)
    shutil.copy(media / "other.mp4", changed / "clip.mp4")

    def misses(piece=FIRST, *, of=model, by=encoder, root=media, dtype="float32"):
        other = VisionFeatures(cache.directory, of, by, media_root=root, dtype=dtype)
        other.obtain((piece,), of)
        return other.computed

    assert misses() == misses(root=moved) == 0
    merger, block = (load_backbone(tiny_base).requires_grad_(False) for _ in range(2))
    for other, name in ((merger, merger_bias(model)), (block, "blocks.0.norm1.weight")):
        other.model.visual.get_parameter(name)[0] += 1e-3
    assert (
        misses(of=merger) == misses(of=block) == misses(of=load_backbone(tiny_base).half().requires_grad_(False)) == 1
    )
    assert misses(VideoSegment("clip.mp4", 0.0, 1.6)) == misses(VideoSegment("clip.mp4", 0.1, 1.5)) == 1
    assert misses(by=other_sampling) == misses(root=changed) == misses(dtype="bfloat16") == 1
    assert len(entries(cache)) == 9


def test_the_language_model_and_its_adapters_do_not_name_features(model):
    from peft import LoraConfig

    before = tower_sha256(model)
    model.lm_head.weight[0] += 1
    assert tower_sha256(attach_lora(model, LoraConfig(r=2))) == before


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "swapped"])
def test_a_damaged_entry_is_dropped_and_computed_again(cache, model, runs, damage):
    evidence = (FIRST, SECOND)
    expected = cache.obtain(evidence, model)
    for path, other in zip(entries(cache), [p.read_bytes() for p in reversed(entries(cache))], strict=True):
        whole = path.read_bytes()
        flipped = whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]
        path.write_bytes({"flipped": flipped, "cut": whole[:-1], "empty": b"", "swapped": other}[damage])
    with pytest.raises(MediaError, match="damaged"):
        cache.read(evidence)
    cache.ensure([evidence], model)
    assert cache.damaged == 2
    assert runs == [2, 2]
    for one, two in zip(cache.read(evidence).videos, expected.videos, strict=True):
        assert torch.equal(one.features_TH, two.features_TH)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_entries_hold_json_and_numbers_and_come_back_bit_for_bit(dtype):
    seen = PieceFeatures(torch.randn(6, 5).to(dtype), (2, 4, 6), 4, 0.1)
    entry = pack_features(seen, "k")
    again = unpack_features(entry, "k")
    assert torch.equal(again.features_TH, seen.features_TH)
    assert (again.features_TH.dtype, again.grid, again.n_frames, again.seconds_per_grid) == (dtype, (2, 4, 6), 4, 0.1)
    n_header = int.from_bytes(entry[32:36], "little")
    assert json.loads(entry[36 : 36 + n_header])["grid"] == [2, 4, 6]
    assert len(entry) == 36 + n_header + 30 * dtype.itemsize
    with pytest.raises(DamagedEntryError, match="another entry"):
        unpack_features(entry, "other")


def test_what_trains_or_adapts_tower_or_merger_is_refused(tmp_path, cache, model, encoder):
    from peft import LoraConfig

    model.model.visual.get_parameter(merger_bias(model)).requires_grad_(True)
    for attempt in (lambda: VisionFeatures(tmp_path, model, encoder), lambda: cache.ensure([(FIRST,)], model)):
        with pytest.raises(ModelInputError, match=rf"trainable.*{merger_bias(model)}"):
            attempt()
    model.requires_grad_(False)
    everywhere = attach_lora(model, LoraConfig(r=2, target_modules=["q_proj", "qkv", "q"])).requires_grad_(False)
    with pytest.raises(ModelInputError, match=r"adapters change the vision tower.*(qkv|attn\.q)"):
        VisionFeatures(tmp_path, everywhere, encoder)


def test_adapters_of_the_language_model_leave_the_tower_frozen(tmp_path, cache, model, encoder, media):
    from peft import LoraConfig

    seen = cache.obtain((FIRST,), model)
    adapted = attach_lora(model, LoraConfig(r=2))
    again = VisionFeatures(cache.directory, adapted, encoder, media_root=media, dtype="float32")
    assert torch.equal(again.obtain((FIRST,), adapted).videos[0].features_TH, seen.videos[0].features_TH)
    assert again.computed == 0


def test_features_never_pretend_the_tower_gave_numbers(cache, model):
    model.model.visual.get_parameter(merger_bias(model))[0] = float("nan")
    with pytest.raises(ModelInputError, match="NaN"):
        cache.obtain((FIRST,), model)
    assert entries(cache) == []


def test_what_cannot_be_seen_is_named_and_all_else_is_kept(cache, model, media):
    (media / "broken.mp4").write_bytes(b"not a video")
    gone, broken = VideoSegment("gone.mp4", 0, 1), VideoSegment("broken.mp4", 0, 1)
    past, absent = VideoSegment("clip.mp4", 90, 91), VideoSegment("clip.mp4", 0, 1, absent=True)
    with pytest.raises(MediaError, match="4 pieces") as raised:
        cache.ensure([(gone,), (FIRST,), (broken, SECOND), (past, absent)], model)
    for word in ("gone.mp4", "broken.mp4", "past the end", "absent"):
        assert word in str(raised.value)
    assert len(cache.read((FIRST, SECOND)).videos) == 2
    for piece in (gone, broken, past, absent):
        with pytest.raises(MediaError):
            cache.obtain((piece,), model)
        with pytest.raises(MediaError):
            cache.read((piece,))


def test_a_limit_too_small_is_refused_before_anything_is_computed(tmp_path, model, encoder, media, runs):
    with pytest.raises(ConfigError, match="at least"):
        VisionFeatures(tmp_path, model, encoder, media_root=media, max_gib=1e-6).ensure([MIXED], model)
    assert runs == []
    with pytest.raises(ConfigError, match="above 0"):
        VisionFeatures(tmp_path, model, encoder, max_gib=0)
    with pytest.raises(ConfigError, match="float16"):
        VisionFeatures(tmp_path, model, encoder, dtype="float16")


def test_ranks_share_the_work_and_together_see_everything_once(cache, model, media, encoder):
    spans = [(VideoSegment("clip.mp4", 0.1 * i, 1.0 + 0.1 * i), FIRST) for i in range(7)]
    copies = [VisionFeatures(cache.directory, model, encoder, media_root=media, dtype="float32") for _ in range(3)]
    for rank, copy in enumerate(copies):
        copy.ensure(spans, model, rank=rank, world_size=3)
    assert sorted(copy.computed for copy in copies) == [2, 3, 3]
    for evidence in spans:
        cache.read(evidence)


def test_segments_seen_together_are_those_seen_alone(cache, model, encoder, media, runs, monkeypatch):
    spans = [VideoSegment("clip.mp4", 0.2 * i, 1.0 + 0.4 * i) for i in range(5)]
    alone = [run_tower(model, encoder.pixels(read_media((s,), encoder.sampling, media)))[0] for s in spans]
    runs.clear()
    monkeypatch.setattr(vision_features, "MAX_PATCHES", 100)
    cache.ensure([(s,) for s in spans], model)
    assert sum(runs) == 5
    assert 1 < len(runs) < 5
    for seen, expected in zip(cache.read(tuple(spans)).videos, alone, strict=True):
        assert torch.allclose(seen.features_TH, expected, atol=1e-5)


class Held:
    """A lock that knows whether it is held."""

    held = False

    def __enter__(self):
        self.held = True

    def __exit__(self, *_):
        self.held = False


def test_a_lock_is_held_while_the_tower_computes_and_not_while_frames_are_decoded(cache, model, monkeypatch):
    lock, held = Held(), []
    monkeypatch.setattr(vision_features, "read_media", lambda *a: held.append(("decode", lock.held)) or read_media(*a))
    model.model.visual.register_forward_pre_hook(lambda *_: held.append(("tower", lock.held)))
    cache.obtain((FIRST, PICTURE), model, lock=lock)
    assert held == [("decode", False), ("decode", False), ("tower", True), ("tower", True)]


class Reads(torch.utils.data.Dataset):
    def __init__(self, cache, evidences):
        self.cache, self.evidences = cache, evidences

    def __len__(self):
        return len(self.evidences)

    def __getitem__(self, i):
        return self.cache.encoder.evidence(self.evidences[i], self.cache.read(self.evidences[i])).vision


def test_loader_workers_decode_for_the_tower_and_read_features_without_a_model(cache, model):
    evidences = [(FIRST,), (SECOND,), MIXED]
    cache.ensure(evidences, model, workers=2)
    worker = pickle.loads(pickle.dumps(cache))
    assert all(not isinstance(value, torch.nn.Module) for value in vars(worker).values())
    loaded = DataLoader(Reads(worker, evidences), batch_size=None, num_workers=2)
    for evidence, vision in zip(evidences, loaded, strict=True):
        expected = {k: v for k, v in cache.read(evidence).vision().items() if k != PATCH_TIMES}  # in the text by now
        assert vision.keys() == expected.keys()
        assert all(torch.equal(vision[name], expected[name]) for name in vision)


def test_a_file_that_changes_while_it_is_looked_at_is_not_kept(cache, model, media, monkeypatch):
    shutil.copy(media / "clip.mp4", media / "changing.mp4")

    def reads(*args):
        found = read_media(*args)
        shutil.copy(media / "other.mp4", media / "changing.mp4")
        return found

    monkeypatch.setattr(vision_features, "read_media", reads)
    with pytest.raises(MediaError, match="changes while"):
        cache.obtain((VideoSegment("changing.mp4", 0, 1),), model)
    assert entries(cache) == []


@pytest.mark.parametrize("name", ["flipping_a_pancake.mkv", "mllm_demo_2.avi", "bikes.mp4"])
def test_real_clips_give_the_margins_of_fresh_frames_bit_for_bit(tmp_path, model, encoder, shared_data, name):
    evidence, folder = (VideoSegment(name, 1.0, 3.0),), shared_data / "video-clips"
    cache = VisionFeatures(tmp_path, model, encoder, media_root=folder, dtype="float32")
    cache.ensure([evidence], model)
    found = margins_of(model, encoder, evidence, cache.read(evidence))
    assert torch.equal(found, fresh_margins(model, encoder, evidence, folder))


EVIDENCES = [(VideoSegment("clip.mp4", 0.1 * i, 1.0 + 0.1 * i),) for i in range(5)]


def fill_and_die(cache: VisionFeatures, model: Any) -> None:
    """A process's whole life: two entries written, a third cut short, and no time to clean up."""
    torch.set_num_threads(1)
    vision_features.MAX_PATCHES, rename, done = 1, storage._rename, []

    def renames(unfinished, path):
        if "entries" in str(path):
            done.append(path)
            if len(done) == 3:
                os.truncate(unfinished, 1000)
                os.kill(os.getpid(), signal.SIGKILL)
        rename(unfinished, path)

    storage._rename = renames
    cache.ensure(EVIDENCES, model)


def test_a_pass_killed_in_the_middle_goes_on_where_it_stopped(cache, model, media, encoder):
    killed = multiprocessing.get_context("fork").Process(target=fill_and_die, args=(cache, model))
    killed.start()
    killed.join(120)
    assert killed.exitcode == -signal.SIGKILL
    assert len(entries(cache)) == 2
    assert len(os.listdir(cache.directory / "unfinished")) == 1
    cache.ensure(EVIDENCES, model)
    assert (cache.hits, cache.computed, cache.damaged) == (2, 3, 0)
    for evidence in EVIDENCES:
        fresh = fresh_margins(model, encoder, evidence, media)
        assert torch.allclose(margins_of(model, encoder, evidence, cache.read(evidence)), fresh, atol=1e-4)


def test_a_disk_that_cannot_be_written_is_said_and_costs_only_time(cache, model, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(EntryStore, "write", full)
    with pytest.warns(UserWarning, match="No space left"):
        assert cache.obtain((FIRST,), model).videos[0].n_frames == 4
    assert cache.not_kept == 1
