"""MURGAT-Score of generated responses with citations: by people's labels, or by a verifier; two systems side by side.

    proofreel murgat --responses responses.json --out runs/by-people
    proofreel murgat --responses responses.json --verifier DIR --media videos/ --out runs/judged
    proofreel murgat --responses a.json b.json --names A B --verifier DIR --media videos/ --language-model model.yaml \
        --out runs/compared

Responses are MuRGAt's files (docs/formats.md). Bare generations need --language-model, a YAML of the options in
docs/language-model.md: it says which sentences are verifiable and cuts them into facts. With a verifier, responses that
have people's labels also show how the two agree. Writes OUT/result.json and prints a table; run again, it goes on where
it was stopped. docs/scores.md says what each score is.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="proofreel murgat", description=__doc__, formatter_class=form)
    parser.add_argument("--responses", type=Path, nargs="+", required=True, help="one file, or two to compare")
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
    parser.add_argument("--operating-point", help="name of the threshold that labels; default: the shipped default")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ...; default: a GPU if there is one")
    parser.add_argument("--frame-cache", type=Path, help="folder that keeps decoded frames; decoders have a deadline")
    parser.add_argument(
        "--untrained-evidence", action="store_true", help="also ask about kinds of evidence the verifier never saw"
    )
    parser.add_argument("--draws", type=int, default=10_000, help="resamples of videos for intervals (default: 10000)")
    return parser


def _run(args: argparse.Namespace) -> None:
    from proofreel.core import ConfigError
    from proofreel.eval.citations import as_json, compare_murgat, read_murgat_responses

    names = args.names or [path.stem for path in args.responses]
    if len(args.responses) > 2 or len(names) != len(args.responses) or len(set(names)) != len(names):
        got = f"{len(args.responses)} files and {names}"
        raise ConfigError(f"--responses: one file or two, with as many different --names, got {got}; name each system")
    if args.draws < 1:
        raise ConfigError(f"--draws: at least 1, got {args.draws}; the default is 10000")
    given = [_annotated(read_murgat_responses(path), path, args) for path in args.responses]
    judge = _judge(args)
    args.out.mkdir(parents=True, exist_ok=True)
    systems, results = [], []
    for number, (name, responses) in enumerate(zip(names, given, strict=True)):
        scored, facts = judge(responses, number)
        systems.append(scored)
        results.append({"name": name, "file": args.responses[number].name} | facts | as_json(scored))
    difference = compare_murgat(*systems, n_draws=args.draws) if len(systems) == 2 else None
    result = {"settings": _settings(args), "systems": results, "comparison": as_json(difference)}
    _write(args.out / "result.json", result)
    _print_table(names, systems, difference)
    _print_agreement(results)
    _print_failures(names, systems)
    print(f"wrote {args.out / 'result.json'}")


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
    return {"judge": args.verifier or "labels"} | {name: getattr(args, name) for name in kept}


def _annotated(responses: list[Any], path: Path, args: argparse.Namespace) -> list[Any]:
    """The responses with verifiability and facts, by the file or a language model."""
    from proofreel.core import ConfigError, load_config
    from proofreel.data_prep.language import LanguageModel, LanguageModelConfig
    from proofreel.eval.citations import annotate

    bare = [response for response in responses if not response.is_annotated]
    if args.language_model is None:
        if bare:
            raise ConfigError(
                f"{path}: {len(bare)} of {len(responses)} responses have no facts, got {bare[0].id!r}; "
                "give --language-model, or files with `facts` or `evaluations`"
            )
        return responses
    config = load_config(LanguageModelConfig, args.language_model)
    return annotate(responses, LanguageModel(config), args.style, args.propagation, config.concurrency)


def _judge(args: argparse.Namespace) -> Callable[[list[Any], int], tuple[Any, dict[str, Any]]]:
    """Who judges the responses of a system (by its number): its scores, and what else the result says of it."""
    from proofreel.core import ConfigError
    from proofreel.eval.citations import (
        as_json,
        judge_responses,
        judged_by_labels,
        murgat_agreement,
        murgat_system_scores,
    )
    from proofreel.eval.scores import by_verifier

    def by_people(responses: list[Any]) -> Any:
        judged = [judged_by_labels(response, args.citations_without_label) for response in responses]
        return murgat_system_scores(judged, args.draws)

    def labels(responses: list[Any], number: int) -> tuple[Any, dict[str, Any]]:
        if not any(response.is_labelled for response in responses):
            path = args.responses[number]
            raise ConfigError(f"{path}: no fact has a label, got no --verifier either; give one of the two")
        return by_people(responses), {}

    if args.verifier is None:
        return labels
    verifier, sources = _verifier(args), _sources(args)

    def judged(responses: list[Any], number: int) -> tuple[Any, dict[str, Any]]:
        ask = by_verifier(verifier, args.out / f"predictions-{number}.parquet", args.operating_point)
        scored, judgments = judge_responses(
            responses, ask, verifier.reader, sources, args.relevance, tuple(args.count_as_wrong)
        )
        facts: dict[str, Any] = {"n_questions": judgments.n_questions, "n_passes": judgments.n_passes}
        scores = murgat_system_scores(scored, args.draws)
        if all(response.is_labelled for response in responses):
            facts["agreement_with_labels"] = as_json(murgat_agreement(scores, by_people(responses)))
        return scores, facts

    return judged


def _verifier(args: argparse.Namespace) -> Any:
    from proofreel.core import MediaError
    from proofreel.data_prep.media import FrameCache
    from proofreel.models.directory import find_verifier
    from proofreel.models.verifier import Verifier

    if args.media is not None and not args.media.is_dir():
        raise MediaError(f"{args.media}: no such folder, got nothing under --media; check the path")
    return Verifier.from_pretrained(
        find_verifier(args.verifier),
        device=args.device,
        media_root=args.media,
        frame_cache=FrameCache(args.frame_cache) if args.frame_cache else None,
        prefix_cache_gib=0.0,  # all claims about an evidence are asked together
        untrained_evidence=args.untrained_evidence,
    )


def _sources(args: argparse.Namespace) -> Callable[[str], Any]:
    """What the citations of a video's responses point into."""
    from proofreel.data_prep.importers import Transcripts
    from proofreel.models.verifier import Sources

    transcripts = None if args.transcripts is None else Transcripts(args.transcripts)

    def sources(video: str) -> Any:
        name = video if Path(video).suffix else f"{video}.mp4"
        return Sources(name, None if transcripts is None else transcripts.cues(video))

    return sources


