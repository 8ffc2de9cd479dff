"""Qwen2.5-Omni: the prompt, positions and margins of transformers' own classes, and what follows."""

import itertools
import json
import re
import shutil

import numpy as np
import pytest
import torch
from random_drafts import random_draft
from reference_forward import plain_margins
from safetensors.torch import load_file, save_file
from sounded_clips import write_sounded
from transformers import AutoProcessor, Qwen2_5OmniThinkerForConditionalGeneration

from proofreel.core.errors import DirectoryError, MediaError, ModelInputError
from proofreel.core.pairs import Audio, Image, Pair, Passage, VideoSegment
from proofreel.core.prompt import Prompt
from proofreel.models.backbones.families import BACKBONES, backbone_for, published_config, vision_layout
from proofreel.models.backbones.load import load_backbone, load_processor
from proofreel.models.backbones.lora import attach_lora, lora_targets, trainable_summary
from proofreel.models.backbones.shapes import Parameters, meta_model
from proofreel.models.directory.adapters import write_merged
from proofreel.models.engine.forward import margins
from proofreel.models.engine.heads import NextToken
from proofreel.models.engine.packing import collate, pack
from proofreel.models.engine.vision_features import VisionFeatures
from proofreel.models.inputs.chat_text import LabelWords
from proofreel.models.inputs.encoder import Encoder, Media, read_media
from proofreel.models.inputs.mrope import in_chunks, temporal_positions
from proofreel.models.inputs.sound import audio_tokens, log_mel
from proofreel.models.verifier.self_test import selftest, write_golden
from proofreel.models.verifier.verifier import Verifier
from proofreel.train.batching import TokenCounts

FAMILY = "qwen2_5_omni_thinker"
SPEECH = Audio("speech.wav", 0.0, 3.3)
SILENT, SOUNDED = VideoSegment("a.mp4", 0, 8), VideoSegment("b.mp4", 0, 4, sound=True)
EVIDENCES = {
    "audio": ((SPEECH,), {"sounds": (3.3,)}),
    "sounded": ((SOUNDED,), {"n": (8,), "sounds": (4.0,)}),
    "longer sound": ((SOUNDED,), {"n": (4,), "sounds": (7.37,)}),
    "video": ((SILENT,), {"n": (8,)}),
    "image": ((Image("a.png"), Image("b.png")), {"images": 2}),
    "mixed": (
        (Passage("It moves."), SPEECH, SOUNDED, Image("b.png"), SOUNDED, Passage("Then:"), Audio("bell.wav", 0.0, 0.5)),
        {"n": (5, 12), "images": 1, "sounds": (3.3, 2.5, 6.0, 0.5)},
    ),
    "text": ((Passage("A ball rolls."),), {}),
}


def media_of(make_media, name, **options):
    evidence, made = EVIDENCES[name]
    made = dict(made)
    return evidence, make_media(*made.pop("n", ()), **made, **options)


@pytest.fixture(scope="module")
def base(tiny_of):
    return tiny_of(FAMILY)


@pytest.fixture(scope="module")
def model(base):
    return load_backbone(base).eval()


@pytest.fixture(scope="module")
def original(base):
    return Qwen2_5OmniThinkerForConditionalGeneration.from_pretrained(base).eval()


@pytest.fixture(scope="module")
def encoder(base, model, small_sampling):
    return Encoder(load_processor(base), vision_layout(model.config), Prompt(), small_sampling)


@pytest.fixture(scope="module")
def readout(encoder):
    return NextToken(LabelWords.of(Prompt(), encoder.tokenizer))


def claims_of(encoder, k):
    return [encoder.claim_ids(f"Object {i} is {'red' if i % 2 else 'a ball that rolls'}.") for i in range(k)]


def published_inputs(vision):
    """As transformers' own class takes sounds: each padded to the longest, and a mask."""
    inputs = {k: v for k, v in vision.items() if not k.startswith("audio") and k != "second_per_grid_ts"}
    if "audio_frames" in vision:
        sounds = vision["audio_values"].split(vision["audio_frames"].tolist())
        inputs["input_features"] = torch.nn.utils.rnn.pad_sequence(list(sounds), batch_first=True).transpose(1, 2)
        lengths = vision["audio_frames"][:, None]
        inputs["feature_attention_mask"] = (torch.arange(int(lengths.max())) < lengths).long()
    return inputs


