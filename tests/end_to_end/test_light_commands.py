"""What needs no network loads none: the package, the help of every command, the entry scripts, a report."""

import dataclasses
import subprocess
import sys
from pathlib import Path

from conftest import ROOT

from proofreel.cli import COMMANDS
from proofreel.core.pairs import Passage, evidence_key
from proofreel.eval import calibrate
from proofreel.eval.scoring.predictions import Prediction, read_predictions, write_predictions


def output_of(code: str, *words: str) -> str:
    """What a fresh process prints; it must end with status 0."""
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_and_help_load_no_torch():
    code = "import sys, proofreel, proofreel.cli; proofreel.cli.main(['--help']); sys.exit('torch' in sys.modules)"
    assert "calibrate" in output_of(code)


def test_training_starts_without_notices_about_other_libraries():
    """trl imports bitsandbytes, before any module that loads a network is read."""
    code = "import sys, proofreel.train.recipe; sys.exit('bitsandbytes' not in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "gemm_4bit" not in done.stderr


def test_every_command_explains_itself_without_torch():
    commands = [
        "bench",
        "build",
        "predict",
        "calibrate",
        "cascade",
        "murgat",
        "report",
        "export",
        "selftest",
        "ask",
        "score",
        "serve",
        "omd",
        "multifact",
        *("mine", "init", "run", "rounds", "sft", "nli", "distill"),
    ]
    assert set(commands) <= set(COMMANDS)
    code = (
        "import sys, proofreel.cli\n"
        "for command in sys.argv[1:]:\n"
        "    try: proofreel.cli.main([command, '--help'])\n"
        "    except SystemExit as end: assert not end.code, command\n"
        "    assert 'torch' not in sys.modules, command"
    )
    assert output_of(code, *commands).count("usage") >= len(commands)


def test_help_of_evaluation_imports_nothing_heavy() -> None:
    code = (
        "import importlib, sys\n"
        "for program, light in (('report', {'numpy'}), ('calibrate', set())):  # choices of calibrate are NumPy's\n"
        "    try: importlib.import_module(f'proofreel.eval.{program}').main(['--help'])\n"
        "    except SystemExit: pass\n"
        "    heavy = ({'torch', 'matplotlib', 'sklearn', 'scipy', 'pyarrow'} | light) & set(sys.modules)\n"
        "    assert not heavy, (program, heavy)"
    )
    assert output_of(code).count("usage: proofreel") == 2


def test_an_entry_script_explains_itself():
    words = [sys.executable, str(ROOT / "data_prep/convert.py"), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--clips" in done.stdout


def test_a_report_needs_no_torch_and_leaves_matplotlib_as_it_was(tmp_path: Path) -> None:
    row = Prediction(
        pair_id="0",
        margin=0.0,
        p_supported=0.5,
        label="supported",
        split="calibration",
        group="v",
        role="",
        origin="annotated",
        modality="visual",
        claim="It is red.",
        evidence=evidence_key((Passage("It is."),)),
    )
    for split in ("calibration", "test"):
        rows = [
            dataclasses.replace(
                row,
                pair_id=f"{split}-{i}",
                split=split,
                group=f"{split}-v{i % 10}",
                margin=float(i % 7 - 3),
                label="supported" if i * 5 % 7 < 3 else "refuted",
            )
            for i in range(50)
        ]
        write_predictions(tmp_path / f"{split}.parquet", rows, {})
    given = ["--predictions", str(tmp_path / "calibration.parquet"), "--out", str(tmp_path / "fit")]
    assert calibrate.main(given) == 0
    code = (
        "import sys, matplotlib\n"
        "settings = lambda: [matplotlib.rcParams[k] for k in ('svg.fonttype', 'svg.hashsalt', 'text.color')]\n"
        "before = settings()\n"
        "from proofreel.eval.report import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "assert not {'torch', 'matplotlib.pyplot'} & set(sys.modules)\n"
        "assert before == settings()"
    )
    words = ["--predictions", tmp_path / "test.parquet", "--calibration", tmp_path / "fit", "--out", tmp_path / "out"]
    output_of(code, *map(str, words))
    assert read_predictions(tmp_path / "test.parquet")[1] == {}
