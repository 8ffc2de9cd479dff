"""docs/choosing.md says what the measured tables say: its tables, the numbers in its sentences, and its plots."""

import re

import pytest

from benchmarks import choosing

PAGE = choosing.PAGE.read_text(encoding="utf-8")


def test_its_tables_are_those_of_the_results():
    assert choosing.page_with_tables(PAGE) == PAGE, "run python -m benchmarks.choosing"


def test_every_decimal_number_of_its_sentences_stands_in_a_result():
    measured = "".join(path.read_text(encoding="utf-8") for path in choosing.RESULTS.glob("*.md"))
    sentences = re.sub(r"<!-- table: (\w+) -->.*?<!-- end: \1 -->", "", PAGE, flags=re.DOTALL)
    numbers = set(re.findall(r"\d+\.\d+", sentences))
    assert numbers
    assert numbers - set(re.findall(r"\d+\.\d+", measured)) == set()


@pytest.mark.parametrize(("plot", "source"), choosing.PLOTTED.items())
def test_its_plots_were_drawn_from_the_results_as_they_are(plot: str, source: str):
    assert choosing.data_hash(source) in (choosing.PLOTS / f"{plot}.svg").read_text(encoding="utf-8")
    assert f"plots/{plot}.svg" in PAGE
