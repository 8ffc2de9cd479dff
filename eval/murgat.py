"""MURGAT-Score of generated responses with citations: by people's labels, or by a verifier; two systems side by side.

    proofreel murgat --responses responses.json --out runs/by-people
    proofreel murgat --responses responses.json --verifier DIR --media videos/ --out runs/judged
    proofreel murgat --responses a.json b.json --names A B --verifier DIR --media videos/ --language-model model.yaml \
        --out runs/compared
    proofreel murgat --responses bare.json --post-hoc missing --verifier DIR --media videos/ \
        --language-model model.yaml --out runs/cited
    proofreel murgat --questions questions.json --program logic-imperative --verifier DIR --media videos/ \
        --language-model model.yaml --out runs/program
    proofreel murgat --responses responses.json --entailment-model judge.yaml --media videos/ --out runs/by-a-model

Responses are MuRGAt's files (docs/formats.md). Bare generations need --language-model, a YAML of the options in
docs/language-model.md: it says which sentences are verifiable and cuts them into facts. --post-hoc adds citations where
facts were found in the video (OUT/attributed-0.json); --program answers questions by plans (OUT/generated.jsonl). With
a verifier, responses that have people's labels also show how the two agree. Writes OUT/result.json and prints a table;
run again, it goes on where it was stopped. docs/scores.md says what each score is.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from proofreel.core import CommandParser

SHOWN = 10  # failures that are printed; all are in result.json


def main(argv: Sequence[str] | None = None) -> int:
    """Read, annotate, judge, score, write; the exit status is 1 if the input is at fault."""
    args = _parser().parse_args(argv)

    from proofreel.core import ProofreelError

    try:
        _run(args)
    except ProofreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="proofreel murgat", description=__doc__)
    parser.add_argument("--responses", type=Path, nargs="+", help="one file, or two to compare")
    parser.add_argument("--names", nargs="+", help="what tables call the systems (default: the files' names)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--verifier", help="directory or hub id; default: the labels in the files judge")
    parser.add_argument("--media", type=Path, help="folder that the names of videos start from")
    parser.add_argument("--transcripts", type=Path, help="folder or JSON of transcripts: what audio citations need")
    parser.add_argument("--language-model", type=Path, help="YAML of the model that finds facts in bare responses")
    styles = ["simple", "cot", "json"]
    parser.add_argument("--style", choices=styles, default="json", help="of its yes or no (default: json)")
    parser.add_argument(
        "--propagation",
        choices=["sentence", "embedded"],
        default="sentence",
        help="facts cite all that their sentence cites (default), or what the language model leaves them",
    )
    parser.add_argument(
        "--relevance",
        choices=["alone", "necessary", "alce"],
        default="alone",
        help="a citation is relevant if it supports the fact alone (default), if the fact needs it, or either",
    )
    parser.add_argument(
        "--sets",
        choices=["one_prompt", "largest", "pieces"],
        default="one_prompt",
        help="several citations of a fact are judged in one prompt, as in MuRGAt (default), by the surest of "
        "that and of each alone, or of each alone",
    )
    parser.add_argument(
        "--citations-without-label",
        choices=["unknown", "as_fact"],
        default="unknown",
        help="of a supported fact with several, where people labelled the fact only: failed, or relevant",
    )
    parser.add_argument(
        "--count-as-wrong",
        nargs="*",
        choices=["malformed", "beyond_end", "modality"],
        default=["malformed", "beyond_end"],
        help="citations that support nothing; other problems are failures (default: malformed beyond_end)",
    )
    _add_model_options(parser)
    parser.add_argument("--operating-point", help="name of the threshold that labels; default: the shipped default")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ...; default: a GPU if there is one")
    parser.add_argument("--frame-cache", type=Path, help="folder that keeps decoded frames; decoders have a deadline")
    parser.add_argument(
        "--untrained-evidence", action="store_true", help="also ask about kinds of evidence the verifier never saw"
    )
    parser.add_argument(
        "--metrics", type=Path, nargs="+", help="tables of other metrics by id, one per file: correlated with labels"
    )
    parser.add_argument("--draws", type=int, default=10_000, help="resamples of videos for intervals (default: 10000)")
    return parser


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    """Language models as judges, and who adds citations."""
    styles = ["simple", "cot", "json"]
    parser.add_argument("--entailment-model", type=Path, help="YAML of a model that sees, as judge of the facts")
    parser.add_argument("--entailment-style", choices=styles, default="json", help="of its yes or no (default: json)")
    parser.add_argument("--frames", type=int, default=32, help="most frames a language model is shown (default: 32)")
    parser.add_argument("--captions", type=Path, help="folder or JSON as of --transcripts: shown instead of frames")
    parser.add_argument(
        "--post-hoc",
        choices=["missing", "all"],
        help="cite for each fact what is found in the video: of sentences without citations, or of all",
    )
    parser.add_argument("--questions", type=Path, help="records with video, question and options, for --program")
    variants = [f"{r}-{g}" for r in ("logic", "narrative") for g in ("declarative", "imperative")]
    parser.add_argument("--program", choices=variants, help="answer --questions by plans of this kind, then score")
    parser.add_argument("--proposer", help="who finds facts: a verifier, or language-model (default: --verifier)")
    parser.add_argument("--windows", help="in which a verifier looks, e.g. max:8:4 (default: the verifier's own)")


def _run(args: argparse.Namespace) -> None:
    from proofreel.core import ConfigError
    from proofreel.eval.citations import as_json, compare_murgat, read_murgat_responses

    if (args.program is None) != (args.questions is None) or (args.responses is None) == (args.program is None):
        got = f"{args.responses}, {args.questions} and {args.program}"
        raise ConfigError(f"--responses: give these, or --questions with --program, got {got}; choose one of the two")
    unanswered: dict[str, Any] = {}
    if args.program is not None:
        path, failures = _generated(args)
        args.responses, unanswered = [path], {"unanswered": failures}
    names = args.names or [path.stem for path in args.responses]
    if len(args.responses) > 2 or len(names) != len(args.responses) or len(set(names)) != len(names):
        got = f"{len(args.responses)} files and {names}"
        raise ConfigError(f"--responses: one file or two, with as many different --names, got {got}; name each system")
    if args.metrics is not None and len(args.metrics) != len(args.responses):
        got = f"{len(args.metrics)} for {len(args.responses)}"
        raise ConfigError(f"--metrics: one table for each file of responses, got {got}; name as many")
    if args.draws < 1:
        raise ConfigError(f"--draws: at least 1, got {args.draws}; the default is 10000")
    if args.program is not None and args.verifier is None and args.entailment_model is None:
        print("not scored: give --verifier or --entailment-model, or score this file later")
        return
    given = [_annotated(read_murgat_responses(path), path, args) for path in args.responses]
    args.out.mkdir(parents=True, exist_ok=True)
    if args.post_hoc:
        given = [_attributed(responses, number, names[number], args) for number, responses in enumerate(given)]
        if args.verifier is None and args.entailment_model is None:
            print("not scored: give --verifier or --entailment-model, or score these files later")
            return
    judge = _judge(args)
    systems, results = [], []
    for number, (name, responses) in enumerate(zip(names, given, strict=True)):
        scored, facts = judge(responses, number)
        systems.append(scored)
        results.append({"name": name, "file": args.responses[number].name} | unanswered | facts | as_json(scored))
    difference = compare_murgat(*systems, n_draws=args.draws) if len(systems) == 2 else None
    if args.metrics is not None:
        for found, responses, path in zip(results, given, args.metrics, strict=True):
            found["metrics_with_labels"] = _metrics_with_labels(responses, path, args)
    result = {"settings": _settings(args), "systems": results, "comparison": as_json(difference)}
    _write(args.out / "result.json", result)
    page = _write_page(args, dict(zip(names, systems, strict=True)), difference, result)
    _print_table(names, systems, difference)
    _print_agreement(results)
    _print_failures(names, systems)
    for line in _passes(results):
        print(line)
    print(f"wrote {args.out / 'result.json'} and {page}")


def _generated(args: argparse.Namespace) -> tuple[Path, list[str]]:
    """Answers by programs: all in OUT/generated.jsonl, the responses in the file that is returned; and what failed."""
    from proofreel.core import RowError
    from proofreel.eval.citations import VARIANTS, answer_by_program, generate, program_tools, read_murgat_questions

    questions = read_murgat_questions(args.questions)
    variant = VARIANTS[args.program]
    tools, settings = program_tools(args)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "generated.jsonl"
    records = generate(questions, lambda q: answer_by_program(q, variant, tools), path, settings)
    responses = [record for record in records if "model_generation" in record]
    failures = [f"{r['id']}: {r['program_error']}" for r in records if "program_error" in r]
    print(f"{variant.name}: {len(responses)} of {len(records)} questions answered; wrote {path}")
    _print_some(variant.name, "no answer", failures)
    if not responses:
        raise RowError(f"{args.questions}: no question got an answer, got {failures[0]}; see {path}")
    _write(args.out / f"{variant.name}.json", responses)
    return args.out / f"{variant.name}.json", failures


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """What decides the numbers besides the files."""
    kept = (
        "style",
        "propagation",
        "relevance",
        "citations_without_label",
        "count_as_wrong",
        "operating_point",
        "draws",
    )
    judge = args.verifier or "labels"
    if args.entailment_model is not None:
        judge, kept = f"language model: {args.entailment_model.name}", (*kept, "entailment_style", "frames")
    if args.post_hoc:
        kept = (*kept, "post_hoc")
    if args.post_hoc or args.program:
        kept = (*kept, "program", "proposer", "windows")
    return {"judge": judge} | {name: getattr(args, name) for name in kept}


def _annotated(responses: list[Any], path: Path, args: argparse.Namespace) -> list[Any]:
    """The responses with verifiability and facts, by the file or a language model."""
    from proofreel.core import ConfigError
    from proofreel.eval.citations import annotate
    from proofreel.eval.scores import open_language_model

    bare = [response for response in responses if not response.is_annotated]
    if args.language_model is None:
        if bare:
            raise ConfigError(
                f"{path}: {len(bare)} of {len(responses)} responses have no facts, got {bare[0].id!r}; "
                "give --language-model, or files with `facts` or `evaluations`"
            )
        return responses
    model = open_language_model(args.language_model)
    workers = model.config.concurrency
    return annotate(responses, model, args.style, args.propagation, workers, uncited=bool(args.post_hoc))


def _attributed(responses: list[Any], number: int, name: str, args: argparse.Namespace) -> list[Any]:
    """The responses with citations where facts were found; written to OUT/attributed-NUMBER.json."""
    from proofreel.eval.citations import attributed_post_hoc, fact_finder, write_murgat_responses

    find = fact_finder(args, args.out / f"windows-{number}.parquet")
    attributed, proposals = attributed_post_hoc(responses, find, args.post_hoc, args.propagation)
    path = args.out / f"attributed-{number}.json"
    write_murgat_responses(path, attributed)
    n_found = sum(bool(proposal.found.moments) for proposal in proposals)
    print(f"{name}: {n_found} of {len(proposals)} facts found; wrote {path}")
    errors = [f"{p.response}: {p.fact[:60]!r}: {p.found.error}" for p in proposals if p.found.error is not None]
    _print_some(name, "not looked for everywhere", errors)
    return attributed


def _judge(args: argparse.Namespace) -> Callable[[list[Any], int], tuple[Any, dict[str, Any]]]:
    """Who judges the responses of a system (by its number): its scores, and what else the result says of it."""
    from proofreel.core import ConfigError
    from proofreel.eval.citations import (
        as_json,
        fact_judge,
        judge_responses,
        murgat_agreement,
        murgat_system_scores,
        sources_of,
    )

    def labels(responses: list[Any], number: int) -> tuple[Any, dict[str, Any]]:
        if not any(response.is_labelled for response in responses):
            path = args.responses[number]
            raise ConfigError(f"{path}: no fact has a label, got no --verifier either; give one of the two")
        return _by_people(responses, args), {}

    if args.verifier is None and args.entailment_model is None:
        return labels
    who, reader = fact_judge(args)
    sources = sources_of(args)

    def judged(responses: list[Any], number: int) -> tuple[Any, dict[str, Any]]:
        wrong = tuple(args.count_as_wrong)
        scored, judgments = judge_responses(responses, who(number), reader, sources, args.relevance, wrong, args.sets)
        facts: dict[str, Any] = {"n_questions": judgments.n_questions, "n_passes": judgments.n_passes}
        scores = murgat_system_scores(scored, args.draws)
        if all(response.is_labelled for response in responses):
            facts["agreement_with_labels"] = as_json(murgat_agreement(scores, _by_people(responses, args), args.draws))
        return scores, facts

    return judged


def _by_people(responses: list[Any], args: argparse.Namespace) -> Any:
    """The scores by people's labels."""
    from proofreel.eval.citations import judged_by_labels, murgat_system_scores

    judged = [judged_by_labels(response, args.citations_without_label) for response in responses]
    return murgat_system_scores(judged, args.draws)


