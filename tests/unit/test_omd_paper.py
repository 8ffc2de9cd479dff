"""OMD-Bench's tables 8 and 9 out of its other tables: four settings (zero-shot and chain of thought, two splits)."""

import numpy as np
import pytest

from proofreel.eval.conflicts.formulas import HUMAN_ABSTENTION, abstention_calibration_error

SETTINGS = ("synthetic", "real", "synthetic", "real")  # the first two zero-shot, the others with a chain of thought
LEVEL_SHARES = np.array([1, 3, 3, 1]) / 8  # instances at k = 0..3

# Table 1: accuracy (%) at k = 0..3, setting by setting.
TABLE_1 = """
Gemini 2.5    96.5 91.0 70.5 60.0 96.8 91.2 69.3 59.4 97.2 94.8 73.8 58.3 97.2 93.4 71.4 53.2
Qwen3o-Think  93.7 86.7 68.1 61.4 92.2 88.0 68.9 60.0 91.8 88.6 64.5 69.0 92.9 85.1 66.3 71.8
VideoLLaMA2   91.0 83.8 68.2 16.1 90.2 82.9 66.1 14.1 91.2 85.4 70.0 14.2 93.4 84.2 67.2 13.2
Qwen3o-Inst   91.0 83.9 63.8 65.1 88.2 81.2 63.9 66.7 95.3 88.7 67.9 57.1 92.2 87.5 67.5 57.1
GPT-4o-mini   89.4 80.9 61.2 70.6 86.7 79.7 60.3 65.1 93.7 90.4 76.3 44.3 96.1 91.1 75.6 38.0
Uni-MoE-2     88.6 78.2 63.4 43.5 87.8 79.0 61.3 39.2 87.9 75.9 57.2 50.7 84.3 75.4 56.7 53.1
VITA-1.5      87.1 77.3 56.6 44.3 87.1 74.7 53.5 45.5 87.4 78.4 57.9 45.0 87.4 76.9 57.3 42.7
Phi-4         85.5 76.1 57.1 19.6 86.7 74.8 56.2 17.3 86.0 74.2 59.6 25.2 86.3 75.7 59.0 21.7
"""
# Table 2: abstention (%) at k = 0..3, likewise; table 8: abstention calibration error (%), one for each setting.
TABLE_2 = """
Gemini 2.5    1.2 5.5 20.0 59.6 1.2 4.6 18.8 58.5 2.0 2.9 17.5 56.2 0.4 3.4 18.2 51.9
Qwen3o-Think  2.0 6.1 22.6 61.0 3.5 5.9 19.0 58.8 2.4 6.8 28.4 69.0 3.1 10.2 26.7 71.4
Qwen3o-Inst   3.9 10.5 28.5 63.9 7.8 13.2 26.8 66.3 2.4 6.9 22.4 57.5 3.9 7.1 22.6 56.7
GPT-4o-mini   5.9 14.5 31.4 70.2 8.2 14.5 30.8 65.1 2.7 3.7 12.8 42.0 0.8 3.5 11.0 37.3
Gemini 2.0    7.5 18.2 43.8 81.4 7.3 19.0 43.1 80.9 3.2 5.4 24.2 50.8 3.6 6.2 25.3 58.4
Uni-MoE-2     4.3 9.8 19.5 42.7 4.7 9.3 16.3 38.4 5.4 12.7 26.6 49.8 6.6 14.3 25.6 51.9
VideoLLaMA2   0.4 2.5 5.0 14.9 1.2 2.0 5.2 13.7 0.9 2.2 4.7 12.7 0.4 2.4 4.6 12.7
MiniCPM       8.2 16.1 32.9 63.1 7.5 16.1 32.5 60.0 3.5 6.5 17.8 39.6 2.7 6.7 16.5 32.2
Phi-4         2.4 4.6 10.1 18.4 1.6 4.8 9.4 17.6 3.3 6.1 11.4 23.2 3.6 5.9 11.8 22.5
VITA-1.5      5.1 12.0 25.9 44.3 4.3 13.9 26.9 45.1 5.1 10.2 23.7 44.6 5.5 11.8 23.4 42.7
"""
TABLE_8 = """
Gemini 2.5    15.8 15.7 15.6 16.6
Qwen3o-Think  16.5 16.5 16.3 16.3
Qwen3o-Inst   18.9 19.5 17.7 18.4
GPT-4o-mini   19.5 21.3 18.4 18.7
Gemini 2.0    21.1 21.5 19.5 18.6
Uni-MoE-2     21.8 22.1 22.9 22.8
VideoLLaMA2   22.4 22.8 22.8 22.8
MiniCPM       22.6 23.2 21.2 22.6
Phi-4         23.8 23.7 23.5 23.8
VITA-1.5      23.8 24.2 22.7 23.7
"""
# Table 3: mean confidence (%) at k = 0..3, setting by setting; table 9: ECE and RC-AUC (%), likewise.
TABLE_3 = """
Gemini 2.5    99.7 99.3 98.5 96.9 99.8 99.3 98.5 98.1 99.8 99.6 99.0 98.3 99.5 99.5 99.2 98.8
GPT-4o-mini   99.1 97.6 96.1 95.8 98.8 97.5 96.3 95.9 99.9 99.7 99.5 99.2 99.6 99.7 99.7 99.0
VITA-1.5      93.1 88.1 81.0 75.5 92.1 86.4 80.0 72.2 84.5 78.8 72.3 63.8 79.1 75.0 68.1 60.7
Qwen3o-Think  99.0 98.0 96.2 93.6 98.6 98.2 95.2 93.1 100.0 100.0 100.0 100.0 100.0 100.0 100.0 100.0
Qwen3o-Inst   94.9 91.2 86.8 80.5 95.3 92.1 86.3 80.6 100.0 100.0 100.0 100.0 100.0 100.0 100.0 100.0
VideoLLaMA2   93.2 89.9 83.1 72.8 94.0 89.9 83.2 70.9 99.9 99.9 99.7 99.1 100.0 99.8 99.6 99.3
Uni-MoE-2     91.8 86.0 79.0 68.1 92.2 86.6 78.4 70.4 97.2 91.6 88.6 89.9 93.9 92.7 85.1 79.4
Phi-4         91.7 86.9 80.2 72.4 91.9 87.5 80.9 72.3 100.0 99.7 99.7 99.8 99.8 99.8 99.8 99.9
"""
TABLE_9 = """
Qwen3o-Inst   13.9 8.5 15.1 8.8 22.2 21.0 23.3 19.0
Uni-MoE-2     12.3 11.0 13.7 11.1 29.3 36.3 20.3 27.2
Qwen3o-Think  19.5 6.7 19.1 6.6 20.4 20.9 23.4 19.2
Phi-4         20.1 15.1 21.6 15.6 34.6 23.8 37.0 23.8
VideoLLaMA2   15.2 10.0 16.6 11.1 18.4 7.4 27.3 13.2
VITA-1.5      17.9 13.8 18.2 15.0 8.9 16.6 6.7 17.4
Gemini 2.5    17.9 11.5 18.3 12.2 16.4 10.4 18.3 10.4
GPT-4o-mini   23.7 8.3 25.5 9.6 19.9 9.8 20.4 9.4
"""