def own_positions(original, ids_T, vision, *, sounded):
    """(3, T) as transformers places tokens."""
    grids = {name: vision.get(name) for name in ("image_grid_thw", "video_grid_thw")}
    seconds = vision.get("second_per_grid_ts")
    return original.get_rope_index(
        ids_T[None],
        attention_mask=torch.ones_like(ids_T)[None],
        use_audio_in_video=sounded,
        audio_seqlens=vision.get("audio_frames"),
        second_per_grids=seconds,
        **grids,
    )[0][:, 0]


def plain_margin(original, encoded, claim, readout, *, sounded):
    """One claim in transformers' own class, with its own positions."""
    ids = torch.cat([encoded.ids_P, claim])
    positions = own_positions(original, ids, encoded.vision, sounded=sounded)[:, None]
    with torch.inference_mode():
        out = original(input_ids=ids[None], position_ids=positions, **published_inputs(encoded.vision))
    logits = readout.classes(out.logits[:, -1].float()[:, list(readout.rows)])[0]
    return float(logits[0] - logits[1])


@pytest.mark.parametrize("name", EVIDENCES)
@pytest.mark.parametrize("step_s", [0.5, 0.6, 1.7])
def test_positions_are_transformers_own(original, encoder, make_media, name, step_s):
    evidence, media = media_of(make_media, name, step_s=step_s)
    encoded, claim = encoder.evidence(evidence, media), encoder.claim_ids("No.")
    sounded = any(getattr(e, "sound", False) for e in evidence)
    whole = own_positions(original, torch.cat([encoded.ids_P, claim]), encoded.vision, sounded=sounded)
    assert torch.equal(encoded.positions_3P, whole[:, : len(encoded.ids_P)])
    assert whole[:, len(encoded.ids_P)].tolist() == [encoded.next_position] * 3


@pytest.mark.parametrize(
    ("name", "k"),
    [("audio", 1), ("audio", 7), ("sounded", 7), ("mixed", 33), ("video", 7), ("image", 7), ("text", 7)],
)
def test_packed_margins_are_those_of_one_plain_sequence_per_claim(
    model, original, encoder, readout, make_media, name, k
):
    evidence, media = media_of(make_media, name)
    encoded, claims = encoder.evidence(evidence, media), claims_of(encoder, k)
    with torch.no_grad():
        packed = margins(model, collate([pack(encoded, claims)], encoder.pad_id), readout, encoder.layout)[0]
    sounded = any(getattr(e, "sound", False) for e in evidence)
    plain = [plain_margin(original, encoded, claim, readout, sounded=sounded) for claim in claims]
    assert torch.allclose(packed, torch.tensor(plain), atol=1e-4, rtol=1e-5)
    assert len(set(packed.tolist())) == k


def test_a_batch_of_unlike_evidence_gives_each_row_its_own_margins(model, encoder, readout, make_media):
    rows, alone = [], []
    for name in ("audio", "sounded", "mixed", "text", "longer sound"):
        row = pack(encoder.evidence(*media_of(make_media, name)), claims_of(encoder, 3))
        rows.append(row)
        with torch.no_grad():
            alone.append(margins(model, collate([row], encoder.pad_id), readout, encoder.layout)[0])
    with torch.no_grad():
        together = margins(model, collate(rows, encoder.pad_id), readout, encoder.layout)
    assert torch.allclose(together, torch.stack(alone), atol=1e-4, rtol=1e-5)


def test_what_is_heard_changes_the_margin(model, encoder, readout, make_media):
    found = []
    for seed in (0, 1):
        evidence, media = media_of(make_media, "audio", seed=seed)
        row = pack(encoder.evidence(evidence, media), claims_of(encoder, 1))
        with torch.no_grad():
            found.append(float(margins(model, collate([row], encoder.pad_id), readout, encoder.layout)))
    assert abs(found[0] - found[1]) > 1e-6