def _metrics_with_labels(responses: list[Any], path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Correlation of each metric in a table with each score by people's labels."""
    from proofreel.core import RowError
    from proofreel.eval.citations import as_json, metric_correlations, read_metrics

    metrics = read_metrics(path)
    if not any(response.is_labelled for response in responses):
        raise RowError(f"{path}: metrics are compared with people's labels, got no label in the responses; give some")
    if unknown := sorted({id for of in metrics.values() for id in of} - {response.id for response in responses}):
        raise RowError(f"{path}: no response has this id, got {unknown[0]!r}; use the ids of the responses")
    human = _by_people(responses, args)
    return {name: as_json(metric_correlations(values, human, args.draws)) for name, values in metrics.items()}


def _write(path: Path, result: Any) -> None:
    from proofreel.core import write_whole

    text = json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False)
    write_whole(path.parent, path, f"{text}\n".encode())


def _write_page(args: argparse.Namespace, systems: dict[str, Any], difference: Any, result: dict[str, Any]) -> Path:
    from proofreel.eval.citations import murgat_page, sources_of
    from proofreel.eval.scores import write_page

    notes = [f"Judged by {result['settings']['judge']}.", *_passes(result["systems"])]
    page = murgat_page(systems, difference, sources_of(args), args.media, notes)
    return write_page(args.out / "page.html", page, args.media)


