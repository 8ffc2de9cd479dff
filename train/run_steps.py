"""From annotations to a published verifier: build, train, predict, calibrate, predict, report, export, selftest.

    <output>/data                    the data set (or `data` of the config)
    <output>/run, claim-only-run     training runs; `draft` in them is the verifier
    <output>/folds/fold-0            cross-fitting: the runs and predictions of a fold, by verifiers trained without it
    <output>/calibration.parquet, calibrated, test.parquet, test-*.parquet, claim-only.parquet, report, verifier
    <output>/build.yaml, train.yaml  what steps read that have no config file of their own
    <output>/steps.json              of each step its command, settings, inputs and seconds

Every step is a command that a user could type. What a step makes is there once it has succeeded, and a step whose
product is there, by these settings and of these inputs, is not done again.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..core import ConfigError, expanded, read_yaml, say_next, sha256_of
from ..data_prep.dataset import FOLDS, MANIFEST, fold_names, read_manifest
from .rounds_config import SPEED, as_options, as_words, flat
from .run_config import BuildStep, RunConfig
from .stages import Stage, command_line, locked, read_record, run_stage, script, write_record

RECORD, SCHEMA_VERSION = "steps.json", 1
CONTROL_NAMES = {
    "zero-shot": "before fine-tuning",
    "mismatched-evidence": "other evidence",
    "mismatched-sound": "other sound",
    "no-sound": "no sound",
    "claim-only": "claim alone",
}
FREE = {*SPEED, "report_to", "run_name", "disable_tqdm", "dataloader_num_workers", "cache_gib", "read_timeout_s"}
"""Settings by which no byte of a product differs."""


@dataclass(frozen=True)
class Step:
    """A stage of the run.

    Attributes:
        stage: its command, and what is there last.
        settings: that its product depends on, by their keys in the config.
        needs: files whose change makes the product stale.
        products: what `--again` removes.
    """

    stage: Stage
    settings: dict[str, Any]
    needs: tuple[Path, ...]
    products: tuple[Path, ...]

    @property
    def name(self) -> str:
        """Of the stage."""
        return self.stage.name


@dataclass(frozen=True)
class Places:
    """Where a run's products lie."""

    output: Path
    data: Path
    fold: str = ""  # the fold that is left out, if one is

    @classmethod
    def of(cls, config: RunConfig) -> Places:
        """Of a config, with variables filled in."""
        output = Path(expanded(config.output, "output"))
        return cls(output, output / "data" if config.data is None else Path(expanded(config.data, "data")))

    def without(self, fold: str) -> Places:
        """Where what is made without a fold lies."""
        return Places(self.output / FOLDS / fold, self.data / FOLDS / fold, fold)

    def run(self, claim_only: bool = False) -> Path:
        """A training run."""
        return self.output / ("claim-only-run" if claim_only else "run")

    def predictions(self, name: str) -> Path:
        """A file of predictions."""
        return self.output / f"{name}.parquet"

    @property
    def calibrated(self) -> Path:
        """The calibration."""
        return self.output / "calibrated"

    @property
    def report(self) -> Path:
        """The report."""
        return self.output / "report"

    @property
    def verifier(self) -> Path:
        """What is published."""
        return self.output / "verifier"


def steps_of(config: RunConfig) -> list[Step]:
    """The commands of a run, in order."""
    at = Places.of(config)
    with_claim_only = "claim-only" in config.controls
    steps = [] if config.build is None else [_build(config.build, at)]
    if folds := folds_of(config):
        return [*steps, *_cross_fitting(config, at, folds)]
    steps += [_train(config, at, claim_only) for claim_only in (False, *([True] if with_claim_only else []))]
    steps += [_predict(config, at, "calibration"), _calibrate(config, at), _predict(config, at, "test")]
    steps += [_predict(config, at, "test", claim_only=True)] if with_claim_only else []
    return [*steps, _report(config, at), _export(config, at), _selftest(config, at)]


