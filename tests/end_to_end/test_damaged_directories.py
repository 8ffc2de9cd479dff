"""Whatever is damaged in a verifier directory, and signed anew, is a `DirectoryError` with its place, or does no harm.

Every file is damaged: bytes flipped, cut off, removed; keys of JSON dropped, or given values of other types.
"""

import json
import logging
import random
import shutil
from pathlib import Path

import pytest
import transformers
from nightly import nightly

from proofreel.core import DirectoryError
from proofreel.models.directory.format import write_manifest
from proofreel.models.verifier.self_test import selftest
from proofreel.models.verifier.verifier import Verifier

ROOT = Path(__file__).resolve().parents[2]
UNREAD = ("MANIFEST.sha256", "README.md", "eval")
VALUES = [None, True, -1, 0, 3.5, 1e30, "", "x", "../../x", [], {}, [1], {"a": 1}, "9" * 30, [[]], "\u0000"]


def places(value, path=()):
    """The path to every value of a JSON file; of a list, to its first ones."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:5]) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


def damage_json(rng, path, data):
    values = json.loads(data)
    *above, last = rng.choice(list(places(values)))
    holder = values
    for key in above:
        holder = holder[key]
    if rng.random() < 0.4:
        del holder[last]
    else:
        holder[last] = rng.choice(VALUES)
    path.write_text(json.dumps(values))


def damage_bytes(rng, path, data):
    how = rng.random()
    if how < 0.6:
        changed = bytearray(data)
        for _ in range(rng.choice([1, 3, 10])):
            changed[rng.randrange(rng.choice([len(data), min(len(data), 4000)]))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
    elif how < 0.9:
        path.write_bytes(data[: rng.randrange(len(data))])
    else:
        path.unlink()


@pytest.mark.parametrize(("seed", "cases"), [(0, 20), nightly((1, 2000))])
def test_damage_is_named_with_its_place_or_does_no_harm(tmp_path, seed, cases, caplog):
    caplog.set_level(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    rng = random.Random(seed)
    shutil.copytree(ROOT / "checkpoints", tmp_path / "checkpoints")
    directory = tmp_path / "checkpoints" / "kitchen-verifier"
    files = [p for p in sorted(directory.rglob("*")) if p.is_file() and p.relative_to(directory).parts[0] not in UNREAD]
    reasons = []
    for _ in range(cases):
        path = rng.choice(files)
        data = path.read_bytes()
        (damage_json if path.suffix == ".json" and rng.random() < 0.75 else damage_bytes)(rng, path, data)
        write_manifest(directory)
        try:
            selftest(directory, Verifier.from_pretrained(directory, device="cpu"), "float32")
        except DirectoryError as error:
            reasons.append(str(error))
        path.write_bytes(data)
    assert len(reasons) > cases / 3
    assert [r for r in reasons if str(directory) not in r or "; " not in r] == []