def _passes(results: Sequence[dict[str, Any]]) -> list[str]:
    """What each system cost; nothing where labels judged."""
    return [
        f"{result['name']}: {result['n_questions']} questions, {result['n_passes']} encoder passes."
        for result in results
        if "n_passes" in result
    ]


def _print_table(names: Sequence[str], systems: Sequence[Any], comparison: Any) -> None:
    """Means over responses with intervals; of two systems also the second minus the first."""
    columns = [(name, system.mean) for name, system in zip(names, systems, strict=True)]
    if comparison is not None:
        columns.append((f"{names[1]} - {names[0]}", comparison.difference))
    print(" | ".join([f"{'mean over responses':<20}", *(f"{name:<32}" for name, _ in columns)]))
    for measure in systems[0].mean:
        cells = [_cell(scores[measure]) for _, scores in columns]
        if any(cells):
            print(" | ".join([f"{measure:<20}", *(f"{cell or '-':<32}" for cell in cells)]))


def _cell(score: Any) -> str:
    """`0.812 [0.700, 0.900]`; `0.7 to 0.8 (2 failed)` where judgments failed; nothing where it is not defined."""
    if score.n == 0:
        return ""
    interval = "" if score.interval is None or math.isnan(score.interval.low) else _ends(score.interval)
    if score.low == score.high:
        return f"{score.low:.3f}{interval}"
    return f"{score.low:.3f} to {score.high:.3f}{interval} ({score.n_failed} failed)"


