# Two commands: `make demo` runs the main job, `make test` the tests. Each makes .venv first.
#
# PYTHON       the interpreter to build the environment from (3.11 or newer)
# TORCH_INDEX  an index of CPU builds of torch, for machines without a GPU where the default index brings CUDA
# TIMM         the folder of timm's environment; one that is there already, elsewhere too, is only brought up to date
PYTHON ?= python3
TORCH_INDEX ?=
TIMM ?= .venv-timm
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all test-timm fuzz lint types wheel docs clean help

help:
	@echo "make demo      the main job on embedded data: both shapes on digits, then a network for a table (two minutes)"
	@echo "make test      the tests that take minutes        make test-all   all of them"
	@echo "make test-timm timm's side, in an environment of its own (about 6 GB)"
	@echo "make fuzz      attacks: mutated configs, damaged files, command lines, kills (twenty minutes on two cores)"
	@echo "make lint      ruff and mypy                      make wheel      build it and try it elsewhere"
	@echo "make docs      the documentation site, in docs/_build"

demo: $(VENV)/.installed
	$(BIN)/isthmus demo

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -m "not slow" -n auto --dist worksteal

test-all: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -q -n auto --dist worksteal

test-timm: $(TIMM)/.installed
	$(TIMM)/bin/python -m pytest -q tests/timm

# FUZZ: options, such as FUZZ='--seed 3', or FUZZ='--only config:1234' for one case again.
fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m tests.fuzz $(FUZZ)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

wheel: $(VENV)/.installed-dev
	sh tools/try-wheel.sh $(BIN)/python

docs: $(VENV)/.installed-dev
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs docs/_build

$(VENV)/.installed: pyproject.toml constraints.txt tools/make-venv.sh
	PYTHON="$(PYTHON)" TORCH_INDEX="$(TORCH_INDEX)" sh tools/make-venv.sh $(VENV) '.[studio]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	PYTHON="$(PYTHON)" TORCH_INDEX="$(TORCH_INDEX)" sh tools/make-venv.sh $(VENV) '.[dev]'
	@touch $@

$(TIMM)/.installed: pyproject.toml constraints.txt tools/make-timm-venv.sh
	PYTHON="$(PYTHON)" sh tools/make-timm-venv.sh $(TIMM)
	@touch $@

clean:
	rm -rf $(VENV) .venv-timm build dist docs/_build docs/generated *.egg-info
