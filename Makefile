# Every target sets itself up: a virtual environment in .venv with the versions of constraints.txt.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: help demo demo-lei demo-ibt test test-gpu check bench bench-gpu chaos format clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | sort

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: demo-lei demo-ibt  ## both halves: advice against bias, deletion against unfaithful answers (5 minutes, no download)

demo-lei: $(STAMP)  ## a tiny model learns to read, shows its bias, learns to follow advice
	$(BIN)/interventune reproduce demo_lei

demo-ibt: $(STAMP)  ## a tiny model learns to read, answers without evidence, learns to say unknown
	$(BIN)/interventune reproduce demo_ibt

test: $(STAMP)  ## all tests (no network, CPU)
	CUDA_VISIBLE_DEVICES= PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} \
		$(BIN)/python -m pytest -n logical --dist worksteal  # to compile all of it is a tenth of the time

test-gpu: $(STAMP)  ## the tests that need a GPU
	CUBLAS_WORKSPACE_CONFIG=:4096:8 $(BIN)/python -m pytest -m gpu

check: $(STAMP)  ## formatting, lint, types, import direction
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)  ## how fast, against Hugging Face's Trainer and lm-evaluation-harness, in turns
	$(BIN)/python -m benchmarks

GPU := --size=gpu --json=reports/gpu/figures.jsonl

bench-gpu: $(STAMP)  ## tests and measurements on a GPU, each with a limit of seconds; figures in reports/gpu
	mkdir -p reports/gpu
	for step in 'pytest -m gpu' 'interventune.evaluation reproduce demo_ibt' 'interventune.evaluation reproduce demo_lei' \
		'benchmarks training $(GPU)' 'benchmarks decoder $(GPU)' 'benchmarks callbacks $(GPU)' \
		'benchmarks likelihoods $(GPU)'; do \
		timeout 400 $(BIN)/python -m $$step 2>&1 | tee -a reports/gpu/log.txt; \
	done

chaos: $(STAMP)  ## kills at random moments, full and read-only disks: what is lost?
	$(BIN)/python -m pytest -m chaos

format: $(STAMP)  ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the environment and all caches (not runs/)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache *.egg-info
