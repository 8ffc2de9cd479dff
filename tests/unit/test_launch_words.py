"""Training commands: names that are read from source are those of the real parser; help and slips need no torch."""

import pytest
from trl import ModelConfig

from proofreel.core import ConfigError
from proofreel.models.engine import HEADS
from proofreel.models.inputs import POSITION_RULES
from proofreel.train import launch_words, nli, sft
from proofreel.train.arguments import _Parser, parse
from proofreel.train.distillation_loss import Distillation
from proofreel.train.launch_words import begin, check_words, help_of_all, known_names, own_help, with_config_apart
from proofreel.train.settings import DistillArguments, VerdictArguments


@pytest.mark.parametrize("distills", [False, True])
def test_the_names_are_those_of_the_real_parser(distills):
    from transformers import TrainingArguments

    kinds = [VerdictArguments, TrainingArguments, ModelConfig, *([DistillArguments] if distills else [])]
    real = {action.dest: action for action in _Parser(kinds)._actions if action.dest != "help"}
    names = known_names(distills)
    assert names == {f.removeprefix("no_") if f not in names else f for f in real}
    for action in real.values():
        check_words(action.option_strings, distills)


def test_what_help_says_of_choices_and_defaults_is_so():
    of_rule = VerdictArguments.__dataclass_fields__["position_rule"].metadata["help"]
    assert all(rule in of_rule for rule in POSITION_RULES)
    assert " ".join(HEADS) in DistillArguments.__dataclass_fields__["head"].metadata["help"]
    for name, value in vars(Distillation()).items():
        assert DistillArguments.__dataclass_fields__[name].default == value


def test_help_has_our_own_options_first_and_the_others_on_demand(capsys):
    own, everything = own_help("distill", "What it does."), help_of_all(True)
    for name in (*VerdictArguments.__dataclass_fields__, *DistillArguments.__dataclass_fields__):
        assert f"--{name} " in own
    assert "--learning_rate " not in own
    assert "--help-all" in own
    assert 0 < everything.index("--dataset_dir ") < everything.index("--lora_r ") < everything.index("--learning_rate ")
    assert sft.main(["--config", "nothing.yaml", "-h"]) == 0
    assert nli.main(["--help"]) == 0
    assert "proofreel nli" in capsys.readouterr().out


def test_words_that_are_no_options_are_one_sentence(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("dataset_dir: d\nmodel_name_or_path: m\n")
    with pytest.raises(ConfigError, match=r"got learning_rate=3; write --name value, as --learning_rate 3"):
        parse([f"--config={config}", "learning_rate=3"])
    with pytest.raises(ConfigError, match="--learning-rate: invalid float value"):
        parse(["--config", str(config), "--learning_rate", "fast"])
    with pytest.raises(ConfigError, match=r"an option of train/distill\.py, got --teacher"):
        check_words(["--teacher=x"], distills=False)
    with pytest.raises(ConfigError, match="names no file"):
        check_words(["--config"], distills=False)
    check_words(["--no_bf16", "--learning-rate", "1", "--lora_targ", "x"], distills=False)
    assert with_config_apart(["--config=a=b", "--x=y"]) == ["--config", "a=b", "--x=y"]


def test_without_trl_training_says_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setitem(launch_words.sys.modules, "trl", None)
    assert begin(["--config", "x.yaml"], "sft", None) == 1
    assert 'pip install "proofreel[train]"' in capsys.readouterr().err
    assert begin(["--help"], "sft", None) == 0