def table(text: str) -> dict[str, np.ndarray]:
    """Model to its numbers, shape (settings, columns)."""
    rows = [line.rsplit(maxsplit=16 if len(line.split()) > 15 else 8) for line in text.strip().splitlines()]
    if len(text.strip().splitlines()[0].split()) < 8:
        rows = [line.rsplit(maxsplit=4) for line in text.strip().splitlines()]
    return {name.strip(): np.array(cells, dtype=float).reshape(4, -1) for name, *cells in rows}


def pooled(levels: np.ndarray) -> np.ndarray:
    """Means over all instances, shape (settings,)."""
    return levels @ LEVEL_SHARES


def test_table_8_comes_out_of_the_abstention_rates_of_table_2_in_38_of_40_cells():
    rates, printed, off = table(TABLE_2), table(TABLE_8), {}
    people = {"synthetic": np.array([0.0, 0.0, 1.2, 97.6]), "real": np.array([0.0, 0.0, 1.8, 98.4])}
    assert set(rates) == set(printed)
    for model, by_setting in rates.items():
        for i, (split, observed) in enumerate(zip(SETTINGS, by_setting, strict=True)):
            error = 100 * abstention_calibration_error(observed / 100, people[split] / 100)
            exact = 100 * abstention_calibration_error(observed / 100, HUMAN_ABSTENTION[split])
            assert error == pytest.approx(exact, abs=0.03)  # the printed rates of people are rounded
            if abs(error - printed[model][i, 0]) > 0.1 + 1e-9:
                off[model, i] = error - printed[model][i, 0]
    # The two cells of Gemini 2.0 on the real split: its rates there give 21.3 and 18.3.
    assert set(off) == {("Gemini 2.0", 1), ("Gemini 2.0", 3)}
    assert all(0.2 < abs(difference) < 0.3 for difference in off.values())


def test_ece_of_table_9_is_the_gap_of_tables_1_and_3_wherever_every_bin_is_overconfident():
    # ECE is at least |mean confidence - mean accuracy|, and equals it where all bins err on one side.
    accuracy, confidence, printed = table(TABLE_1), table(TABLE_3), table(TABLE_9)
    gaps = {model: np.abs(pooled(confidence[model]) - pooled(accuracy[model])) for model in printed}
    beyond = {model: printed[model][:, 0] - gaps[model] for model in printed}
    assert sum(int(np.sum(np.abs(each) <= 0.15)) for each in beyond.values()) == 17
    assert max(np.abs(beyond[model][:2]).max() for model in ("Qwen3o-Inst", "Uni-MoE-2", "Phi-4", "VideoLLaMA2")) < 0.15
    assert np.abs(beyond["GPT-4o-mini"]).max() < 0.1
    assert np.abs(beyond["Qwen3o-Inst"]).max() < 0.15
    # Nine cells print less than the gap, which no set of bins can give of the same instances.
    less = {(model, i) for model, each in beyond.items() for i in range(4) if each[i] < -0.15}
    assert less == {
        *(("Gemini 2.5", i) for i in range(4)),
        ("Qwen3o-Think", 2),
        ("Uni-MoE-2", 3),
        ("Phi-4", 2),
        ("VideoLLaMA2", 2),
        ("VideoLLaMA2", 3),
    }


def test_rc_auc_of_table_9_lies_between_the_best_and_the_worst_ranking_of_table_1s_errors():
    # The area is least with all errors last, e + (1 - e) ln(1 - e), and that of chance is the error rate e itself.
    accuracy, printed, worse_than_chance = table(TABLE_1), table(TABLE_9), set()
    for model in printed:
        error = 1 - pooled(accuracy[model]) / 100
        best = error + (1 - error) * np.log(1 - error)
        area = printed[model][:, 1] / 100
        assert np.all(area > best), model
        worse_than_chance |= {(model, i) for i in range(4) if area[i] > error[i]}
    assert worse_than_chance == {("Uni-MoE-2", 2)}


@pytest.mark.parametrize("text", [TABLE_1, TABLE_2, TABLE_3])
def test_the_tables_above_were_copied_whole(text):
    rows = table(text)
    assert {each.shape for each in rows.values()} == {(4, 4)}