def test_gradients_of_a_packed_row_are_those_of_its_claims_one_by_one(base, encoder, readout, make_media):
    network = load_backbone(base).eval()
    encoded, claims = encoder.evidence(*media_of(make_media, "mixed")), claims_of(encoder, 7)
    signs = torch.tensor([1.0, -1.0] * 4)[:7]
    found = []
    for one in (True, False):
        network.zero_grad()
        if one:
            packed = margins(network, collate([pack(encoded, claims)], encoder.pad_id), readout, encoder.layout)[0]
            (packed * signs).sum().backward()
        else:
            (plain_margins(network, encoded, claims, readout) * signs).sum().backward()
        found.append({n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    assert any("audio_tower" in name for name in found[0])
    for name, gradient in found[0].items():
        assert torch.allclose(gradient, found[1][name], atol=1e-5, rtol=1e-4), name


@pytest.mark.parametrize("name", ["audio", "sounded", "longer sound", "video"])
def test_a_prompt_its_pixels_and_its_sound_are_those_of_the_familys_processor(encoder, make_media, name):
    evidence, media = media_of(make_media, name)
    encoded = encoder.evidence(evidence, media)
    sounded = any(getattr(e, "sound", False) for e in evidence)
    sampling = encoder.sampling
    made = encoder.processor(
        text=[encoder.chat.prefix(evidence)],
        videos=[torch.from_numpy(v.pixels_FHWC).permute(0, 3, 1, 2) for v in media.videos] or None,
        audio=[sound.samples_N for sound in media.sounds] or None,
        audio_from_video_indices=[0] if sounded else None,
        load_audio_from_video=sounded,
        fps=2.0,
        do_sample_frames=False,
        size={"shortest_edge": sampling.min_pixels, "longest_edge": sampling.max_pixels},
        sampling_rate=16_000,
        return_tensors="pt",
    )
    assert made["input_ids"][0].tolist() == encoded.ids_P.tolist()
    if media.videos:
        assert torch.equal(made["pixel_values_videos"], encoded.vision["pixel_values_videos"])
    if media.sounds:
        heard = made["input_features"][0][:, made["feature_attention_mask"][0].bool()].T
        assert torch.allclose(heard, encoded.vision["audio_values"], atol=1e-5, rtol=0)


@pytest.mark.parametrize("n_samples", [480, 481, 16_000, 16_001, 52_801, 800_001])
def test_frames_of_a_sound_are_those_of_the_sound_padded_to_the_longest(encoder, n_samples):
    extractor = encoder.processor.feature_extractor
    samples = np.random.default_rng(n_samples).normal(0, 0.1, n_samples).astype(np.float32)
    made = extractor([samples], sampling_rate=16_000, padding="max_length", return_attention_mask=True)
    own = made["input_features"][0][:, made["attention_mask"][0].astype(bool)].T
    assert np.allclose(log_mel(extractor, samples).numpy(), own, atol=1e-5, rtol=0)


def test_silence_is_heard_as_silence_and_not_as_nothing(encoder):
    frames = log_mel(encoder.processor.feature_extractor, np.zeros(16_000, np.float32))
    assert frames.shape[0] == 100
    assert len(frames.unique()) == 1


@pytest.mark.parametrize(("seconds", "wrong"), [(0.02, "too short to be heard"), (300.1, "too long for the network")])
def test_a_sound_beyond_what_the_network_takes_is_refused(encoder, make_media, seconds, wrong):
    with pytest.raises(ModelInputError, match=wrong):
        encoder.evidence((SPEECH,), make_media(sounds=(seconds,)))


def test_chunks_of_pictures_and_sound_are_two_seconds_each(encoder):
    times = temporal_positions(5, torch.tensor([1.0]), 25.0)[0].repeat_interleave(3)
    runs = in_chunks(times, 120, encoder.layout)
    assert [len(run) for run in runs] == [6, 50, 6, 50, 3, 20]
    assert sorted(torch.cat(runs).tolist()) == list(range(15 + 120))


def test_tokens_of_a_sound_are_40_milliseconds(model):
    lengths = torch.arange(3, 700)
    _, own = model.model.audio_tower._get_feat_extract_output_lengths(lengths)
    assert own.tolist() == [audio_tokens(n) for n in lengths.tolist()]
    assert audio_tokens(100) == 25


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize("piece", [SPEECH, SOUNDED])
def test_a_backbone_without_ears_refuses_a_sound_before_decoding(tiny_of, small_sampling, family, piece):
    config = backbone_for(family).config_class().from_pretrained(tiny_of(family))
    deaf = Encoder(load_processor(tiny_of(family)), vision_layout(config), Prompt(), small_sampling)
    for refuse in (lambda: deaf.check_readable((piece,)), lambda: deaf.evidence((piece,), Media())):
        with pytest.raises(ModelInputError, match="hears nothing, got the sound of"):
            refuse()


@pytest.mark.parametrize("name", ["audio", "sounded"])
def test_a_sound_that_is_named_and_not_given_is_an_error(encoder, make_media, name):
    evidence, media = media_of(make_media, name)
    with pytest.raises(ModelInputError, match="1 sound placeholders"):
        encoder.evidence(evidence, Media(media.videos))


@pytest.mark.parametrize("key", ["audio_values", "audio_frames"])
def test_a_batch_whose_sounds_are_lost_is_refused(model, encoder, readout, make_media, key):
    row = pack(encoder.evidence(*media_of(make_media, "sounded")), claims_of(encoder, 1))
    batch = collate([row], encoder.pad_id)
    del batch[key]
    with pytest.raises(ModelInputError, match="sound: "):
        margins(model, batch, readout, encoder.layout)


def test_lora_goes_to_the_audio_tower_where_it_is_asked_to(model):
    for part, expected in (("visual", 2 * 7), ("merger", 2), ("language_model", 2 * 7), ("audio", 2 * 6 + 1)):
        pattern = re.compile(lora_targets(model, [part]))
        assert sum(bool(pattern.fullmatch(name)) for name, _ in model.named_modules()) == expected


def test_what_trains_in_the_audio_tower_is_counted_as_its_own():
    from peft import LoraConfig

    network = attach_lora(meta_model(published_config("Qwen2.5-Omni-3B")), LoraConfig(r=4), ["audio"])
    counts = trainable_summary(network)
    assert counts["audio"] > 0
    assert sum(counts.values()) == counts["audio"] + counts["total"]


@pytest.mark.parametrize(("name", "expected"), [("3B", 4_703_464_448), ("7B", 8_931_813_888)])
def test_the_thinkers_have_as_many_parameters_as_their_shapes_say(name, expected):
    config = published_config(f"Qwen2.5-Omni-{name}")
    assert Parameters.of(config).total == expected
    assert sum(p.numel() for p in meta_model(config).parameters()) == expected


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory):
    """A folder as published: the thinker's part of the configuration and weights, and those of what speaks."""
    folder = tmp_path_factory.mktemp("whole") / "omni"
    shutil.copytree(base, folder)
    thinker = json.loads((base / "config.json").read_text())
    config = {"model_type": "qwen2_5_omni", "architectures": ["Qwen2_5OmniForConditionalGeneration"]}
    talker = {"model_type": "qwen2_5_omni_talker"}
    (folder / "config.json").write_text(json.dumps(config | {"thinker_config": thinker, "talker_config": talker}))
    weights = load_file(base / "model.safetensors")
    renamed = {f"thinker.{name}": tensor for name, tensor in published_names(weights).items()}
    spoken = {"talker.model.layers.0.mlp.up_proj.weight": torch.ones(4), "token2wav.dit.proj.weight": torch.ones(4)}
    save_file(renamed | spoken, folder / "model.safetensors", {"format": "pt"})
    return folder


def published_names(weights):
    """Names of a released checkpoint: towers beside `model`, which is the language model itself."""
    names = {}
    for name, tensor in weights.items():
        short = name.removeprefix("model.").removeprefix("language_model.")
        tower = short.startswith(("visual.", "audio_tower.", "lm_head."))
        names[short if tower else f"model.{short.removeprefix('model.')}"] = tensor
    return names


def test_a_whole_checkpoint_is_loaded_without_what_speaks(whole, model, encoder):
    assert backbone_for("qwen2_5_omni") is BACKBONES[FAMILY]
    loaded = load_backbone(whole)
    assert loaded.config.model_type == FAMILY
    own = model.state_dict()
    assert loaded.state_dict().keys() == own.keys()
    assert all(torch.equal(tensor, own[name]) for name, tensor in loaded.state_dict().items())
    assert load_processor(whole).tokenizer("<|AUDIO|>")["input_ids"] == [encoder.layout.audio_token_id]


def test_a_head_starts_from_a_whole_checkpoints_output_layer(whole, model, encoder):
    from proofreel.models.engine.heads import NLIHead

    words = LabelWords.of(Prompt(), encoder.tokenizer)
    scored = load_backbone(whole, head=NLIHead(), words=words)
    rows = model.lm_head.weight[[words.supported_id, words.refuted_id]]
    assert type(scored).__name__ == "Qwen2_5OmniThinkerForVerdicts"
    assert torch.isfinite(scored.score.weight).all()
    assert scored.score.weight.shape[1] == rows.shape[1]


def test_weights_that_are_left_over_otherwise_are_still_named(whole, tmp_path):
    folder = tmp_path / "other"
    shutil.copytree(whole, folder)
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"thinker.extra.weight": torch.ones(2)}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(DirectoryError, match="extra"):
        load_backbone(folder)