def folds_of(config: RunConfig) -> tuple[str, ...]:
    """The names of the folds that verifiers are cross-fitted over; none where the data set is in the usual splits."""
    if config.build is None:
        data = Places.of(config).data
        return tuple((read_manifest(data).get("cross") or {}).get("folds", ())) if (data / MANIFEST).is_file() else ()
    values = (read_yaml(config.build.config) if config.build.config else {}) | config.build.options
    splits = values.get("splits") or {}
    n = config.build.options.get("splits.cross", splits.get("cross") if isinstance(splits, dict) else None)
    return fold_names(n) if isinstance(n, int) and n > 1 else ()


def _cross_fitting(config: RunConfig, at: Places, folds: Sequence[str]) -> list[Step]:
    """Train without each fold, predict it, calibrate and report on all of them; then train the last verifier on all."""
    if config.train.script == "distill":
        raise ConfigError(
            "train.script: a teacher's file is of a whole data set, got distill with splits.cross; use sft or nli, or "
            "build without splits.cross"
        )
    kinds = (False, *([True] if "claim-only" in config.controls else []))
    steps = []
    for fold in folds:
        away = at.without(fold)
        steps += [_train(config, at, claim_only, away) for claim_only in kinds]
        steps += [_predict(config, away, "test", claim_only) for claim_only in kinds]
    steps += [_join(at, folds, name) for name in ("test", *map(_file_of, config.controls))]
    steps += [_calibrate(config, at, "test"), _report(config, at), _train(config, at, claim_only=False)]
    return [*steps, _export(config, at), _selftest(config, at)]


def run_steps(config: RunConfig, until: str | None = None, again: str | None = None) -> dict[str, Any]:
    """Do what is not done yet; returns what steps.json holds.

    Args:
        config: of the run.
        until: name of the last step to do; None: all.
        again: name of a step to do anew, with all after it: their products are removed.

    Raises:
        ConfigError: another run is at work there, or products do not fit the config any more.
        StageError: a command failed.
    """
    steps = steps_of(config)
    last = len(steps) if until is None else _place(steps, until) + 1
    at = Places.of(config)
    with locked(at.output, "another run is") as lock:
        record = _record_of(at.output)
        if again is not None:
            _remove(steps[_place(steps, again) :], record, at.output)
        refuse_stale(steps, record)
        write_inline(config, at)
        for number, step in enumerate(steps[:last], start=1):
            title = f"[{number}/{len(steps)}] {step.name}"
            if step.stage.is_done:
                record["steps"].setdefault(step.name, _entry(step))
                print(f"{title}: done before", flush=True)
                continue
            print(title, flush=True)
            if step.name.startswith("train"):
                refuse_unusable(at.data, config.controls)
            record["steps"][step.name] = _entry(step)
            write_record(at.output / RECORD, record)
            started = time.monotonic()
            run_stage(step.stage, step.name, "the run was", lock)
            seconds = time.monotonic() - started
            record["steps"][step.name] = _entry(step) | {"seconds": round(seconds, 1)}
            write_record(at.output / RECORD, record)
            following = f"; next: {steps[number].name}" if number < last else ""
            print(f"{title} took {clock(seconds)}{following}\n", flush=True)
        write_record(at.output / RECORD, record)
    return record


def refuse_unusable(data: Path, controls: Sequence[str] = ()) -> None:
    """Raise `ConfigError` for a data set that lacks a class, or groups, which a later step needs."""
    manifest = read_manifest(data)
    for fold in (manifest.get("cross") or {}).get("folds", ()):
        if "mismatched-evidence" in controls and manifest["counts"][fold]["groups"] < 2:
            raise ConfigError(
                f"controls: mismatched-evidence takes another group's evidence of the same fold, got one group in "
                f"{fold}; leave it out, or use fewer folds (splits.cross)"
            )
    unusable = manifest.get("unusable_splits") or {"problems": {}}
    problems = [text for split, text in unusable["problems"].items() if split != "validation"]
    if problems:
        raise ConfigError(
            f"{data}: {'; '.join(problems)}. {unusable['remedy']} (keys of build.options, and --again build)"
        )


