"""MiRAGE's scores of generated articles, by a verifier: InfoF1, CiteF1, and what the paper compares them with; and by
people, with the paper's tables.

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
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from proofreel.core import CommandParser

SHOWN = 10  # reasons of failures that are printed
FORMS = ("collection", "reference")
METRICS = ("infof1", "citef1", "alce", "argue", "ragas", "rouge", "bertscore")


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
    parser = CommandParser(prog="proofreel mirage", description=__doc__)
    from proofreel.eval.scores import add_language_option, add_verifier_options

    steps = parser.add_subparsers(dest="step", required=True, metavar="score|human")
    score = steps.add_parser("score", help="generated articles and their sources -> InfoF1, CiteF1 and other metrics")
    score.add_argument(
        "--responses", type=Path, nargs="+", required=True, help="one file per system, see docs/scores.md"
    )
    score.add_argument("--topics", type=Path, required=True, help="reference claims and videos of each topic")
    score.add_argument("--text-verifier", type=Path, help="judges claims against texts (default: --verifier)")
    score.add_argument("--out", type=Path, required=True, help="folder for result.json and the judgments")
    score.add_argument(
        "--metrics", nargs="+", choices=METRICS, default=["infof1", "citef1"], help="default: infof1 citef1"
    )
    score.add_argument("--names", nargs="+", help="what the systems are called (default: the files' names)")
    score.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS), help="what precision is held against")
    score.add_argument("--precision-only", action="store_true", help="no recall, no F1: needs no reference")
    score.add_argument(
        "--sources", choices=["single", "joint"], default="single", help="a claim against each source, or all at once"
    )
    score.add_argument("--duplicates", choices=["any", "first", "keep"], default="any", help="of a claim made twice")
    score.add_argument("--weights", choices=["mean", "normalised"], default="mean", help="how importance weighs")
    score.add_argument(
        "--uncited", choices=["unsupported", "left_out"], default="unsupported", help="alce, argue: uncited sentences"
    )
    score.add_argument(
        "--relevance", choices=["alce", "leave_one_out"], default="alce", help="alce: which citations count"
    )
    score.add_argument(
        "--shrink-frames", action="store_true", help="where memory runs out, half the frames, as the paper's ALCE"
    )
    score.add_argument("--without-context", action="store_true", help="ask about claims without their sentence")
    score.add_argument("--all-reference-claims", action="store_true", help="also those that no source supports")
    score.add_argument("--extension", default=".mp4", help="of the video files (default: .mp4)")

    add_verifier_options(score)
    add_language_option(score, "extracts claims where --responses has none, writes questions (argue), queries (ragas)")
    models = score.add_argument_group("further models")
    models.add_argument("--embedder", type=Path, metavar="FOLDER", help="ragas: embeds queries")
    models.add_argument(
        "--vision-model", type=Path, metavar="YAML", help="ragas: describes sources; as --language-model"
    )
    models.add_argument("--bert-model", type=Path, metavar="FOLDER", help="bertscore: the encoder")
    models.add_argument(
        "--bert-layer", type=int, default=17, metavar="N", help="bertscore: default 17, roberta-large's"
    )

    human = steps.add_parser("human", help="released human judgments -> InfoF1 by people, tau with preferences")
    human.add_argument("--judgments", type=Path, required=True, help="the release's data/wikivideo folder")
    human.add_argument("--metric", type=Path, nargs="+", default=[], help="result.json of `score`: its tau with people")
    human.add_argument("--out", type=Path, help="folder for result.json")
    return parser


def _score(args: argparse.Namespace) -> None:
    from proofreel.core import ConfigError
    from proofreel.eval.articles import (
        MirageOptions,
        mirage_page,
        mirage_scores,
        read_responses,
        read_topics,
        result_table,
        result_to_dict,
        shares_of,
        with_cited_videos,
    )
    from proofreel.eval.scores import open_language_model, write_page

    names = args.names or [None] * len(args.responses)
    if len(names) != len(args.responses):
        raise ConfigError(f"--names: one for each of --responses, got {names}; give {len(args.responses)}")
    responses = [r for path, name in zip(args.responses, names, strict=True) for r in read_responses(path, name)]
    topics = with_cited_videos(read_topics(args.topics, args.extension), responses, args.extension)
    options = MirageOptions(
        sources=args.sources,
        duplicates=args.duplicates,
        weights=args.weights,
        uncited=args.uncited,
        relevance=args.relevance,
        grounded_only=not args.all_reference_claims,
        context=not args.without_context,
    )
    shares = shares_of(args.metrics, args.forms, args.precision_only)
    if shares and args.verifier is None:
        raise ConfigError("--verifier: is missing, got none; name a verifier directory")
    model = None if args.language_model is None else open_language_model(args.language_model)
    responses, topics = _completed(responses, topics, shares, options, model)
    eyes = None if args.vision_model is None else open_language_model(args.vision_model)
    measured = _measured(args, responses, topics, model, eyes)
    for client in (model, eyes):
        if client is not None:
            costs = client.costs()
            asked = f"{costs['questions']} questions, {costs['cache_hits']} answered from the cache"
            print(f"{client.config.model}: {asked}, {costs['money']:.2f} paid", file=sys.stderr)
    args.out.mkdir(parents=True, exist_ok=True)
    judges = _judges(args) if shares else [_no_judge]
    result = mirage_scores(responses, topics, *judges, shares=shares, options=options, measured=measured)
    _write(args.out, result_to_dict(result, options))
    page = write_page(args.out / "page.html", mirage_page(result, responses, options), args.media)
    print(f"wrote {page}", file=sys.stderr)
    print(result_table(result))
    _print_failures(result)


def _print_failures(result: Any) -> None:
    """Why judgments failed: each reason once."""
    reasons = {
        answer.error: None
        for by_topic in result.responses.values()
        for scores in by_topic.values()
        for items in scores.items.values()
        for judged in items
        for answer in judged.judgments.values()
        if answer.supported is None
    }
    for reason in list(reasons)[:SHOWN]:
        print(f"failed: {reason}", file=sys.stderr)
    if len(reasons) > SHOWN:
        print(f"failed: {len(reasons) - SHOWN} more reasons, in result.json", file=sys.stderr)


def _completed(responses: Any, topics: Any, shares: Sequence[str], options: Any, model: Any) -> tuple[Any, Any]:
    """Responses with claims, and topics with questions, where the shares need them and the files lack them."""
    from proofreel.core import ConfigError
    from proofreel.eval.articles import NEED_CLAIMS, NEED_QUESTIONS, counted_claims, with_claims, with_questions

    def writer(what: str) -> Any:
        if model is None:
            raise ConfigError(f"--language-model: {what}, got no model; name its YAML")
        return model

    if NEED_CLAIMS & set(shares) and any(s.needs_claims for response in responses for s in response.sentences):
        complete = writer("claims are missing in --responses")
        responses = with_claims(responses, complete, complete.config.concurrency)
    if NEED_QUESTIONS & set(shares):
        about = {response.topic for response in responses}
        used = {name: topic for name, topic in topics.items() if name in about}
        if any(claim.question is None for topic in used.values() for claim in counted_claims(topic, options)):
            complete = writer("argue needs a question for each claim, and --topics has none")
            topics = topics | with_questions(used, complete, options, complete.config.concurrency)
    return responses, topics


def _measured(args: argparse.Namespace, responses: Any, topics: Any, model: Any, eyes: Any) -> dict[Any, Any]:
    """(System, topic) -> name -> what no judge of claims says."""
    from proofreel.core import ConfigError
    from proofreel.eval import articles

    parts: dict[str, Any] = {}
    if "ragas" in args.metrics:
        if model and args.embedder:
            embed, workers = articles.folder_embeddings(args.embedder, args.device), model.config.concurrency
            parts["ragas_answer_relevance"] = articles.answer_relevance(responses, topics, model, embed, workers)
        else:
            print("ragas_answer_relevance: left out, needs --language-model and --embedder", file=sys.stderr)
        if eyes:
            describe, workers = articles.describe_with(eyes, args.media), eyes.config.concurrency
            parts["ragas_context_relevance"] = articles.context_relevance(responses, topics, describe, workers)
        else:
            print("ragas_context_relevance: left out, needs --vision-model", file=sys.stderr)
    if "rouge" in args.metrics:
        parts["rougeL"] = articles.against_references(responses, topics, articles.rouge)
    if "bertscore" in args.metrics:
        if args.bert_model is None:
            raise ConfigError("--bert-model: is missing, got none; name the folder of an encoder")
        bert = partial(articles.bert_score, model=args.bert_model, layer=args.bert_layer, device=args.device)
        parts["bertscore"] = articles.against_references(responses, topics, bert)
    keys = [(response.system, response.topic) for response in responses]
    return {key: {name: part[key] for name, part in parts.items()} for key in keys}


def _no_judge(pairs: Sequence[Any]) -> NoReturn:
    raise AssertionError(f"{len(pairs)} pairs for no judge")


def _judges(args: argparse.Namespace) -> list[Any]:
    """Who judges claims about sources, and about texts; each with its own predictions file."""
    from proofreel.eval.scores import by_verifier, open_verifier

    verifier = texts = open_verifier(args)
    if args.text_verifier:
        texts = open_verifier(argparse.Namespace(**{**vars(args), "verifier": args.text_verifier, "base": None}))
    point = args.operating_point
    return [
        by_verifier(verifier, args.out / "judged-sources.parquet", point, shrink_frames=args.shrink_frames),
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
