# Every command a developer needs. `make fit` and `make test` work in a fresh clone with nothing but
# Python 3.11 or newer and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: fit test lint types check fix catalogue bench gguf-files clean

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

gguf-files: $(READY)  ## fetch the real GGUF files that tests/golden/test_gguf_real_files.py reads
	@test -d .cache/gguf || { rm -rf .cache/llama && \
	$(BIN)/pip download -q --no-deps --no-binary :all: -d .cache/llama llama-cpp-python==0.3.36 && \
	mkdir -p .cache/llama/files && \
	tar xzf .cache/llama/*.tar.gz -C .cache/llama/files --wildcards --strip-components 4 '*/models/ggml-vocab-*.gguf' && \
	mv .cache/llama/files .cache/gguf; rm -rf .cache/llama; }

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	$(BIN)/python -m compileall -q src
	@touch $(READY)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