@pytest.fixture(scope="module")
def merged(base, small_sampling, tmp_path_factory):
    folder = tmp_path_factory.mktemp("omni")
    draft = random_draft(base, folder / "draft", small_sampling)
    write_merged(draft, folder / "merged")
    return draft, folder / "merged"


def test_a_merged_verifier_opens_in_plain_transformers_with_its_own_positions(merged, make_media):
    _, directory = merged
    verifier, (evidence, media) = Verifier.from_pretrained(directory, device="cpu"), media_of(make_media, "mixed")
    claims = ["Object is red ball.", "Action is moving left.", "No."]
    found = verifier.score_media([(claim, None) for claim in claims], evidence, media)
    plain = Qwen2_5OmniThinkerForConditionalGeneration.from_pretrained(directory / "model").eval()
    AutoProcessor.from_pretrained(directory / "processor")
    encoded, readout = verifier.encoder.evidence(evidence, media), verifier.head
    for claim, margin in zip(claims, found, strict=True):
        other = plain_margin(plain, encoded, verifier.encoder.claim_ids(claim), readout, sounded=True)
        assert abs(other - margin) <= 1e-4 + 1e-5 * abs(margin)


def test_the_merged_directory_scores_as_its_adapter(merged, make_media):
    evidence, media = media_of(make_media, "mixed")
    one, two = (
        Verifier.from_pretrained(path, device="cpu").score_media([("No.", None)], evidence, media) for path in merged
    )
    assert np.allclose(one, two, atol=1e-4)


