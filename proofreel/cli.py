"""The `proofreel` command: one subcommand per entry script, imported only when asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import proofreel
from proofreel.core import ConfigError, allow_remote, nearest

COMMANDS = {
    "build": ("proofreel.data_prep.build", "annotations -> data set of (claim, evidence, label)"),
    "mine": ("proofreel.data_prep.mine", "draw hard negatives by a verifier's predictions"),
    "init": ("proofreel.init", "look at annotations and write a commented config for `proofreel run`"),
    "run": ("proofreel.run", "annotations -> published verifier: every step, resumed where it was stopped"),
    "rounds": ("proofreel.train.rounds", "train, predict, mine what fooled the verifier, train again"),
    "convert": ("proofreel.data_prep.convert", "data set -> chat or NLI rows for other trainers"),
    "sft": (
        "proofreel.train.sft",
        "fine-tune a next-token verifier (several processes: accelerate launch train/sft.py)",
    ),
    "nli": ("proofreel.train.nli", "fine-tune a verifier with an NLI head (likewise)"),
    "distill": ("proofreel.train.distill", "train a small verifier on what a teacher said as well (likewise)"),
    "predict": ("proofreel.eval.predict", "score one split of a data set, with a verifier or a zero-shot model"),
    "join": ("proofreel.eval.join", "join the predictions of cross-fitted verifiers into one file"),
    "calibrate": ("proofreel.eval.calibrate", "fit calibration and thresholds"),
    "teach": ("proofreel.eval.teach", "calibrate and join teachers, to mine with and distil from"),
    "cascade": ("proofreel.eval.cascade", "fit and report a cascade: a cheap verifier first, a large one where unsure"),
    "bench": ("proofreel.eval.bench", "public benchmarks: their own scores, calibrated metrics, claim-only AUC"),
    "cgbench": ("proofreel.eval.cgbench", "CG-Bench: answers about long videos, and the clues they rest on"),
    "omd": ("proofreel.eval.omd", "OMD-Bench: answers when video, audio and text disagree"),
    "agreement": ("proofreel.eval.agreement", "does a score with a verifier rank systems as people's labels do?"),
    "mirage": ("proofreel.eval.mirage", "MiRAGE: InfoF1 and CiteF1 of generated articles; tau with people"),
    "multifact": (
        "proofreel.eval.multifact",
        "MultiFactScore of captions: their facts by role, by video and text",
    ),
    "murgat": ("proofreel.eval.murgat", "MURGAT-Score of responses with citations, by labels or a verifier"),
    "report": ("proofreel.eval.report", "metrics and a report page"),
    "export": ("proofreel.eval.export", "publish a verifier directory"),
    "selftest": ("proofreel.selftest", "recompute the selftest margins of a verifier directory"),
    "ask": ("proofreel.ask", "ask a verifier claims about a clip"),
    "score": ("proofreel.score", "score a file of claims (several processes: accelerate launch -m proofreel.score)"),
    "serve": ("proofreel.serve", "answer over HTTP, with a page for people (extra: proofreel[serve])"),
}

HELP = (
    "usage: proofreel [--remote PREFIX ...] <command> [--help] [options]\n\n"
    "Proofreel(claim, evidence) -> P(supported): multimodal claim verifiers, trained, calibrated and published.\n\n"
    "commands:\n"
    + "".join(f"  {name:<10} {text}\n" for name, (_, text) in COMMANDS.items())
    + "\n--remote PREFIX, before the command and as often as wanted: let it fetch files whose address begins so, e.g.\n"
    "s3://bucket/clips, hf://datasets/owner/name, https://data.example.org; see docs/media.md\n"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; `proofreel --help` lists them without importing any."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--version"]:
        print(f"proofreel {proofreel.__version__}")
        return 0
    prefixes: list[str] = []
    while words[:1] == ["--remote"]:
        prefixes, words = [*prefixes, *words[1:2]], words[2:]
    if prefixes:
        try:
            allow_remote(*prefixes)
        except ConfigError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    if not words or words[0] in ("-h", "--help"):
        print(HELP)
        return 0 if words else 2
    if words[0] not in COMMANDS:
        meant = nearest(words[0], COMMANDS)
        line = f"unknown command, got {words[0]}; did you mean {meant}? `proofreel --help` lists all"
        print(f"error: proofreel: {line}", file=sys.stderr)
        return 2
    return import_module(COMMANDS[words[0]][0]).main(words[1:])


if __name__ == "__main__":
    raise SystemExit(main())