def run_summary(config: RunConfig, record: Mapping[str, Any]) -> str:
    """What a run ends with: the time of every step, and where its products lie."""
    at, steps = Places.of(config), [step for step in steps_of(config) if step.name in record["steps"]]
    seconds = {step.name: record["steps"][step.name].get("seconds") for step in steps}
    lines = ["step                 time"]
    lines += [f"{name:<20} {'before' if s is None else clock(s)}" for name, s in seconds.items()]
    lines += [f"{'together':<20} {clock(sum(s or 0.0 for s in seconds.values()))}"]
    if at.verifier.exists():
        lines += [f"report       {at.report / 'report.html'}", f"verifier     {at.verifier}"]
    return "\n".join(lines)


def plan_lines(config: RunConfig) -> list[str]:
    """Every step's command, and whether it is done; what no longer fits is an error, as it is in the run."""
    steps, at = steps_of(config), Places.of(config)
    refuse_stale(steps, _record_of(at.output))
    write_inline(config, at)
    lines = []
    for number, step in enumerate(steps, start=1):
        lines.append(f"[{number}/{len(steps)}] {step.name}{': done' if step.stage.is_done else ''}")
        lines.append(f"$ {command_line(step.stage.words())}")
    return lines


def cost_command(config: RunConfig, card: str | None, price: float | None) -> tuple[str, ...] | None:
    """What prints the rows, memory, hours and money of the training; None before the data set is there."""
    at = Places.of(config)
    if not (at.data / MANIFEST).is_file():
        return None
    given = {"card": card, "price": price}
    entry = (sys.executable, "-m", "proofreel.cli", config.train.script)
    return (*entry, *_training_words(config, at, False), "--validate_only", "true", *as_options(given))


def say_what_follows(config: RunConfig) -> None:
    """The command after a finished run."""
    verifier = Places.of(config).verifier
    if verifier.exists():
        say_next("score", verifier, "--claims", "CLAIMS.csv", "--media", "VIDEOS", "--out", "scored.csv")


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def write_inline(config: RunConfig, at: Places) -> None:
    """What steps read that have no config file of their own."""
    at.output.mkdir(parents=True, exist_ok=True)
    if config.build is not None and config.build.config is None:
        _write_yaml(at.output / "build.yaml", {"output": str(at.data), **config.build.options})
    if config.train.config is None:
        places = {"dataset_dir": str(at.data), "output_dir": str(at.run())}
        _write_yaml(at.output / "train.yaml", {**config.train.options, **places})


def _record_of(output: Path) -> dict[str, Any]:
    """What earlier runs in a folder did."""
    path = output / RECORD
    if not path.exists():
        return {"schema_version": SCHEMA_VERSION, "steps": {}}
    return read_record(path, SCHEMA_VERSION, "steps", dict, "a run")


def refuse_stale(steps: Sequence[Step], record: Mapping[str, Any]) -> None:
    """`ConfigError` naming the first setting or file by which a finished step differs, and all that no longer fits."""
    for number, step in enumerate(steps):
        earlier = record["steps"].get(step.name)
        if earlier is None or not step.stage.is_done:
            continue
        if not (difference := _difference(step, earlier)):
            continue
        stale = [other.name for other in steps[number:] if other.stage.is_done]
        raise ConfigError(
            f"{difference}; no longer fit: {', '.join(stale)}. Set it back, name another output, or make them anew "
            f"with --again {_word(step.name)}"
        )


def _difference(step: Step, earlier: Mapping[str, Any]) -> str:
    before, now = earlier["settings"], json.loads(json.dumps(step.settings, default=str))
    for key in sorted({*before, *now}):
        if key.rpartition(".")[2] not in FREE and before.get(key) != now.get(key):
            return f"{key}: {step.name} was done with {before.get(key)!r}, got {now.get(key)!r}"
    for path, sha256 in earlier["inputs"].items():
        if Path(path).is_file() and sha256_of(path) != sha256:
            return f"{path}: {step.name} was done with another file of that name, got {sha256_of(path)[:12]} now"
    return ""


