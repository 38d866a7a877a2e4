# Every command a developer needs. `make fit` and `make test` work in a fresh clone with nothing but
# Python 3.11 or newer and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: fit test lint types check fix catalogue bench clean

fit: $(READY)  ## set up and run the main job
	$(BIN)/kvplan fit llama-7b --gpu a100-80g --seq 32k

test: $(READY)  ## set up and run every test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto

check: test

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

fix: $(READY)  ## format, and mend what can be mended by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

catalogue: $(READY)  ## compile configs/ into the catalogue that ships
	$(BIN)/python -m kvplan.catalogue.compile

bench: $(READY)
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/check.py
	$(BIN)/python benchmarks/sweep.py

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	$(BIN)/python -m compileall -q src
	@touch $(READY)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
