"""Several training runs, one after another, in each of several processes that share them.

    torchrun --nproc_per_node 2 tests/many_runs.py RUNS.json

RUNS.json is a list of {"nli": bool, "words": [arguments], "remove": [files], "distills": bool}; the files go when the
run's rows have been checked, as they might in mid-run.
"""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import distributed

from proofreel.train import recipe
from proofreel.train.arguments import parse, parse_distill


def one_run(words: list[str], nli: bool = False, remove: Sequence[str] = (), distills: bool = False) -> None:
    """Train once, as sft, nli or distill; what is to be removed goes before the trainer looks at it."""
    load = recipe.load_model

    def load_and_remove(*args: Any) -> Any:
        if remove and distributed.is_initialized():
            distributed.barrier()  # the slower process still checks its rows
        for path in remove:
            with suppress(FileNotFoundError):  # another process was first
                os.remove(path)
        return load(*args)

    recipe.load_model = load_and_remove
    try:
        if distills:
            distill, of_run, training, model = parse_distill(words)
            recipe.run(of_run, training, model, head_kind=distill.head, distill=distill)
        else:
            recipe.run(*parse(words), head_kind="nli" if nli else "next_token")
    finally:
        recipe.load_model = load


if __name__ == "__main__":
    for each in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        one_run(**each)
