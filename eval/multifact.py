"""MultiFactScore of generated captions (DualFact+): by roles, against the video and against captions.

    proofreel multifact --captions A.jsonl --gold annotations.json --out MULTIFACT
    proofreel multifact --captions A.jsonl B.jsonl --gold annotations.json --media videos/ --verifier DIR \\
        --language-model model.yaml --out MULTIFACT

--gold is a file of the format `facts` (docs/formats.md), --captions JSON lines of `id` and `caption`, with `conceptual`
and `contextual` facts or without: then the language model extracts them. The verifier judges facts by the video, the
language model (or --text-verifier) by captions; without either, people's labels in the file do. Prints scores with
intervals over videos, errors by kind, how good the judges are on gold facts, and each further system minus the first.
Stopped and run again it goes on where it was. Writes OUT/result.json with every fact, and OUT/page.html, where captions
stand beside their clips. docs/scores.md explains all.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proofreel.core import CommandParser

SHOWN = 10


def main(argv: Sequence[str] | None = None) -> int:
    """Read, extract, judge, score and print; the exit status is 1 if the input is at fault."""
    args = _parser().parse_args(argv)

    from proofreel.core import ProofreelError

    try:
        _run(args)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    from proofreel.eval.scores import add_language_option, add_verifier_options

    parser = CommandParser(prog="proofreel multifact", description=__doc__)
    parser.add_argument("--captions", type=Path, nargs="+", required=True, help="one file for each system")
    parser.add_argument("--names", nargs="+", help="of the systems (default: of the files)")
    parser.add_argument("--gold", type=Path, required=True, help="annotated clips, with gold facts")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--layers", nargs="+", choices=["conceptual", "contextual"], help="default: both, if known")
    parser.add_argument(
        "--conditions",
        nargs="+",
        choices=["visual", "textual_gold", "textual_predicted"],
        default=["visual", "textual_gold", "textual_predicted"],
        help="predicted facts by the video; gold facts by the generated caption; predicted ones by the gold caption",
    )
    parser.add_argument("--no-gold-facts", action="store_true", help="do not measure the judges on gold facts")
    parser.add_argument("--text-verifier", type=Path, help="judges by captions (default: the language model)")
    parser.add_argument("--implicit-captions", action="store_true", help="`caption_implicit` of --gold, not `caption`")
    parser.add_argument("--relation-of-object", default="act/ing", help="name for verb and object (default: act/ing)")
    parser.add_argument(
        "--presence",
        default="{value} is visible.",
        metavar="CLAIM",
        help="claim that a thing is to be seen, for grounding; may name {role} (default: {value} is visible.)",
    )
    parser.add_argument(
        "--grounding",
        choices=["verifier", "labels"],
        default="verifier",
        help="tells whether what a refuted fact names is to be seen: --verifier, or `grounded` of facts in --captions",
    )
    parser.add_argument("--check-extraction", action="store_true", help="extract facts from gold captions as well: F1")
    parser.add_argument("--draws", type=int, default=10_000, help="resamples of videos (default: 10000)")
    add_language_option(parser, "extracts facts, and judges by captions")
    add_verifier_options(parser)
    return parser


def _run(args: argparse.Namespace) -> None:
    from proofreel.core import ConfigError
    from proofreel.eval.facts import (
        FactOptions,
        multifact_page,
        multifact_scores,
        read_captions,
        read_clips,
        result_of,
        tables_of,
    )
    from proofreel.eval.scores import write_page, write_result

    names = args.names or [path.stem for path in args.captions]
    if len(set(names)) != len(args.captions):
        raise ConfigError(f"--names: one different name for each file, got {names}; pass as many as files")
    if args.draws < 1 or "{value}" not in args.presence:
        got = f"{args.draws} and {args.presence!r}"
        raise ConfigError(
            f"--draws, --presence: a number from 1 on, and a claim with {{value}}, got {got}; repair them"
        )
    clips = read_clips(args.gold, args.implicit_captions, args.relation_of_object)
    read = {
        name: read_captions(path, clips, args.relation_of_object)
        for name, path in zip(names, args.captions, strict=True)
    }
    layers = _layers(args, read)
    model = _language_model(args, read, layers)
    systems = {name: _with_facts(args, model, captions, layers, clips) for name, captions in read.items()}
    extraction = _extraction(args, model, clips, layers)
    visual, textual = _judges(args, model)
    options = FactOptions(tuple(layers), tuple(args.conditions), not args.no_gold_facts, args.presence)
    grounding = "labels" if args.grounding == "labels" else None
    result = multifact_scores(clips, systems, visual, textual, grounding, options, args.draws)
    kept = ("conditions", "presence", "grounding", "implicit_captions", "draws", "operating_point")
    settings = {"judge": args.verifier or "labels", "layers": layers} | {key: getattr(args, key) for key in kept}
    path = write_result(args.out, {"settings": settings} | result_of(result, extraction))
    print(tables_of(result, extraction))
    _print_more(result)
    judge = f"the verifier {args.verifier}" if args.verifier else "the labels of the files"
    page = write_page(args.out / "page.html", multifact_page(result, judge), args.media)
    print(f"wrote {path} and {page}")


def _layers(args: argparse.Namespace, systems: dict[str, Any]) -> list[Any]:
    """The layers of facts that are scored: those that are named, else all that a model extracts, else all in files."""
    from proofreel.eval.facts import LAYERS

    if args.layers or args.language_model:
        return [layer for layer in LAYERS if layer in (args.layers or LAYERS)]
    given = {layer for captions in systems.values() for caption in captions for layer in caption.facts}
    return [layer for layer in LAYERS if layer in given] or list(LAYERS)


def _language_model(args: argparse.Namespace, systems: dict[str, Any], layers: list[Any]) -> Any:
    """The language model, or None where nobody needs one."""
    from proofreel.core import ConfigError
    from proofreel.eval.scores import open_language_model

    if args.language_model:
        return open_language_model(args.language_model)
    for path, captions in zip(args.captions, systems.values(), strict=True):
        for caption in captions:
            if missing := [layer for layer in layers if caption.text is not None and layer not in caption.facts]:
                raise ConfigError(
                    f"{path}: {missing[0]} facts are missing, got none for {caption.id!r}; write them (no fact: an "
                    f"empty value), name --layers, or give --language-model"
                )
    if args.check_extraction:
        raise ConfigError("--check-extraction: a language model extracts, got none; give --language-model")
    return None


def _with_facts(args: argparse.Namespace, model: Any, captions: Any, layers: list[Any], clips: Any) -> Any:
    from proofreel.eval.facts import ROLES, with_facts

    if model is None:
        return captions
    roles = dict.fromkeys(fact.role for clip in clips for fact in clip.gold if fact.layer == "conceptual")
    return with_facts(captions, model, layers, list(roles) or ROLES, args.relation_of_object, model.config.concurrency)


def _extraction(args: argparse.Namespace, model: Any, clips: Any, layers: list[Any]) -> Any:
    """How well facts extracted from gold captions match gold facts; None where that was not wanted."""
    from proofreel.eval.facts import Caption, extraction_scores

    if not args.check_extraction:
        return None
    gold = [Caption(clip.id, clip.caption) for clip in clips if clip.caption]
    return extraction_scores(_with_facts(args, model, gold, layers, clips), clips)


def _judges(args: argparse.Namespace, model: Any) -> list[Any]:
    """Who judges by videos and by captions; verifiers each with their own predictions file; None: labels."""
    from proofreel.eval.facts import by_language_model
    from proofreel.eval.scores import by_verifier, open_verifier

    args.out.mkdir(parents=True, exist_ok=True)
    visual = textual = None
    if args.verifier:
        visual = by_verifier(open_verifier(args), args.out / "judged-videos.parquet", args.operating_point)
    if args.text_verifier:
        texts = open_verifier(argparse.Namespace(**{**vars(args), "verifier": args.text_verifier, "base": None}))
        textual = by_verifier(texts, args.out / "judged-captions.parquet")
    elif model is not None:
        textual = by_language_model(model, model.config.concurrency)
    return [visual, textual]


def _print_more(result: Any) -> None:
    from itertools import islice

    from proofreel.eval.facts import failures, grounding_caveat

    for name, system in result.systems.items():
        for score, n in system.n_undefined.items():
            if n:
                print(f"{name}: {score}: {n} of {len(system.captions)} captions have no fact to judge")
        for score, found in system.agreement.items():
            if found.n > 1 and found.pearson == found.pearson:
                values = ", ".join(f"{key} {getattr(found, key):.3f}" for key in ("pearson", "spearman", "kendall"))
                print(f"{name}: {score} with people's labels: {values} over {found.n} captions")
    if caveat := grounding_caveat(result):
        print(caveat)
    for failure in islice(failures(result), SHOWN):
        print(f"failed: {failure}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