def _build(build: BuildStep, at: Places) -> Step:
    keys = tuple(f"{key}={json.dumps(value)}" for key, value in build.options.items())
    own = at.output / "build.yaml"
    words = ["--config", own] if build.config is None else ["--config", build.config, f"output={at.data}", *keys]
    words += ["--skip-invalid"] if build.skip_invalid else []
    values = (read_yaml(build.config) if build.config else {}) | build.options
    settings = flat({"build.options": {k: v for k, v in values.items() if k != "output"}})
    stage = Stage("build", _command("build", *words), at.data / MANIFEST)
    building = at.data.with_name(f"{at.data.name}.building")
    return Step(stage, settings, _annotations(build, at), (at.data, building))


def _annotations(build: BuildStep, at: Places) -> tuple[Path, ...]:
    """The annotation files of a build's sources."""
    values: dict[str, Any] = {"output": str(at.data)}
    values |= (read_yaml(build.config) if build.config else {}) | build.options
    sources = values.get("sources") or []
    paths = [path for source in sources for path in [source.get("path"), *(source.get("paths") or [])] if path]
    return tuple(Path(expanded(path, "build.options.sources")) for path in paths)


def _train(config: RunConfig, at: Places, claim_only: bool, away: Places | None = None) -> Step:
    """On the whole data set, or on that of a fold that is left out, and then `away`."""
    here = away or at
    train, run = config.train, here.run(claim_only)
    words = _training_words(config, at, claim_only, away)
    launched = train.launch and (*train.launch, script(f"train/{train.script}.py"), *words)
    values = (read_yaml(train.config) if train.config else {}) | train.options
    placed = ("dataset_dir", "output_dir")
    settings = flat({"train.options": {k: v for k, v in values.items() if k not in placed}})
    name = _named("train", "claim-only" if claim_only else "", here.fold)
    stage = Stage(name, tuple(launched or _command(train.script, *words)), run / "draft")
    return Step(stage, settings | {"train.script": train.script}, (here.data / MANIFEST,), (run,))


def _training_words(config: RunConfig, at: Places, claim_only: bool, away: Places | None = None) -> tuple[str, ...]:
    train, here = config.train, away or at
    data = ("--dataset_dir", str(here.data))
    output = ("--output_dir", str(here.run(claim_only)), *(("--claim_only", "true") if claim_only else ()))
    if train.config is None:  # the file names data and output of the whole run
        own = str(at.output / "train.yaml")
        return ("--config", own, *(data if away else ()), *(output if away or claim_only else ()))
    return ("--config", train.config, *as_options(train.options), *data, *output)


def _predict(config: RunConfig, at: Places, split: str, claim_only: bool = False) -> Step:
    out = at.predictions("claim-only" if claim_only else split)
    draft = at.run(claim_only) / "draft"
    words = ["--verifier", draft, "--data", at.data, "--split", split, "--out", out]
    controls = [] if claim_only or split != "test" else [c for c in config.controls if c != "claim-only"]
    controls.sort(key=lambda control: (control == "zero-shot", control == "no-sound"))  # which are written last
    words += ["--claim-only"] if claim_only else []
    words += ["--controls", *controls] if controls else []
    words += as_words(config.predict.options)
    files = [out, *(out.with_name(f"{out.stem}-{control}.parquet") for control in controls)]
    launch = config.predict.launch
    launched = launch and (*launch, script("eval/predict.py"), *map(str, words))
    name = _named("predict", "claim-only" if claim_only else split, at.fold)
    stage = Stage(name, tuple(launched or _command("predict", *words)), files[-1])
    settings = flat({"predict.options": config.predict.options}) | ({"controls": controls} if controls else {})
    blocks = (file.with_name(f"{file.name}.blocks") for file in files)
    return Step(stage, settings, (draft / "MANIFEST.sha256", at.data / MANIFEST), (*files, *blocks))


