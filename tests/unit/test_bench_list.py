"""`make bench`: every line of its list is a program that takes its words and writes a page of its own."""

import pytest

from benchmarks import bench


@pytest.mark.parametrize("name", bench.BENCHES)
def test_a_benchmark_is_a_program_that_takes_its_words(name):
    source = (bench.ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
    assert bench.about(source)
    assert "    python" not in bench.about(source)
    assert bench.BENCHES[name].prints or '"--out"' in source
    assert all(f'"{word}"' in source for word in bench.BENCHES[name].words if word.startswith("--"))


def test_no_two_write_the_same_page():
    pages = [line.page for line in bench.BENCHES.values()]
    assert len(set(pages)) == len(pages)
