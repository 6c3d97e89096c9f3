# On a fresh machine `make demo` and `make test-all` do all the set-up themselves; nothing is needed but Python and make.

PYTHON ?= python3
# Passed to pip. For a small CPU-only PyTorch: make setup PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu"
PIP_FLAGS ?=
VENV := .venv
BIN := $(VENV)/bin
# Newer than pyproject.toml and constraints.txt = installed as they say.
STAMP := $(VENV)/.installed

.PHONY: help setup demo test test-all check format bench
.DEFAULT_GOAL := help

help:
	@echo "make setup     make .venv with exactly the versions in constraints.txt"
	@echo "make demo      train the embedded demo on two CPU cores and see it translate"
	@echo "make test      the quick tests"
	@echo "make test-all  all tests that need no GPU"
	@echo "make check     lint, format, types, who may import whom"
	@echo "make format    put the code into its format"
	@echo "make bench     training and decoding speed beside other programs, roughly, in minutes"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "xyd needs Python 3.10 or newer; make setup PYTHON=python3.x")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(STAMP) data/demo/demo.en
	$(BIN)/xyd train configs/demo.yaml
	$(BIN)/python scripts/show_demo.py

data/demo/demo.en: | $(STAMP)
	$(BIN)/python scripts/make_demo_corpus.py

test: $(STAMP)
	$(BIN)/python -m pytest -m "not slow and not cuda"

test-all: $(STAMP)
	$(BIN)/python -m pytest -m "not cuda"

check: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python scripts/bench_train.py --short
	$(BIN)/python scripts/bench_decode.py --short
