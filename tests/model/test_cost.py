"""What a run costs: operations as they are counted elsewhere, hours and money by hand."""

import pytest
from transformers import IntervalStrategy

from proofreel.models.backbones import lora_parameters, published_config, training_operations, vision_operations_of
from proofreel.train.cost import PEAK_TFLOPS, UTILISATION, Cost, Recipe, RowSize, cost_of, n_evaluations

VIDEO, TEXT = "Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"
ROWS = [RowSize(((8, 16, 16),), 560, (20, 24)), RowSize(((32, 32, 32), (1, 8, 8)), 8300, (12,))]


@pytest.fixture(scope="module")
def config():
    return published_config(VIDEO)


def recipe(config, **changes) -> Recipe:
    adapters = lora_parameters(config, 16)
    return Recipe(**{**vars(Recipe(config, adapters, True, False, False)), **changes})


def test_lora_over_a_frozen_tower_costs_what_training_operations_count(config):
    cost = cost_of(ROWS, [], 3.0, 0, recipe(config))
    expected = sum(training_operations(config, r.grids, r.prefix, r.claims, 16).total for r in ROWS)
    # which counts a few operations of the output layer more: its two rows run once, and back once
    assert cost.total == pytest.approx(3 * expected, rel=1e-6)
    assert cost.evaluation == 0


def test_what_is_left_out_costs_less_and_what_is_trained_more(config):
    usual = cost_of(ROWS, [], 2.0, 0, recipe(config))
    cached = cost_of(ROWS, [], 2.0, 0, recipe(config, vision_cache=True))
    assert cached.vision == sum(vision_operations_of(config, row.grids).total for row in ROWS) == usual.vision / 2
    kept = cost_of(ROWS, [], 2.0, 0, recipe(config, checkpointed=False))
    full = cost_of(ROWS, [], 2.0, 0, recipe(config, adapters=None))
    assert kept.training < usual.training < full.training
    assert full.training / kept.training == pytest.approx(2, rel=0.1)  # about 4 forward passes to 2
    tower = cost_of(ROWS, [], 2.0, 0, recipe(config, trains_tower=True, vision_cache=True))
    assert tower.vision == 4 * usual.vision
    checked = cost_of(ROWS, ROWS, 2.0, 10, recipe(config))
    assert checked.evaluation + checked.vision - usual.vision == pytest.approx(10 * 3 * usual.scoring)  # three claims


def test_a_text_backbone_has_no_tower():
    cost = cost_of([RowSize((), 100, (10,))], [], 1.0, 0, recipe(published_config(TEXT)))
    assert cost.vision == 0
    assert cost.training > 0


def test_hours_and_money_are_those_of_the_data_sheet_at_the_stated_utilisation():
    cost = Cost(9e18, 1e18, 0.0, 1e12)
    hours = 1e19 / (312e12 * UTILISATION * 4) / 3600
    lines = cost.lines("a100", 2.0, 4)
    assert f"about {hours:.1f} hours on 4 a100, {hours * 8:.2f} at 2 per card and hour" in lines[0]
    assert "training 90%, evaluations 10%" in lines[0]
    assert "estimate" in lines[2]
    assert "measured" in lines[2]
    assert "per card" not in cost.lines("h100", None, 1)[0]
    assert all(float(cost.lines(card, None, 1)[2].split(" of ")[1].split()[0]) for card in PEAK_TFLOPS)


@pytest.mark.parametrize(
    ("given", "n"),
    [
        (("no", 10, 100, 1), 0),
        (("epoch", None, 100, 2.5), 3),
        ((IntervalStrategy.EPOCH, None, 100, 2.5), 3),  # as TrainingArguments holds it
        (("steps", 0.1, 57, 1), 10),
        (("steps", 20, 57, 1), 2),
    ],
)
def test_evaluations_are_counted_as_the_trainer_makes_them(given, n):
    assert n_evaluations(*given) == n
