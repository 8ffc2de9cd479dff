"""Scoring on a GPU: K claims together against one by one and CrossEncoder, the tower alone, and half precision."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_parts.cells import Part, Setting, Values
from benchmarks.gpu_parts.measuring import DTYPES, clocked, folder_of, share_of_peak, working_dtype
from benchmarks.gpu_parts.networks import ROOT, Loaded
from benchmarks.prefix_ways import check_equal, question, rival_way, scoring_ways
from benchmarks.shared_prefix import counted, times
from proofreel.models.backbones import forward_operations, vision_operations_of
from proofreel.models.engine import WINDOWS, vision_tower

KITCHEN = ROOT / "checkpoints" / "kitchen-verifier"


def scoring_settings(args: Any) -> Iterable[Setting]:
    """Every shape, size of evidence and number of claims."""
    for shape, tokens, k in itertools.product(args.shapes, args.tokens, args.claims):
        yield {"shape": shape, "visual tokens": tokens, "K": k}


def score_cell(args: Any, setting: Setting) -> Values:
    """Seconds of all K claims each way; sides take turns, and ratios are those within rounds."""
    folder, dtype, k = folder_of(args, setting["shape"]), working_dtype(args), setting["K"]
    model = Loaded.get(folder, args.device, dtype)
    evidence, claims = question(model.config, setting["visual tokens"], k)
    ways = scoring_ways(model, evidence, claims)
    if k > 1:
        check_equal(ways, dtype)
    if args.rival:
        ways["rival"] = rival_way(folder, args.device, dtype, evidence, claims)
    timed, ratio = times(ways, k, args)
    grids = evidence.vision["video_grid_thw"].tolist()
    operations = forward_operations(model.config, grids, len(evidence.ids_P), [len(c) for c in claims]).total
    together_s = timed["shared"][0]
    bound = counted(model.config, "scoring", evidence, claims)
    values: Values = {"claims/s": k / together_s, "together s": together_s, "one each s": timed["each"][0]}
    values |= {"padded s": timed["padded"][0]} | ({"CrossEncoder s": timed["rival"][0]} if args.rival else {})
    values |= {"measured x": ratio, "counted x": bound, "of counted": ratio / bound}
    return values | {"share of peak": share_of_peak(operations, together_s, args)}


def tower_settings(args: Any) -> Iterable[Setting]:
    """Every shape and size."""
    yield from ({"shape": shape, "visual tokens": n} for shape, n in itertools.product(args.shapes, args.tokens))


def tower_cell(args: Any, setting: Setting) -> Values:
    """The vision tower alone, with one attention call for each length of window and with one for each window."""
    model = Loaded.get(folder_of(args, setting["shape"]), args.device, working_dtype(args))
    tower = vision_tower(model)
    assert tower is not None
    vision = question(model.config, setting["visual tokens"], 1)[0].vision
    grid = vision["video_grid_thw"].to(args.device)
    pixels = vision["pixel_values_videos"].to(args.device, working_dtype(args))

    def forward(way: str) -> float:
        tower.config._attn_implementation = way
        with torch.inference_mode():
            return clocked(lambda: tower(pixels, grid, return_dict=True), args.device)

    for way in ("sdpa", WINDOWS):
        forward(way)  # warm
    rounds = [(forward("sdpa"), forward(WINDOWS)) for _ in range(args.rounds)]
    each_s, together_s = np.median(np.array(rounds), axis=0).tolist()
    operations = vision_operations_of(model.config, grid.tolist()).total
    return {
        "a call per length s": together_s,
        "a call per window s": each_s,
        "times faster": float(np.median([before / after for before, after in rounds])),
        "share of peak": share_of_peak(operations, together_s, args),
    }


def precision_settings(args: Any) -> Iterable[Setting]:
    """Random weights of a shape, and the kitchen's verifier, which is trained."""
    tokens = min(args.tokens)
    yield from ({"weights": f"random, {shape}", "shape": shape, "visual tokens": tokens} for shape in args.shapes[:1])
    yield {"weights": "the kitchen's verifier", "shape": "", "visual tokens": ""}


def precision_cell(args: Any, setting: Setting) -> Values:
    """Margins in bfloat16 against float32."""
    exact, half, alone = _kitchen_margins(args) if setting["shape"] == "" else _random_margins(args, setting)
    off = np.abs(half - exact)
    values = {"margins": len(exact), "spread (sd)": float(exact.std()), "mean difference": float(off.mean())}
    values |= {"largest difference": float(off.max())}
    if alone is not None:
        values["largest, together against one each"] = float(np.abs(half - alone).max())
    return values | {"same sign": float(np.mean((half > 0) == (exact > 0)))}


def _random_margins(args: Any, setting: Setting) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    folder, margins = folder_of(args, setting["shape"]), []
    for dtype, way in (("float32", "shared"), ("bfloat16", "shared"), ("bfloat16", "each")):
        model = Loaded.get(folder, args.device, DTYPES[dtype])
        k = max(args.claims)
        ways = scoring_ways(model, *question(model.config, setting["visual tokens"], k))
        margins.append(ways[way](k).float().numpy())
    Loaded.drop(args.device)
    return margins[0], margins[1], margins[2]


def _kitchen_margins(args: Any) -> tuple[np.ndarray, np.ndarray, None]:
    """Claims about drawn clips, true ones and those of other clips; frames stay in memory."""
    from examples.kitchen.teaching import drawn_frames, shoot
    from proofreel import Verifier, VideoSegment
    from proofreel.models.inputs import Media

    clips = [shoot(1, i) for i in range(args.clips)]
    facts = [(f"{role}: {value}.", None) for clip in clips for role, value in _facts(clip)]
    margins = []
    for dtype in DTYPES:
        verifier = Verifier.from_pretrained(KITCHEN, device=args.device, dtype=dtype, prefix_cache_gib=0.0)
        found = []
        for i, clip in enumerate(clips):
            claims = [facts[(i + j) % len(facts)] for j in range(16)]
            media = Media((drawn_frames(clip),))
            evidence = (VideoSegment("drawn", 0.0, float(clip.times_s[-1]) + 0.25),)
            found.append(verifier.score_media(claims, evidence, media))
        margins.append(np.concatenate(found))
    return margins[0], margins[1], None


def _facts(clip: Any) -> list[tuple[str, str]]:
    return [(name.capitalize(), str(value)) for name, value in vars(clip.facts).items()]


SCORING = Part("scoring", "How much faster are K claims together, and what share of the card is used?",
               scoring_settings, score_cell)  # fmt: skip
TOWER = Part("tower", "How fast is the vision tower alone?", tower_settings, tower_cell)
PRECISION = Part("precision", "How far are margins in bfloat16 from float32?", precision_settings, precision_cell)
