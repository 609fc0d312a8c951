# `make demo` shows what kofn does, `make check` is for every edit, `make test` is everything except the slow statistical tests (`make test-slow`).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.installed-demo
SERVE := $(VENV)/.installed-serve
INSTALLED := $(VENV)/.installed-dev
OLDEST := .venv-oldest
EVERYWHERE := not browser and not postgres and not cluster and not process and not slow
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
# Tests wait for servers, a browser and other processes some of the time, so there is one worker more than cores. On two
# cores, three take less time than two (a core idles) and than four (they compete for caches).
WORKERS ?= $(shell expr 1 + $$(getconf _NPROCESSORS_ONLN))
# Tests start Python some hundred times: compiled modules are kept, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo serve check test types quick-tests all-tests test-slow test-oldest test-sdist benchmark results docs clean

help:  ## the commands of this file
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | expand -t 16

demo: $(DEMO)  ## the paper's main figure and a table
	$(BIN)/kofn paper max-12 --out out

serve: $(SERVE)  ## the service and its dashboard, with demo campaigns that fill themselves
	$(BIN)/kofn serve --demo

check: $(INSTALLED)  ## for every edit: ruff, mypy --strict, and the tests that need no other programs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --jobs=2 types quick-tests

test: $(INSTALLED)  ## everything except the slow statistical tests (make test-slow); a missing program is an error
	PYTHON=$(BIN)/python scripts/install-test-system.sh
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --jobs=2 types all-tests

# mypy uses one core, and tests wait for other processes some of the time: side by side, they take less time.
types: $(INSTALLED)
	$(BIN)/mypy

quick-tests: $(INSTALLED)
	$(BIN)/pytest -n auto --dist worksteal -m "$(EVERYWHERE)"

all-tests: $(INSTALLED)
	KOFN_REQUIRE_ALL=1 $(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not slow"

test-slow: $(INSTALLED)  ## the slow statistical tests
	$(BIN)/pytest -n auto -m slow

test-oldest:  ## the core tests with the oldest versions that pyproject.toml allows, on Python 3.11
	python3.11 -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet --disable-pip-version-check --constraint constraints-oldest.txt --editable ".[all,test]"
	$(OLDEST)/bin/pytest -n auto -m "$(EVERYWHERE)"

test-sdist: $(INSTALLED)  ## build the sdist, unpack it, install it into a new environment and run its tests there
	rm -rf build/sdist
	$(BIN)/python -m build --sdist --outdir build/sdist
	tar -C build/sdist -xzf build/sdist/kofn-*.tar.gz
	cd build/sdist/kofn-*/ && $(PYTHON) -m venv .venv && $(PIP) --constraint constraints.txt --editable ".[all,test]"
	cd build/sdist/kofn-*/ && $(BIN)/pytest -p no:cacheprovider -n auto -m "$(EVERYWHERE)"

benchmark: $(INSTALLED)  ## speed, as ratios within one run
	$(BIN)/python -m benchmarks.speed

results: $(INSTALLED)  ## compute the results that are stale, or one with NAME=leaderboard; an interrupted one resumes
	$(BIN)/kofn lab results --run $(NAME)

docs: $(INSTALLED)  ## regenerate the pages that are made from code, and build the site into build/site; warnings are errors
	$(BIN)/python -m tools.generate_docs
	$(BIN)/python tools/build_site.py

clean:  ## remove the virtual environments and everything generated
	rm -rf $(VENV) $(OLDEST) out build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(DEMO): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --constraint constraints.txt --editable ".[plots]"
	@touch $@

$(SERVE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --constraint constraints.txt --editable ".[serve]"
	@touch $@

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --constraint constraints.txt --editable ".[dev]"
	@touch $@ $(DEMO) $(SERVE)