def _write(path: Path, result: dict[str, Any]) -> None:
    from proofreel.core import write_whole

    text = json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False)
    write_whole(path.parent, path, f"{text}\n".encode())


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
    interval = "" if score.interval is None else f" [{score.interval.low:.3f}, {score.interval.high:.3f}]"
    if score.low == score.high:
        return f"{score.low:.3f}{interval}"
    return f"{score.low:.3f} to {score.high:.3f}{interval} ({score.n_failed} failed)"


def _print_agreement(results: Sequence[dict[str, Any]]) -> None:
    for result in results:
        for measure in ("coverage", "precision", "recall", "murgat"):
            found = result.get("agreement_with_labels", {}).get(measure)
            if found is not None and found["pearson"] is not None:
                values = ", ".join(f"{name} {found[name]:.3f}" for name in ("pearson", "spearman", "kendall"))
                print(f"{result['name']}: {measure} with people's labels: {values} over {found['n']} responses")


def _print_failures(names: Sequence[str], systems: Sequence[Any]) -> None:
    for name, system in zip(names, systems, strict=True):
        failures = [
            f"{one.response.id}: {sentence.text[:60]!r}: {reason}"
            for one in system.responses
            for sentence in one.response.sentences
            for reason in (sentence.error, *(fact.reason for fact in sentence.facts))
            if reason is not None
        ]
        for failure in failures[:SHOWN]:
            print(f"{name}: failed: {failure}", file=sys.stderr)
        if len(failures) > SHOWN:
            print(f"{name}: {len(failures) - SHOWN} more failures, all in result.json", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
