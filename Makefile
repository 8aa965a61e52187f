# `make demo` runs the main job and `make test` runs the tests.
# Each target first installs only what it needs (scripts/set-up).

VENV ?= .venv
BIN := $(VENV)/bin
# Most tests wait for other processes, so three times as many workers as cores are faster.
WORKERS ?= $(shell expr 3 \* $$(nproc))
PYTEST := $(BIN)/python -m pytest
# These tests measure real switches, so they run one after the other.
SERIAL_TESTS := tests/on_switches
NOT_SERIAL := --ignore tests/on_switches
export VENV
# Tests start hundreds of Python processes: let them cache their bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test fast test-long coverage check format bench screenshots wheel clean

help: ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## Install everything that the tests need
	@scripts/set-up test

demo: ## Plan a high-rise fire, run it in three modes and compare it with the prediction
	@scripts/set-up demo
	@$(BIN)/firedex plan builtin:high-rise
	@$(BIN)/firedex emulate builtin:high-rise --duration 20 --embedded-if-needed --out out/demo

test: setup ## Run the tests (about 20 minutes on two idle cores)
	$(PYTEST) -n $(WORKERS) --dist loadgroup -m "not long" --durations 15 $(NOT_SERIAL)
	$(PYTEST) -m "not long" --durations 15 $(SERIAL_TESTS)

fast: ## Run the quick tests (under two minutes)
	@scripts/set-up check
	$(PYTEST) -q -n $(WORKERS) --dist loadgroup -m "not long and not slow" $(NOT_SERIAL) \
		--ignore-glob '*_in_a_browser.py'

test-long: setup ## Run the statistical and endurance tests at full length
	$(PYTEST) -m long

coverage: setup ## Measure the branch coverage of the tests
	$(PYTEST) -q -n $(WORKERS) --dist loadgroup -m "not long" $(NOT_SERIAL) --cov --cov-report term

check: ## Run linters, type checks, import rules and wording checks; installs no Debian package
	@scripts/set-up check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python scripts/check_prose.py

format: ## Format the code
	@scripts/set-up check
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## Run every benchmark
	@$(BIN)/firedex bench --all

screenshots: setup ## Take screenshots of every dashboard page, light and dark
	@$(BIN)/python -m tests.support.take_screenshots

wheel: ## Build the wheel in dist/
	@scripts/set-up check
	$(BIN)/python -m build --wheel

clean: ## Remove the virtual environment and the caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage dist