def _ends(interval: Any) -> str:
    return f" [{interval.low:.3f}, {interval.high:.3f}]"


def _print_agreement(results: Sequence[dict[str, Any]]) -> None:
    """Correlations with the scores by people's labels: of each score with its own, of other metrics with each."""
    for result in results:
        found = {"judge": result.get("agreement_with_labels", {})} | result.get("metrics_with_labels", {})
        for metric, measures in found.items():
            for measure in ("coverage", "precision", "recall", "murgat"):
                row = measures.get(measure)
                if row is None or row["pearson"] is None:
                    continue
                values = ", ".join(_coefficient(name, row) for name in ("pearson", "spearman", "kendall"))
                print(f"{result['name']}: {metric}, {measure} by people: {values} over {row['n']} responses")


def _coefficient(name: str, row: dict[str, Any]) -> str:
    low, high = row["intervals"][name]
    return f"{name} {row[name]:.3f}" + ("" if low is None else f" [{low:.3f}, {high:.3f}]")


def _print_failures(names: Sequence[str], systems: Sequence[Any]) -> None:
    for name, system in zip(names, systems, strict=True):
        failures = [
            f"{one.response.id}: {sentence.text[:60]!r}: {reason}"
            for one in system.responses
            for sentence in one.response.sentences
            for reason in (sentence.error, *(fact.reason for fact in sentence.facts))
            if reason is not None
        ]
        _print_some(name, "failed", failures)


def _print_some(name: str, what: str, lines: Sequence[str]) -> None:
    for line in lines[:SHOWN]:
        print(f"{name}: {what}: {line}", file=sys.stderr)
    if len(lines) > SHOWN:
        print(f"{name}: {what}: {len(lines) - SHOWN} more", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
