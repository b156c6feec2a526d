# Everything happens in .venv, made on first use and again when its inputs change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INPUTS := pyproject.toml constraints.txt

# Tests are the same on every machine: without its GPUs, two at a time, one thread each.
PYTEST := CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 2 --dist worksteal

.PHONY: install quickstart test test-all test-gpu test-reliability lint wheel docs clean

quickstart: $(VENV)/.core
	$(BIN)/oneway quickstart

install: $(VENV)/.all

# What the product needs. Python compiles what it imports when it does; pip would compile twice as much beforehand.
$(VENV)/.core: $(INPUTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

# With what some verbs need: ONNX, the page of `explore`, videos, MATLAB files.
$(VENV)/.all: $(VENV)/.core
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[all]'
	touch $@

# What its tests need on top of it.
$(VENV)/.test: $(VENV)/.core
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

lint: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --num-workers 2

test: lint
	$(PYTEST) -m 'not slow'

# The slow proofs too.
test-all: lint
	$(PYTEST)

# Kernels, accelerated steps and replay, which the others test in Triton's interpreter, on a GPU.
test-gpu: $(VENV)/.test
	$(BIN)/pytest tests/test_kernels*.py tests/test_accelerated.py tests/test_replay.py tests/test_seed.py

# What must not break, at full size, ending in a table: what was tried, and what survived it.
test-reliability: $(VENV)/.test
	$(PYTEST) tests/reliability

# Packages to install elsewhere: dist/oneway-VERSION-py3-none-any.whl, and the sources.
wheel:
	$(PYTHON) -m venv build/packaging
	build/packaging/bin/pip install --quiet --constraint constraints.txt build hatchling
	build/packaging/bin/python -m build --no-isolation --outdir dist .

# The documentation site: build/site/index.html. A warning is an error.
docs: $(VENV)/.core
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