def test_a_kept_prefix_and_chunks_of_claims_change_no_margin(merged, make_media):
    evidence, media = media_of(make_media, "mixed")
    verifier = Verifier.from_pretrained(merged[1], device="cpu")
    claims = [(f"Object {i} is red.", None) for i in range(7)]
    whole = verifier.score_media(claims, evidence, media)
    single = [verifier.score_media([claim], evidence, media)[0] for claim in claims]
    assert np.allclose(whole, single, atol=1e-4)
    assert len(set(itertools.chain(whole))) == 7


@pytest.fixture(scope="module")
def media(tmp_path_factory):
    """A folder with a sound, and a video that has one."""
    import av

    folder, rng = tmp_path_factory.mktemp("media"), np.random.default_rng(0)
    wave = (rng.normal(0, 0.2, (1, 48_000)).clip(-1, 1) * 32_000).astype(np.int16)
    with av.open(str(folder / "speech.wav"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=16_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(wave, format="s16", layout="mono")
        frame.sample_rate = 16_000
        container.mux([*stream.encode(frame), *stream.encode()])
    with av.open(str(folder / "spoken.mkv"), "w") as container:
        pictures, sound = container.add_stream("libx264", rate=8), container.add_stream("pcm_s16le", rate=16_000)
        pictures.width = pictures.height = 84
        pictures.pix_fmt, sound.layout = "yuv420p", "mono"
        for _ in range(24):
            pixels = rng.integers(0, 256, (84, 84, 3), dtype=np.uint8)
            container.mux(pictures.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(pictures.encode())
        container.mux([*sound.encode(frame), *sound.encode()])
    return folder


HEARD = (Audio("speech.wav", 0.5, 2.0), VideoSegment("spoken.mkv", 0.0, 2.5, sound=True), Passage("It rings."))
SEEN = VideoSegment("spoken.mkv", 0.0, 2.5)


def test_features_of_sounds_and_pictures_stand_in_for_both_bit_for_bit(tmp_path, model, encoder, readout, media):
    features = VisionFeatures(tmp_path, model.requires_grad_(False), encoder, media_root=media, dtype="float32")
    claims = claims_of(encoder, 3)
    found = []
    for given in (read_media(HEARD, encoder.sampling, media), features.obtain(HEARD, model), features.read(HEARD)):
        with torch.no_grad():
            row = pack(encoder.evidence(HEARD, given), claims)
            found.append(margins(model, collate([row], encoder.pad_id), readout, encoder.layout))
    assert (features.computed, features.hits) == (3, 3)  # two sounds, and one video's pictures
    assert torch.allclose(found[0], found[1], atol=1e-4, rtol=1e-5)
    assert torch.equal(found[1], found[2])
    features.read((SEEN,))  # without its sound the video has the same pictures
    with pytest.raises(MediaError, match="not in"):
        features.read((Audio("speech.wav", 0.5, 2.1),))


def test_a_run_fills_the_cache_with_sounds_before_it_begins(tmp_path, model, encoder, media):
    features = VisionFeatures(tmp_path, model.requires_grad_(False), encoder, media_root=media, dtype="float32")
    features.ensure([HEARD, (SEEN,)], model)
    assert features.computed == 3
    features.ensure([HEARD, (SEEN,)], model)
    assert features.computed == 3
    gone = Audio("gone.wav")
    with pytest.raises(MediaError, match=r"gone\.wav"):
        features.ensure([(gone,)], model)


def test_tokens_are_counted_from_headers(encoder, media):
    for evidence in (HEARD, HEARD[:1], HEARD[1:], (Audio("speech.wav"), SEEN)):
        encoded = encoder.evidence(evidence, read_media(evidence, encoder.sampling, media))
        assert encoder.count_prefix_tokens(evidence, media) == len(encoded.ids_P)
        assert TokenCounts(encoder, media).prefix(evidence) == len(encoded.ids_P)


def test_a_verifier_is_asked_about_what_is_heard(merged, media):
    options = {"device": "cpu", "media_root": media}
    (refused,) = Verifier.from_pretrained(merged[1], **options).score(["No."], HEARD)
    assert "got audio" in (refused.error or "")  # its directory says that it was trained on other kinds
    verifier = Verifier.from_pretrained(merged[1], untrained_evidence=True, **options)
    claims = ["Object is red ball.", "No."]
    first = verifier.score(claims, HEARD)
    again = verifier.score(claims, HEARD)  # from the kept prefix
    other = verifier.score(claims, (Audio("speech.wav", 1.0, 2.5), *HEARD[1:]))
    deaf = verifier.score(claims, (HEARD[0], SEEN, HEARD[2]))
    assert not any(v.error for v in first), first
    assert [v.margin for v in first] == pytest.approx([v.margin for v in again], abs=1e-4)
    assert len({v.margin for v in (*first, *other, *deaf)}) == 6
    failed = verifier.score(claims, Audio("gone.wav"))
    assert all("gone.wav" in (v.error or "") for v in failed)


def test_a_silent_sound_is_noted_with_its_file_also_from_kept_features_and_prefixes(tmp_path, merged, media):
    write_sounded(media / "silent.wav", np.zeros(16_000), 16_000)
    piece = (Passage("It rings."), Audio("silent.wav", 0.0, 3.0))
    options = {"device": "cpu", "media_root": media, "untrained_evidence": True}
    for cache in (None, tmp_path, tmp_path):  # read, computed, kept
        verifier = Verifier.from_pretrained(merged[1], vision_cache=cache, **options)
        for _ in range(2):
            (verdict,) = verifier.score(["No."], piece)
            assert (verdict.note or "").startswith("silent.wav: its sound is silent, got no sample above 0.001")
            assert "its sound ends before the span does, got 1.00 s of 3.00 s" in (verdict.note or "")


def test_a_self_test_holds_what_was_heard(tmp_path, merged, media):
    directory = tmp_path / "copy"
    shutil.copytree(merged[1], directory)
    shutil.rmtree(directory / "golden", ignore_errors=True)
    verifier = Verifier.from_pretrained(merged[1], device="cpu", media_root=media)
    pairs = [Pair(id=str(i), claim=claim, evidence=HEARD) for i, claim in enumerate(("Object is red ball.", "No."))]
    write_golden(directory / "golden", verifier, pairs)
    result = selftest(directory, verifier, "float32")
    assert result.passed, result