def _join(at: Places, folds: Sequence[str], name: str) -> Step:
    """The files of one name, of all folds."""
    away = [at.without(fold) for fold in folds]
    drafts = [place.run(claim_only=name == "claim-only") / "draft" for place in away]
    files, out = [place.predictions(name) for place in away], at.predictions(name)
    words = ["--data", at.data, "--verifiers", *drafts, "--predictions", *files, "--out", out]
    return Step(Stage(_named("join", name), _command("join", *words), out), {}, tuple(files), (out,))


def _named(*words: str) -> str:
    return " ".join(word for word in words if word)


def _file_of(control: str) -> str:
    """The name of a control's predictions."""
    return control if control == "claim-only" else f"test-{control}"


def _calibrate(config: RunConfig, at: Places, split: str = "calibration") -> Step:
    predictions = at.predictions(split)
    words = ["--predictions", predictions, "--out", at.calibrated, *as_words(config.calibrate)]
    stage = Stage("calibrate", _command("calibrate", *words), at.calibrated / "fitted_rows.json")
    return Step(stage, flat({"calibrate": config.calibrate}), (predictions,), (at.calibrated,))


def _report(config: RunConfig, at: Places) -> Step:
    test = at.predictions("test")
    files = {c: at.predictions(_file_of(c)) for c in config.controls}
    words = ["--predictions", test, "--calibration", at.calibrated, "--out", at.report]
    words += [word for c, file in files.items() for word in ("--control", f"{CONTROL_NAMES[c]}={file}")]
    stage = Stage("report", _command("report", *words, *as_words(config.report)), at.report / "metrics.json")
    settings = flat({"report": config.report}) | {"controls": list(config.controls)}
    needs = (test, at.calibrated / "calibration.json", at.calibrated / "thresholds.json", *files.values())
    return Step(stage, settings, needs, (at.report,))


def _export(config: RunConfig, at: Places) -> Step:
    words = ["--verifier", at.run() / "draft", "--calibration", at.calibrated, "--data", at.data]
    words += ["--report", at.report, "--predictions", at.predictions("test"), "--out", at.verifier]
    stage = Stage("export", _command("export", *words, *as_words(config.export)), at.verifier)
    needs = (at.run() / "draft" / "MANIFEST.sha256", at.calibrated / "calibration.json", at.report / "metrics.json")
    return Step(stage, flat({"export": config.export}), needs, (at.verifier,))


def _selftest(config: RunConfig, at: Places) -> Step:
    """Makes nothing, and so is done at every start: a verifier on disk is to be the function it was."""
    return Step(Stage("selftest", _command("selftest", at.verifier, *as_words(config.selftest)), None), {}, (), ())


def _command(*words: object) -> tuple[str, ...]:
    return (sys.executable, "-m", "proofreel.cli", *(str(word) for word in words))


def _entry(step: Step) -> dict[str, Any]:
    inputs = {str(path): sha256_of(path) for path in step.needs if path.is_file()}
    settings = json.loads(json.dumps(step.settings, default=str))
    return {"command": command_line(step.stage.command), "settings": settings, "inputs": inputs, "seconds": None}


def _place(steps: Sequence[Step], name: str) -> int:
    names = [_word(step.name) for step in steps]
    if _word(name) not in names:
        raise ConfigError(f"step: there is no such step, got {name!r}; use one of {names}")
    return names.index(_word(name))


def _word(name: str) -> str:
    return name.replace(" ", "-")


def _remove(steps: Sequence[Step], record: dict[str, Any], output: Path) -> None:
    """Remove what steps made, inside the run's own folder."""
    for step in steps:
        record["steps"].pop(step.name, None)
        for path in step.products:
            if not path.is_relative_to(output):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    write_record(output / RECORD, record)


def _write_yaml(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(json.loads(json.dumps(values)), sort_keys=False), encoding="utf-8")
