# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help demo serve test test-slow benchmark docs clean

help:  ## the commands of this file
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 16

demo: $(INSTALLED)  ## the paper's main figure and a table, in under a minute
	$(BIN)/kofn paper max-12 --out out

serve: $(INSTALLED)  ## the service and its dashboard, with campaigns that fill themselves
	$(BIN)/kofn serve --demo

test: $(INSTALLED)  ## ruff, mypy --strict and all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto -m "not slow"

test-slow: $(INSTALLED)  ## the longer statistical tests
	$(BIN)/pytest -n auto -m slow

benchmark: $(INSTALLED)  ## speed and memory, as ratios within one run
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/campaign.py
	$(BIN)/python benchmarks/service.py

docs: $(INSTALLED)  ## regenerate the pages that are made: the CLI reference, the policies, the errors
	$(BIN)/python -m tools.generate_docs
	$(BIN)/python -m tests.bad_input > docs/reference/errors.md

clean:  ## remove the virtual environment and everything generated
	rm -rf $(VENV) out build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@
