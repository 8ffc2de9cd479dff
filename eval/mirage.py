"""MiRAGE's scores: InfoF1 and CiteF1 of generated articles, by a verifier; and by people, with the paper's tables.

    proofreel mirage score --responses A.json B.json --topics topics.json --media videos/ --verifier DIR --out OUT
    proofreel mirage human --judgments data/wikivideo --out OUT

`score` asks a verifier about every claim of one system or several, prints the scores with intervals over topics and the
paired difference of each system from the first, and writes result.json with each claim's judgments. Stopped and run
again it goes on where it was. `human` computes the scores of the released human judgments and their Kendall's tau with
human preferences, beside what the paper prints. docs/scores.md explains both.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FORMS = ("collection", "reference")


def main(argv: Sequence[str] | None = None) -> int:
    """Parse arguments, and run `score` or `human`; the exit status is 1 if the input is at fault."""
    args = _parser().parse_args(argv)

    from proofreel.core import ProofreelError

    try:
        _human(args) if args.step == "human" else _score(args)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="proofreel mirage", description=__doc__, formatter_class=form)
    from proofreel.eval.scores import add_language_option, add_verifier_options

    steps = parser.add_subparsers(dest="step", required=True, metavar="score|human")
    score = steps.add_parser("score", help="generated articles and their sources -> InfoF1, CiteF1")
    score.add_argument(
        "--responses", type=Path, nargs="+", required=True, help="one file per system, see docs/scores.md"
    )
    score.add_argument("--topics", type=Path, required=True, help="reference claims and videos of each topic")
    score.add_argument("--text-verifier", type=Path, help="judges claims against texts (default: --verifier)")
    score.add_argument("--out", type=Path, required=True, help="folder for result.json and the judgments")
    score.add_argument("--names", nargs="+", help="what the systems are called (default: the files' names)")
    score.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS), help="what precision is held against")
    score.add_argument("--precision-only", action="store_true", help="no recall, no F1: needs no reference")
    score.add_argument(
        "--sources", choices=["single", "joint"], default="single", help="a claim against each source, or all at once"
    )
    score.add_argument("--duplicates", choices=["any", "first", "keep"], default="any", help="of a claim made twice")
    score.add_argument("--weights", choices=["mean", "normalised"], default="mean", help="how importance weighs")
    score.add_argument("--all-reference-claims", action="store_true", help="also those that no source supports")
    score.add_argument("--extension", default=".mp4", help="of the video files (default: .mp4)")

    add_verifier_options(score)
    add_language_option(score, "extracts claims where --responses has none")

    human = steps.add_parser("human", help="released human judgments -> InfoF1 by people, tau with preferences")
    human.add_argument("--judgments", type=Path, required=True, help="the release's data/wikivideo folder")
    human.add_argument("--metric", type=Path, nargs="+", default=[], help="result.json of `score`: its tau with people")
    human.add_argument("--out", type=Path, help="folder for result.json")
    return parser


def _score(args: argparse.Namespace) -> None:
    from proofreel.core import ConfigError
    from proofreel.eval.articles import (
        MirageOptions,
        mirage_scores,
        read_responses,
        read_topics,
        result_table,
        result_to_dict,
        shares_of_forms,
        with_cited_videos,
        with_claims,
    )
    from proofreel.eval.scores import open_language_model

    names = args.names or [None] * len(args.responses)
    if len(names) != len(args.responses):
        raise ConfigError(f"--names: one for each of --responses, got {names}; give {len(args.responses)}")
    responses = [r for path, name in zip(args.responses, names, strict=True) for r in read_responses(path, name)]
    if any(sentence.needs_claims for response in responses for sentence in response.sentences):
        if args.language_model is None:
            raise ConfigError("--language-model: claims are missing in --responses, got no model; name its YAML")
        model = open_language_model(args.language_model)
        responses = with_claims(responses, model, model.config.concurrency)
    topics = with_cited_videos(read_topics(args.topics, args.extension), responses, args.extension)
    options = MirageOptions(args.sources, args.duplicates, args.weights, not args.all_reference_claims)
    args.out.mkdir(parents=True, exist_ok=True)
    shares = shares_of_forms(args.forms, args.precision_only)
    result = mirage_scores(responses, topics, *_judges(args), shares=shares, options=options)
    _write(args.out, result_to_dict(result, options))
    print(result_table(result))


def _judges(args: argparse.Namespace) -> list[Any]:
    """Who judges claims about sources, and about texts; each with its own predictions file."""
    from proofreel.core import ConfigError
    from proofreel.eval.scores import by_verifier, open_verifier

    if args.verifier is None:
        raise ConfigError("--verifier: is missing, got none; name a verifier directory")
    verifier = texts = open_verifier(args)
    if args.text_verifier:
        texts = open_verifier(argparse.Namespace(**{**vars(args), "verifier": args.text_verifier, "base": None}))
    point = args.operating_point
    return [
        by_verifier(verifier, args.out / "judged-sources.parquet", point),
        by_verifier(texts, args.out / "judged-texts.parquet", point if texts is verifier else None),
    ]


def _human(args: argparse.Namespace) -> None:
    from proofreel.eval.articles import human_report, human_report_text

    report = human_report(args.judgments, args.metric)
    print(human_report_text(report))
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        _write(args.out, report)


def _write(out: Path, result: dict[str, Any]) -> None:
    path, temporary = out / "result.json", out / ".result.json"
    text = json.dumps(result, ensure_ascii=False, indent=1, allow_nan=False)
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(path)
    print(f"wrote {path}", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
